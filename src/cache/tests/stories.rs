//! What the other tests found once: each bug's shortest story, told by the name of its test.

use std::alloc::Layout;

use super::model::{Live, Model};
use super::ops::{Drive, Op, drive, finish, one};
use super::runs::{pages, two_mappings};
use super::{fake, fake_in_short};
use crate::config::{Config, Moves, Thp};
use crate::heap::Unit;
use crate::os::CHUNK;
use crate::os::fake::errno;
use crate::os::fake::{Call, Fake, MoveFailure, RemapFailure, When};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

const QUIET: Drive = Drive { live_max: 1 << 30, audit_every: 1, seed: 0 };

fn allocate(size: usize, align: usize, zeroed: bool) -> Op {
    Op::Allocate { size, align, zeroed }
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).unwrap()
}

fn model(os: Fake) -> Model<Fake> {
    Model::new(os, 512 * MIB, Config::new())
}

/// Takes a block and leaves it as it came.
fn untouched(model: &Model<Fake>, size: usize, zeroed: bool) -> Live {
    let seed = (0..).find(|&seed| model.writes_nothing(seed)).unwrap();
    model.allocate(layout(size), zeroed, seed).unwrap()
}

#[test]
fn a_block_that_grew_by_copying_was_counted_as_freed_but_never_as_allocated() {
    let ops = [
        allocate(64 * KIB, 1, false),
        allocate(64 * KIB, 1, false),
        Op::Resize { which: 0, size: 64 * KIB + 65 },
    ];
    let model = model(fake(2 << 30));
    finish(&model, drive(&model, &ops, QUIET), true);
}

#[test]
fn a_block_that_shrank_was_expected_to_stay_untouched_at_its_old_length() {
    let model = model(fake(2 << 30));
    // Blocks of this length are learned to be hardly touched.
    for _ in 0..4 {
        let block = untouched(&model, 48 * MIB, true);
        model.free(block);
    }
    let mut block = untouched(&model, 48 * MIB, true);
    assert!(model.cache.heap.level().out < 24 * MIB, "the next one is expected to stay so");
    model.resize(&mut block, MIB, 0);
    model.audit(true);
    assert_eq!(model.cache.heap.level().out, model.cache.heap.books().out);
    finish(&model, vec![block], true);
}

#[test]
fn a_child_on_a_kernel_of_large_pages_purged_past_the_end_of_what_it_reused() {
    let os = fake(2 << 30);
    os.set_facts(|facts| facts.page = 64 * KIB);
    let ops = [
        allocate(3 * MIB + 5 * KIB, 8, false),
        allocate(3 * MIB + 5 * KIB, 8, false),
        Op::Free { which: 0 },
        Op::ForkChild,
        allocate(3 * MIB + 5 * KIB, 8, false),
        allocate(64 * MIB, 8, false),
    ];
    let model = model(os);
    finish(&model, drive(&model, &ops, QUIET), true);
}

#[test]
fn sixteen_times_an_odd_amount_of_ram_was_reserved_to_the_byte() {
    let os = fake(2 << 30);
    os.set_facts(|facts| facts.ram = 32 * MIB + 4 * KIB);
    let model = Model::new(os, CHUNK, Config::new());
    finish(&model, drive(&model, &[allocate(64 * KIB, 8, false)], QUIET), true);
}

#[test]
fn a_release_on_a_kernel_of_large_pages_kept_pages_that_were_dirty_in_part() {
    let os = fake(2 << 30);
    os.set_facts(|facts| facts.page = 64 * KIB);
    let model = Model::new(os, 512 * MIB, Config::new().moves(Moves::Never));
    let ops = [allocate(MIB + 5 * KIB, 8, false), allocate(2 * MIB + 5 * KIB, 8, false)];
    finish(&model, drive(&model, &ops, QUIET), true);
}

#[test]
fn a_growing_block_was_moved_into_a_plain_mapping_which_keeps_no_record_of_it() {
    let os = fake(2 << 30);
    let model = Model::new(os.clone(), 64 * MIB, Config::new());
    let grown = drive(&model, &[allocate(24 * MIB, 8, false), allocate(24 * MIB, 8, false)], QUIET);
    os.fail(Call::Reserve, When::From(1), errno::ENOMEM);
    // Leaves a plain mapping that is free and never touched, but for its first megabyte.
    let plain = drive(&model, &[allocate(80 * MIB, 8, true)], QUIET);
    assert_eq!(model.cache.heap.regions(), (1, 1));
    let mut blocks = [grown, plain].into_iter().flatten().collect::<Vec<_>>();
    one(&model, Op::Resize { which: 2, size: MIB }, &mut blocks, 1 << 30, 0);
    model.cache.release();
    one(&model, Op::Resize { which: 0, size: 40 * MIB }, &mut blocks, 1 << 30, 0);
    model.audit(true);
    finish(&model, blocks, true);
}

#[test]
fn a_plain_mapping_came_to_lie_in_a_hole_of_the_reservation_whose_rest_was_nobodys_then() {
    let os = fake_in_short(2 << 30, 0);
    let mut model = Model::new(os.clone(), 256 * MIB, Config::new());
    model.may_refuse = true;
    let ops = [allocate(90 * MIB, 8, false), allocate(MIB, 8, false)];
    let mut blocks = drive(&model, &ops, QUIET);
    os.fail(Call::Reserve, When::From(1), errno::ENOMEM);
    os.fail(Call::Move, When::Nth(1), errno::ENOMEM);
    os.fail_moves_by(MoveFailure::LetsForeignIn);
    one(&model, Op::Resize { which: 0, size: 100 * MIB }, &mut blocks, 1 << 30, 0);
    assert_eq!(os.retired().len(), 1, "a target was lost, and somebody else is in the middle of it");
    let hole = os.retired()[0].clone();
    // Others take what lies lower, and the hole's first half; its second is where the next mapping comes to lie.
    while os.map_foreign(None, 32 * MIB).unwrap() < hole.start {}
    let before = os.retired();
    while os.retired() == before {
        one(&model, allocate(16 * MIB, 8, false), &mut blocks, 1 << 30, 0);
        assert!(blocks.len() < 60, "the hole is used at last");
    }
    model.audit(true);
    one(&model, Op::FreeEvery { nth: 2 }, &mut blocks, 1 << 30, 0);
    model.audit(true);
    finish(&model, blocks, true);
}

#[test]
fn at_the_limit_of_mappings_each_gathered_block_lost_address_space() {
    let os = fake(2 << 30);
    let mut model = Model::new(os.clone(), 512 * MIB, Config::new());
    model.may_refuse = true;
    let ops = [24 * MIB, MIB, 24 * MIB, MIB, 24 * MIB, MIB].map(|size| allocate(size, 8, false));
    let mut blocks = drive(&model, &ops, QUIET);
    for which in [4, 2, 0] {
        one(&model, Op::Free { which }, &mut blocks, 1 << 30, 0);
    }
    os.fail(Call::Move, When::From(1), errno::ENOMEM);
    // The kernel refuses before it touches the target: what would be plugged is still there.
    os.fail_moves_by(MoveFailure::Clean);
    os.fail(Call::Plug, When::From(1), errno::EEXIST);
    // Each is longer than what is free in one piece by then.
    for size in [60 * MIB, 90 * MIB, 130 * MIB, 190 * MIB] {
        one(&model, allocate(size, 8, false), &mut blocks, 1 << 30, 0);
        let which = blocks.len() - 1;
        one(&model, Op::Free { which }, &mut blocks, 1 << 30, 0);
    }
    assert_eq!(os.calls(Call::Plug), 1, "no page is moved after that");
    assert_eq!(os.retired().len(), 1);
    model.audit(true);
    finish(&model, blocks, true);
}

#[test]
fn a_block_in_a_hole_of_the_small_pages_was_taken_for_one_of_them() {
    let os = fake_in_short(4 << 30, 0);
    let model = Model::new(os.clone(), 256 * MIB, Config::new());
    // Blocks of this length are learned to be hardly touched, and come from small pages.
    for _ in 0..8 {
        let block = untouched(&model, 48 * MIB, true);
        model.free(block);
    }
    let fresh = model.cache.snapshot().fresh;
    let block = untouched(&model, 48 * MIB, true);
    assert!(model.cache.is_thin(block.block()), "served in small pages");
    // As all that is handed out untouched; each page of it counted as a fault that did not happen.
    assert_eq!(model.cache.snapshot().fresh - fresh, block.block().len as u64);
    os.fail(Call::Close, When::From(1), errno::ENOMEM);
    os.fail(Call::Plug, When::From(1), errno::EEXIST);
    os.fail_remaps_by(RemapFailure::Unmaps);
    model.free(block);
    model.cache.thin.release();
    let holes = os.retired();
    os.fail_no_more();
    os.fail(Call::Reserve, When::From(1), errno::ENOMEM);
    let thin_hole = |p: usize| holes.iter().any(|hole| hole.contains(&p));
    assert!(model.cache.thin.books().retired > 0, "lost of the small pages");
    // Others take all that lies lower, and the hole's beginning.
    while os.map_foreign(None, 2 * MIB).is_some_and(|at| !thin_hole(at)) {}
    let mut blocks = Vec::new();
    while blocks.last().is_none_or(|last: &Live| !thin_hole(last.p)) {
        one(&model, allocate(12 * MIB, 8, false), &mut blocks, 1 << 30, 0);
        assert!(blocks.len() < 60, "the hole is used at last");
    }
    model.audit(true);
    finish(&model, blocks, true);
}

#[test]
fn a_hot_run_went_on_into_the_next_mapping_and_a_block_lay_in_both() {
    let (model, mut blocks, before, behind) = two_mappings();
    // The end of one mapping is as long as three blocks, of which a hot run gives two.
    let three = 3 * (MIB + 4 * KIB);
    model.free(before);
    blocks.extend(model.allocate(pages(8 * MIB - three), false, 1));
    let cut = [0; 2].map(|_| model.allocate(layout(MIB - 64), false, 1).unwrap());
    assert_eq!(cut[1].block().end() + MIB + 4 * KIB, behind.block().start, "the third is left");
    blocks.extend(cut);
    // What is left is too short for the next block, and what is free lies behind it, in the next mapping.
    model.free(behind);
    blocks.extend(model.allocate(layout(MIB + 256 * KIB - 64), false, 1));
    model.audit(true);
    finish(&model, blocks, true);
}

/// A block of 70 MiB that was moved to a hundred and something, and what lies behind where it was.
fn moved_once(os: &Fake) -> (Model<Fake>, Vec<Live>) {
    let model = Model::new(os.clone(), 1 << 30, Config::new());
    let ops = [
        allocate(70 * MIB + 300 * KIB, 8, false),
        allocate(3 * MIB, 8, false),
        Op::ResizeLast { back: 1, size: 100 * MIB + 300 * KIB },
    ];
    let blocks = drive(&model, &ops, QUIET);
    assert_eq!(model.cache.snapshot().grown_by_moving, 1);
    (model, blocks)
}

#[test]
fn the_ends_of_a_block_that_moved_away_are_not_zero() {
    let os = fake_in_short(4 << 30, 0);
    let (model, blocks) = moved_once(&os);
    // What is booked as zero is looked at.
    model.audit(true);
    finish(&model, blocks, true);
}

#[test]
fn what_has_moved_is_copied_home_when_the_rest_cannot_follow() {
    let os = fake_in_short(4 << 30, 0);
    let (model, mut blocks) = moved_once(&os);
    let grown = blocks.iter().position(|b| b.layout.size() > 99 * MIB).unwrap();
    // What lies behind it cannot be opened, so that it has to move, in two parts: it lies in two VMAs now.
    os.fail(Call::Open, When::Nth(1), errno::ENOMEM);
    os.fail(Call::Open, When::Nth(2), errno::ENOMEM);
    os.fail(Call::Move, When::Nth(2), errno::ENOMEM);
    os.fail_moves_by(MoveFailure::LetsForeignIn);
    one(&model, Op::Resize { which: grown, size: 160 * MIB }, &mut blocks, 1 << 30, 0);
    assert_eq!((os.calls_failed(), os.retired().len()), (3, 1), "the second part was refused");
    model.audit(true);
    finish(&model, blocks, true);
}

#[test]
fn what_shared_a_huge_page_with_a_freed_block_stayed_in_memory_and_served_nobody() {
    for (thp, is_huge) in [(Thp::Always, true), (Thp::Never, false)] {
        // Under a small ceiling, or the shard would keep them.
        let model = Model::new(fake(2 << 30), 512 * MIB, Config::new().thp(thp).cache_bytes(64 * MIB));
        let dirty = || model.cache.heap.books().dirty;
        let [first, second] = [0; 2].map(|_| model.allocate(layout(3 * MIB), false, 1).unwrap());
        let (len, end) = (second.block().len, second.block().end());
        let rest = if is_huge { end.next_multiple_of(CHUNK) - end } else { 0 };
        model.free(second);
        model.audit(true);
        assert_eq!(dirty(), len + rest);
        model.free(first);
        model.audit(true);
        assert_eq!(dirty(), 2 * len + rest);
        // All of it serves whoever comes next.
        let third = model.allocate(layout(2 * len + rest - 4 * KIB), false, 1).unwrap();
        assert_eq!((third.block().len, model.cache.snapshot().fresh), (2 * len + rest, 2 * len as u64));
        model.free(third);
        finish(&model, Vec::new(), true);
    }
}

#[test]
fn a_little_too_much_took_a_whole_huge_page_which_the_next_round_faulted_in_again() {
    let model = model(fake(2 << 30));
    let block = model.allocate(layout(16 * MIB), false, 1).unwrap();
    model.free(block);
    let purge = |excess| model.cache.heap.purge(excess, Unit::Chunks);
    assert_eq!([1, CHUNK - 1, CHUNK, 2 * CHUNK + 1].map(purge), [0, 0, CHUNK, 2 * CHUNK]);
    finish(&model, Vec::new(), true);
}

/// A vector grew in a hot run and shrank; of its end somebody made a zeroed block, which came back as what it had been
/// cut from.
#[test]
fn a_block_that_was_put_back_left_its_note_to_the_next_one() {
    let model = model(fake(2 << 30));
    let long = untouched(&model, 128 * MIB, false);
    model.os().touch(long.p, 128 * MIB);
    model.free(long);
    let mut vector = untouched(&model, 64 * KIB, false);
    while vector.layout.size() < 4 * MIB {
        let longer = 2 * vector.layout.size();
        assert!(model.resize(&mut vector, longer, 0));
    }
    assert!(model.resize(&mut vector, MIB, 0));
    let zeroed = untouched(&model, 3 * MIB - 4 * KIB, true);
    let start = zeroed.block().start;
    model.free(zeroed);
    assert_eq!(model.cache.take_note(start), None);
    finish(&model, vec![vector], true);
}

/// What was allocated through a shard that was in use at the moment of reading was left out, so that the sum went back.
#[test]
fn what_was_allocated_is_counted_whoever_is_at_it() {
    let model = model(fake(2 << 30));
    let block = untouched(&model, MIB, false);
    let held: Vec<_> = model.cache.shards().iter().map(|shard| shard.lock(model.cache.os())).collect();
    assert_eq!(model.cache.snapshot().allocated, MIB as u64);
    drop(held);
    finish(&model, vec![block], true);
}

/// Of blocks that are a little longer than a huge page hardly one that is free holds a whole one. Each look at the limits went over
/// all of them, under the lock that all threads share: 40 us a request with 32,768 such blocks.
#[test]
fn a_purge_goes_over_a_few_pieces_and_goes_on_there_the_next_time() {
    let model = Model::new(fake_in_short(2 << 30, 0), 1 << 30, Config::new());
    let mut blocks: Vec<Live> = (0..400).map(|_| untouched(&model, 2 * MIB + 4 * KIB, false)).collect();
    blocks.sort_by_key(|block| block.p);
    let (stay, go): (Vec<_>, Vec<_>) = blocks.into_iter().enumerate().partition(|(nth, _)| nth % 2 == 0);
    let holds_chunk = |block: &Live| !block.block().inner(CHUNK).is_empty();
    let place = go.iter().rev().position(|(_, block)| holds_chunk(block)).unwrap();
    assert!(place > 64 && go.iter().filter(|(_, block)| holds_chunk(block)).count() == 1);
    go.into_iter().for_each(|(_, block)| model.free(block));
    let purges: Vec<usize> = (0..20).map(|_| model.cache.heap.purge(CHUNK, Unit::Chunks)).collect();
    // Another one lies at the end, where what shares the last huge page is free too.
    assert_eq!(purges[..4], [CHUNK, 0, 0, CHUNK]);
    assert_eq!(purges.iter().sum::<usize>(), 2 * CHUNK);
    model.audit(true);
    finish(&model, stay.into_iter().map(|(_, block)| block).collect(), true);
}

/// Long blocks between survivors left pieces without a whole chunk, which nobody purged while memory was to be had: all of it stayed
/// for ever, however much more than the program had had in use of late.
#[test]
fn what_lies_between_survivors_does_not_stay_beyond_what_may_be_resident() {
    let model = Model::new(fake_in_short(2 << 30, 0), 1 << 30, Config::new());
    // Aligned to more than a page, so that it is taken beside the long one and not from a hot run.
    let survivor = Layout::from_size_align(64 * KIB, 8 * KIB).unwrap();
    let pairs: Vec<_> = (0..100)
        .map(|_| {
            let long = untouched(&model, 2 * MIB + 4 * KIB, false);
            (long, model.allocate(survivor, false, 1).unwrap())
        })
        .collect();
    let (long, survivors): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    long.into_iter().for_each(|block| model.free(block));
    let dirty = || model.cache.heap.books().dirty + model.cache.stacked();
    assert!(dirty() > 190 * MIB);
    // Until that peak is forgotten: two windows of sixteen.
    for _ in 0..2 * 16 * 200 + 3000 {
        model.free(untouched(&model, MIB, false));
    }
    // Some 10 MiB are in use, and as much as that is allowed twice.
    let (dirty, stacked) = (model.cache.heap.books().dirty, model.cache.stacked());
    assert!(dirty < 40 * MIB && stacked < 15 * MIB, "{dirty} and {stacked}");
    model.audit(true);
    finish(&model, survivors, true);
}
