//! How often a freed block is looked at, and that few looks learn what many would.

use std::alloc::Layout;

use super::model::Model;
use super::ops::finish;
use super::{fake, fake_in_short};
use crate::config::Config;
use crate::heap::Span;
use crate::os::CHUNK;
use crate::os::fake::{Call, Fake};
use crate::zeroing::Kind;

const MIB: usize = 1 << 20;

/// Takes a block, touches `part` of it and frees it. Gives whether it was one of small pages, and how often the kernel
/// was asked what is resident when it was freed.
fn pass(model: &Model<Fake>, size: usize, zeroed: bool, part: Span) -> (bool, usize) {
    let (layout, config) = (Layout::from_size_align(size, 8).unwrap(), Config::new());
    let p = match zeroed {
        true => model.cache.allocate_zeroed(layout, &config, |_| ()),
        false => model.cache.allocate(layout, &config, |_| ()),
    };
    assert!(!p.is_null());
    model.os().touch(p.addr() + part.start, part.len);
    let looks = model.os().calls(Call::Resident);
    let is_thin = model.cache.is_thin(Span::new(p.addr(), size));
    model.cache.deallocate(p, layout);
    (is_thin, model.os().calls(Call::Resident) - looks)
}

#[test]
fn a_dozen_looks_tell_where_a_half_used_block_was_touched_no_more() {
    let model = Model::new(fake(4 << 30), 256 * MIB, Config::new());
    let (_, looks) = pass(&model, 64 * MIB, false, Span::new(0, 32 * MIB));
    assert!(looks <= 13, "{looks}");
    let reach = reach_of_the_first(&model, 64 * MIB, false);
    assert!((32 * MIB..=34 * MIB).contains(&reach), "{} KiB", reach >> 10);
    finish(&model, Vec::new(), true);
}

/// The last granule of such a block shares a huge page with what lies behind, which was resident: all of the block was taken to have been
/// so, nothing was learned from any after the first, and each was looked at in five calls.
#[test]
fn a_block_that_is_used_as_the_one_before_is_looked_at_once_and_one_that_is_used_further_teaches_that() {
    let model = Model::new(fake(4 << 30), 256 * MIB, Config::new());
    let (size, kind) = (8 * MIB, Kind::of(8 * MIB + 4096));
    let reach = || model.cache.zeroing.reach(kind, size, false);
    pass(&model, size, false, Span::new(0, 3 * MIB));
    assert!((3 * MIB..=5 * MIB).contains(&reach()), "{} KiB", reach() >> 10);
    for _ in 0..4 {
        let (_, looks) = pass(&model, size, false, Span::new(0, 3 * MIB));
        assert_eq!(looks, 1);
    }
    pass(&model, size, false, Span::new(0, size));
    assert!(reach() > 7 * MIB, "{} KiB", reach() >> 10);
    finish(&model, Vec::new(), true);
}

/// One vector of which a quarter was used taught all that are as long that their last granule stays untouched: each began with a huge
/// page, and what lay between them was half as much again.
#[test]
fn vectors_that_are_full_lie_packed_beside_one_that_is_used_a_quarter() {
    for size in [4, 6, 8] {
        let model = Model::new(fake_in_short(8 << 30, 0), 2 << 30, Config::new());
        let config = Config::new();
        let take = |touched: usize| {
            let layout = Layout::from_size_align(size * MIB, 8).unwrap();
            let p = model.cache.allocate(layout, &config, |_| ());
            model.os().sow(p.addr(), touched, 1);
            (p, layout)
        };
        let mut high = Vec::new();
        for _ in 0..6 {
            let mut blocks: Vec<_> = (0..40).map(|_| take(size * MIB)).collect();
            blocks.push(take(size * MIB / 4));
            high.push(model.os().resident_bytes() / MIB);
            blocks.into_iter().for_each(|(p, layout)| model.cache.deallocate(p, layout));
        }
        assert!(high.iter().all(|&mib| mib <= 41 * size + 4), "{size} MiB: {high:?}");
        finish(&model, Vec::new(), true);
    }
}

/// Vectors with more room than content that is given up at once: with their ends booked as resident each took up what the others had
/// left, until eight times what was ever touched was resident.
#[test]
fn the_end_that_a_vector_gives_up_untouched_is_not_taken_for_resident() {
    let model = Model::new(fake(8 << 30), 4 << 30, Config::new());
    let layout = |size| Layout::from_size_align(size, 8).unwrap();
    let (room, content) = (layout(256 * MIB), layout(32 * MIB));
    for round in 0..12 {
        let missed = model.cache.snapshot().misses;
        let kept = [0; 2].map(|_| {
            let p = model.cache.allocate(room, &Config::new(), |_| ());
            model.os().touch(p.addr(), content.size());
            let now = model.cache.reallocate(p, room, content);
            assert_eq!(now, p);
            now
        });
        let resident = model.os().resident_bytes();
        assert!(resident <= 2 * content.size() + 24 * MIB, "round {round}: {} MiB", resident >> 20);
        assert!(round < 4 || model.cache.snapshot().misses <= missed + 2, "round {round}");
        kept.into_iter().for_each(|p| model.cache.deallocate(p, content));
    }
    finish(&model, Vec::new(), true);
}

/// How far the first block of `len` bytes in use is expected to be touched.
fn reach_of_the_first(model: &Model<Fake>, len: usize, zeroed: bool) -> usize {
    let kind = model.cache.zeroing.enter(len);
    let reach = model.cache.zeroing.reach(kind, len, zeroed);
    model.cache.zeroing.leave(kind);
    reach
}

/// What a trace, its extension and what is between them are: `(length, touched)`. Of the first the end stays untouched.
const EXTENSION: [(usize, usize); 3] =
    [(328 * MIB, 164 * MIB), (328 * MIB, 328 * MIB), (328 * MIB, 328 * MIB)];

/// Passes rounds of that, with those `zeroed`; `pinned` blocks stay behind the first one. Gives what was resident at the
/// highest, in MiB, and sees that no more zeros are written than are wanted.
fn extend(zeroed: [bool; 3], pinned: usize, half: usize) -> usize {
    let model = Model::new(fake_in_short(8 << 30, 0), 4 << 30, Config::new());
    let layout = |size| Layout::from_size_align(size, 8).unwrap();
    let config = Config::new();
    let (mut high, mut pins) = (0, Vec::new());
    let mut take = |(size, touched): (usize, usize), zeroed: bool| {
        let p = match zeroed {
            true => model.cache.allocate_zeroed(layout(size), &config, |_| ()),
            false => model.cache.allocate(layout(size), &config, |_| ()),
        };
        model.os().sow(p.addr(), touched, 1);
        high = high.max(model.os().resident_bytes());
        (p, layout(size))
    };
    for round in 0..12 {
        let written = model.cache.snapshot().zeroed_here;
        // What is shorter lies elsewhere each round, in the way of what is longer.
        let short = [3, 16].map(|size| take((size * MIB, size * MIB), false));
        let first = take((EXTENSION[0].0, half * MIB), zeroed[0]);
        model.cache.deallocate(short[1].0, short[1].1);
        let [second, third] = [1, 2].map(|nth| take(EXTENSION[nth], zeroed[nth]));
        // The fake kernel's short form does not call resident what zeros alone are written to.
        let touched = [half * MIB, EXTENSION[1].1, EXTENSION[2].1];
        let wanted: usize = (0..3).filter(|&nth| zeroed[nth]).map(|nth| touched[nth] + 8 * MIB).sum();
        assert!(model.cache.snapshot().zeroed_here - written <= wanted as u64, "round {round}");
        if pins.len() < pinned {
            pins.push(take((5 * MIB, 5 * MIB), false));
        }
        for (p, layout) in [third, first, second, short[0]] {
            model.cache.deallocate(p, layout);
        }
        let reach = reach_of_the_first(&model, 328 * MIB, zeroed[0]);
        assert!((half * MIB..=(half + 8) * MIB).contains(&reach), "round {round}: {} MiB", reach >> 20);
    }
    for (p, layout) in pins {
        model.cache.deallocate(p, layout);
    }
    finish(&model, Vec::new(), true);
    high / MIB
}

#[test]
fn a_half_used_block_beside_full_ones_stays_half_resident() {
    // A little more than half was put where all of it was resident, if all else was a little less.
    for half in [164, 166, 180] {
        // What is touched at once, and some huge pages at the ends.
        let touched = 3 + 16 + half + 328 + 328;
        for zeroed in [[false, true, true], [true; 3], [false; 3]] {
            let high = extend(zeroed, 0, half);
            assert!(high <= touched + 12, "{half}, {zeroed:?}: {high} MiB");
            // Nor where its untouched end would have to lie upon what is there.
            let high = extend(zeroed, 1, half);
            assert!(high <= touched + 5 + 12, "{half}, {zeroed:?}, pinned: {high} MiB");
        }
    }
}

/// A block of a power of two is a granule longer, for its colour. That lay in the huge page that the next one would have begun with, so each
/// second one lay elsewhere; and one of 384 that lay behind each other was taken for full, and the next ones were gathered to their ends.
#[test]
fn rounds_of_half_used_columns_need_no_more_than_the_first() {
    // Not all of 400 find a place where it is noted that they are half used.
    for (columns, more) in [(100, 0), (400, 120)] {
        let model = Model::new(fake_in_short(16 << 30, 0), 8 << 30, Config::new());
        let layout = Layout::from_size_align(8 * MIB, 8).unwrap();
        let round = || {
            let all: Vec<*mut u8> =
                (0..columns).map(|_| model.cache.allocate(layout, &Config::new(), |_| ())).collect();
            for p in &all {
                // In huge pages.
                let touched =
                    Span::between(p.addr() & !(CHUNK - 1), (p.addr() + 9 * MIB / 2).next_multiple_of(CHUNK));
                model.os().sow(touched.start, touched.len, 1);
            }
            let resident = model.os().resident_bytes() / MIB;
            all.into_iter().for_each(|p| model.cache.deallocate(p, layout));
            resident
        };
        let resident: Vec<usize> = (0..6).map(|_| round()).collect();
        assert!(resident.iter().all(|&then| then <= resident[0] + more), "{resident:?}");
        finish(&model, Vec::new(), true);
    }
}

#[test]
fn a_block_has_its_rank_until_it_is_freed_or_resized() {
    let model = Model::new(fake_in_short(8 << 30, 0), 4 << 30, Config::new());
    let config = Config::new();
    let [shorter, layout, longer] = [40, 64, 200].map(|n| Layout::from_size_align(n * MIB, 8).unwrap());
    // The lowest that is free; what has none stands in for all of them.
    let free = || {
        let kind = model.cache.zeroing.enter(64 * MIB);
        model.cache.zeroing.leave(kind);
        kind
    };
    let first = free();
    for zeroed in [false, true] {
        let take = || match zeroed {
            true => model.cache.allocate_zeroed(layout, &config, |_| ()),
            false => model.cache.allocate(layout, &config, |_| ()),
        };
        let p = take();
        assert_ne!(free(), first);
        model.cache.deallocate(p, layout);
        assert_eq!(free(), first);
        // Shorter, and longer where it is moved to.
        let p = take();
        let q = model.cache.reallocate(p, layout, shorter);
        assert_eq!(free(), first);
        model.cache.deallocate(q, shorter);
        let ranks = [0; 2].map(|_| model.cache.zeroing.enter(64 * MIB));
        ranks.iter().for_each(|&kind| model.cache.zeroing.leave(kind));
        let mut two = [take(), take()];
        two.sort_by_key(|p| p.addr());
        let [p, behind] = two;
        let q = model.cache.reallocate(p, layout, longer);
        model.cache.deallocate(q, longer);
        model.cache.deallocate(behind, layout);
        let both = [0; 2].map(|_| model.cache.zeroing.enter(64 * MIB));
        both.iter().for_each(|&kind| model.cache.zeroing.leave(kind));
        assert_eq!(both, ranks, "wherever it grew to");
    }
    // Who is refused has none.
    let absurd = Layout::from_size_align(1 << 46, 8).unwrap();
    let before = model.cache.zeroing.enter(1 << 46);
    model.cache.zeroing.leave(before);
    assert!(model.cache.allocate(absurd, &config, |_| ()).is_null());
    assert_eq!(model.cache.zeroing.enter(1 << 46), before);
    finish(&model, Vec::new(), true);
}

/// Vectors with far more room than content, another part of it each round. While nobody knew what they are touched like, all of
/// their room counted as a peak, and nothing kept what is free and resident from growing towards that, block by block.
#[test]
fn room_that_nobody_touched_is_no_peak_of_memory() {
    let model = Model::new(fake_in_short(16 << 30, 0), 8 << 30, Config::new());
    let room = Layout::from_size_align(64 * MIB, 8).unwrap();
    let mut after_ten = 0;
    for round in 0..60 {
        let blocks: Vec<_> = (0..24)
            .map(|nth| {
                let p = model.cache.allocate(room, &Config::new(), |_| ());
                model.os().touch(p.addr(), (1 + (nth + round) % 5) * MIB);
                p
            })
            .collect();
        blocks.into_iter().for_each(|p| model.cache.deallocate(p, room));
        let level = model.cache.heap.level();
        // Of 1.5 GiB of room, 72 MiB are touched, in 72 to 120 whole chunks.
        assert!(level.out_max <= 300 * MIB, "round {round}: {} MiB", level.out_max / MIB);
        if round == 10 {
            after_ten = model.os().resident_bytes();
        }
    }
    let resident = model.os().resident_bytes();
    assert!(resident <= after_ten + 16 * MIB, "{} MiB, {} before", resident / MIB, after_ten / MIB);
    finish(&model, Vec::new(), true);
}

#[test]
fn a_block_freed_while_its_thread_forks_is_expected_nothing_of() {
    let model = Model::new(fake_in_short(4 << 30, 0), 1 << 30, Config::new());
    let config = Config::new();
    let [half_used, full] = [64, 200].map(|n| Layout::from_size_align(n * MIB, 8).unwrap());
    pass(&model, 64 * MIB, false, Span::new(0, 32 * MIB));
    model.cache.release();
    let live = model.cache.allocate(full, &config, |_| ());
    let before = model.cache.heap.out_presumed_resident();
    let first = model.cache.zeroing.enter(64 * MIB);
    model.cache.zeroing.leave(first);
    let p = model.cache.allocate(half_used, &config, |_| ());
    assert!(model.cache.heap.out_presumed_resident() < before + 40 * MIB, "its end is not expected");
    model.cache.before_fork();
    model.cache.deallocate(p, half_used);
    model.cache.after_fork();
    assert_eq!(model.cache.heap.out_presumed_resident(), before);
    assert_eq!(model.cache.zeroing.enter(64 * MIB), first);
    model.cache.deallocate(live, full);
    finish(&model, Vec::new(), true);
}

/// A model that has learned that half of a block of 328 MiB is touched, and what its free memory consists of: lengths in
/// MiB, whether they were touched, and whether they are free. All are whole huge pages, the first behind a live block.
fn with_pieces(pieces: &[(usize, bool, bool)]) -> (Model<Fake>, Vec<(*mut u8, Layout)>) {
    let model = Model::new(fake_in_short(8 << 30, 0), 4 << 30, Config::new());
    let half_used = Layout::from_size_align(328 * MIB, 8).unwrap();
    let config = Config::new();
    let p = model.cache.allocate(half_used, &config, |_| ());
    model.os().sow(p.addr(), 164 * MIB, 1);
    model.cache.deallocate(p, half_used);
    model.cache.release();
    let lengths = [(2, false, false)].into_iter().chain(pieces.iter().copied());
    let blocks = lengths.map(|(len, touched, free)| {
        let layout = Layout::from_size_align(len * MIB, 2 * MIB).unwrap();
        let p = model.cache.allocate(layout, &config, |_| ());
        if touched {
            model.os().sow(p.addr(), len * MIB, 1);
        }
        (p, layout, free)
    });
    let (free, live): (Vec<_>, Vec<_>) = blocks.collect::<Vec<_>>().into_iter().partition(|block| block.2);
    free.into_iter().for_each(|(p, layout, _)| model.cache.deallocate(p, layout));
    (model, live.into_iter().map(|(p, layout, _)| (p, layout)).collect())
}

/// Takes a block of 328 MiB and touches half of it.
fn take_half_used(model: &Model<Fake>) -> (*mut u8, Layout) {
    let layout = Layout::from_size_align(328 * MIB, 8).unwrap();
    let p = model.cache.allocate(layout, &Config::new(), |_| ());
    model.os().sow(p.addr(), 164 * MIB, 1);
    (p, layout)
}

#[test]
fn an_end_that_was_resident_before_tells_nothing() {
    let pieces = [(170, true, true), (60, false, true), (100, true, true), (2, false, false)];
    let (model, mut live) = with_pieces(&pieces);
    let before = model.cache.zeroing.reach(Kind::of(328 * MIB), 328 * MIB, false);
    let (p, layout) = take_half_used(&model);
    assert!(p.addr() - live[0].0.addr() < 6 * MIB, "over all of them");
    model.cache.deallocate(p, layout);
    assert_eq!(model.cache.zeroing.reach(Kind::of(328 * MIB), 328 * MIB, false), before);
    live.drain(..).for_each(|(p, layout)| model.cache.deallocate(p, layout));
    finish(&model, Vec::new(), true);
}

#[test]
fn the_untouched_end_of_a_block_does_not_lie_upon_what_is_resident() {
    // The longer piece has room for all of the block, and for its end too; the other is a little short, and behind it is
    // memory that nobody has touched. It is not half as long: as a whole it would be expected to be half touched itself.
    let pieces = [(400, true, true), (2, false, false), (150, true, true)];
    let (model, live) = with_pieces(&pieces);
    let resident = model.os().resident_bytes();
    let (p, layout) = take_half_used(&model);
    assert!(p.addr() > live[1].0.addr(), "behind the second live block");
    assert_eq!(model.os().resident_bytes(), resident, "what it was short of was moved in");
    model.cache.deallocate(p, layout);
    live.into_iter().for_each(|(p, layout)| model.cache.deallocate(p, layout));
    finish(&model, Vec::new(), true);
}

#[test]
fn the_last_granule_of_a_block_gets_pages_that_are_there() {
    let model = Model::new(fake_in_short(4 << 30, 0), 1 << 30, Config::new());
    let config = Config::new();
    let take = |size: usize, align: usize| {
        let layout = Layout::from_size_align(size, align).unwrap();
        let p = model.cache.allocate(layout, &config, |_| ());
        model.os().sow(p.addr(), size, 1);
        (p, layout)
    };
    // Whole huge pages, no granule more; behind them is memory that nobody has touched.
    let [other, between, long] = [8 * MIB, 2 * MIB, 64 * MIB].map(|size| take(size, 2 * MIB));
    for (p, layout) in [other, long] {
        model.cache.deallocate(p, layout);
    }
    let resident = model.os().resident_bytes();
    let longer = take(64 * MIB, 8);
    assert_eq!(longer.0.addr() >> 21, long.0.addr() >> 21, "where the other was");
    assert_eq!(model.os().resident_bytes(), resident, "one huge page was moved under its end");
    for (p, layout) in [between, longer] {
        model.cache.deallocate(p, layout);
    }
    finish(&model, Vec::new(), true);
}

/// A model that has learned that zeroed blocks of 48 MiB are hardly touched.
fn with_thin_blocks() -> Model<Fake> {
    let model = Model::new(fake(4 << 30), 256 * MIB, Config::new());
    for _ in 0..8 {
        pass(&model, 48 * MIB, true, Span::new(7 * MIB, 1));
    }
    model
}

#[test]
fn of_a_block_in_small_pages_a_part_is_looked_at() {
    let model = with_thin_blocks();
    let looks = (0..160).map(|_| {
        let (is_thin, looks) = pass(&model, 48 * MIB, true, Span::new(7 * MIB, 1));
        assert!(is_thin);
        looks
    });
    assert_eq!(looks.sum::<usize>(), 160);
    finish(&model, Vec::new(), true);
}

#[test]
fn a_part_with_much_in_it_has_all_of_its_block_looked_at() {
    let model = with_thin_blocks();
    // A part somewhere each time, and a fortieth of all is touched.
    let looks = (0..160).map(|_| {
        let (is_thin, looks) = pass(&model, 48 * MIB, true, Span::new(7 * MIB, MIB));
        assert!(is_thin, "still cheapest in small pages");
        looks
    });
    assert!((161..170).contains(&looks.sum::<usize>()));
    // Whichever part is looked at, it is touched all over.
    let thin = (0..20).filter(|_| pass(&model, 48 * MIB, true, Span::new(0, 48 * MIB)).0);
    assert!(thin.count() <= 1, "each is looked at");
    finish(&model, Vec::new(), true);
}
