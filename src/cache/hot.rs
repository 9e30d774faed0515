//! A shard's hot run: memory that its thread freed a moment ago, for the next block of whatever class.
//!
//! Why it is here: a stack gives back a block of one class. A thread that fills and frees one buffer after another, each
//! of another size, would go through a block of every class, megabytes in all, and find none of them in its
//! cache (measured: 64 KiB to 1 MiB filled one at a time took three times as long as from one place). So blocks are cut
//! from the front of a run, and a block that ends where the next one would begin is put back.
//!
//! The run is the heap's idea of handed out, as blocks in stacks are (C1). Every block that is handed out needs a node
//! when it comes back (H6): those of blocks yet to be cut are paid for in advance, as `Stacks::tokens`.

use super::Cache;
use super::counters::Counts;
use super::runs::{Bounds, Leaving};
use super::shard::{Shard, Stacks};
use crate::geometry::SizeClass;
use crate::heap::Span;
use crate::os::{CHUNK, Os};

/// The most that a hot run holds free where nothing is known to grow (`room`), in bytes: a second-level cache or two; or a
/// vector that has been pushed to until it has room for 4 MiB, with its colour, where a short block opened the run, which is cut
/// to whole blocks of its length.
pub(super) const HOT_MAX: usize = (4 << 20) + (64 << 10);

/// Blocks up to this length come from the hot run, in bytes: of longer ones little would be left in a second-level cache.
/// A run of full length holds three of them; it begins in a piece of this length or more, which has room for one of
/// whatever class.
pub(super) const HOT_BLOCK_MAX: usize = HOT_MAX / 3;

/// Blocks that runs may be cut into before more are paid for: of 64 KiB, where the large side begins by default.
pub(super) const TOKENS: usize = HOT_MAX / (64 << 10);

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
}

impl Hot {
    pub(super) const EMPTY: Self = Self { start: 0, top: 0, end: 0 };

    /// A run of which nothing is cut yet.
    pub(super) const fn of(run: Span) -> Self {
        Self { start: run.start, top: run.start, end: run.end() }
    }

    /// A run that begins at `start`, of which `rest` is not cut yet.
    pub(super) const fn behind(start: usize, rest: Span) -> Self {
        Self { start, top: rest.start, end: rest.end() }
    }

    /// Whether there is one, free or not.
    pub(super) const fn is_begun(&self) -> bool {
        self.end > 0
    }

    /// What is free of it.
    pub(super) const fn rest(&self) -> Span {
        Span::new(self.top, self.end - self.top)
    }

    /// Cuts a block, however long.
    #[inline]
    pub(super) fn cut(&mut self, len: usize) -> Option<usize> {
        if self.end - self.top < len {
            return None;
        }
        let start = self.top;
        self.top += len;
        Some(start)
    }

    /// What is free of it beyond what it has where nothing is known to grow, in bytes: that is no part of what a shard may hold.
    #[inline]
    pub(super) const fn excess(&self) -> usize {
        (self.end - self.top).saturating_sub(HOT_MAX)
    }

    /// Whether a block ends where the next one would begin.
    #[inline]
    const fn is_next(&self, start: usize, len: usize) -> bool {
        start + len == self.top && start >= self.start
    }

    /// Whether it does, and there is a border of two chunks: more is to be seen to then than on the fast path.
    #[inline]
    pub(super) const fn is_before_border(&self, start: usize, len: usize) -> bool {
        self.is_next(start, len) && self.top.is_multiple_of(CHUNK)
    }

    /// Puts a block back that ends where the next one would begin; but not across a border of two chunks where regions may touch
    /// (`borders`). What was cut of the run may have been given to the heap by others since, unmapped or lost, and mapped again
    /// as another region, of which the block is.
    #[inline]
    pub(super) fn put_back(&mut self, start: usize, len: usize, borders: impl FnOnce() -> bool) -> bool {
        let at_border = self.is_before_border(start, len);
        let is_back = self.is_next(start, len) && (!at_border || self.joins_slow(borders()));
        if is_back {
            self.top = start;
        }
        is_back
    }

    /// Whether what comes back before a border of two chunks is of the run, where regions may touch there or not.
    #[cold]
    const fn joins_slow(&self, borders: bool) -> bool {
        self.top == self.end || !borders
    }

    /// Makes the block shorter that ends where the next one would begin, by its end.
    const fn cut_short(&mut self, tail: Span) -> bool {
        let fits = tail.end() == self.top && tail.start > self.start;
        if fits {
            self.top = tail.start;
        }
        fits
    }

    /// Makes the block longer that ends where the next one would begin.
    fn extend(&mut self, block: Span, longer: usize) -> bool {
        let more = longer - block.len;
        let fits = block.end() == self.top && block.start >= self.start && more <= self.end - self.top;
        if fits {
            self.top += more;
        }
        fits
    }
}

impl<O: Os> Cache<O> {
    /// Gives the free part of a shard's hot run back to the heap. Gives the bytes.
    pub(super) fn drain_hot(&self, shard: &Shard) -> usize {
        let mut stacks = shard.lock(self.os());
        let old = stacks.replace_hot(Hot::EMPTY, &shard.counts);
        stacks.tokens -= usize::from(old.is_begun());
        drop(stacks);
        if old.is_begun() {
            self.heap.give_piece(old.rest(), 1);
        }
        old.rest().len
    }
}

impl Stacks {
    /// Puts another run in the place of the hot run, and gives that.
    pub(super) fn replace_hot(&mut self, hot: Hot, counts: &Counts) -> Hot {
        let old = core::mem::replace(&mut self.hot, hot);
        self.note_free(old.rest().len, hot.rest().len, counts);
        old
    }

    /// Makes a piece of the heap the hot run, of which a block is cut next: it brings a node for its rest and one for the block.
    /// What is free of the old one becomes a run.
    pub(super) fn begin_hot(&mut self, piece: Span, out: &mut Leaving, counts: &Counts) {
        let old = self.replace_hot(Hot::of(piece), counts).rest();
        self.tokens += 2;
        if !old.is_empty() {
            // It had a node.
            self.tokens -= 1;
            self.keep(old, out, counts);
        }
    }

    /// What is free of the hot run becomes a run.
    pub(super) fn end_hot(&mut self, out: &mut Leaving, counts: &Counts) {
        let old = core::mem::replace(&mut self.hot, Hot::EMPTY).rest();
        if !old.is_empty() {
            self.keep_of_hot(old, out, counts);
        }
    }

    /// Cuts a block of a class from the hot run.
    #[inline]
    pub(super) fn cut(&mut self, class: SizeClass, counts: &Counts) -> Option<usize> {
        let len = class.len().bytes();
        if len > HOT_BLOCK_MAX { None } else { self.cut_long(len, counts) }
    }

    /// Cuts a block from the hot run, however long.
    #[inline]
    pub(super) fn cut_long(&mut self, len: usize, counts: &Counts) -> Option<usize> {
        // One node is kept for the rest, and one for each run.
        if self.tokens < self.runs.count() + 2 {
            return None;
        }
        let start = self.hot.cut(len)?;
        self.tokens -= 1;
        self.note_free(len, 0, counts);
        Some(start)
    }

    /// Puts a block back into the hot run, if it lies at its front; `borders` as in [`Hot::put_back`].
    #[inline]
    pub(super) fn put_back(
        &mut self,
        len: usize,
        start: usize,
        borders: impl FnOnce() -> bool,
        counts: &Counts,
    ) -> bool {
        // What lies behind that border, in a run, may be of another region than the block now is.
        let runs = &mut self.runs;
        let see = || {
            let touch = borders();
            runs.borders |= touch;
            touch
        };
        let fits = self.hot.put_back(start, len, see);
        if fits {
            self.tokens += 1;
            self.note_free(0, len, counts);
        }
        fits
    }

    /// Makes a block longer in place, if it lies at the front of the hot run and that has room, or before a run that has.
    pub(super) fn extend(&mut self, block: Span, longer: usize, counts: &Counts) -> bool {
        self.growth.note(block.len, longer);
        let more = longer - block.len;
        if self.runs.merges_at(block.end()) && self.hot.extend(block, longer) {
            self.note_free(more, 0, counts);
            return true;
        }
        self.extend_into_run(block.end(), more, counts)
    }

    /// Takes the end of a block back in place, if what is free behind it is the hot run's, or a run of the shard's and the shard may hold as
    /// much. The block keeps its node, and what is free has one.
    pub(super) fn take_tail(&mut self, tail: Span, bounds: Bounds, counts: &Counts) -> bool {
        if !self.runs.merges_at(tail.end()) {
            return false;
        }
        // Of a longer hot run all goes to the heap as one piece when a block is put back into it.
        if self.hot.rest().len + tail.len <= HOT_MAX && self.hot.cut_short(tail) {
            self.note_free(0, tail.len, counts);
            return true;
        }
        // Runs are part of what a shard may hold; what is free of the hot run comes on top of that.
        let fits = self.bytes() + tail.len <= bounds.bytes + self.beyond() && self.runs.lengthen(tail);
        if fits {
            self.note_runs(0, tail.len, counts);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_cut_in_order_and_put_back_in_reverse() {
        let mut hot = Hot { start: 1 << 20, top: 1 << 20, end: 2 << 20 };
        let (a, b) = (hot.cut(100 << 10).unwrap(), hot.cut(200 << 10).unwrap());
        assert_eq!((a, b), (1 << 20, (1 << 20) + (100 << 10)));
        let put_back = |hot: &mut Hot, start, len| hot.put_back(start, len, || false);
        assert!(!put_back(&mut hot, a, 100 << 10), "not at its front");
        assert!(put_back(&mut hot, b, 200 << 10) && put_back(&mut hot, a, 100 << 10));
        assert_eq!(hot.top, 1 << 20);
        assert!(!put_back(&mut hot, (1 << 20) - (64 << 10), 64 << 10), "not of this run");
        assert_eq!(hot.cut(2 << 20), None);
    }

    /// What had been cut of a run was free, unmapped, and mapped again as another region; a block of that was joined with the
    /// rest of the run, in the old one.
    #[test]
    fn what_comes_back_to_a_run_may_lie_in_another_region() {
        for borders in [true, false] {
            let mut hot = Hot { start: 1 << 20, top: 1 << 20, end: 5 << 20 };
            assert!(hot.cut(1 << 20).is_some() && hot.cut(2 << 20).is_some() && hot.cut(1 << 20).is_some());
            // Nothing is free with which it could be joined.
            assert!(hot.cut(1 << 20).is_none() && hot.put_back(4 << 20, 1 << 20, || borders));
            assert_eq!(hot.put_back(2 << 20, 2 << 20, || borders), !borders, "a border of two chunks");
            hot.top = 3 << 20;
            assert!(hot.put_back(2 << 20, 1 << 20, || borders), "within a chunk");
        }
    }

    #[test]
    fn the_block_that_was_cut_last_grows_while_there_is_room() {
        let mut hot = Hot { start: 1 << 20, top: 1 << 20, end: 2 << 20 };
        let first = Span::new(hot.cut(64 << 10).unwrap(), 64 << 10);
        assert!(hot.extend(first, 128 << 10) && hot.top == first.start + (128 << 10));
        let first = Span::new(first.start, 128 << 10);
        let second = Span::new(hot.cut(64 << 10).unwrap(), 64 << 10);
        assert!(!hot.extend(first, 256 << 10), "another lies behind it");
        assert!(!hot.extend(second, 897 << 10), "longer than what is left");
        assert!(hot.extend(second, 896 << 10) && hot.rest().is_empty());
        // One that ends where a run begins of which nothing is cut is no part of it.
        let mut next = Hot { start: 2 << 20, top: 2 << 20, end: 4 << 20 };
        assert!(!next.extend(Span::new(second.start, 896 << 10), 1 << 20));
    }
}
