//! Programs that use one length in two ways, and resize or cut blocks before they free them: what is learned all the same, and
//! where what they cut off goes.

use std::alloc::Layout;

use super::model::Model;
use super::ops::finish;
use super::runs::{pages, two_mappings};
use super::{fake, fake_in_short};
use crate::config::Config;
use crate::heap::Span;
use crate::os::fake::{Call, Fake, When, errno};
use crate::os::{GRANULE, Room};
use crate::zeroing::{Kind, Way};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).unwrap()
}

fn take(model: &Model<Fake>, size: usize, zeroed: bool, touched: usize) -> *mut u8 {
    let p = match zeroed {
        true => model.cache.allocate_zeroed(layout(size), &Config::new(), |_| ()),
        false => model.cache.allocate(layout(size), &Config::new(), |_| ()),
    };
    assert!(!p.is_null());
    model.os().sow(p.addr(), touched, 1);
    p
}

/// Blocks of small pages that were written all over were looked at once in eight, and believed to be barely touched again after 64
/// samples, whatever these had shown: half of the time went into faults.
#[test]
fn blocks_that_are_written_all_over_now_and_then_do_not_get_small_pages_for_long() {
    for of in [2, 4, 7] {
        let model = Model::new(fake_in_short(4 << 30, 0), 256 * MIB, Config::new());
        let mut faulted = 0;
        for turn in 0..4000 {
            let is_dense = turn % of == of - 1;
            let p = take(&model, 8 * MIB, true, if is_dense { 8 * MIB } else { GRANULE });
            let is_thin = model.cache.is_thin(Span::new(p.addr(), 8 * MIB));
            faulted += usize::from(is_dense && is_thin);
            model.cache.deallocate(p, layout(8 * MIB));
        }
        assert!(faulted <= 2, "one of {of}: {faulted}");
        finish(&model, Vec::new(), true);
    }
}

/// What was learned of a block was said of the length that it had in the end; of those that were moved, or cut, nothing was learned.
#[test]
fn zeroed_blocks_that_are_resized_teach_what_those_are_like_that_are_asked_for() {
    for (asked, later) in [(32, 64), (64, 40), (128, 16), (96, 384)] {
        let model = Model::new(fake_in_short(8 << 30, 0), 4 << 30, Config::new());
        let mut fresh = 0;
        for round in 0..12 {
            let before = model.cache.snapshot().fresh;
            let p = take(&model, asked * MIB, true, asked * MIB);
            let now = model.cache.reallocate(p, layout(asked * MIB), layout(later * MIB));
            assert!(!now.is_null());
            model.os().sow(now.addr(), later * MIB, 1);
            model.cache.deallocate(now, layout(later * MIB));
            if round >= 6 {
                fresh += model.cache.snapshot().fresh - before;
            }
        }
        assert!(fresh <= 8 * MIB as u64, "{asked} to {later} MiB: {} MiB of fresh memory", fresh >> 20);
        finish(&model, Vec::new(), true);
    }
}

#[test]
fn a_zeroed_block_whose_pages_are_moved_has_taught_what_was_touched_of_it() {
    let model = Model::new(fake_in_short(8 << 30, 0), 4 << 30, Config::new());
    let p = take(&model, 96 * MIB, true, 96 * MIB);
    // Another one lies behind it.
    let behind = take(&model, 100 * MIB, false, 100 * MIB);
    let way = || model.cache.zeroing.way(Kind::of(96 * MIB), 96 * MIB);
    assert_eq!(way(), Way::Kernel, "nothing is known");
    let now = model.cache.reallocate(p, layout(96 * MIB), layout(384 * MIB));
    assert_eq!((model.cache.snapshot().grown_by_moving, way()), (1, Way::Written));
    model.cache.deallocate(now, layout(384 * MIB));
    model.cache.deallocate(behind, layout(100 * MIB));
    finish(&model, Vec::new(), true);
}

/// The ends went to the heap, though free memory of the thread's own lay behind them, and the next block began elsewhere.
#[test]
fn the_next_block_begins_where_the_last_one_was_cut() {
    let model = Model::new(fake(2 << 30), 1 << 30, Config::new());
    // Memory for longer runs than one.
    model.cache.deallocate(take(&model, 64 * MIB, false, 64 * MIB), layout(64 * MIB));
    let (mut last, mut elsewhere) = (0, 0);
    for turn in 0..420 {
        let size = 128 * KIB + turn * 7919 * 8 % (896 * KIB);
        let p = take(&model, size, false, size);
        let kept = layout(size / 8 * 5);
        assert_eq!(model.cache.reallocate(p, layout(size), kept), p);
        // At first there is but untouched memory, and no run.
        elsewhere += usize::from(turn >= 20 && p.addr() / GRANULE != last);
        last = p.addr() / GRANULE;
        model.cache.deallocate(p, kept);
    }
    assert!(elsewhere <= 120, "{elsewhere} of 400");
    finish(&model, Vec::new(), true);
}

/// Those behind which another one lies: what is cut off them is no hot run's, but what lies behind that may be a run of the shard's.
#[test]
fn ends_that_are_cut_off_before_a_run_are_part_of_it() {
    let model = Model::new(fake(2 << 30), 1 << 30, Config::new());
    model.cache.deallocate(take(&model, 64 * MIB, false, 64 * MIB), layout(64 * MIB));
    let taken = (0..40).map(|_| model.allocate(layout(300 * KIB), false, 1).unwrap());
    let (mut kept, freed): (Vec<_>, Vec<_>) = taken.enumerate().partition(|(nth, _)| nth % 2 == 0);
    // More than a stack has a place for.
    freed.into_iter().for_each(|(_, block)| model.free(block));
    let before = model.cache.stacked();
    for (_, block) in &mut kept {
        assert!(model.resize(block, 100 * KIB, 0));
        model.audit(true);
    }
    let at_hand = model.cache.stacked() - before;
    assert!(at_hand >= 5 * 190 * KIB, "{} KiB", at_hand >> 10);
    finish(&model, kept.into_iter().map(|(_, block)| block).collect(), true);
}

/// How far a block was touched that had grown before it was cut was said of the length that it was taken as.
#[test]
fn what_a_block_grew_by_says_nothing_of_its_beginning() {
    let model = Model::new(fake_in_short(4 << 30, 0), 1 << 30, Config::new());
    for _ in 0..3 {
        let p = take(&model, 32 * MIB, false, 32 * MIB);
        let longer = model.cache.reallocate(p, layout(32 * MIB), layout(64 * MIB));
        model.os().sow(longer.addr(), 40 * MIB, 1);
        let kept = layout(40 * MIB + MIB / 2);
        assert_eq!(model.cache.reallocate(longer, layout(64 * MIB), kept), longer);
        model.cache.deallocate(longer, kept);
    }
    let kind = Kind::of(32 * MIB);
    assert_eq!(model.cache.zeroing.reach(kind, 32 * MIB, false), 32 * MIB);
    finish(&model, Vec::new(), true);
}

/// They were faulted in page by page, for ever: what was learned was said of the length to which they grew.
#[test]
fn blocks_of_small_pages_that_are_resized_teach_what_they_were_taken_as() {
    for later in [16, 7] {
        let model = Model::new(fake_in_short(4 << 30, 0), 256 * MIB, Config::new());
        let mut faulted = 0;
        for round in 0..200 {
            let touched = if round < 20 { GRANULE } else { 8 * MIB };
            let p = take(&model, 8 * MIB, true, touched);
            faulted += usize::from(round >= 20 && model.cache.is_thin(Span::new(p.addr(), 8 * MIB)));
            let (now, size) = match round {
                0..20 => (p, 8 * MIB),
                _ => (model.cache.reallocate(p, layout(8 * MIB), layout(later * MIB)), later * MIB),
            };
            model.cache.deallocate(now, layout(size));
        }
        assert!((1..=2).contains(&faulted), "{faulted}");
        finish(&model, Vec::new(), true);
    }
}

/// A table that is barely touched, but for once in a while, counted as barely touched beside all that was cached: where it was touched all
/// over, twice as much was resident as had ever been in use.
#[test]
fn what_is_expected_to_stay_untouched_counts_as_far_as_there_is_memory_for_it() {
    for (limit, left, stays) in
        [(8 << 30, 4 << 30, 300 * MIB..=512 * MIB), (2 << 30, 200 * MIB, 0..=260 * MIB)]
    {
        let model = Model::new(fake_in_short(8 << 30, 0), 4 << 30, Config::new());
        for _ in 0..8 {
            model.cache.deallocate(take(&model, 512 * MIB, true, 64 * MIB), layout(512 * MIB));
        }
        model.cache.deallocate(take(&model, 480 * MIB, false, 480 * MIB), layout(480 * MIB));
        model.os().set_room(Some(Room { limit, left }));
        model.cache.look_slow();
        let table = take(&model, 512 * MIB, true, 0);
        let dirty = model.cache.heap.level().dirty;
        assert!(stays.contains(&dirty), "{} MiB beside it, {} left", dirty >> 20, left >> 20);
        model.cache.deallocate(table, layout(512 * MIB));
        finish(&model, Vec::new(), true);
    }
}

/// Where the kernel takes no pages back, as of locked memory before 5.18, each block in small pages was more memory.
#[test]
fn blocks_of_small_pages_that_cannot_be_purged_serve_the_next_ones() {
    let model = Model::new(fake(2 << 30), 256 * MIB, Config::new());
    let apart = Layout::from_size_align(128 * KIB, 2 * MIB).unwrap();
    let mut starts = std::collections::BTreeSet::new();
    for turn in 0..64 {
        if turn == 8 {
            model.os().fail(Call::Purge, When::From(1), errno::EINVAL);
        }
        let block = model.allocate(apart, turn % 2 == 0, 1).unwrap();
        assert!(model.cache.is_thin(block.block()));
        starts.insert(block.p);
        model.free(block);
    }
    assert!(starts.len() <= 2, "{} places", starts.len());
    model.os().fail_no_more();
    finish(&model, Vec::new(), true);
}

#[test]
fn an_end_that_is_cut_off_does_not_merge_over_the_end_of_a_mapping() {
    let (model, mut blocks, before, behind) = two_mappings();
    model.free(before);
    blocks.extend(model.allocate(pages(7 * MIB - 4 * KIB), false, 1));
    let mut last = model.allocate(layout(MIB - 64), false, 1).unwrap();
    model.free(behind);
    let mut short: Vec<_> = (0..7).map(|_| model.allocate(layout(MIB - 64), false, 1).unwrap()).collect();
    assert_eq!(last.block().end(), short[0].block().start);
    // The first one behind the border is free, in a run, once the others have pushed it off its stack.
    model.free(short.remove(0));
    short.drain(..5).for_each(|block| model.free(block));
    blocks.extend(short);
    assert!(model.resize(&mut last, 500 * KIB, 0));
    model.audit(true);
    blocks.push(last);
    blocks.extend((0..3).filter_map(|_| model.allocate(layout(MIB + 600 * KIB), false, 1)));
    model.audit(true);
    finish(&model, blocks, true);
}

/// What more than 24 short pieces were needed for was faulted in but for those, while the others were purged.
#[test]
fn a_long_block_is_gathered_from_any_number_of_short_pieces() {
    let model = Model::new(fake_in_short(4 << 30, 0), 1 << 30, Config::new());
    let (short, long) = (3 * MIB, 200 * MIB);
    let mut blocks: Vec<_> = (0..240).map(|_| take(&model, short, false, short)).collect();
    let mut nth = 0;
    blocks.retain(|&p| {
        nth += 1;
        if nth % 2 == 0 {
            model.cache.deallocate(p, layout(short));
        }
        nth % 2 != 0
    });
    let before = model.cache.snapshot().fresh;
    blocks.push(take(&model, long, false, long));
    let fresh = model.cache.snapshot().fresh - before;
    assert!(fresh <= 4 * MIB as u64, "{} MiB", fresh >> 20);
    model.cache.deallocate(blocks.remove(blocks.len() - 1), layout(long));
    blocks.into_iter().for_each(|p| model.cache.deallocate(p, layout(short)));
    finish(&model, Vec::new(), true);
}

/// Each doubling of blocks that were long when they were taken was a copy, and was elsewhere.
#[test]
fn blocks_that_begin_long_grow_in_place_where_others_lie_beside_them() {
    let model = Model::new(fake(2 << 30), 1 << 30, Config::new());
    model.cache.deallocate(take(&model, 96 * MIB, false, 96 * MIB), layout(96 * MIB));
    let mut copied = 0;
    for round in 0..12 {
        let before = model.cache.snapshot().copied;
        let mut size = 640 * KIB;
        let mut four = [0; 4].map(|_| take(&model, size, false, size));
        while size < 5 * MIB {
            four = four.map(|p| model.cache.reallocate(p, layout(size), layout(2 * size)));
            size *= 2;
        }
        four.into_iter().for_each(|p| model.cache.deallocate(p, layout(size)));
        copied += if round < 4 { 0 } else { model.cache.snapshot().copied - before };
    }
    // The first doubling of each, and now and then the second of one: a round that copies each of them copies 16 MiB.
    assert!(copied <= 8 * 5 * 640 * KIB as u64, "{} MiB", copied >> 20);
    finish(&model, Vec::new(), true);
}

/// A service that proves statements of many sizes: of a trace that nobody knew yet the half that is not touched lay on resident memory,
/// what came next had to be faulted in, and nothing was learned: 482 MiB.
#[test]
fn a_trace_of_a_new_length_leaves_the_rest_of_its_room_to_others() {
    let model = Model::new(fake_in_short(8 << 30, 0), 4 << 30, Config::new());
    let prove = |trace: usize, touched: usize| {
        let blocks = [touched, trace, trace].map(|touched| take(&model, trace, false, touched));
        let resident = model.os().resident_bytes();
        blocks.into_iter().for_each(|p| model.cache.deallocate(p, layout(trace)));
        resident >> 20
    };
    prove(40 * MIB, 20 * MIB);
    let most = prove(130 * MIB, 130 * MIB);
    for log in [1, 0, 1, 2, 1, 2, 0, 2] {
        let resident = prove((40 * MIB) << log, (20 * MIB) << log);
        assert!(resident <= most + 24, "{log}: {resident} MiB, {most} before");
    }
    finish(&model, Vec::new(), true);
}

/// What is resident was kept from blocks that are expected to be touched a little, and so it was from one that found nothing else: the
/// kernel gave no memory, and could take none.
#[test]
fn what_a_block_is_expected_to_leave_refuses_it_nothing() {
    let os = fake_in_short(2 << 30, 0);
    let model = Model::new(os.clone(), 256 * MIB, Config::new());
    let give = |p: *mut u8, size: usize| model.cache.deallocate(p, layout(size));
    for _ in 0..8 {
        give(take(&model, 32 * MIB, false, 4 * MIB), 32 * MIB);
    }
    // Of other lengths, which teach nothing of that one.
    let [before, resident, behind] = [56, 48, 56].map(|mib| take(&model, mib * MIB, false, mib * MIB));
    model.cache.release();
    give(resident, 48 * MIB);
    os.fail(Call::Open, When::From(1), errno::ENOMEM);
    os.fail(Call::Purge, When::From(1), errno::EINVAL);
    let block = model.cache.allocate(layout(32 * MIB), &Config::new(), |_| ());
    let place = resident.addr()..resident.addr() + 48 * MIB;
    assert!(place.contains(&block.addr()), "{block:?} of {resident:?}");
    os.fail_no_more();
    give(block, 32 * MIB);
    give(before, 56 * MIB);
    give(behind, 56 * MIB);
    finish(&model, Vec::new(), true);
}
