//! What shards have at hand goes back to the heap, where it merges and serves every length and every thread.
//!
//! Never here: when it has to (`slow`, `grow`, `free`), and which part of it has to when a shard is full (`runs`).

use super::Cache;
use super::runs::Leaving;
use super::shard::Shard;
use crate::os::Os;
use crate::sync::atomic::Ordering;

impl<O: Os> Cache<O> {
    /// Gives what all shards have at hand back to the heap. Gives how many bytes that was.
    pub(super) fn drain(&self) -> usize {
        self.drain_but(|_| false)
    }

    /// As [`Cache::drain`], but for shards of which `keeps` says that they keep it.
    pub(super) fn drain_but(&self, keeps: impl Fn(&Shard) -> bool) -> usize {
        let mut drained = 0;
        for shard in self.shards() {
            // Relaxed: what another thread is freeing just now is a race that either may win.
            if shard.counts.stacked.load(Ordering::Relaxed) > 0 && !keeps(shard) {
                drained += self.drain_shard(shard);
            }
        }
        drained
    }

    /// As [`Cache::drain_but`], one shard after the other, until `find` finds something: what the others have at hand is in their
    /// caches.
    pub(super) fn drain_until<T>(
        &self,
        keeps: impl Fn(&Shard) -> bool,
        find: impl Fn() -> Option<T>,
    ) -> Option<T> {
        // Relaxed: as in `drain_but`.
        self.shards_from_mine()
            .filter(|shard| shard.counts.stacked.load(Ordering::Relaxed) > 0 && !keeps(shard))
            .find_map(|shard| if self.drain_shard(shard) > 0 { find() } else { None })
    }

    /// All shards, from this thread's own on, so that threads which find nothing do not all ask the first one.
    pub(super) fn shards_from_mine(&self) -> impl Iterator<Item = &Shard> {
        let shards = self.shards();
        let mine =
            self.shard_slow().and_then(|mine| shards.iter().position(|shard| core::ptr::eq(shard, mine)));
        let (before, from_mine) = shards.split_at(mine.unwrap_or(0));
        from_mine.iter().chain(before)
    }

    /// As [`Cache::drain`], and forgets hot runs that are used up: of address space that is unmapped, nobody may go by what it
    /// was once cut into.
    pub(super) fn drain_to_unmap(&self) {
        for shard in self.shards() {
            self.drain_hot(shard);
        }
        self.drain();
    }

    /// Gives all that a shard holds back to the heap. Gives how many bytes that was.
    pub(super) fn drain_shard(&self, shard: &Shard) -> usize {
        // No more than it holds now: its thread may go on freeing for as long as we go on draining. Relaxed: as in `drain`.
        let held = shard.counts.stacked.load(Ordering::Relaxed);
        let mut drained = self.drain_hot(shard);
        while drained < held {
            let mut out = Leaving::NOTHING;
            shard.lock(self.os()).leave(&mut out, &shard.counts);
            if out.spans().is_empty() {
                break;
            }
            self.heap.give_stacked(out.spans(), out.tokens);
            drained += out.spans().iter().map(|span| span.len).sum::<usize>();
        }
        drained
    }
}
