//! What a shard holds because its thread has as much in use.

use super::fake;
use super::model::{Live, Model};
use super::ops::finish;
use super::runs::{as_thread_of, take};
use crate::cache::SHARD_BYTES_MAX;
use crate::cache::refill::HELD_MAX;
use crate::config::Config;
use crate::os::fake::Fake;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn holds(model: &Model<Fake>) -> usize {
    let shards = model.cache.shards().iter();
    shards.map(|shard| shard.lock(model.os()).bytes()).max().unwrap_or(0)
}

/// Takes blocks of several lengths, and frees every third.
fn with_holes(model: &Model<Fake>, count: usize) -> Vec<Live> {
    let mut blocks: Vec<_> = (0..count).map(|nth| take(model, (200 + 23 * (nth % 13)) * KIB)).collect();
    let freed = (0..count).rev().filter(|nth| nth % 3 == 0);
    freed.for_each(|nth| model.free(blocks.swap_remove(nth)));
    blocks
}

/// Two threads that replace blocks at random went over each other's: of 100 pages 15 had been written by the other, now 1
/// (`zk-compare`'s example `churn`).
#[test]
fn a_thread_keeps_what_it_frees_while_it_has_as_much_in_use() {
    let free = Config::new();
    // All that a shard may, as the ceiling counts on it.
    let ceiling = Config::new().cache_bytes(512 * MIB);
    for (config, count, least, most, in_the_end) in [
        (free, 90, SHARD_BYTES_MAX / 4 * 3 - MIB, SHARD_BYTES_MAX, HELD_MAX),
        (free, 400, HELD_MAX - 8 * MIB, HELD_MAX, HELD_MAX),
        (ceiling, 400, 0, SHARD_BYTES_MAX, SHARD_BYTES_MAX),
    ] {
        let model = Model::new(fake(2 << 30), 512 * MIB, config);
        let blocks = as_thread_of(0, || with_holes(&model, count));
        assert!((least..=most).contains(&holds(&model)), "{} with {count} blocks", holds(&model));
        // For the next burst.
        as_thread_of(0, || blocks.into_iter().for_each(|block| model.free(block)));
        assert!(holds(&model) <= in_the_end, "{} in the end", holds(&model));
        finish(&model, Vec::new(), true);
    }
}
