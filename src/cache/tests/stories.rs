//! What the other tests found once: each bug's shortest story, told by the name of its test.

use std::alloc::Layout;

use super::fake;
use super::model::{Live, Model};
use super::ops::{Drive, Op, drive, finish, one};
use crate::config::{Config, Moves};
use crate::os::CHUNK;
use crate::os::fake::{Call, Fake, When};

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
    os.fail(Call::Reserve, When::From(1), libc::ENOMEM);
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
