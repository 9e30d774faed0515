//! A ceiling that the user sets, and who has how much of it.
//!
//! Invariant: what the heap keeps for all and what the shards may hold are no more than the ceiling together (docs/DESIGN.md, "Limits"). Never here:
//! what goes when there is more (`told`, `free`).

use super::{Cache, SHARD_BYTES_MAX, Settings, hot};
use crate::os::Os;
use crate::sync::atomic::Ordering;

/// All shards together hold at most this part of a ceiling, as a divisor.
pub(super) const STACKS_SHARE: usize = 2;

/// How much of a ceiling one of `shards` may hold in its stacks and runs, in bytes.
fn share_of(ceiling: usize, shards: usize) -> usize {
    (ceiling / STACKS_SHARE / shards).min(SHARD_BYTES_MAX)
}

/// What a ceiling leaves to all threads, in bytes, beside what is set aside for each of `shards`, whether that holds it or not.
pub(crate) fn kept_for_all(ceiling: usize, shards: usize) -> usize {
    let share = share_of(ceiling, shards);
    let hot = if hot::is_wanted(share) { hot::HOT_MAX } else { 0 };
    ceiling - (share + hot) * shards
}

impl<O: Os> Cache<O> {
    /// Before the first request, and under the lock of `host`.
    pub(super) fn set_ceiling(&self, settings: &Settings, shards: usize, ram: usize) {
        self.limits.lock(self.os()).start(settings.cache_bytes, ram);
        if let Some(ceiling) = settings.cache_bytes {
            // Relaxed, both: published by the release store of `shards`.
            self.steady.shard_bytes_max.store(share_of(ceiling, shards), Ordering::Relaxed);
            self.dirty_max.store(kept_for_all(ceiling, shards), Ordering::Relaxed);
        }
    }

    /// The ceiling in force, in bytes, if there is one.
    pub(crate) fn ceiling(&self) -> Option<usize> {
        self.see_child_only();
        self.limits.lock(self.os()).ceiling()
    }
}
