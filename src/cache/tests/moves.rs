//! Live blocks that move as they grow: where they go, and what the kernel knows of them that our records do not.

use std::alloc::Layout;

use super::fake_in_short;
use super::model::{Live, Model};
use super::ops::finish;
use crate::config::Config;
use crate::os::fake::{Call, Fake, MoveFailure, When, errno};
use crate::os::{CHUNK, Huge, Os};
use crate::sync::atomic::Ordering;

const MIB: usize = 1 << 20;

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).unwrap()
}

/// A block of 128 MiB whose user has made a VMA of its own of a part of it, and one behind it that it cannot grow over.
fn striped(os: &Fake) -> (Model<Fake>, Live, Live) {
    let model = Model::new(os.clone(), 1 << 30, Config::new());
    let block = model.allocate(layout(128 * MIB), false, 1).unwrap();
    let behind = model.allocate(layout(40 * MIB), false, 1).unwrap();
    os.advise(block.p.next_multiple_of(CHUNK) + 32 * MIB, 8 * MIB, Huge::Forbid).unwrap();
    (model, block, behind)
}

/// A process without a descriptor left cannot ask where VMAs end. The kernel moved the first of them and refused the second;
/// what had moved counted as lost, and the block grew by copying what was left of it.
#[test]
fn a_block_lost_what_had_moved_where_nobody_told_where_its_vmas_end() {
    for (hides, several) in [(true, true), (true, false), (false, true), (false, false)] {
        let os = fake_in_short(4 << 30, 0);
        os.set_facts(|facts| facts.moves_several = several);
        let (model, mut block, behind) = striped(&os);
        os.hide_vmas(hides);
        os.fail(Call::Move, When::Nth(2 - usize::from(hides)), errno::ENOMEM);
        os.fail_moves_by(if several { MoveFailure::MovesFirstPart } else { MoveFailure::Clean });
        // What it finds it checks.
        assert!(model.resize(&mut block, 190 * MIB, 0), "{hides} {several}");
        model.audit(true);
        os.fail_no_more();
        finish(&model, vec![block, behind], true);
    }
}

/// Each vector that grew by moving opened address space of its own, and what the last one had left was never used again: 126 GiB
/// were open after 140 rounds in 700 MiB.
#[test]
fn what_moved_blocks_leave_open_serves_the_next_ones() {
    let os = fake_in_short(48 << 30, 0);
    let model = Model::new(os.clone(), 32 << 30, Config::new());
    let mut open = Vec::new();
    for round in 0..80 {
        let mut vectors: Vec<Live> =
            (0..4).map(|_| model.allocate(layout(40 * MIB), false, 1).unwrap()).collect();
        for size in [80, 160, 320] {
            for (nth, vector) in vectors.iter_mut().enumerate() {
                assert!(model.resize(vector, (size + (round * 7 + nth * 5) % 40) * MIB, 0));
            }
        }
        vectors.into_iter().for_each(|vector| model.free(vector));
        open.push(os.open_bytes());
    }
    assert!(model.cache.snapshot().grown_by_moving > 50);
    // Up to 1.5 GiB are in use and as much free; 8 GiB untouched may stay open, and what a round takes before the next look.
    assert!(open.iter().all(|&open| open < 13 << 30), "{open:?}");
    finish(&model, Vec::new(), true);
}

#[test]
fn a_block_that_grows_goes_where_another_one_had_grown_to_before() {
    let os = fake_in_short(8 << 30, 0);
    let model = Model::new(os.clone(), 4 << 30, Config::new());
    let allocate = |size| model.allocate(layout(size), false, 1).unwrap();
    let (mut first, wall, mut second, end) =
        (allocate(100 * MIB), allocate(3 * MIB), allocate(100 * MIB), allocate(3 * MIB));
    assert!(model.resize(&mut first, 200 * MIB, 0));
    let island = first.block();
    // What lies behind it cannot be opened, so that it moves on.
    os.fail(Call::Open, When::Nth(1), errno::ENOMEM);
    os.fail(Call::Open, When::Nth(2), errno::ENOMEM);
    assert!(model.resize(&mut first, 400 * MIB, 0));
    assert!(model.resize(&mut second, 180 * MIB, 0));
    let moved = model.cache.snapshot().grown_by_moving;
    assert_eq!((moved, second.block().common(island)), (3, second.block()));
    model.audit(true);
    finish(&model, vec![first, wall, second, end], true);
}

/// At the kernel's limit of mappings each release failed to close what was free, took that for unmapped, could not map anything
/// there, since its own memory was, and retired it for ever.
#[test]
fn a_release_at_the_limit_of_mappings_loses_nothing() {
    let os = fake_in_short(4 << 30, 0);
    let model = Model::new(os.clone(), 2 << 30, Config::new());
    let blocks: Vec<Live> = (0..8).map(|_| model.allocate(layout(64 * MIB), false, 1).unwrap()).collect();
    let (stay, go): (Vec<_>, Vec<_>) = blocks.into_iter().enumerate().partition(|(nth, _)| nth % 2 == 0);
    go.into_iter().for_each(|(_, block)| model.free(block));
    os.limit_vmas(os.vma_count());
    model.cache.release();
    assert_eq!((model.cache.heap.books().retired, os.retired().len()), (0, 0));
    model.audit(true);
    os.limit_vmas(65_530);
    model.cache.release();
    model.audit(true);
    assert!(os.open_bytes() < 5 * 64 * MIB, "it is closed once there is room");
    finish(&model, stay.into_iter().map(|(_, block)| block).collect(), true);
}

/// Where what is to come is locked, as much as is allowed, a mapping over free memory is refused, and nothing has happened to
/// that: each release lost what it was to close.
#[test]
fn a_release_that_may_lock_no_more_loses_nothing() {
    let os = fake_in_short(4 << 30, 0);
    let model = Model::new(os.clone(), 2 << 30, Config::new());
    let mut blocks = [128, 40].map(|len| model.allocate(layout(len * MIB), false, 1).unwrap());
    // It moves, and what it leaves is moved memory.
    assert!(model.resize(&mut blocks[0], 600 * MIB, 2));
    let moved = model.cache.heap.books().moved;
    assert!(moved > 0, "nothing to be healed");
    os.fail(Call::Close, When::From(1), errno::EAGAIN);
    os.fail(Call::Heal, When::From(1), errno::EAGAIN);
    let [grown, stays] = blocks;
    model.free(grown);
    for _ in 0..3 {
        model.cache.release();
        model.audit(true);
    }
    assert!(os.calls(Call::Close) > 0 && os.calls(Call::Heal) > 0, "there was something to lose");
    assert_eq!((model.cache.heap.books().retired, os.retired().len(), os.calls(Call::Plug)), (0, 0, 0));
    os.fail_no_more();
    model.cache.release();
    assert!(os.open_bytes() < 128 * MIB, "it is closed once it may be");
    finish(&model, vec![stays], true);
}

/// Plain mappings were cut where they were free; a block that stayed made a region of what was left, and after 512 of them no more
/// could be mapped.
#[test]
fn results_that_stay_between_releases_do_not_use_up_the_regions() {
    let os = fake_in_short(15 << 30, 0);
    os.limit_mapped_bytes(12 << 30);
    let model = Model::new(os.clone(), 16 << 30, Config::new());
    let mut kept = Vec::new();
    for _ in 0..600 {
        let work = model.allocate(layout(40 * MIB), false, 1).expect("there is address space");
        kept.push(model.allocate(layout(3 * MIB), false, 1).expect("there is address space"));
        model.free(work);
        model.cache.release();
    }
    assert!(os.mapped_bytes() < 9 << 30, "{}", os.mapped_bytes());
    finish(&model, kept, true);
}

/// Columns that grow by a fixed step in turn: each was copied into the first free piece that was long enough for the moment, with
/// another column behind it again the next time.
#[test]
fn columns_that_grow_by_a_fixed_step_are_copied_a_few_times_and_not_at_each() {
    const STEP: usize = MIB;
    for (count, longest) in [(3, 64 * MIB), (8, 48 * MIB), (32, 12 * MIB)] {
        let model = Model::new(fake_in_short(16 << 30, 0), 8 << 30, Config::new());
        for round in 0..3 {
            let before = model.cache.snapshot().grown_by_copying;
            let mut columns: Vec<_> =
                (0..count).map(|_| model.allocate(layout(STEP), false, 1).unwrap()).collect();
            for len in (2 * STEP..=longest).step_by(STEP) {
                columns.iter_mut().for_each(|column| assert!(model.resize(column, len, 0)));
            }
            model.audit(false);
            let copies = model.cache.snapshot().grown_by_copying - before;
            // Up to four times while they are short, and once for each doubling.
            let most = (4 + (longest / (4 * STEP)).ilog2() as usize) * count;
            assert!(copies <= most as u64, "{copies} copies of {count} columns in round {round}");
            columns.into_iter().for_each(|column| model.free(column));
        }
        // What was faulted in for them counts as that.
        let by_size = model.cache.tally.missed_by_size.iter().map(|count| count.load(Ordering::Relaxed));
        assert_eq!(by_size.sum::<u64>(), model.cache.snapshot().misses);
        finish(&model, Vec::new(), true);
    }
}

/// In the middle of a place for three of them, an alignment longer than the block leads past its end.
#[test]
fn columns_of_long_alignment_grow_by_a_fixed_step_where_they_fit() {
    let model = Model::new(fake_in_short(16 << 30, 0), 8 << 30, Config::new());
    let layout = Layout::from_size_align(4 * MIB, 64 * MIB).unwrap();
    let mut columns: Vec<_> = (0..4).map(|_| model.allocate(layout, false, 1).unwrap()).collect();
    // What lies between them.
    let between = Layout::from_size_align(48 * MIB, 16 * MIB).unwrap();
    let walls: Vec<_> = (0..8).map(|_| model.allocate(between, false, 1).unwrap()).collect();
    for len in (5 * MIB..=100 * MIB).step_by(MIB) {
        columns.iter_mut().for_each(|column| assert!(model.resize(column, len, 0)));
    }
    model.audit(true);
    columns.extend(walls);
    finish(&model, columns, true);
}
