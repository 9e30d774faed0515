//! Bursts of blocks, freed together, beside free memory that is much larger: where the next burst lies.

use std::alloc::Layout;
use std::collections::BTreeSet;

use super::model::{Live, Model};
use super::ops::finish;
use super::{fake, pattern::mix};
use crate::config::Config;
use crate::heap::Unit;
use crate::os::GRANULE;
use crate::os::fake::Fake;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// How many bursts there are.
const ROUNDS: usize = 60;

/// In which order the blocks of a burst are freed.
#[derive(Clone, Copy, Debug)]
enum Order {
    AsTaken,
    Reversed,
    Mixed,
}

/// The granules that a block covers.
fn granules(live: &Live) -> impl Iterator<Item = usize> + use<> {
    let block = live.block();
    block.start / GRANULE..block.end() / GRANULE
}

/// Bytes that the last twenty of many bursts of blocks of these sizes, told by the round, lay on, where far more is free.
fn gone_over(sizes: impl Fn(usize) -> Vec<usize>, order: Order) -> usize {
    let model: Model<Fake> = Model::new(fake(2 << 30), 512 * MIB, Config::new());
    let quiet = (0..).find(|&seed| model.writes_nothing(seed)).unwrap();
    let take = |size| {
        let layout = Layout::from_size_align(size, 8).unwrap();
        model.allocate(layout, false, quiet).expect("memory is not short")
    };
    let long = take(256 * MIB);
    model.os().touch(long.p, 256 * MIB);
    model.free(long);
    let held = [take(3 * MIB), take(300 * KIB)];
    let mut lain = BTreeSet::new();
    for round in 0..ROUNDS {
        let mut blocks: Vec<Live> = sizes(round).into_iter().map(take).collect();
        if round >= ROUNDS - 20 {
            lain.extend(blocks.iter().flat_map(granules));
        }
        match order {
            Order::AsTaken => {}
            Order::Reversed => blocks.reverse(),
            Order::Mixed => {
                for i in (1..blocks.len()).rev() {
                    blocks.swap(i, mix((round << 10 | i) as u64) as usize % (i + 1));
                }
            }
        }
        blocks.into_iter().for_each(|live| model.free(live));
    }
    assert!(model.cache.heap.books().dirty > 200 * MIB, "little else is free");
    finish(&model, held.into(), true);
    lain.len() * GRANULE
}

/// Each run began behind the end of the last one, or in what was free for longest, and bursts of 8 MiB went through 256; later through
/// what a shard may hold beside them.
#[test]
fn what_bursts_go_over_stays_as_small_as_a_burst() {
    let same = |count: usize, size: usize| vec![size; count];
    let varied = |count: u64| (0..count).map(|i| 64 * KIB + (mix(i) % (1200 << 10)) as usize).collect();
    let bursts: [Vec<usize>; 5] =
        [same(12, 384 * KIB), same(21, 384 * KIB), same(40, 384 * KIB), same(200, 64 * KIB), varied(40)];
    for sizes in bursts {
        let live: usize = sizes.iter().sum();
        for order in [Order::AsTaken, Order::Reversed, Order::Mixed] {
            let lain = gone_over(|_| sizes.clone(), order);
            // Blocks of many lengths fit into what others left less well, and a burst of more than a shard may hold goes by the heap.
            let bound = live / 2 * 3;
            assert!(lain <= bound, "{} blocks {order:?}: {lain} bytes for {live}", sizes.len());
        }
    }
}

/// Blocks that are freed in the order in which they were taken, as those in a vector are, do not come back to the hot run, and the
/// next ones, of other lengths, went on behind them: through 4 MiB and more, where a second-level cache holds a burst.
#[test]
fn short_bursts_of_ever_other_lengths_lie_where_the_last_one_lay() {
    let sizes = |round: usize| -> Vec<usize> {
        (0..6).map(|i| 64 * KIB + (mix((round << 8 | i) as u64) % (400 << 10)) as usize).collect()
    };
    let most = (ROUNDS - 20..ROUNDS).map(|round| sizes(round).iter().sum::<usize>()).max().unwrap();
    for order in [Order::AsTaken, Order::Reversed, Order::Mixed] {
        let lain = gone_over(sizes, order);
        // In mixed order some go back to the hot run in between, and what is left is no burst.
        assert!(lain <= most / 2 * 3, "{order:?}: {lain} bytes for {most}");
    }
}

/// A thread that has no more than a megabyte had no hot run any more after its first burst: one buffer after the other went through
/// all of it, and each was looked for among the runs.
#[test]
fn who_has_little_has_a_hot_run_after_a_burst_too() {
    let model: Model<Fake> = Model::new(fake(2 << 30), 512 * MIB, Config::new());
    let quiet = (0..).find(|&seed| model.writes_nothing(seed)).unwrap();
    let take = |size| {
        let layout = Layout::from_size_align(size, 8).unwrap();
        model.allocate(layout, false, quiet).expect("memory is not short")
    };
    let burst: Vec<Live> = (0..6).map(|_| take(64 * KIB)).collect();
    burst.into_iter().for_each(|live| model.free(live));
    let mut lain = BTreeSet::new();
    for round in 0..100 {
        let live = take(64 * KIB + (mix(round) % (100 << 10)) as usize);
        lain.extend(granules(&live));
        model.free(live);
    }
    assert!(lain.len() * GRANULE <= 200 * KIB, "{} granules", lain.len());
    finish(&model, Vec::new(), true);
}

/// Long blocks of resident memory lie below each other in the order in which they are taken, and what is purged of the rest
/// is not cut off from what the next one takes.
#[test]
fn long_blocks_go_down_and_what_is_purged_goes_from_below() {
    let model: Model<Fake> = Model::new(fake(4 << 30), 512 * MIB, Config::new());
    let quiet = (0..).find(|&seed| model.writes_nothing(seed)).unwrap();
    let layout = Layout::from_size_align(64 * MIB, 8).unwrap();
    let take = || model.allocate(layout, false, quiet).expect("memory is not short");
    // From a chunk on, as the next ones end in one.
    let first = [take(), take(), take(), take()];
    for live in &first {
        model.os().touch(live.block().start, live.block().len);
    }
    first.into_iter().for_each(|live| model.free(live));
    let high = take();
    assert_eq!(model.cache.heap.purge(32 * MIB, Unit::Chunks), 32 * MIB);
    let [middle, low] = [take(), take()];
    assert_eq!(middle.block().end(), high.block().start);
    assert_eq!(low.block().end(), middle.block().start);
    assert_eq!(model.cache.snapshot().misses, 4, "those of the first time");
    [high, middle, low].into_iter().for_each(|live| model.free(live));
    finish(&model, Vec::new(), true);
}
