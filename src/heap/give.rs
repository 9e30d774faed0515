//! Giving blocks back: what is freed, what a block leaves behind it, and the nodes that are set aside for it.

use super::pieces::Span;
use super::pool::State;
use super::{Guard, Inner, PageHeap};
use crate::os::{CHUNK, Huge, Os};

impl<O: Os> PageHeap<O> {
    /// Takes back blocks that `take` handed out, whose content may be anything, and books as dirty what shares a huge page
    /// with them; and `tokens` nodes that were set aside beside those of the blocks. Gives the bytes that are free and dirty
    /// now.
    pub(crate) fn give(&self, spans: &[Span], tokens: usize) -> usize {
        let mut inner = self.give_all(spans, tokens);
        // In checked mode dirty memory is painted, and this is not.
        if !self.misuse.is_on() {
            let out_before = inner.present() + spans.iter().map(|span| span.len).sum::<usize>();
            let restated: usize = spans.iter().map(|&span| inner.restate_around(span)).sum();
            // It was resident while the blocks were out: a peak that left it out would have it purged, and faulted in again.
            inner.raise(out_before + restated);
        }
        inner.dirty()
    }

    /// Takes back blocks that nobody freed just now: a drain serves a request, and nothing is purged for what it would
    /// book as dirty beside them. `tokens` as in [`PageHeap::give`].
    pub(crate) fn give_stacked(&self, spans: &[Span], tokens: usize) {
        let _ = self.give_all(spans, tokens);
    }

    fn give_all(&self, spans: &[Span], tokens: usize) -> Guard<'_, Inner, O> {
        if self.misuse.is_on() {
            spans.iter().for_each(|span| self.misuse.paint(span.start, span.len));
        }
        let mut inner = self.enter();
        inner.note_peak();
        inner.loose -= tokens;
        for &span in spans {
            inner.insert(span, State::Dirty);
            inner.out -= span.len;
            inner.loose -= 1;
        }
        inner
    }

    /// Takes back what is left of a piece ([`PageHeap::take_run`]), if anything is, with `tokens` nodes that were set aside.
    pub(crate) fn give_piece(&self, rest: Span, tokens: usize) {
        let mut inner = self.enter();
        inner.note_peak();
        inner.insert(rest, State::Dirty);
        inner.out -= rest.len;
        inner.loose -= tokens;
    }

    /// Takes back the end of a block, from `keep` bytes on; `false` if a node for it cannot be had, and
    /// nothing has changed.
    pub(crate) fn give_tail(&self, block: Span, keep: usize) -> bool {
        let mut inner = self.enter();
        if !inner.ensure_spare(&self.os) {
            return false;
        }
        inner.note_peak();
        let tail = Span::between(block.start + keep, block.end());
        inner.insert(tail, State::Dirty);
        inner.out -= tail.len;
        true
    }

    /// Takes back a block, or the end of one from `keep` bytes on, and purges it at once; where blocks are wiped and the kernel
    /// refuses that, writes over it. `false` if a node for an end cannot be had, and nothing has changed.
    pub(crate) fn give_purged(&self, block: Span, keep: usize) -> bool {
        let mut inner = self.enter();
        if keep > 0 && !inner.ensure_spare(&self.os) {
            return false;
        }
        let span = Span::between(block.start + keep, block.end());
        inner.note_peak();
        inner.out -= span.len;
        inner.transit += span.len;
        inner.loose += usize::from(keep > 0);
        inner.operations += 1;
        let wipes = inner.setup.wipes;
        drop(inner);
        let purged = self.os.purge(span.start, span.len).is_ok();
        if !purged && wipes {
            self.os.zero(span.start, span.len);
        }
        if !purged && self.misuse.is_on() {
            self.misuse.paint(span.start, span.len);
        }
        let mut inner = self.reenter();
        inner.settle(span, if purged { State::Zero } else { State::Dirty });
        inner.purged += if purged { span.len as u64 } else { 0 };
        inner.operations -= 1;
        true
    }

    /// The first half of [`PageHeap::give_tail`]: `false` if a node for the end cannot be had, and nothing has changed.
    /// Otherwise one is set aside for it (H6), and [`PageHeap::give_tail_held`] is to be called; what lies in the end
    /// may be overwritten before.
    pub(crate) fn hold_tail(&self) -> bool {
        let mut inner = self.enter();
        let held = inner.ensure_spare(&self.os);
        inner.loose += usize::from(held);
        held
    }

    /// Takes back the end of a block, from `keep` bytes on, for which a node is held.
    pub(crate) fn give_tail_held(&self, block: Span, keep: usize) {
        let tail = Span::between(block.start + keep, block.end());
        if self.misuse.is_on() {
            self.misuse.paint(tail.start, tail.len);
        }
        let mut inner = self.enter();
        inner.note_peak();
        inner.loose -= 1;
        inner.insert(tail, State::Dirty);
        inner.out -= tail.len;
    }

    /// Sets a node aside for the rest of a run of `len` bytes that shall be fresh; `false` where that would not come out of one
    /// piece of address space that is there, or would all be resident.
    pub(crate) fn hold_node_for_fresh(&self, len: usize) -> bool {
        let mut inner = self.enter();
        let pieces = &inner.pieces;
        let there =
            [State::Zero, State::Closed].iter().any(|&state| pieces.shortest_from(state, len).is_some());
        let held = there && !inner.eager && inner.ensure_spare_for(1, &self.os);
        inner.loose += usize::from(held);
        held
    }

    /// Sets nodes aside for so many blocks yet to be cut; `false` if they cannot be had.
    pub(crate) fn hold_nodes(&self, count: usize) -> bool {
        let mut inner = self.enter();
        let held = inner.ensure_spare_for(count, &self.os);
        inner.loose += if held { count } else { 0 };
        held
    }
}

impl Inner {
    /// Books what is zero right before and behind a block that was given back as dirty, as far as it shares a huge page with
    /// it: the block's first touch made it resident. Where it stayed zero in the books, nobody looked for resident memory
    /// there, and blocks that come and go at other places each round left more and more of it behind. Gives the bytes. Needs
    /// no node: what is cut off one piece goes to its neighbour.
    fn restate_around(&mut self, block: Span) -> usize {
        if self.setup.huge != Huge::Advise || !self.setup.has_huge {
            return 0;
        }
        let region = self.regions.of(block.start).span;
        let before = Span::between(block.start & !(CHUNK - 1), block.start).common(region);
        let behind = Span::between(block.end(), block.end().next_multiple_of(CHUNK)).common(region);
        let mut restated = 0;
        for (side, next_to) in [(before, block.start.wrapping_sub(1)), (behind, block.end())] {
            if !side.is_empty()
                && let Some(index) = self.pieces.at(next_to)
                && self.pieces.get(index).state == State::Zero
            {
                let part = self.pieces.span(index).common(side);
                self.pieces.carve(index, part);
                self.pieces.insert(part, State::Dirty, region);
                restated += part.len;
            }
        }
        restated
    }
}
