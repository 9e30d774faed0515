//! Vectors that are pushed to, once it is known how long they get.

use std::alloc::Layout;

use super::fake;
use super::model::{Live, Model};
use super::ops::finish;
use super::pattern::mix;
use super::runs::{as_thread_of, take, two_mappings};
use crate::cache::Snapshot;
use crate::config::Config;
use crate::os::fake::Fake;
use crate::sync::atomic::Ordering;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn model() -> Model<Fake> {
    Model::new(fake(4 << 30), 1 << 30, Config::new())
}

/// A vector comes over from the small side.
fn begin(model: &Model<Fake>) -> Live {
    model.cache.expect_growth(Layout::from_size_align(64 * KIB, 8).unwrap());
    take(model, 64 * KIB)
}

/// Pushes to a vector until it has room for `bytes`. Gives how often it was copied.
fn push_to(model: &Model<Fake>, vector: &mut Live, bytes: usize) -> u64 {
    let before = model.cache.snapshot().grown_by_copying;
    while vector.layout.size() < bytes {
        let longer = vector.layout.size() * 2;
        assert!(model.resize(vector, longer, 0));
    }
    model.cache.snapshot().grown_by_copying - before
}

/// So many threads push to vectors, so many at once each, one after the other, and free them together.
fn one_after_the_other(model: &Model<Fake>, threads: usize, alive: usize, bytes: usize) -> u64 {
    let mut copies = 0;
    let mut blocks = Vec::new();
    for thread in 0..threads {
        as_thread_of(thread, || {
            for _ in 0..alive {
                let mut vector = begin(model);
                copies += push_to(model, &mut vector, bytes);
                model.os().touch(vector.p, bytes);
                blocks.push((thread, vector));
            }
        });
    }
    model.audit(false);
    for (thread, vector) in blocks {
        as_thread_of(thread, || model.free(vector));
    }
    copies
}

/// A thread pushes to vectors in turn.
fn in_step(model: &Model<Fake>, count: usize, bytes: usize) -> u64 {
    let mut vectors: Vec<_> = (0..count).map(|_| begin(model)).collect();
    let mut copies = 0;
    let mut size = 128 * KIB;
    while size <= bytes {
        copies += vectors.iter_mut().map(|vector| push_to(model, vector, size)).sum::<u64>();
        size *= 2;
    }
    model.audit(false);
    vectors.into_iter().for_each(|vector| model.free(vector));
    copies
}

fn fresh(before: &Snapshot, model: &Model<Fake>) -> u64 {
    model.cache.snapshot().misses - before.misses
}

/// Whatever got longer than the hot run was copied, in each round, and asked all threads for what they had.
#[test]
fn vectors_that_are_pushed_to_are_copied_no_more_once_it_is_known_how_long_they_get() {
    for (threads, alive, bytes) in [(1, 1, 8 * MIB), (4, 4, 8 * MIB), (4, 3, 2 * MIB), (2, 2, 32 * MIB)] {
        let model = model();
        for _ in 0..3 {
            one_after_the_other(&model, threads, alive, bytes);
        }
        let before = model.cache.snapshot();
        let copies: u64 = (0..3).map(|_| one_after_the_other(&model, threads, alive, bytes)).sum();
        assert_eq!((copies, fresh(&before, &model)), (0, 0), "{threads} threads, {alive} of {bytes} bytes");
        finish(&model, Vec::new(), true);
    }
}

/// All of them lay one behind the other where they began.
#[test]
fn columns_that_are_pushed_to_in_turn_are_copied_no_more_either() {
    for (count, bytes) in [(8, 32 * MIB), (32, 8 * MIB), (64, MIB)] {
        let model = model();
        for _ in 0..3 {
            in_step(&model, count, bytes);
        }
        // More rounds than it takes to count as alone.
        let copies: u64 = (0..20).map(|_| in_step(&model, count, bytes)).sum();
        assert_eq!(copies, 0, "{count} columns of {bytes} bytes");
        finish(&model, Vec::new(), true);
    }
}

/// Tables of many widths that get their rows in turn: each had room for as much as the longest got to, and what lay between them fitted
/// nobody else. 198 MiB took 228 in the first round, and 350 in the tenth.
#[test]
fn columns_of_many_speeds_leave_no_more_between_them_each_round() {
    let model = model();
    // Lengths in the end of 20 KB to 4 MB, as often of one doubling as of another.
    let ends: Vec<usize> =
        (0..200).map(|nth| (20_000.0 * 200_f64.powf(f64::from(nth * 77 % 200) / 200.0)) as usize).collect();
    // When each is full, in thousandths of the round; the small side's doublings are not ours.
    let mut fills: Vec<(usize, usize, usize)> = Vec::new();
    for (nth, &end) in ends.iter().enumerate() {
        let sizes = (0..).map(|doublings| (64 * KIB) << doublings).take_while(|size| size / 2 < end);
        fills.extend(sizes.map(|size| (size / 2 * 1000 / end, nth, size)));
    }
    fills.sort_unstable();
    let round = || {
        let mut vectors: Vec<Option<Live>> = ends.iter().map(|_| None).collect();
        for &(_, nth, size) in &fills {
            match &mut vectors[nth] {
                Some(vector) => assert!(model.resize(vector, size, 0)),
                none => *none = Some(begin(&model)),
            }
        }
        vectors.into_iter().flatten().for_each(|vector| model.free(vector));
    };
    round();
    let first = model.cache.snapshot();
    (0..12).for_each(|_| round());
    model.audit(false);
    let faulted = |snapshot: &Snapshot| snapshot.fresh + snapshot.fresh_beside;
    let more = faulted(&model.cache.snapshot()) - faulted(&first);
    assert!(more <= 80 * MIB as u64, "{} MiB", more >> 20);
}

/// Vectors began at the end of resident memory and went on where there was none. So pages were moved there, in each round
/// further on, and long blocks lay elsewhere than short ones.
#[test]
fn vectors_and_long_blocks_that_are_alone_all_begin_where_the_last_one_did() {
    let model = model();
    let begin_at = |sizes: &[usize]| -> Vec<usize> {
        let one = |&bytes: &usize| {
            let block = take(&model, bytes);
            let start = block.block().start;
            model.free(block);
            start
        };
        sizes.iter().map(one).collect()
    };
    let round = || {
        // One of five gets longer than the room that is made.
        for bytes in [8 * MIB, 8 * MIB, 64 * MIB, 8 * MIB, 8 * MIB] {
            one_after_the_other(&model, 1, 1, bytes);
        }
        begin_at(&[24 * MIB, 5 * MIB, 40 * MIB])
    };
    (0..8).for_each(|_| _ = round());
    let gathered = || model.cache.snapshot().books.gathered;
    let before = gathered();
    for _ in 0..8 {
        let starts = round();
        assert!(starts.iter().all(|&start| start == starts[0]), "{starts:x?}");
    }
    assert_eq!(gathered() - before, 0);
    // Beside a table that stays, long ones do too.
    let table = take(&model, MIB);
    let starts = begin_at(&[[24 * MIB, 40 * MIB, 48 * MIB]; 8].concat());
    assert!(starts[8..].iter().all(|&start| start == starts[8]), "{starts:x?}");
    // Beside much of another thread's they lie at the end.
    let others = as_thread_of(1, || (0..3).map(|_| take(&model, 5 * MIB)).collect::<Vec<_>>());
    let starts = as_thread_of(0, || begin_at(&[24 * MIB, 40 * MIB]));
    assert_eq!(starts[0] + 24 * MIB, starts[1] + 40 * MIB, "{starts:x?}");
    finish(&model, others.into_iter().chain([table]).collect(), true);
}

/// Each began at the end of what was free, and what was cut off it was a gap that was too short for the next one: of 40 in a round
/// each was copied about twice, and 176 MiB were resident.
#[test]
fn vectors_that_are_cut_to_what_they_hold_lie_beside_each_other() {
    let model = model();
    let mut nth = 0;
    let mut round = || {
        let mut copies = 0;
        let blocks: Vec<_> = (0..40)
            .map(|_| {
                let mut vector = begin(&model);
                nth += 1;
                let len = MIB + (mix(nth) % (5 * MIB) as u64) as usize;
                copies += push_to(&model, &mut vector, len);
                model.os().touch(vector.p, len);
                assert!(model.resize(&mut vector, len, 0));
                vector
            })
            .collect();
        blocks.into_iter().for_each(|vector| model.free(vector));
        copies
    };
    (0..4).for_each(|_| _ = round());
    let copies: u64 = (0..8).map(|_| round()).sum();
    let resident = model.os().resident_bytes();
    assert!(copies < 80 && resident <= 170 * MIB, "{copies} copies, {} MiB", resident >> 20);
    finish(&model, Vec::new(), true);
}

/// Only what is taken from the heap tells whether a thread is alone with it: it was asked for room that was at hand, too.
#[test]
fn room_that_is_at_hand_says_nothing_of_who_is_alone() {
    let model = model();
    let other = as_thread_of(1, || take(&model, 5 * MIB));
    as_thread_of(0, || {
        let mut asked = 0;
        for nth in 0..12 {
            let vectors: Vec<_> = (0..3)
                .map(|_| {
                    model.cache.alone.store(3, Ordering::Relaxed);
                    let mut vector = begin(&model);
                    asked += usize::from(nth >= 8 && model.cache.alone.load(Ordering::Relaxed) != 3);
                    push_to(&model, &mut vector, 2 * MIB);
                    vector
                })
                .collect();
            vectors.into_iter().for_each(|vector| model.free(vector));
        }
        assert_eq!(asked, 0);
    });
    finish(&model, vec![other], true);
}

/// Room is made of what is free and resident, and nobody is asked for what he has at hand.
#[test]
fn no_room_is_made_of_fresh_memory_or_of_what_others_have() {
    let model = model();
    let mut blocks = vec![begin(&model)];
    push_to(&model, &mut blocks[0], 8 * MIB);
    model.cache.release();
    let held = as_thread_of(1, || {
        let freed: Vec<_> = (0..7).map(|_| take(&model, MIB)).collect();
        freed.into_iter().for_each(|block| model.free(block));
        model.cache.shards()[1].lock(model.os()).bytes()
    });
    assert!(held > 4 * MIB, "{held}");
    let before = model.cache.snapshot();
    as_thread_of(0, || model.cache.expect_growth(Layout::from_size_align(64 * KIB, 8).unwrap()));
    assert_eq!(fresh(&before, &model), 0);
    assert_eq!(model.cache.shards()[1].lock(model.os()).bytes(), held);
    assert_eq!(model.cache.shards()[0].lock(model.os()).hot.rest().len, 0);
    finish(&model, blocks, true);
}

/// With room for a vector of 32 MiB, a shard was full, and no freed block had a place on its stacks.
#[test]
fn room_is_no_part_of_what_a_shard_may_hold() {
    let model = model();
    for _ in 0..2 {
        one_after_the_other(&model, 1, 1, 32 * MIB);
    }
    let vector = begin(&model);
    let room = || model.cache.shards()[0].lock(model.os()).hot.rest().len;
    assert!(room() > 30 * MIB);
    let mut blocks: Vec<_> = (0..20).map(|nth| take(&model, (80 + 10 * nth) * KIB)).collect();
    // The last one lies at the front of the hot run, and the others go on stacks.
    let last = blocks.pop();
    blocks.into_iter().for_each(|block| model.free(block));
    let stacks = model.cache.shards()[0].lock(model.os());
    let stacked = stacks.bytes() - stacks.hot.rest().len - stacks.runs.bytes();
    drop(stacks);
    assert!(room() > 28 * MIB && stacked > 3 * MIB, "{} and {stacked}", room());
    finish(&model, [Some(vector), last].into_iter().flatten().collect(), true);
}

/// It would come on top of what a ceiling allows.
#[test]
fn under_a_ceiling_no_room_is_longer_than_a_hot_run() {
    let ceiling = 256 * MIB;
    let model = Model::new(fake(4 << 30), 1 << 30, Config::new().cache_bytes(ceiling));
    for _ in 0..3 {
        one_after_the_other(&model, 4, 1, 32 * MIB);
        let vectors: Vec<_> = (0..4).map(|thread| as_thread_of(thread, || begin(&model))).collect();
        for shard in model.cache.shards() {
            assert!(shard.lock(model.os()).hot.rest().len <= crate::cache::hot::HOT_MAX);
        }
        vectors.into_iter().for_each(|vector| model.free(vector));
    }
    finish(&model, Vec::new(), true);
}

/// Each brought a node more than it took.
#[test]
fn no_more_nodes_are_set_aside_however_many_vectors_are_pushed_to() {
    let model = model();
    for _ in 0..1_000 {
        one_after_the_other(&model, 1, 1, 8 * MIB);
    }
    let tokens = model.cache.shards()[0].lock(model.os()).tokens;
    assert!(tokens < 4 * crate::cache::hot::TOKENS, "{tokens}");
    finish(&model, Vec::new(), true);
}

/// What a long vector leaves is one piece in the heap again, which serves blocks of any thread.
#[test]
fn a_long_vector_that_is_freed_leaves_no_room_behind() {
    let model = model();
    for _ in 0..2 {
        one_after_the_other(&model, 1, 1, 16 * MIB);
    }
    let mut vector = begin(&model);
    push_to(&model, &mut vector, 8 * MIB);
    let rest = || model.cache.shards()[0].lock(model.os()).hot.rest().len;
    assert!(rest() > 7 * MIB);
    model.free(vector);
    assert_eq!(rest(), 0);
    finish(&model, Vec::new(), true);
}

/// A temporary block behind it stayed there for ever, and the vector was copied each time it grew.
#[test]
fn what_is_freed_behind_a_vector_is_room_for_it_again() {
    let model = model();
    for _ in 0..2 {
        one_after_the_other(&model, 1, 1, 16 * MIB);
    }
    let mut vector = begin(&model);
    let mut copies = 0;
    for size in (17..=24).map(|log| 1 << log) {
        let behind = take(&model, 100 * KIB);
        model.free(behind);
        copies += push_to(&model, &mut vector, size);
    }
    assert_eq!(copies, 0);
    finish(&model, vec![vector], true);
}

/// One that came to lie right before the mapping of the run.
#[test]
fn no_block_goes_on_into_a_run_of_the_next_mapping() {
    let (model, mut blocks, mut before, behind) = two_mappings();
    model.free(behind);
    // The beginning of the next mapping is what the shard has.
    let mut short: Vec<_> = (0..7).map(|_| take(&model, MIB - 64)).collect();
    assert_eq!(short.iter().map(|block| block.block().start).min(), Some(before.block().end()));
    for shard in model.cache.shards() {
        model.cache.drain_hot(shard);
    }
    short.drain(..).for_each(|block| model.free(block));
    // As if it had been kept when there was one mapping.
    for shard in model.cache.shards() {
        shard.lock(model.os()).runs.borders = false;
    }
    let longer = before.layout.size() + 100 * KIB;
    assert!(model.resize(&mut before, longer, 0));
    model.audit(true);
    blocks.push(before);
    finish(&model, blocks, true);
}

#[test]
fn a_block_goes_on_in_a_run_of_its_shard_that_lies_right_behind_it() {
    let model = model();
    let mut blocks: Vec<_> = (0..30).map(|_| take(&model, 1400 * KIB)).collect();
    blocks.sort_by_key(|block| block.p);
    let at = blocks.windows(2).position(|pair| pair[0].block().end() == pair[1].block().start).unwrap();
    let behind = blocks.remove(at + 1);
    let mut before = blocks.remove(at);
    // Off the stacks into the runs.
    model.free(behind);
    blocks.drain(..12).for_each(|block| model.free(block));
    let start = before.block().start;
    let copied = model.cache.snapshot().copied;
    assert!(model.resize(&mut before, 2000 * KIB, 0));
    assert_eq!((before.block().start, model.cache.snapshot().copied), (start, copied));
    blocks.push(before);
    finish(&model, blocks, true);
}
