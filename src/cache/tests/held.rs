//! What shards hold counts where a ceiling is kept; and what is counted of blocks that grow, or that nobody had faulted in.

use std::alloc::Layout;

use super::fake;
use super::model::{Live, Model};
use super::ops::finish;
use super::runs::{as_thread_of, take};
use crate::config::Config;
use crate::os::fake::{Call, Fake, When, errno};

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
    let model = Model::new(fake(4 << 30), 2 << 30, Config::new());
    let mut block = take(&model, 4 * MIB);
    let other = take(&model, 4 * MIB);
    for size in [256 * MIB, 700 * MIB] {
        assert!(model.resize(&mut block, size, 1));
        model.os().touch(block.p, size);
        assert!(fresh(&model) + 16 * MIB >= model.os().resident_bytes(), "{size}");
    }
    finish(&model, vec![block, other], true);
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
