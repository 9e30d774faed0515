//! Where blocks go that other threads free.

use super::model::{Live, Model};
use super::ops::finish;
use super::pattern::mix;
use super::runs::{as_thread_of, take, with_free};
use crate::os::fake::Fake;
use crate::sync::atomic::Ordering;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// With memory free, and two threads alive: those of the first two shards.
fn model() -> Model<Fake> {
    let model = with_free(64 * MIB);
    [1, 2].iter().for_each(|&number| model.cache.given.add(number));
    model
}

/// Numbers below what is given, the same each time.
pub(super) fn draws() -> impl FnMut(usize) -> usize {
    let mut nth = 0;
    move |below| {
        nth += 1;
        mix(nth) as usize % below
    }
}

/// Which shard a block is said to be of, by its number, from one on.
fn home(model: &Model<Fake>, block: &Live) -> Option<u32> {
    model.cache.homes(&model.cache.shards()[0]).of(block.block().start)
}

/// Which shards have what begins at `start` in a stack.
fn stacked_in(model: &Model<Fake>, start: usize) -> Vec<usize> {
    let holds = |shard: &usize| {
        let stacks = model.cache.shards()[*shard].lock(model.os());
        stacks.blocks().iter().any(|block| block.start == start)
    };
    (0..model.cache.shards().len()).filter(holds).collect()
}

/// Two blocks that the thread of a shard takes; the first does not lie before the front of its hot run.
fn two(model: &Model<Fake>, shard: usize, size: usize) -> [Live; 2] {
    as_thread_of(shard, || [(); 2].map(|()| take(model, size)))
}

/// Each went on with what the other had written.
#[test]
fn what_another_thread_frees_goes_back_to_the_thread_that_took_it() {
    for size in [64 * KIB, 300 * KIB, MIB, 1500 * KIB, 2 * MIB - 64 * KIB] {
        let model = model();
        let mine = two(&model, 1, size);
        let [theirs, behind] = two(&model, 0, size);
        let start = theirs.block().start;
        assert_eq!(
            [&mine[0], &theirs, &behind].map(|block| home(&model, block)),
            [Some(2), Some(1), Some(1)]
        );
        as_thread_of(1, || model.free(theirs));
        assert_eq!(stacked_in(&model, start), [0], "{size} bytes");
        let in_use = |shard: usize| model.cache.shards()[shard].counts.balance();
        assert_eq!([0, 1].map(in_use), [size as i64, 2 * size as i64]);
        model.audit(true);
        finish(&model, mine.into_iter().chain([behind]).collect(), true);
    }
}

/// It would wait for a thread that has its shard in its hands, or for one that is not there any more.
#[test]
fn what_cannot_go_home_is_of_the_thread_that_frees_it_from_then_on() {
    const SIZE: usize = 300 * KIB;
    for is_alive in [true, false] {
        let model = model();
        let [theirs, behind] = two(&model, 0, SIZE);
        let mine = two(&model, 1, SIZE);
        let start = theirs.block().start;
        if !is_alive {
            model.cache.given.give_back(1);
        }
        let held = is_alive.then(|| model.cache.shards()[0].lock(model.os()));
        as_thread_of(1, || model.free(theirs));
        drop(held);
        assert_eq!(
            (stacked_in(&model, start), model.cache.homes(&model.cache.shards()[0]).of(start)),
            (vec![1], Some(2))
        );
        finish(&model, mine.into_iter().chain([behind]).collect(), true);
    }
}

/// Where threads are given shards in turn, nobody knows which of those have ended.
#[test]
fn where_ends_are_not_told_of_blocks_go_home_all_the_same() {
    let model = model();
    model.cache.given.clear();
    let [theirs, behind] = two(&model, 0, MIB);
    let start = theirs.block().start;
    model.cache.in_turn.store(1, Ordering::Relaxed);
    as_thread_of(1, || model.free(theirs));
    assert_eq!(stacked_in(&model, start), [0]);
    finish(&model, vec![behind], true);
}

/// The next thread had less than nothing in use for its whole life, and each few of those frees ended its hot run.
#[test]
fn what_a_thread_left_that_has_ended_is_freed_at_nobodys_expense() {
    let model = model();
    let shard = &model.cache.shards()[0];
    let left = as_thread_of(0, || [(); 8].map(|()| take(&model, MIB)));
    shard.counts.note_taken_over();
    let [mine, behind] = two(&model, 0, 100 * KIB);
    let begun = shard.lock(model.os()).hot.rest();
    assert!(shard.counts.in_use() == 200 * KIB && begun.len > 0);
    left.into_iter().for_each(|block| as_thread_of(1, || model.free(block)));
    assert_eq!((shard.counts.in_use(), shard.lock(model.os()).hot.rest()), (200 * KIB, begun));
    // What is freed beyond that is its own.
    as_thread_of(1, || model.free(mine));
    assert_eq!(shard.counts.in_use(), 100 * KIB);
    finish(&model, vec![behind], true);
}

/// Whoever freed the last block of a burst waited for the thread whose it was, and merged what that had begun meanwhile.
#[test]
fn the_end_of_anothers_burst_is_left_alone_where_that_thread_has_gone_on() {
    let model = model();
    let shard = &model.cache.shards()[0];
    let burst = as_thread_of(0, || [(); 6].map(|()| take(&model, 200 * KIB)));
    // The latch is held for one of them, which is counted elsewhere: so the end is not seen by itself.
    for (nth, block) in burst.into_iter().enumerate() {
        let held = (nth == 5).then(|| shard.lock(model.os()));
        as_thread_of(1, || model.free(block));
        drop(held);
    }
    let stacked = || shard.lock(model.os()).stacked();
    let its_end_is_seen = || as_thread_of(1, || model.cache.begin_anew(shard, true));
    let held = shard.lock(model.os());
    its_end_is_seen();
    drop(held);
    let next = as_thread_of(0, || take(&model, 200 * KIB));
    its_end_is_seen();
    assert!(stacked() > 0);
    as_thread_of(0, || model.free(next));
    shard.lock(model.os()).end_burst(true, &shard.counts);
    its_end_is_seen();
    assert_eq!(stacked(), 0);
    finish(&model, Vec::new(), true);
}

#[test]
fn whoever_grows_a_block_has_it_from_then_on() {
    let model = model();
    let [mut first, mut last] = two(&model, 0, 300 * KIB);
    // Now the heap's memory lies behind the last one, so that it can grow where it is.
    model.cache.drain();
    for (block, stays) in [(&mut last, true), (&mut first, false)] {
        let start = block.block().start;
        assert!(as_thread_of(1, || model.resize(block, 400 * KIB, 0)));
        assert_eq!((block.block().start == start, home(&model, block)), (stays, Some(2)));
    }
    finish(&model, vec![first, last], true);
}

/// Each way by which memory comes to a shard: hot runs and runs of the heap, fresh memory with more than the block, what lay in other
/// shards, room for vectors, ends that are cut off, and what is merged and cut anew.
#[test]
fn every_block_of_a_class_is_known_to_be_of_the_shard_that_it_came_from() {
    let model = with_free(24 * MIB);
    let mut draw = draws();
    // No thread frees what another took, but all take over what others have at hand.
    let mut held: [Vec<Live>; 3] = Default::default();
    for _ in 0..6000 {
        let shard = draw(3);
        let held = &mut held[shard];
        as_thread_of(shard, || {
            if held.len() > draw(16 * (1 + shard)) {
                let mut block = held.swap_remove(draw(held.len()));
                if draw(4) == 0 {
                    let size = block.layout.size();
                    let other = if draw(2) == 0 { size / 2 } else { size * 2 };
                    if (64 * KIB..2 * MIB - 64 * KIB).contains(&other) && model.resize(&mut block, other, 0) {
                        assert_eq!(home(&model, &block), Some(shard as u32 + 1), "resized to {other}");
                    }
                }
                model.free(block);
            }
            let block = take(&model, (64 << draw(5)) * KIB + draw(60 * KIB));
            if block.layout.size() < 2 * MIB - 64 * KIB {
                assert_eq!(home(&model, &block), Some(shard as u32 + 1), "{} bytes", block.layout.size());
            }
            held.push(block);
        });
    }
    model.audit(true);
    assert!(model.cache.snapshot().stolen > 0);
    finish(&model, held.into_iter().flatten().collect(), true);
}
