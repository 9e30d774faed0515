//! What threads have at hand, and when a block of another one is made of it.

use super::fake;
use super::model::{Live, Model};
use super::ops::finish;
use super::runs::{as_thread_of, take};
use crate::config::Config;
use crate::heap::Unit;
use crate::os::fake::{Call, Fake, When, errno};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn model() -> Model<Fake> {
    Model::new(fake(2 << 30), 512 * MIB, Config::new())
}

/// Has the second thread take so much and keep it, and free some blocks. Gives what it keeps.
fn with_some_at_hand(model: &Model<Fake>, used: usize) -> Option<Live> {
    with_at_hand(model, used, &[80, 96, 112, 200])
}

/// The same, with blocks of so many KiB.
fn with_at_hand(model: &Model<Fake>, used: usize, freed: &[usize]) -> Option<Live> {
    as_thread_of(1, || {
        let blocks: Vec<_> = freed.iter().map(|kib| take(model, kib * KIB)).collect();
        let kept = (used > 0).then(|| take(model, used));
        blocks.into_iter().for_each(|block| model.free(block));
        kept
    })
}

fn held(model: &Model<Fake>) -> usize {
    model.cache.shards()[1].lock(model.os()).bytes()
}

/// Where each thread's blocks come from what others freed, filling them costs twice as much.
#[test]
fn what_others_have_at_hand_stays_there_while_all_of_it_is_little() {
    let some: &[_] = &[80, 96, 112, 200];
    for (mine, theirs, freed, stays) in [
        (4 * MIB, 2 * MIB, some, true),
        // More is in use than caches hold.
        (256 * MIB, 2 * MIB, some, false),
        (4 * MIB, 256 * MIB, some, false),
        // They have nothing in use just now: who has one block at a time has not, between one and the next.
        (4 * MIB, 0, some, true),
        (64 * KIB, 520 * KIB, some, true),
        // They have nothing in use, and more at hand than such a one goes over: it is nobody's.
        (4 * MIB, 0, &[80, 96, 112, 200, 700, 800], false),
    ] {
        let model = model();
        let kept = as_thread_of(0, || take(&model, mine));
        let others = with_at_hand(&model, theirs, freed);
        let before = held(&model);
        let more: Vec<_> = as_thread_of(0, || [80, 112, 200].map(|kib| take(&model, kib * KIB))).into();
        assert_eq!(held(&model) == before, stays, "{} of {before}; {mine} and {theirs} in use", held(&model));
        finish(&model, more.into_iter().chain([kept]).chain(others).collect(), true);
    }
}

/// Each that had a longer block than the one before drained all others for it, and went on in what they had had: in the end
/// every thread went over all the memory of all of them (16 threads of an Emerald Rapids over 30 MiB, instead of one each).
#[test]
fn threads_that_have_one_block_at_a_time_each_begin_it_where_the_last_one_began() {
    for cpus in [4, 48] {
        let os = fake(2 << 30);
        os.set_facts(|facts| facts.cpus = cpus);
        let model = Model::new(os, 512 * MIB, Config::new());
        let mut random = 1_u64;
        let mut size = || {
            random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            64 * KIB + (random >> 33) as usize % (960 * KIB)
        };
        let mut begun: Vec<Vec<usize>> = vec![Vec::new(); cpus];
        for round in 0..200 {
            // All of them have one at once.
            let blocks: Vec<_> =
                (0..cpus).map(|thread| as_thread_of(2 * thread, || take(&model, size()))).collect();
            for (thread, block) in blocks.into_iter().enumerate() {
                if round >= 100 {
                    begun[thread].push(block.block().start);
                }
                as_thread_of(2 * thread, || model.free(block));
            }
        }
        for starts in &mut begun {
            starts.sort_unstable();
            starts.dedup();
            assert_eq!(starts.len(), 1, "{cpus} threads: {starts:x?}");
        }
        finish(&model, Vec::new(), true);
    }
}

#[test]
fn what_others_have_at_hand_is_taken_once_it_is_more() {
    let model = model();
    let mut blocks = vec![as_thread_of(0, || take(&model, 16 * MIB))];
    as_thread_of(1, || {
        blocks.push(take(&model, 8 * MIB));
        let freed: Vec<_> = (0..16).map(|_| take(&model, 512 * KIB)).collect();
        freed.into_iter().for_each(|block| model.free(block));
    });
    let misses = model.cache.snapshot().misses;
    as_thread_of(0, || blocks.extend((0..3).map(|_| take(&model, 512 * KIB))));
    assert_eq!(model.cache.snapshot().misses, misses, "fresh memory beside 8 MiB that are free");
    finish(&model, blocks, true);
}

/// A vector that grows drained everybody too.
#[test]
fn a_block_that_grows_takes_nothing_from_others_while_all_of_it_is_little() {
    let model = model();
    let kept = as_thread_of(0, || take(&model, 4 * MIB));
    let others = with_some_at_hand(&model, 2 * MIB);
    let before = held(&model);
    let grown = as_thread_of(0, || {
        let mut grown = take(&model, 600 * KIB);
        assert!(model.resize(&mut grown, 1200 * KIB, 0));
        grown
    });
    assert_eq!(held(&model), before);
    finish(&model, [kept, grown].into_iter().chain(others).collect(), true);
}

/// Each step had all threads give up what they had at hand, and in vain: what lies behind was never touched.
#[test]
fn a_long_block_that_grows_little_by_little_leaves_others_what_they_have() {
    let model = model();
    let mut grown = as_thread_of(0, || take(&model, 256 * MIB));
    let others = with_some_at_hand(&model, 2 * MIB);
    let before = held(&model);
    as_thread_of(0, || {
        assert!(before > 0 && model.resize(&mut grown, 64 * MIB, 0));
        model.cache.heap.purge(usize::MAX, Unit::Pages);
        for step in 1..=40 {
            assert!(model.resize(&mut grown, 64 * MIB + step * 256 * KIB, 0));
        }
    });
    assert_eq!(held(&model), before);
    finish(&model, others.into_iter().chain([grown]).collect(), true);
}

/// Two blocks that lie next to each other.
fn neighbours(blocks: &mut Vec<Live>) -> Vec<Live> {
    blocks.sort_by_key(|block| block.p);
    let at = blocks.windows(2).position(|pair| pair[0].block().end() == pair[1].block().start).unwrap();
    blocks.drain(at..at + 2).collect()
}

#[test]
fn freed_neighbours_serve_a_longer_block_before_anything_fresh_does() {
    // Within the shard, of however much in use: by way of the heap it would be in others' reach.
    for used in [64 * KIB, 16 * MIB] {
        let model = model();
        let mut blocks = vec![take(&model, used)];
        // Until nothing is left of the first hot run that has room for the longer one.
        let mut short: Vec<_> = (0..15).map(|_| take(&model, 80 * KIB)).collect();
        let pair = neighbours(&mut short);
        blocks.extend(short);
        blocks.extend(with_some_at_hand(&model, 2 * MIB));
        let (start, dirty) = (pair[0].block().start, model.cache.heap.level().dirty);
        let longer = as_thread_of(0, || {
            pair.into_iter().for_each(|block| model.free(block));
            take(&model, 140 * KIB)
        });
        assert_eq!(longer.block().start, start, "{used} in use");
        assert_eq!(model.cache.heap.level().dirty, dirty, "{used} in use");
        blocks.push(longer);
        finish(&model, blocks, true);
    }
}

/// What a block was made of instead was purged for the ceiling, and faulted in again, every round.
#[test]
fn under_a_small_ceiling_nothing_is_purged_to_spare_others() {
    let model = Model::new(fake(2 << 30), 512 * MIB, Config::new().cache_bytes(8 * MIB));
    let threads = model.cache.shards().len().max(2);
    let kept: Vec<_> = (0..2).map(|nth| as_thread_of(nth, || take(&model, 12 * MIB))).collect();
    let round = || {
        let blocks: Vec<_> = as_thread_of(0, || (0..20).map(|_| take(&model, 200 * KIB)).collect());
        for (nth, block) in blocks.into_iter().enumerate() {
            as_thread_of(1 + nth % (threads - 1), || model.free(block));
        }
    };
    (0..3).for_each(|_| round());
    let (misses, purges) = (model.cache.snapshot().misses, model.os().calls(Call::Purge));
    (0..3).for_each(|_| round());
    assert_eq!((model.cache.snapshot().misses, model.os().calls(Call::Purge)), (misses, purges));
    finish(&model, kept, true);
}

/// All that was cached was released for a block that others had at hand.
#[test]
fn what_others_have_at_hand_is_taken_before_a_refusal_costs_anything() {
    let mut model = model();
    let mut blocks = vec![as_thread_of(0, || take(&model, 26 * MIB))];
    blocks.extend(with_some_at_hand(&model, 2 * MIB));
    model.os().fail(Call::Open, When::Every(1), errno::ENOMEM);
    model.may_refuse = true;
    let (before, purges) = (held(&model), model.os().calls(Call::Purge));
    let mut freed = Vec::new();
    as_thread_of(0, || {
        for nth in 0..4 {
            let short = take(&model, 80 * KIB);
            if nth % 2 == 0 { freed.push(short) } else { blocks.push(short) }
        }
        freed.into_iter().for_each(|block| model.free(block));
        while held(&model) == before {
            blocks.push(take(&model, 200 * KIB));
        }
    });
    assert_eq!(model.os().calls(Call::Purge), purges);
    finish(&model, blocks, true);
}

/// What lies there cannot be cut without a node for its rest, and fresh memory was taken instead.
#[test]
fn a_freed_block_serves_a_shorter_one_where_the_shard_has_no_node_left() {
    let model = model();
    let (longer, mut blocks, lent) =
        as_thread_of(1, || (take(&model, 124 * KIB), vec![take(&model, 60 * KIB)], [take(&model, 20 * MIB)]));
    as_thread_of(0, || {
        // So that it has little in use, whatever it takes.
        lent.into_iter().for_each(|block| model.free(block));
        let has_none = || {
            let stacks = model.cache.shards()[0].lock(model.os());
            !stacks.can_cut() && stacks.runs.count() == 0 && stacks.hot.rest().is_empty()
        };
        while blocks.len() == 1 || !has_none() {
            blocks.push(take(&model, 60 * KIB));
        }
        let start = longer.block().start;
        model.free(longer);
        blocks.push(take(&model, 92 * KIB));
        assert_eq!(blocks.last().unwrap().block().start, start, "after {} blocks", blocks.len());
    });
    finish(&model, blocks, true);
}

/// With hundreds of shards to look at it took longer than to write the block.
#[test]
fn a_block_too_long_for_a_hot_run_is_looked_for_in_the_heap_before_others_are_asked() {
    let model = model();
    let (kept, long) = as_thread_of(0, || (take(&model, 100 * MIB), take(&model, 40 * MIB)));
    let mut kept = vec![kept];
    as_thread_of(1, || {
        kept.push(take(&model, 100 * MIB));
        let block = take(&model, 1900 * KIB);
        model.free(block);
    });
    let before = held(&model);
    assert!(before >= 1900 * KIB);
    as_thread_of(0, || {
        model.free(long);
        kept.push(take(&model, 1900 * KIB));
    });
    assert_eq!(held(&model), before);
    finish(&model, kept, true);
}
