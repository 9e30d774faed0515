//! What shards hold counts where a ceiling is kept; and what is counted of blocks that grow, or that nobody had faulted in.

use std::alloc::Layout;

use super::fake;
use super::keeper::SECOND;
use super::model::{Live, Model};
use super::ops::finish;
use super::runs::{as_thread_of, take};
use crate::config::Config;
use crate::os::fake::{Call, Fake, When, errno};
use crate::sync::atomic::{AtomicU64, Ordering};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// A drain brings to the heap what shards held, and they fill again beside it: all of it stayed, for the heap alone was under
/// the ceiling.
#[test]
fn what_is_above_a_ceiling_goes_whoever_holds_it() {
    const SHARDS: usize = 8;
    let ceiling = 256 * MIB;
    let os = fake(6 << 30);
    os.set_facts(|facts| facts.cpus = SHARDS / 2);
    let model = Model::new(os, 4 << 30, Config::new().cache_bytes(ceiling));
    // Nothing of what is free between blocks serves a longer one.
    let (mut held, mut freed) = (Vec::new(), Vec::new());
    for shard in 0..SHARDS {
        let blocks: Vec<Live> = as_thread_of(shard, || (0..120).map(|_| take(&model, 500 * KIB)).collect());
        for (nth, block) in blocks.into_iter().enumerate() {
            if nth % 2 == 0 { held.push(block) } else { freed.push((shard, block)) }
        }
    }
    freed.into_iter().for_each(|(shard, block)| as_thread_of(shard, || model.free(block)));
    held.push(as_thread_of(0, || take(&model, 64 * MIB)));
    let fill = || {
        let of = |shard| as_thread_of(shard, || (0..9).map(|_| take(&model, 1000 * KIB)).collect::<Vec<_>>());
        let all: Vec<Vec<Live>> = (0..SHARDS).map(of).collect();
        for (shard, blocks) in all.into_iter().enumerate() {
            as_thread_of(shard, || blocks.into_iter().for_each(|block| model.free(block)));
        }
    };
    // The limits are told each 64 MiB that go through a shard.
    (0..3).for_each(|_| fill());
    as_thread_of(0, || {
        for _ in 0..70 {
            let block = take(&model, 1000 * KIB);
            model.free(block);
        }
    });
    // The block that was out when they were told has come back since.
    assert!(model.cache.cached_bytes() <= ceiling + 2 * MIB, "{} MiB", model.cache.cached_bytes() / MIB);
    finish(&model, held, true);
}

/// Only what was fresh when a block was taken was counted.
#[test]
fn what_a_block_grows_by_untouched_is_faulted_in_at_most() {
    let fresh = |model: &Model<Fake>| {
        let counted = model.cache.snapshot();
        (counted.fresh + counted.fresh_beside) as usize
    };
    let model = Model::new(fake(8 << 30), 4 << 30, Config::new());
    let mut block = take(&model, 4 * MIB);
    let other = take(&model, 4 * MIB);
    for size in [256 * MIB, 700 * MIB] {
        assert!(model.resize(&mut block, size, 1));
        model.os().touch(block.p, size);
        assert!(fresh(&model) + 16 * MIB >= model.os().resident_bytes(), "{size}");
    }
    // Between others it has to move for that.
    let mut all: Vec<Live> = (0..3).map(|_| take(&model, 100 * MIB)).collect();
    all.iter().for_each(|block| model.os().touch(block.p, 100 * MIB));
    for block in &mut all {
        assert!(model.resize(block, 300 * MIB, 1));
        model.os().touch(block.p, 300 * MIB);
    }
    assert!(model.cache.snapshot().grown_by_moving > 0);
    assert!(fresh(&model) + 32 * MIB >= model.os().resident_bytes());
    all.extend([block, other]);
    finish(&model, all, true);
}

#[test]
fn small_pages_that_grow_in_place_are_counted() {
    let model = Model::new(fake(2 << 30), 1 << 30, Config::new());
    let mut block = model.allocate(Layout::from_size_align(128 * KIB, 2 * MIB).unwrap(), false, 1).unwrap();
    let before = model.cache.snapshot();
    assert_eq!(before.thin, 1, "in small pages");
    assert!(model.resize(&mut block, 5 * MIB, 1));
    let after = model.cache.snapshot();
    assert_eq!(after.grown_in_place, before.grown_in_place + 1);
    assert!(after.grown_in_place_bytes > before.grown_in_place_bytes + 4 * MIB as u64);
    finish(&model, vec![block], true);
}

/// It was looked at what is live before the block counted as that.
#[test]
fn a_first_block_is_the_peak_once_it_is_gone() {
    for size in [4 * MIB, 100 * MIB] {
        let model = Model::new(fake(2 << 30), 512 * MIB, Config::new());
        let block = take(&model, size);
        model.free(block);
        assert_eq!(model.cache.snapshot().live_peak as usize, size);
        finish(&model, Vec::new(), true);
    }
}

/// So it was while a block grew.
#[test]
fn what_a_block_grew_to_is_the_peak_once_it_is_gone() {
    let model = Model::new(fake(2 << 30), 512 * MIB, Config::new());
    let mut block = take(&model, 4 * MIB);
    assert!(model.resize(&mut block, 256 * MIB, 1));
    model.free(block);
    assert_eq!(model.cache.snapshot().live_peak as usize, 256 * MIB);
    finish(&model, Vec::new(), true);
}

/// Vectors that are pushed to counted as what they began with, 64 KiB: nobody looked at what was left, for minutes, and no peak
/// was ever forgotten.
#[test]
fn limits_hear_of_what_grows() {
    let os = fake(2 << 30);
    os.pass(SECOND);
    let model = Model::new(os, 1 << 30, Config::new());
    let push = || {
        let mut block = take(&model, 64 * KIB);
        for doublings in 1..11 {
            assert!(model.resize(&mut block, (64 * KIB) << doublings, 1));
        }
        model.free(block);
    };
    (0..3).for_each(|_| push());
    let looked = || model.cache.last_look.load(Ordering::Relaxed);
    let before = looked();
    model.os().pass(SECOND);
    (0..2).for_each(|_| push());
    assert!(looked() > before);
    // A peak that does not come back is forgotten: on a host with so little memory, all of it.
    let block = take(&model, 600 * MIB);
    model.os().touch(block.p, 600 * MIB);
    model.free(block);
    for _ in 0..400 {
        model.os().pass(SECOND / 1000);
        push();
    }
    assert!(model.cache.cached_bytes() < 300 * MIB, "{} MiB", model.cache.cached_bytes() / MIB);
    finish(&model, Vec::new(), true);
}

/// What the shorter blocks left was purged at the start of each round, and faulted in before its end.
#[test]
fn columns_that_grow_in_step_purge_nothing_once_they_are_warm() {
    for columns in [100, 256] {
        let os = fake(4 << 30);
        os.pass(SECOND);
        let model = Model::new(os, 1 << 30, Config::new());
        let round = || {
            model.os().pass(SECOND / 100);
            let mut all: Vec<Live> = (0..columns).map(|_| take(&model, 64 * KIB)).collect();
            for size in [128, 256, 512, 1024] {
                for column in &mut all {
                    assert!(model.resize(column, size * KIB, 1));
                    model.os().touch(column.p, size * KIB);
                }
            }
            all.into_iter().for_each(|column| model.free(column));
            model.os().calls(Call::Purge)
        };
        let purged: Vec<usize> = (0..12).map(|_| round()).collect();
        assert_eq!(purged[3], purged[11], "{purged:?}");
        finish(&model, Vec::new(), true);
    }
}

/// Threads that zero short blocks waited for each other, where all counted in one place.
#[test]
fn each_shard_counts_what_its_threads_do() {
    let os = fake(2 << 30);
    os.set_facts(|facts| facts.cpus = 2);
    let model = Model::new(os, 1 << 30, Config::new());
    let layout = Layout::from_size_align(100 * KIB, 8).unwrap();
    for shard in 0..2 {
        as_thread_of(shard, || {
            for _ in 0..3 {
                let block = model.allocate(layout, true, 1).unwrap();
                model.free(block);
            }
        });
        let counted = &model.cache.shards()[shard].counts.worked;
        let zeroed = |which: &AtomicU64| which.load(Ordering::Relaxed) as usize;
        assert_eq!(zeroed(&counted.zeroed_here) + zeroed(&counted.zeroed_by_kernel), 300 * KIB);
    }
    let all = model.cache.snapshot();
    assert_eq!((all.zeroed_here + all.zeroed_by_kernel) as usize, 600 * KIB);
    finish(&model, Vec::new(), true);
}

/// It was counted as faulted in when it was taken for that.
#[test]
fn what_was_not_faulted_in_ahead_is_not_counted() {
    let model = Model::new(fake(2 << 30), 512 * MIB, Config::new());
    let block = take(&model, MIB);
    let run = model.cache.take_ahead(64 * MIB).unwrap();
    model.os().fail(Call::Purge, When::From(1), errno::EINVAL);
    model.cache.give_ahead(run, false);
    model.os().fail_no_more();
    assert_eq!(model.cache.snapshot().ahead, 0);
    finish(&model, vec![block], true);
}
