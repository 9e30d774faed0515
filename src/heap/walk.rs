//! The heap walker: checks the books against themselves. For tests.

use super::pool::State;
use super::{PageHeap, SPLITS};
use super::{Span, region::Kind};
use crate::os::{CHUNK, Os};

impl<O: Os> PageHeap<O> {
    /// Walks all pieces and checks H1 to H4, H6 and H8; a broken one ends the process. Takes the heap's lock.
    pub(crate) fn walk(&self) {
        let inner = self.reenter();
        let mut free = 0;
        let mut last = None;
        inner.pieces.walk(|span, state| {
            let region = inner.regions.of(span.start);
            if span.end() > region.span.end() {
                crate::invariant::broken("H1: a piece reaches out of its region");
            }
            if state == State::Closed && (span.start % CHUNK != 0 || span.len % CHUNK != 0) {
                crate::invariant::broken("H2: closed memory that is not whole chunks");
            }
            if last == Some((span.start, state, region.span.start)) {
                crate::invariant::broken("H3: two neighbours of one state");
            }
            last = Some((span.end(), state, region.span.start));
            free += span.len;
        });
        let mapped: usize = inner.regions.all().iter().map(|r| r.span.len).sum();
        if free + inner.out + inner.transit + inner.regions.holes() != mapped {
            crate::invariant::broken("H8: bytes are missing from the books");
        }
        if inner.pieces.spare() < inner.loose + SPLITS * inner.operations {
            crate::invariant::broken("H6: too few spare nodes");
        }
    }
}

/// What is checked against a model, and shown to it.
impl<O: Os> PageHeap<O> {
    /// [`PageHeap::walk`], while nothing is in transit and exactly `blocks` (ascending) are handed out, with nodes for as
    /// many and `tokens` more; then shows every piece to `piece`, and every chunk with its shift to `chunk`.
    pub(crate) fn audit(
        &self,
        blocks: &[Span],
        tokens: usize,
        mut piece: impl FnMut(Span, State),
        mut chunk: impl FnMut(usize, i32),
    ) {
        self.walk();
        let inner = self.reenter();
        let under_way = (inner.transit, inner.operations, inner.opening, inner.forking);
        assert_eq!(under_way, (0, 0, 0, 0), "nothing is under way");
        assert_eq!(inner.loose, blocks.len() + tokens, "H6: loose ranges are the blocks handed out");
        assert_eq!(inner.out, blocks.iter().map(|b| b.len).sum::<usize>(), "H8: bytes handed out");
        assert!(inner.absent <= inner.out, "no more is expected absent than is out");
        let mut last = 0;
        for block in blocks {
            assert!(last <= block.start, "H1: two blocks overlap at {:#x}", block.start);
            last = block.end();
            let region = inner.regions.of(block.start);
            assert!(block.end() <= region.span.end(), "H1: {block:x?} reaches out of its region");
            let free = inner.pieces.at(block.start).or_else(|| inner.pieces.next(block.start));
            if let Some(free) = free.map(|f| inner.pieces.span(f)).filter(|f| f.start < block.end()) {
                panic!("H1: {free:x?} is free and lies in the block {block:x?}");
            }
        }
        inner.pieces.walk(&mut piece);
        let mut seams = 0;
        for region in inner.regions.all() {
            assert_eq!(region.span.inner(CHUNK), region.span, "C1: a region that ends within a chunk");
            let shifts = (region.span.start..region.span.end()).step_by(CHUNK);
            let mut before = None;
            for (at, shift) in shifts.map(|at| (at, inner.regions.shift(at))) {
                seams += usize::from(before.is_some_and(|b| b != shift));
                before = Some(shift);
                chunk(at, shift);
            }
        }
        assert_eq!(seams, inner.regions.seams(), "the seams are counted right");
    }

    /// Shows every free piece.
    pub(crate) fn pieces(&self, seen: impl FnMut(Span, State)) {
        self.reenter().pieces.walk(seen);
    }

    /// Whether a range ends where its region does, and another one begins.
    #[cfg(test)]
    pub(crate) fn is_last_of_region(&self, span: Span) -> bool {
        let inner = self.reenter();
        inner.regions.of(span.start).span.end() == span.end()
            && inner.regions.all().iter().any(|r| r.span.start == span.end())
    }

    /// How many regions of each kind there are: reserved, plain.
    pub(crate) fn regions(&self) -> (usize, usize) {
        let inner = self.reenter();
        let reserved = inner.regions.all().iter().filter(|r| r.kind == Kind::Reserved).count();
        (reserved, inner.regions.all().len() - reserved)
    }
}
