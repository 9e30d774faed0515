//! The limits, seen from outside: what is faulted in again, what stays resident, and what goes when it must.
//!
//! Measured by what the fake kernel says is resident and by what the engine says it had to fault in; no clock but the
//! fake one. The arithmetic is tested where it is.

use std::alloc::Layout;

use super::draw::drawn;
use super::model::{Live, Model};
use super::ops::{Op, finish, one};
use super::pattern::mix;
use super::{fake, times};
use crate::cache::ceiling::STACKS_SHARE;
use crate::config::{Config, Moves};
use crate::heap::State;
use crate::os::fake::errno;
use crate::os::fake::{Call, Fake};
use crate::os::{CHUNK, Os, Room};
use crate::sync::atomic::Ordering;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).unwrap()
}

/// Takes a block and makes all of it resident.
pub(super) fn touched(model: &Model<Fake>, size: usize) -> Live {
    let quiet = (0..).find(|&seed| model.writes_nothing(seed)).unwrap();
    let live = model.allocate(layout(size), false, quiet).expect("memory is not short");
    model.os().touch(live.p, size);
    live
}

/// Bytes that had to be faulted in so far.
fn fresh(model: &Model<Fake>) -> u64 {
    model.cache.snapshot().fresh
}

/// Free bytes that are kept.
fn cached(model: &Model<Fake>) -> usize {
    model.cache.stacked() + model.cache.heap.books().dirty
}

/// Rounds in which a peak is out once, and then small blocks until `times` peaks have been allocated. Gives the rounds
/// in which memory was faulted in.
fn rounds_that_fault(config: Config, times: usize, rounds: usize) -> Vec<usize> {
    let (piece, pieces, small) = (8 * MIB, 12, MIB);
    let model = Model::new(fake(2 << 30), 512 * MIB, config);
    let mut faulted = Vec::new();
    for round in 0..rounds {
        let before = fresh(&model);
        let peak: Vec<Live> = (0..pieces).map(|_| touched(&model, piece)).collect();
        peak.into_iter().for_each(|live| model.free(live));
        for _ in 0..(times - 1) * pieces * piece / small {
            let p = model.cache.allocate(layout(small), &config, |_| ());
            assert!(!p.is_null());
            model.cache.deallocate(p, layout(small));
        }
        // A few granules at the edges of what was purged by whole chunks are no fault of the limits.
        if fresh(&model) - before > 2 * CHUNK as u64 {
            faulted.push(round);
        }
    }
    finish(&model, Vec::new(), true);
    faulted
}

#[test]
fn a_peak_that_returns_faults_in_the_first_rounds_alone() {
    for config in [Config::new(), Config::new().moves(Moves::Never)] {
        assert_eq!(rounds_that_fault(config, 2, 40), [0]);
        for (times, rounds) in [(20, 40), (200, 24)] {
            let faulted = rounds_that_fault(config, times, rounds);
            assert!(faulted.len() <= 6 && faulted.iter().all(|&r| r <= 8), "{times}: {faulted:?}");
        }
    }
}

#[test]
fn a_peak_that_never_returns_is_given_up() {
    let model = Model::new(fake(2 << 30), 512 * MIB, Config::new());
    let peak: Vec<Live> = (0..12).map(|_| touched(&model, 8 * MIB)).collect();
    peak.into_iter().for_each(|live| model.free(live));
    assert!(cached(&model) >= 96 * MIB);
    for _ in 0..64 * 96 {
        let live = touched(&model, MIB);
        model.free(live);
    }
    // What is left is what the small blocks need, and whole chunks at its ends.
    assert!(cached(&model) <= 4 * CHUNK, "{} MiB", cached(&model) / MIB);
    assert!(model.os().resident_bytes() <= 6 * CHUNK, "{} MiB", model.os().resident_bytes() / MIB);
    finish(&model, Vec::new(), true);
}

/// Does a drawn sequence with all blocks touched, and shows after every operation what it was, the blocks out and the model.
fn watch(config: Config, seed: u64, mut seen: impl FnMut(Op, &[Live], &Model<Fake>)) {
    let model = Model::new(fake(2 << 30), 512 * MIB, config);
    let mut blocks: Vec<Live> = Vec::new();
    for (turn, op) in drawn(seed, 200, 24 * MIB).into_iter().enumerate() {
        // Softened memory is the kernel's to take, and counts as kept no more.
        if matches!(op, Op::Soften | Op::Reclaim) {
            continue;
        }
        one(&model, op, &mut blocks, 128 * MIB, mix(seed ^ turn as u64));
        blocks.iter().for_each(|live| model.os().touch(live.p, live.layout.size()));
        seen(op, &blocks, &model);
    }
    finish(&model, blocks, true);
}

#[test]
fn what_is_out_and_kept_stays_under_the_peak_by_whole_chunks() {
    for config in [Config::new(), Config::new().moves(Moves::Never)] {
        for seed in 0..u64::from(times(6)) {
            let (mut pieces_max, mut before, mut count) = (0, 0, 0);
            watch(config, seed, |op, blocks, model| {
                let (mut pieces, mut whole) = (0, 0);
                model.cache.heap.pieces(|span, state| {
                    if state == State::Dirty {
                        whole += span.inner(CHUNK).len;
                        pieces += 1;
                    }
                });
                pieces_max = pieces_max.max(pieces);
                let level = model.cache.heap.level();
                let total = model.cache.limits.lock(model.os()).total();
                let beyond = (level.out + level.dirty).saturating_sub(total);
                // The policy purges no part of a chunk: each piece may keep less than one at either end.
                assert!(beyond <= (pieces_max + 1) * 2 * CHUNK, "{} KiB after {op:?}", beyond / KIB);
                // What is too much goes by whole chunks, rounded down: an allocation leaves less than one, while there is one to
                // purge, or no more than there was; where blocks were freed to make room for it, what those find resident
                // beside them comes to that. (A block that is copied is out twice for a moment, and what it leaves then borders
                // on what could not be purged before.)
                let freed = (count + 1_usize).saturating_sub(blocks.len());
                count = blocks.len();
                let allowed = before.max(CHUNK - 1) + freed * 2 * CHUNK;
                assert!(
                    beyond <= allowed || whole == 0 || !matches!(op, Op::Allocate { .. }),
                    "{} KiB after {op:?}, with {} KiB in whole chunks",
                    beyond / KIB,
                    whole / KIB
                );
                before = beyond;
            });
        }
    }
}

#[test]
fn no_more_is_resident_than_the_books_say() {
    for seed in 0..u64::from(times(4)) {
        watch(Config::new(), seed, |op, blocks, model| {
            let out: usize = blocks.iter().map(|live| live.block().len).sum();
            let resident = model.os().resident_bytes();
            // The books' own memory: nodes, words per chunk, shards.
            let books = 4 * MIB;
            assert!(resident <= out + cached(model) + books, "{} KiB after {op:?}", resident / KIB);
        });
    }
}

#[test]
fn a_ceiling_is_kept_after_every_operation() {
    for ceiling in [0, 3 * MIB, 20 * MIB, 64 * MIB] {
        for seed in 0..u64::from(times(3)) {
            watch(Config::new().cache_bytes(ceiling), seed, |op, _, model| {
                assert!(cached(model) <= ceiling, "{} of {ceiling} after {op:?}", cached(model));
            });
        }
    }
}

#[test]
fn a_ceiling_is_a_promise_however_much_is_allocated_and_however_long_the_pause() {
    let ceiling = 64 * MIB;
    let model = Model::new(fake(2 << 30), 512 * MIB, Config::new().cache_bytes(ceiling));
    let blocks: Vec<Live> = (0..12).map(|_| touched(&model, 8 * MIB)).collect();
    blocks.into_iter().for_each(|live| model.free(live));
    let kept = cached(&model);
    // The rest is the stacks' share, and for blocks that fit on them.
    assert!(kept >= ceiling / STACKS_SHARE && kept <= ceiling);
    for turn in 0..4_000 {
        let live = touched(&model, MIB + turn % 7 * 100 * KIB);
        model.free(live);
        model.os().pass(1 << 40);
    }
    assert!(cached(&model) >= kept, "{} KiB went", (kept - cached(&model)) / KIB);
    finish(&model, Vec::new(), true);
}

#[test]
fn under_five_percent_of_room_the_cache_shrinks_by_what_is_missing() {
    for config in [Config::new(), Config::new().cache_bytes(1 << 30)] {
        let os = fake(2 << 30);
        let model = Model::new(os.clone(), 512 * MIB, config);
        let blocks: Vec<Live> = (0..24).map(|_| touched(&model, 8 * MIB)).collect();
        blocks.into_iter().for_each(|live| model.free(live));
        let kept = cached(&model);
        assert!(kept >= 192 * MIB);
        let shrunk = |left, looks| {
            os.set_room(Some(Room { limit: 1000 * MIB, left }));
            for _ in 0..looks {
                os.pass(1 << 30);
                (0..70).for_each(|_| model.free(touched(&model, MIB)));
            }
            kept - cached(&model)
        };
        assert_eq!(shrunk(60 * MIB, 2), 0, "enough is left");
        let missing = shrunk(20 * MIB, 1);
        assert!((30 * MIB..=30 * MIB + CHUNK).contains(&missing), "{} KiB went", missing / KIB);
        // As long as nothing helps, all of it goes.
        let all = shrunk(0, 8);
        assert!(kept - all <= 4 * CHUNK, "{} KiB stay", (kept - all) / KIB);
        finish(&model, Vec::new(), true);
    }
}

/// Where a limit was a little above what the program needs, each look took from all threads what they had at hand, and closed all that
/// was free, for a megabyte that was missing.
#[test]
fn no_more_is_given_up_than_is_short_and_by_one_thread_at_a_time() {
    let os = fake(2 << 30);
    let model = Model::new(os.clone(), 512 * MIB, Config::new());
    let blocks: Vec<Live> = (0..24).map(|_| touched(&model, 8 * MIB)).collect();
    blocks.into_iter().for_each(|live| model.free(live));
    model.free(touched(&model, MIB));
    let held = || (model.cache.stacked(), cached(&model));
    let (at_hand, kept) = held();
    assert!(at_hand > 0);
    let short = Some(Room { limit: 1000 * MIB, left: 49 * MIB });
    os.set_room(short);
    let look = || {
        os.pass(1 << 30);
        model.cache.look_slow();
        held()
    };
    model.cache.looks.store(true, Ordering::Relaxed);
    assert_eq!(look(), (at_hand, kept), "another thread does already");
    model.cache.looks.store(false, Ordering::Relaxed);
    let (still, less) = look();
    assert_eq!((still, os.calls(Call::Close)), (at_hand, 0));
    assert!((MIB..=MIB + CHUNK).contains(&(kept - less)), "{} KiB went", (kept - less) / KIB);
    // What is mapped and untouched counts against other limits.
    os.set_mapping_room(short);
    assert_eq!((look().0, os.calls(Call::Close) > 0), (0, true));
    finish(&model, Vec::new(), true);
}

/// Whoever found another thread giving up had been told already that more was swapped, which is told once: nobody gave anything up for it.
#[test]
fn what_is_swapped_while_another_thread_gives_up_is_not_forgotten() {
    let os = fake(2 << 30);
    let model = Model::new(os.clone(), 512 * MIB, Config::new());
    let blocks: Vec<Live> = (0..24).map(|_| touched(&model, 8 * MIB)).collect();
    blocks.into_iter().for_each(|live| model.free(live));
    let look = || {
        os.pass(1 << 30);
        model.cache.look_slow();
        model.cache.cached_bytes()
    };
    let kept = look();
    assert!(kept >= 192 * MIB);
    os.set_strain(|s| *s.swapped.get_or_insert(0) += 17 * MIB);
    model.cache.looks.store(true, Ordering::Relaxed);
    assert_eq!(look(), kept, "another thread does already");
    model.cache.looks.store(false, Ordering::Relaxed);
    assert!(look() <= 2 * MIB, "{} KiB", model.cache.cached_bytes() / KIB);
    finish(&model, Vec::new(), true);
}

#[test]
fn whatever_the_kernel_does_without_is_given_up_before_it_must_take_it() {
    for config in [Config::new(), Config::new().cache_bytes(1 << 30)] {
        let os = fake(2 << 30);
        let model = Model::new(os.clone(), 512 * MIB, config);
        let blocks: Vec<Live> = (0..24).map(|_| touched(&model, 8 * MIB)).collect();
        blocks.into_iter().for_each(|live| model.free(live));
        // Ticks, and so looks, with a second between two.
        let look = || {
            os.pass(1 << 30);
            (0..70).for_each(|_| model.free(touched(&model, MIB)));
            model.cache.cached_bytes()
        };
        let kept = look();
        assert!(kept >= 192 * MIB);
        os.set_room(Some(Room { limit: 1000 * MIB, left: 500 * MIB }));
        os.set_strain(|s| s.hits = s.hits.map(|hits| hits + 1));
        assert_eq!(look(), kept, "page cache runs into a limit, and half of it is left");
        os.set_room(Some(Room { limit: 1000 * MIB, left: 90 * MIB }));
        os.set_strain(|s| s.hits = s.hits.map(|hits| hits + 1));
        let halved = look();
        assert!(halved <= kept / 2 + 2 * MIB && halved >= kept / 3, "{} KiB of {}", halved / KIB, kept / KIB);
        assert_eq!(look(), halved, "nothing new");
        os.set_strain(|s| s.stalled[0] = s.stalled[0].map(|waited| waited + 200_000));
        let quarter = look();
        assert!(quarter <= halved / 2 + 2 * MIB, "{} KiB of {}", quarter / KIB, halved / KIB);
        os.set_room(None);
        os.set_strain(|s| *s.swapped.get_or_insert(0) += 17 * MIB);
        // But for the blocks that made the look happen.
        let left = look();
        assert!(left <= 2 * MIB, "{} KiB", left / KIB);
        // While the kernel goes on swapping, what comes back goes again.
        let blocks: Vec<Live> = (0..12).map(|_| touched(&model, 8 * MIB)).collect();
        blocks.into_iter().for_each(|live| model.free(live));
        os.set_strain(|s| *s.swapped.get_or_insert(0) += 17 * MIB);
        assert!(look() <= 2 * MIB);
        finish(&model, Vec::new(), true);
    }
}

#[test]
fn pressure_gives_back_the_free_parts_of_huge_pages_and_decay_does_not() {
    let partly = |press: bool| {
        let os = fake(2 << 30);
        let model = Model::new(os.clone(), 512 * MIB, Config::new());
        // Between every two blocks that stay, one that goes: each shorter than a chunk.
        let mut blocks: Vec<Live> = (0..48).map(|_| touched(&model, MIB + 300 * KIB)).collect();
        for i in (0..24).rev() {
            model.free(blocks.swap_remove(i * 2));
        }
        model.cache.drain();
        let before = cached(&model);
        assert!(before > 24 * MIB);
        if press {
            os.set_room(Some(Room { limit: 1000 * MIB, left: 0 }));
        }
        os.pass(1 << 30);
        model.cache.tell(1 << 40, os.now());
        model.cache.tell(1 << 40, os.now());
        let after = cached(&model);
        finish(&model, blocks, true);
        (before, after)
    };
    let (before, after) = partly(true);
    assert!(after < MIB, "{} KiB of {}", after / KIB, before / KIB);
    let (before, after) = partly(false);
    assert!(after > before / 2, "{} KiB of {}", after / KIB, before / KIB);
}

#[test]
fn a_release_gives_back_every_byte_that_counts_as_cached() {
    let os = fake(2 << 30);
    let model = Model::new(os.clone(), 512 * MIB, Config::new());
    let mut blocks: Vec<Live> = (0..60).map(|n| touched(&model, 100 * KIB + n * 50 * KIB)).collect();
    for i in (0..30).rev() {
        model.free(blocks.swap_remove(i * 2));
    }
    let counted = model.cache.cached_bytes();
    assert!(counted > 20 * MIB);
    assert_eq!(model.cache.release(), counted);
    assert_eq!(model.cache.cached_bytes(), 0);
    let live: usize = blocks.iter().map(|live| live.block().len).sum();
    assert!(os.resident_bytes() <= live + 4 * MIB, "the books' own memory, and no more");
    finish(&model, blocks, true);
}

#[test]
fn memory_that_lacks_is_found_in_what_is_cached_before_null_is_answered() {
    // Plain mappings: what is cached counts against the limit until it is unmapped.
    let os = fake(2 << 30);
    os.fail(crate::os::fake::Call::Reserve, crate::os::fake::When::From(1), errno::ENOMEM);
    let model = Model::new(os.clone(), 512 * MIB, Config::new());
    let blocks: Vec<Live> = (0..10).map(|_| touched(&model, 30 * MIB)).collect();
    blocks.into_iter().for_each(|live| model.free(live));
    assert!(model.cache.cached_bytes() >= 300 * MIB);
    os.limit_mapped_bytes(os.mapped_bytes() + 4 * MIB);
    let large = touched(&model, 280 * MIB);
    model.audit(true);
    let mut model = model;
    model.may_refuse = true;
    assert!(model.allocate(layout(280 * MIB), false, 1).is_none(), "there is no more");
    model.may_refuse = false;
    finish(&model, vec![large], true);
}

#[test]
fn what_the_rest_of_the_process_needs_counts_as_needed() {
    let os = fake(2 << 30);
    os.set_beside(Some(0));
    let model = Model::new(os.clone(), 512 * MIB, Config::new());
    let peak: Vec<Live> = (0..12).map(|_| touched(&model, 8 * MIB)).collect();
    peak.into_iter().for_each(|live| model.free(live));
    let some = |bytes: usize| {
        for _ in 0..bytes / MIB {
            let live = touched(&model, MIB);
            model.free(live);
        }
    };
    some(256 * MIB);
    assert!(cached(&model) >= 90 * MIB, "all that was live may stay: {}", cached(&model) / MIB);
    // The small side comes to hold most of what was ever needed at once.
    os.set_beside(Some(64 * MIB));
    os.pass(2_000_000);
    some(256 * MIB);
    assert!(cached(&model) <= (96 - 64 + 4) * MIB, "{} MiB beside 64 of 96", cached(&model) / MIB);
    finish(&model, Vec::new(), true);
}

/// Measured at every tick, it cost ten times as much as the pairs of blocks between two ticks.
#[test]
fn the_rest_of_the_process_is_not_measured_at_every_tick() {
    let os = fake(2 << 30);
    os.set_beside(Some(0));
    let model = Model::new(os.clone(), 512 * MIB, Config::new());
    for _ in 0..4 {
        for _ in 0..64 {
            let live = touched(&model, 16 * MIB);
            model.free(live);
        }
        os.pass(2_000_000);
    }
    assert_eq!(os.calls(crate::os::fake::Call::Anonymous), 4);
}

/// Hot runs of 4 MiB held three of these and a megabyte that no block fitted, so that fresh memory had to be faulted in
/// every round and as much given up.
#[test]
fn blocks_of_one_length_leave_no_ends_of_hot_runs() {
    let os = fake(2 << 30);
    let model = Model::new(os.clone(), 512 * MIB, Config::new());
    for _ in 0..40 {
        let blocks: Vec<Live> = (0..64).map(|_| touched(&model, MIB)).collect();
        blocks.into_iter().for_each(|live| model.free(live));
    }
    assert!(fresh(&model) <= 70 << 20, "{} MiB for 64", fresh(&model) >> 20);
    finish(&model, Vec::new(), true);
}

/// Each look at the limits took locks that all threads share, and threads that allocated and freed untouched blocks took
/// turns in them.
#[test]
fn limits_are_told_now_and_then_and_of_all_that_was_allocated() {
    let os = fake(2 << 30);
    let model = Model::new(os.clone(), 512 * MIB, Config::new());
    let peak: Vec<Live> = (0..12).map(|_| touched(&model, 8 * MIB)).collect();
    peak.into_iter().for_each(|live| model.free(live));
    let kept = cached(&model);
    assert!(kept >= 96 * MIB);
    let mut told = 0;
    let mut last = model.cache.last_tick.load(Ordering::Relaxed);
    // Forty peaks, in a time in which the limits are told one time of eight.
    let pairs = 40 * 96;
    for _ in 0..pairs {
        let live = touched(&model, MIB);
        model.free(live);
        os.pass(100);
        let now = model.cache.last_tick.load(Ordering::Relaxed);
        told += usize::from(now != last);
        last = now;
    }
    assert!(told > 0 && told <= pairs / 64 / 7, "told {told} times");
    assert!(
        cached(&model) < kept / 4,
        "{} of {} MiB: not all of it counted",
        cached(&model) / MIB,
        kept / MIB
    );
    finish(&model, Vec::new(), true);
}
