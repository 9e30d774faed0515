//! Giving address space back, and making what is free one VMA with what is around it.
//!
//! Why it is here: what is reserved costs nothing, but what is open counts against limits of the process and the
//! commit charge, and each place where two VMAs meet is paid for by every fork. Only free memory is touched here.

use super::pieces::Span;
use super::pool::{Index, State};
use super::purge::Unit;
use super::region::Kind;
use super::{Guard, HOLES_MAX, Inner, PageHeap};
use crate::os::{CHUNK, NOTHING_DONE, Os};

/// From this length on, in bytes, a piece is worth a VMA of its own: the least step in which memory is opened.
const LONG: usize = 32 << 20;

/// The least piece that goes, in bytes, for what that leaves behind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worth {
    /// That is closed. Shorter ones than [`LONG`] have half of the budget of holes: what is long finds a place however many those are.
    closed: usize,
    /// That is unmapped between blocks of a plain region, which is two then.
    gap: usize,
}

impl Worth {
    pub(super) const USUAL: Self = Self { closed: LONG, gap: LONG };
    /// Before a request is refused.
    const NEEDED: Self = Self { closed: CHUNK, gap: CHUNK };
}

impl<O: Os> PageHeap<O> {
    /// Gives everything that is free back to the kernel: pages, then address space. Gives the bytes purged.
    pub(crate) fn release(&self) -> usize {
        self.release_to(Worth::USUAL)
    }

    /// As [`PageHeap::release`], whatever `fork` takes for it afterwards.
    pub(crate) fn release_in_need(&self) -> usize {
        self.release_to(Worth::NEEDED)
    }

    fn release_to(&self, worth: Worth) -> usize {
        let done = self.purge(usize::MAX, Unit::Pages);
        self.trim_to(worth);
        done
    }

    /// Gives address space back that is free and untouched: what counts against a limit of the process or a commit
    /// charge.
    pub(crate) fn trim(&self) {
        self.trim_to(Worth::USUAL);
    }

    fn trim_to(&self, worth: Worth) {
        self.close_worth(usize::MAX, worth);
        self.heal_free();
        self.unmap_free(worth);
    }

    /// Makes free memory that pages were moved into or out of, and that is zero now, one VMA with what is around it.
    pub(crate) fn heal_free(&self) {
        let (mut below, mut from) = ((usize::MAX, usize::MAX), 0);
        // Without them it would stay as it is, and be found again.
        while self.os.has_mappings_left() {
            let mut inner = self.enter();
            let Some(span) = inner.claim_seamed(&mut below, &mut from, &self.os) else { return };
            inner.operations += 1;
            drop(inner);
            let state = self.heal(span);
            let mut inner = self.reenter();
            match state {
                Some(state) => inner.settle(span, state),
                None => inner.retire(span),
            }
            inner.operations -= 1;
            // What was refused stays as it was, and would be found again.
            if state != Some(State::Zero) || inner.regions.shift(span.start) != 0 {
                return;
            }
        }
    }

    /// Closes about `most` bytes of what is free of the reserved regions, the longest pieces first: where that takes no more VMAs,
    /// and every long one while there are few.
    pub(crate) fn close_free(&self, most: usize) {
        self.close_worth(most, Worth::USUAL);
    }

    fn close_worth(&self, most: usize, worth: Worth) {
        let mut below = (usize::MAX, usize::MAX);
        let mut done = 0;
        // A call that fails for want of them would cost the range, which then counts as unmapped.
        while done < most && self.os.has_mappings_left() {
            let mut inner = self.enter();
            let Some(span) = inner.claim_closable(&mut below, worth, &self.os) else { return };
            inner.operations += 1;
            let huge = inner.setup.huge;
            drop(inner);
            let closed = self.os.close(span.start, span.len);
            let plugged = match closed {
                Ok(()) => {
                    // A refused advice costs speed alone.
                    let _ = self.os.advise(span.start, span.len, huge);
                    false
                }
                Err(NOTHING_DONE) => false,
                Err(_) => self.os.plug(span.start, span.len, huge).is_ok(),
            };
            let mut inner = self.reenter();
            inner.operations -= 1;
            inner.closing -= 1;
            if closed.is_ok() {
                done += span.len;
                inner.regions.set_shift(span, 0);
                inner.opened = inner.opened.saturating_sub(span.len);
                inner.settle(span, State::Closed);
                continue;
            }
            if plugged {
                inner.regions.set_shift(span, 0);
            }
            if plugged || closed == Err(NOTHING_DONE) {
                inner.settle(span, State::Zero);
            } else {
                self.retire(&mut inner, span);
            }
            return;
        }
    }

    /// Unmaps the free ends of the plain regions, or all of one that is free, and what is free between blocks and worth it.
    fn unmap_free(&self, worth: Worth) {
        let mut below = (usize::MAX, usize::MAX);
        loop {
            let mut inner: Guard<'_, Inner, O> = self.enter();
            // What else there is of the piece lies before it: no node is needed.
            let end = inner.free_plain_end();
            let found = end.or_else(|| inner.free_plain_between(&mut below, worth, &self.os));
            let Some((index, region, span)) = found else { return };
            let state = inner.pieces.carve(index, span);
            // Under the lock: the range must be in the books as long as it is ours, and nobody's afterwards.
            if self.os.unmap(span.start, span.len).is_err() {
                inner.insert(span, state);
                return;
            }
            inner.opened = inner.opened.saturating_sub(span.len);
            if span == region {
                inner.regions.forget(region.start);
            } else {
                inner.regions.lose(span);
            }
        }
    }
}

impl Inner {
    /// Takes the whole chunks of the longest zero piece under `below` of a reserved region into transit, if it is
    /// worth it and few were, or lies beside closed memory.
    pub(super) fn claim_closable<O: Os>(
        &mut self,
        below: &mut (usize, usize),
        worth: Worth,
        os: &O,
    ) -> Option<Span> {
        // A heap that is told by its bounds can have one hole, and only this makes any in it: one at a time.
        let may_hole = self.setup.growth != super::Growth::Never || (self.retired == 0 && self.closing == 0);
        if !may_hole || !self.ensure_spare(os) {
            return None;
        }
        loop {
            let index = self.pieces.longest_below(State::Zero, *below)?;
            let span = self.pieces.span(index);
            if span.len < CHUNK {
                return None;
            }
            *below = (span.len, span.start);
            let chunks = span.inner(CHUNK);
            let region = self.regions.of(span.start);
            let is_closed = |at: usize| {
                at >= region.span.start
                    && at < region.span.end()
                    && self.pieces.at(at).is_some_and(|i| self.pieces.get(i).state == State::Closed)
            };
            let holes = self.pieces.count_of(State::Closed);
            let may_be_one = holes < if chunks.len >= LONG { HOLES_MAX } else { HOLES_MAX / 2 };
            let fits = chunks.len >= worth.closed && may_be_one
                || is_closed(span.end())
                || is_closed(span.start.wrapping_sub(1));
            if !chunks.is_empty() && fits && region.kind == Kind::Reserved {
                self.claim(index, chunks);
                self.closing += 1;
                return Some(chunks);
            }
        }
    }

    /// The whole chunks of the longest zero piece under `below` of a plain region that are worth it, while regions are few: their piece,
    /// the region, and they. A node is there for what lies behind them.
    fn free_plain_between<O: Os>(
        &mut self,
        below: &mut (usize, usize),
        worth: Worth,
        os: &O,
    ) -> Option<(Index, Span, Span)> {
        if !self.ensure_spare(os) {
            return None;
        }
        loop {
            let index = self.pieces.longest_below(State::Zero, *below)?;
            let span = self.pieces.span(index);
            if span.len < worth.gap {
                return None;
            }
            *below = (span.len, span.start);
            let region = self.regions.of(span.start);
            let chunks = span.inner(CHUNK);
            let is_front = chunks.start == region.span.start;
            if region.kind == Kind::Plain && chunks.len >= worth.gap && self.regions.may_lose(is_front) {
                return Some((index, region.span, chunks));
            }
        }
    }

    /// Takes the first moved chunks of the longest zero piece under `below` that has any into transit; leaves `below`
    /// such that the rest of that piece comes next, from the address `from` on: what lies before that was looked at.
    fn claim_seamed<O: Os>(&mut self, below: &mut (usize, usize), from: &mut usize, os: &O) -> Option<Span> {
        if self.regions.seams() == 0 || !self.ensure_spare(os) {
            return None;
        }
        loop {
            let index = self.pieces.longest_below(State::Zero, *below)?;
            let span = self.pieces.span(index);
            if span.len < CHUNK {
                return None;
            }
            let chunks = span.inner(CHUNK);
            let first = if (chunks.start..chunks.end()).contains(from) { *from } else { chunks.start };
            let is_moved = |&at: &usize| self.regions.shift(at) != 0;
            if let Some(start) = (first..chunks.end()).step_by(CHUNK).find(is_moved) {
                let end =
                    (start..chunks.end()).step_by(CHUNK).find(|at| !is_moved(at)).unwrap_or(chunks.end());
                let part = Span::between(start, end);
                self.claim(index, part);
                *from = end;
                return Some(part);
            }
            *below = (span.len, span.start);
            *from = 0;
        }
    }
}
