//! Programs that keep a little of what they take, or cut it, or stop growing it anywhere: how much memory that takes in the end.

use std::alloc::Layout;

use super::fake_in_short;
use super::model::Model;
use super::ops::finish;
use super::pattern::mix;
use crate::config::Config;
use crate::os::fake::Fake;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn model() -> Model<Fake> {
    Model::new(fake_in_short(8 << 30, 0), 4 << 30, Config::new())
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).unwrap()
}

/// A block, all of it written to, and its size in bytes.
type Block = (*mut u8, usize);

fn take(model: &Model<Fake>, size: usize) -> Block {
    let p = model.cache.allocate(layout(size), &Config::new(), |_| ());
    assert!(!p.is_null());
    model.os().sow(p.addr(), size, 1);
    (p, size)
}

fn free(model: &Model<Fake>, blocks: Vec<Block>) {
    blocks.into_iter().for_each(|(p, size)| model.cache.deallocate(p, layout(size)));
}

/// Makes a block longer or shorter, and writes to all of it.
fn resize(model: &Model<Fake>, (p, size): Block, to: usize) -> Block {
    let now = model.cache.reallocate(p, layout(size), layout(to));
    assert!(!now.is_null());
    model.os().sow(now.addr(), to, 1);
    (now, to)
}

/// A number in a range, the same for the same `turn`.
fn between(turn: usize, low: usize, high: usize) -> usize {
    low + mix(turn as u64) as usize % (high - low)
}

/// Where a shard was full, of runs too short for the next block, ends went to the heap, and the next block began behind them: each third of
/// what was resident was content.
#[test]
fn blocks_that_are_cut_lie_beside_each_other_where_a_shard_is_full() {
    let model = model();
    for round in 0..4 {
        let blocks: Vec<Block> = (0..3000)
            .map(|nth| {
                let room = take(&model, 8 * 32_000);
                resize(&model, room, 8 * (9_000 + nth + round))
            })
            .collect();
        let live: usize = blocks.iter().map(|&(_, size)| size).sum();
        let resident = model.os().resident_bytes();
        assert!(
            resident <= live / 4 * 5 + 24 * MIB,
            "round {round}: {} of {} MiB",
            resident / MIB,
            live / MIB
        );
        free(&model, blocks);
    }
    finish(&model, Vec::new(), true);
}

/// Each hot run began in a piece of 4/3 MiB or more, and what stayed of each split another one.
#[test]
fn a_little_that_stays_of_each_round_does_not_split_all_that_is_free() {
    let model = model();
    let (mut kept, mut turn) = (Vec::new(), 0);
    for _ in 0..40 {
        for _ in 0..8 {
            let some: Vec<Block> = (0..16)
                .map(|_| {
                    turn += 1;
                    take(&model, between(turn, 512 * KIB, 4 * MIB))
                })
                .collect();
            kept.push(take(&model, between(turn, 72 * KIB, 480 * KIB)));
            free(&model, some);
        }
    }
    let live: usize = kept.iter().map(|&(_, size)| size).sum();
    let resident = model.os().resident_bytes();
    assert!(resident <= live + 128 * MIB, "{} of {} MiB", resident / MIB, live / MIB);
    free(&model, kept);
    finish(&model, Vec::new(), true);
}

/// Vectors were given room for as much as a quarter of them get to, and what the others left of it was too short for the next ones.
#[test]
fn vectors_that_stop_growing_anywhere_leave_little_room_behind() {
    let model = model();
    for round in 0..8 {
        let blocks: Vec<Block> = (0..200)
            .map(|nth| {
                let content = (100_000 + nth * 2_250) * 16 / 3;
                model.cache.expect_growth(layout(64 * KIB));
                let mut vector = take(&model, 64 * KIB);
                while vector.1 < content {
                    vector = resize(&model, vector, 2 * vector.1);
                }
                resize(&model, vector, content)
            })
            .collect();
        let live: usize = blocks.iter().map(|&(_, size)| size).sum();
        let resident = model.os().resident_bytes();
        assert!(resident <= live / 8 * 13, "round {round}: {} of {} MiB", resident / MIB, live / MIB);
        free(&model, blocks);
    }
    finish(&model, Vec::new(), true);
}
