//! `alloc_zeroed` over every kind of memory that was used before. Every byte is looked at.
//!
//! What cannot be had here is memory that was swapped out: neither kernel of these tests swaps. To the engine it is
//! memory that `mincore` calls absent, and what `mincore` says never counts as zero; the fake kernel is made to call
//! everything absent instead.

use std::alloc::Layout;

use super::fake;
use super::model::{Live, Model};
use super::ops::{Hooks, Op, finish, one};
use super::pattern::{assert_zero, soil};
use crate::config::{Config, Moves};
use crate::os::fake::errno;
use crate::os::fake::{Call, Fake, PurgeFailure, When};
use crate::os::{Linux, lock_pages};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

/// Lengths of blocks that are soiled: classes, chunks, and what lies beside them.
const SOILED: [usize; 12] = [
    64 * KIB,
    100 * KIB,
    MIB,
    2 * MIB - 4 * KIB,
    2 * MIB,
    3 * MIB,
    4 * MIB + 5,
    6 * MIB,
    9 * MIB,
    12 * MIB,
    19 * MIB,
    24 * MIB,
];

/// Takes blocks and makes every byte of them something else than zero.
fn soiled<O: Hooks>(model: &Model<O>) -> Vec<Live> {
    let quiet = (0..).find(|&seed| model.writes_nothing(seed)).unwrap();
    SOILED
        .iter()
        .map(|&size| {
            let live = model.allocate(layout(size, 64), false, quiet).expect("memory is not short");
            model.os().expect_touches(live.p, size);
            soil(live.p, size);
            live
        })
        .collect()
}

/// Takes zeroed blocks of all sorts until more than was soiled is out, looks at every byte, and soils them.
fn harvest<O: Hooks>(model: &Model<O>, blocks: &mut Vec<Live>) {
    let quiet = (0..).find(|&seed| model.writes_nothing(seed)).unwrap();
    let sizes = [96 * KIB, 2 * MIB, 5 * MIB, 64 * KIB, 8 * MIB, 700 * KIB, 17 * MIB, 3 * MIB, 33 * MIB];
    for turn in 0..27 {
        let align = [8, 4096, 2 * MIB][turn % 3];
        let size = sizes[turn % sizes.len()] + turn * 4096;
        let Some(live) = model.allocate(layout(size, align), true, quiet) else { continue };
        model.os().expect_touches(live.p, size);
        assert_zero(live.p, size, true);
        soil(live.p, size);
        blocks.push(live.soiled());
        if turn % 2 == 0 {
            model.free(blocks.swap_remove(turn % blocks.len()));
        }
    }
}

fn configs() -> [Config; 4] {
    let new = Config::new();
    [new, new.moves(Moves::Never), new.cache_bytes(0), new.cache_bytes(1 << 40)]
}

/// Soils memory, has `between` do something to it, and harvests: three times over, with what the harvests leave.
fn over_the_fake_kernel(prepare: impl Fn(&Fake), between: impl Fn(&Model<Fake>, &mut Vec<Live>)) {
    for config in configs() {
        let os = fake(2 << 30);
        prepare(&os);
        let model = Model::new(os.clone(), 512 * MIB, config);
        let mut blocks = Vec::new();
        for _ in 0..3 {
            blocks.append(&mut soiled(&model));
            between(&model, &mut blocks);
            harvest(&model, &mut blocks);
            model.audit(true);
        }
        os.fail_no_more();
        for live in &blocks {
            os.lock(live.block().start, live.block().len, false);
        }
        finish(&model, blocks, false);
    }
}

fn free_all(model: &Model<Fake>, blocks: &mut Vec<Live>) {
    blocks.drain(..).for_each(|live| model.free(live));
}

/// Frees every second block, so that what is free lies in pieces.
fn free_half(model: &Model<Fake>, blocks: &mut Vec<Live>) {
    one(model, Op::FreeEvery { nth: 2 }, blocks, 1 << 30, 0);
}

#[test]
fn zeroed_after_dirty_runs_and_stacks() {
    over_the_fake_kernel(|_| (), free_all);
    over_the_fake_kernel(|_| (), free_half);
}

#[test]
fn zeroed_after_a_release() {
    over_the_fake_kernel(
        |_| (),
        |model, blocks| {
            free_half(model, blocks);
            model.cache.release();
            free_half(model, blocks);
        },
    );
}

#[test]
fn zeroed_after_softening_and_what_the_kernel_took_of_it() {
    for nth in [0, 1, 3] {
        over_the_fake_kernel(
            |_| (),
            |model, blocks| {
                free_half(model, blocks);
                model.cache.soften();
                let mut seen = 0;
                let spans: Vec<_> = blocks.iter().map(Live::block).collect();
                model.os().reclaim(|granule| {
                    seen += 1;
                    nth > 0 && seen % nth == 0 && !spans.iter().any(|s| (s.start..s.end()).contains(&granule))
                });
            },
        );
    }
}

#[test]
fn zeroed_after_pages_moved() {
    let os = fake(2 << 30);
    let model = Model::new(os.clone(), 512 * MIB, Config::new());
    let mut blocks = Vec::new();
    for round in 0..6 {
        blocks.append(&mut soiled(&model));
        free_half(&model, &mut blocks);
        // Gathered from several pieces, and freed; and a block that grew by moving.
        for size in [20 * MIB, 28 * MIB] {
            let live = model.allocate(layout(size, 8), false, round).unwrap();
            blocks.push(live);
        }
        one(&model, Op::ResizeLast { back: 1, size: 40 * MIB }, &mut blocks, 1 << 30, round);
        free_half(&model, &mut blocks);
        harvest(&model, &mut blocks);
        model.audit(true);
    }
    assert!(model.cache.heap.books().moved > 0);
    finish(&model, blocks, true);
}

#[test]
fn zeroed_after_memory_was_locked_and_could_not_be_purged() {
    over_the_fake_kernel(
        |_| (),
        |model, blocks| {
            for live in blocks.iter().step_by(2) {
                model.os().lock(live.block().start, live.block().len, true);
            }
            free_half(model, blocks);
            model.cache.release();
            model.cache.soften();
            free_half(model, blocks);
        },
    );
}

#[test]
fn zeroed_after_purges_that_failed_halfway() {
    for failure in [PurgeFailure::Keeps, PurgeFailure::Halfway] {
        let prepare = |os: &Fake| {
            os.fail_purges_by(failure);
            os.fail(Call::Purge, When::Every(2), errno::EINVAL);
            os.fail(Call::Heal, When::Every(3), errno::ENOMEM);
        };
        over_the_fake_kernel(prepare, |model, blocks| {
            free_half(model, blocks);
            model.cache.release();
        });
    }
}

#[test]
fn zeroed_after_blocks_that_were_partly_touched() {
    for residency in [true, false] {
        let prepare = |os: &Fake| os.set_facts(|facts| facts.residency = residency);
        over_the_fake_kernel(prepare, |model, blocks| {
            let quiet = (0..).find(|&seed| model.writes_nothing(seed)).unwrap();
            free_all(model, blocks);
            model.cache.release();
            // Untouched but for some pages, which the free must not take for zero.
            for (turn, size) in
                [5 * MIB, 8 * MIB, 33 * MIB, 48 * MIB].into_iter().cycle().take(12).enumerate()
            {
                let live = model.allocate(layout(size, 8), turn % 2 == 0, quiet).unwrap();
                for at in (0..size).step_by(MIB + turn * 100 * KIB) {
                    soil(live.p + at, 1 + turn);
                }
                blocks.push(live.soiled());
                if turn % 3 != 0 {
                    model.free(blocks.swap_remove(turn % blocks.len()));
                }
            }
            free_half(model, blocks);
        });
    }
}

#[test]
fn zeroed_after_memory_that_the_kernel_calls_absent_though_it_is_dirty() {
    over_the_fake_kernel(
        |os| os.call_absent(true),
        |model, blocks| {
            free_half(model, blocks);
            one(model, Op::Scale { which: 1, share: 300 }, blocks, 1 << 30, 0);
        },
    );
}

#[test]
fn zeroed_after_tails_that_blocks_left_when_they_shrank() {
    over_the_fake_kernel(
        |_| (),
        |model, blocks| {
            for block in blocks {
                let size = (block.layout.size() / 3).max(64 * KIB);
                let quiet = (0..).find(|&seed| model.writes_nothing(seed)).unwrap();
                model.resize(block, size, quiet);
            }
        },
    );
}

#[test]
fn zeroed_in_a_forked_child() {
    over_the_fake_kernel(
        |_| (),
        |model, blocks| {
            free_half(model, blocks);
            model.cache.before_fork();
            model.cache.after_fork_in_child();
        },
    );
    for page in [16 * KIB, 64 * KIB] {
        over_the_fake_kernel(
            |os| os.set_facts(|facts| facts.page = page),
            |model, blocks| {
                free_half(model, blocks);
                model.cache.before_fork();
                model.cache.after_fork_in_child();
            },
        );
    }
}

#[test]
fn zeroed_to_the_end_where_the_end_of_a_half_used_block_lies_upon_what_was_written() {
    // Where pages can be moved, it lies elsewhere.
    let model = Model::new(fake(4 << 30), 512 * MIB, Config::new().moves(Moves::Never));
    let quiet = (0..).find(|&seed| model.writes_nothing(seed)).unwrap();
    let take = |size, align, zeroed| {
        model.allocate(layout(size, align), zeroed, quiet).expect("memory is not short")
    };
    let written = |live: &Live, len| {
        model.os().touch(live.p, len);
        soil(live.p, len);
    };
    let half_used = take(64 * MIB, 8, true);
    // A window that holds as much behind as within reach is passed over.
    written(&half_used, 36 * MIB);
    model.free(half_used.soiled());
    model.cache.release();
    // All that is resident lies between two blocks, and has room for all of the next one.
    let [before, piece, behind] = [2, 80, 2].map(|mib| take(mib * MIB, 2 * MIB, false));
    written(&piece, 80 * MIB);
    let inside = piece.block();
    model.free(piece.soiled());
    let live = take(64 * MIB, 8, true);
    assert!(live.block().start >= inside.start && live.block().end() <= inside.end(), "upon it");
    assert_zero(live.p, 64 * MIB, true);
    [before, behind, live].into_iter().for_each(|live| model.free(live));
    finish(&model, Vec::new(), true);
}

#[test]
fn zeroed_over_the_real_kernel() {
    for config in configs() {
        let model = Model::new(Linux, 1 << 36, config);
        let mut blocks = Vec::new();
        for round in 0..8 {
            blocks.append(&mut soiled(&model));
            one(&model, Op::FreeEvery { nth: 2 }, &mut blocks, 1 << 30, 0);
            match round % 4 {
                0 => {}
                1 => drop(model.cache.soften()),
                2 => drop(model.cache.release()),
                _ => one(&model, Op::ResizeLast { back: 1, size: 40 * MIB }, &mut blocks, 1 << 30, 0),
            }
            one(&model, Op::FreeEvery { nth: 2 }, &mut blocks, 1 << 30, 0);
            harvest(&model, &mut blocks);
            model.audit(true);
        }
        finish(&model, blocks, true);
    }
}

#[test]
fn zeroed_over_the_real_kernel_after_a_user_left_memory_locked() {
    let model = Model::new(Linux, 1 << 36, Config::new());
    let mut blocks = soiled(&model);
    // Within what `ulimit -l` allows anybody; where it is refused, the rest is tested.
    let live = blocks.remove(5);
    let (start, len) = (live.block().start, 64 * KIB);
    let locked = lock_pages(start, len, true).is_ok();
    model.free(live);
    model.cache.release();
    harvest(&model, &mut blocks);
    assert_eq!(lock_pages(start, len, false).is_ok(), locked);
    finish(&model, blocks, false);
}

/// Nobody sees which chunks of blocks of a huge page or two are touched, and for want of that all of them were left to the
/// kernel, which faulted each in anew.
#[test]
fn zeroed_blocks_of_a_huge_page_or_two_are_written_where_memory_is_resident() {
    let model = Model::new(fake(2 << 30), 512 * MIB, Config::new());
    let long = model.allocate(layout(64 * MIB, 8), false, 1).unwrap();
    model.os().touch(long.p, 64 * MIB);
    model.free(long);
    let misses = model.cache.snapshot().misses;
    for turn in 0..64 {
        let live = model.allocate(layout(2 * MIB + 8 * KIB + turn * 31 * KIB, 8), true, 1).unwrap();
        model.os().touch(live.p, live.layout.size());
        model.free(live);
    }
    assert_eq!(model.cache.snapshot().misses, misses);
    finish(&model, Vec::new(), false);
}
