//! A shard's hot run: memory that its thread freed a moment ago, for the next block of whatever class.
//!
//! Why it is here: a stack gives back a block of one class. A thread that fills and frees one buffer after another, each
//! of another size, would go through a block of every class, megabytes in all, and find none of them in its
//! cache (measured: 64 KiB to 1 MiB filled one at a time took three times as long as from one place). So blocks are cut
//! from the front of a run, and a block that ends where the next one would begin is put back.
//!
//! The run is the heap's idea of handed out, as blocks in stacks are (C1). Every block that is handed out needs a node
//! when it comes back (H6): those of blocks yet to be cut are paid for in advance, as `tokens`.

use super::shard::{Shard, Stacks};
use super::{Cache, count::add};
use crate::geometry::SizeClass;
use crate::heap::Span;
use crate::os::Os;
use crate::sync::atomic::Ordering;

/// The most that a hot run holds free, in bytes: a second-level cache or two.
pub(super) const HOT_MAX: usize = 4 << 20;

/// Blocks up to this length come from the hot run, in bytes: of longer ones little would be left in a second-level cache.
/// A run of full length holds three of them; it begins in a piece of this length or more, which has room for one of
/// whatever class.
const HOT_BLOCK_MAX: usize = HOT_MAX / 3;

/// Blocks that a run may be cut into before more are paid for: of 64 KiB, where the large side begins by default.
const TOKENS: usize = HOT_MAX / (64 << 10);

/// Whether a shard has a hot run whose stacks may hold so many bytes: not under a ceiling that is small.
pub(super) const fn is_wanted(shard_bytes_max: usize) -> bool {
    shard_bytes_max >= 2 * HOT_MAX
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hot {
    start: usize,
    /// Where the next block is cut.
    top: usize,
    end: usize,
    /// Blocks that may still be cut.
    tokens: usize,
}

impl Hot {
    pub(super) const EMPTY: Self = Self { start: 0, top: 0, end: 0, tokens: 0 };

    /// A run of which nothing is cut yet.
    pub(super) const fn of(run: Span, tokens: usize) -> Self {
        Self { start: run.start, top: run.start, end: run.end(), tokens }
    }

    /// What is free of it.
    pub(super) const fn rest(&self) -> Span {
        Span::new(self.top, self.end - self.top)
    }

    /// Cuts a block.
    #[inline]
    pub(super) fn cut(&mut self, len: usize) -> Option<usize> {
        // One is kept for the rest.
        if self.end - self.top < len || self.tokens < 2 || len > HOT_BLOCK_MAX {
            return None;
        }
        let start = self.top;
        self.top += len;
        self.tokens -= 1;
        Some(start)
    }

    /// Puts a block back that ends where the next one would begin.
    #[inline]
    pub(super) fn put_back(&mut self, start: usize, len: usize) -> bool {
        let fits = start + len == self.top && start >= self.start && self.end - start <= HOT_MAX;
        if fits {
            self.top = start;
            self.tokens += 1;
        }
        fits
    }

    #[cfg(any(test, proof))]
    pub(super) const fn tokens(&self) -> usize {
        self.tokens
    }
}

impl<O: Os> Cache<O> {
    /// Begins another hot run for this thread, and cuts a block of a class from it. `None` if no resident memory is free
    /// for it.
    ///
    /// A run begins in the shortest piece that has room for one. What bursts of blocks go over stays as small as a burst so,
    /// and in the cache: behind the end of the last run, or in the longest pieces, all free memory would be gone through.
    pub(super) fn cut_slow(&self, class: SizeClass) -> Option<usize> {
        let len = class.len().bytes();
        // Relaxed: a limit, published when the shards were.
        if len > HOT_BLOCK_MAX || !is_wanted(self.shard_bytes_max.load(Ordering::Relaxed)) {
            return None;
        }
        let shard = self.shard_with_run()?;
        let mut stacks = shard.lock(self.os());
        if stacks.hot.rest().len >= len {
            drop(stacks);
            return self.cut_shorter_slow(shard, class);
        }
        // Relaxed: written under this lock. It wraps where more was freed here than was taken.
        let live = shard.counts.live.load(Ordering::Relaxed) as i64;
        let drains = live < stacks.bytes() as i64;
        let old = stacks.replace_hot(Hot::EMPTY, &shard.counts);
        drop(stacks);
        // Whole blocks of this length, or each run would end in a piece that the next block does not fit.
        let most = HOT_MAX / len * len;
        // What is left of the old run may be where the next one begins.
        let mut run = self.heap.exchange((old.rest(), old.tokens), HOT_BLOCK_MAX, most, TOKENS);
        if run.is_none() && drains {
            // More is kept than is in use, in blocks of other classes; they are what is in this thread's cache.
            self.drain_shard(shard);
            run = self.heap.take_longest(len, most, TOKENS);
        }
        let run = run?;
        let mut stacks = shard.lock(self.os());
        let hot = Hot::of(run, TOKENS);
        // Another thread of this shard may have begun one meanwhile.
        let old = stacks.replace_hot(hot, &shard.counts);
        let start = stacks.cut(class, &shard.counts);
        drop(stacks);
        self.note_peaks();
        self.give_hot(old);
        if start.is_some() {
            add(&self.tally.runs, 1);
        }
        start
    }

    /// Cuts a block from a run that is long enough, and was cut into more blocks than were paid for: where the large side
    /// begins under 64 KiB, they are as short as that.
    #[cold]
    fn cut_shorter_slow(&self, shard: &Shard, class: SizeClass) -> Option<usize> {
        if !self.heap.hold_nodes(TOKENS) {
            return None;
        }
        let mut stacks = shard.lock(self.os());
        if stacks.hot.end == 0 {
            // Drained by another thread meanwhile.
            drop(stacks);
            self.heap.drop_nodes(TOKENS);
            return None;
        }
        stacks.hot.tokens += TOKENS;
        let start = stacks.cut(class, &shard.counts);
        drop(stacks);
        if start.is_some() {
            add(&self.tally.runs, 1);
        }
        start
    }

    /// Gives the free part of a shard's hot run back to the heap. Gives the bytes.
    pub(super) fn drain_hot(&self, shard: &Shard) -> usize {
        let mut stacks = shard.lock(self.os());
        let old = stacks.replace_hot(Hot::EMPTY, &shard.counts);
        drop(stacks);
        self.give_hot(old);
        old.rest().len
    }

    fn give_hot(&self, old: Hot) {
        if old.end > 0 {
            self.heap.give_piece(old.rest(), old.tokens);
        }
    }
}

impl Stacks {
    /// Puts another run in the place of the hot run, and gives that.
    fn replace_hot(&mut self, hot: Hot, counts: &super::shard::Counts) -> Hot {
        let old = core::mem::replace(&mut self.hot, hot);
        self.note_hot(old.rest().len, hot.rest().len, counts);
        old
    }

    /// Cuts a block of a class from the hot run.
    #[inline]
    pub(super) fn cut(&mut self, class: SizeClass, counts: &super::shard::Counts) -> Option<usize> {
        let len = class.len().bytes();
        let start = self.hot.cut(len)?;
        self.note_hot(len, 0, counts);
        Some(start)
    }

    /// Puts a block of a class back into the hot run, if it lies at its front.
    #[inline]
    pub(super) fn put_back(&mut self, class: SizeClass, start: usize, counts: &super::shard::Counts) -> bool {
        let len = class.len().bytes();
        let fits = self.hot.put_back(start, len);
        if fits {
            self.note_hot(0, len, counts);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_cut_in_order_and_put_back_in_reverse() {
        let mut hot = Hot { start: 1 << 20, top: 1 << 20, end: 2 << 20, tokens: 3 };
        let (a, b) = (hot.cut(100 << 10).unwrap(), hot.cut(200 << 10).unwrap());
        assert_eq!((a, b), (1 << 20, (1 << 20) + (100 << 10)));
        assert!(!hot.put_back(a, 100 << 10), "not at its front");
        assert!(hot.put_back(b, 200 << 10) && hot.put_back(a, 100 << 10));
        assert_eq!((hot.top, hot.tokens()), (1 << 20, 3));
        assert!(!hot.put_back((1 << 20) - (64 << 10), 64 << 10), "not of this run");
        assert_eq!(hot.cut(2 << 20), None);
    }

    #[test]
    fn no_more_blocks_are_cut_than_were_paid_for() {
        let mut hot = Hot { start: 1 << 20, top: 1 << 20, end: 2 << 20, tokens: 2 };
        assert!(hot.cut(64 << 10).is_some());
        assert_eq!(hot.cut(64 << 10), None);
    }
}
