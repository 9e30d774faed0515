//! The heap walker: checks the books against themselves. For tests and for whoever suspects the worst.

use super::pool::State;
use super::{PageHeap, SPLITS};
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
        if free + inner.out + inner.transit + inner.retired != mapped {
            crate::invariant::broken("H8: bytes are missing from the books");
        }
        if inner.pieces.spare() < inner.loose + SPLITS * inner.operations {
            crate::invariant::broken("H6: too few spare nodes");
        }
    }
}
