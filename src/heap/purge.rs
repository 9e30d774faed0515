//! Giving memory back to the kernel, or offering it: purging and softening.

use super::pieces::Span;
use super::pool::State;
use super::{Inner, Overstated, PageHeap};
use crate::os::{CHUNK, GRANULE, NOTHING_DONE, Os};

/// In what units a purge works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Whole chunks, so that no huge page is split, and no more of them than is too much: the rest of a huge page that a
    /// block ends in is booked as dirty when it is freed, and would go and be faulted in again each round.
    Chunks,
    /// The kernel's pages: all that can be given back, and what else is free of a page that is partly dirty.
    Pages,
    /// The kernel's pages that are dirty whole.
    WholePages,
}

/// Pieces without a whole chunk, one after another, that are looked at before a purge of such ends for now, where the next
/// one goes on: a microsecond or two under a lock that all threads share. Pieces as long as two hold one, so these are shorter
/// ones, which come last.
const TRIES: usize = 32;

/// The most that one call purges, in bytes: it holds what others wait for who map or move, 3 ms in huge pages and 100 in small ones.
const CALL_MAX: usize = 1 << 30;

/// Above all pieces: none has been passed over.
pub(super) const NOTHING_YET: (usize, usize) = (usize::MAX, usize::MAX);

/// What a purge leaves resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    Nothing,
    /// So many bytes of what is free.
    Dirty(usize),
    /// So many of what is handed out and free together.
    Present(usize),
}

impl<O: Os> PageHeap<O> {
    /// Purges about `excess` bytes of dirty memory, the longest pieces first. Gives how many it purged:
    /// fewer where there is no more in such units, or the kernel refuses.
    pub(crate) fn purge(&self, excess: usize, unit: Unit) -> usize {
        self.purge_to(Keep::Nothing, excess, unit)
    }

    /// The same as long as there is more than is to be kept: many threads may have seen the same excess, and each would purge
    /// all of it.
    pub(crate) fn purge_to(&self, keep: Keep, excess: usize, unit: Unit) -> usize {
        let mut done = 0;
        let mut refused = false;
        for state in [State::Dirty, State::Soft, State::Inherited] {
            // What was offered to the kernel is no part of an excess.
            if state == State::Soft && keep != Keep::Nothing {
                continue;
            }
            let mut below = (usize::MAX, usize::MAX);
            while done < excess && !refused {
                let mut inner = self.enter();
                let most = (excess - done).min(inner.over(keep)).min(CALL_MAX);
                let Some(span) = inner.claim_longest(state, &mut below, most, unit, &self.os) else {
                    break;
                };
                inner.operations += 1;
                // Where a page is larger than a granule, what is purged with it may be zero.
                let is_dirty = inner.setup.page == GRANULE;
                drop(inner);
                if is_dirty && self.misuse.is_on() {
                    self.misuse.check_painted(&self.os, span.start, span.len);
                }
                let zero = self.make_zero(span);
                self.reenter().operations -= 1;
                let (Ok(bytes) | Err(bytes)) = zero;
                done += bytes;
                refused = zero.is_err();
            }
        }
        done
    }

    /// Purges a range in transit and settles it. Gives the bytes that are zero now, as an error if
    /// the kernel refused some of it.
    fn make_zero(&self, span: Span) -> Result<usize, usize> {
        let mut rest = span;
        while !rest.is_empty() {
            let (part, foreign) = self.reenter().same_kind(rest);
            let state = if foreign { self.heal(part) } else { self.purged(part) };
            if state != Some(State::Zero) && self.misuse.is_on() {
                // Some of it may have gone; what was lost is not touched again.
                let kept = if state.is_some() { rest.start } else { part.end() };
                self.misuse.paint(kept, rest.end() - kept);
            }
            let mut inner = self.reenter();
            let last = part.len == rest.len;
            if !last {
                inner.cut();
            }
            match state {
                Some(state) => inner.settle(part, state),
                None => inner.retire(part),
            }
            rest = Span::between(part.end(), rest.end());
            if state != Some(State::Zero) {
                if !rest.is_empty() {
                    inner.settle(rest, State::Dirty);
                }
                return Err(part.start - span.start);
            }
            inner.purged += part.len as u64;
        }
        Ok(span.len)
    }

    fn purged(&self, span: Span) -> Option<State> {
        Some(if self.os.purge(span.start, span.len).is_ok() { State::Zero } else { State::Dirty })
    }

    /// Maps fresh memory over a range with moved pages, so that its VMAs become one with their neighbours.
    /// `None` if the range is lost.
    pub(super) fn heal(&self, span: Span) -> Option<State> {
        // Purged first, so that a range which is then lost holds no memory.
        if self.os.purge(span.start, span.len).is_err() {
            return Some(State::Dirty);
        }
        // As in `PageHeap::close_free`. It is zero all the same, and moved as it was.
        if !self.os.has_mappings_left() {
            return Some(State::Zero);
        }
        let (huge, eager) = {
            let inner = self.reenter();
            (inner.setup.huge, inner.eager)
        };
        match self.os.heal(span.start, span.len, huge) {
            Ok(()) => {}
            Err(NOTHING_DONE) => return Some(State::Zero),
            Err(_) => self.os.plug(span.start, span.len, huge).ok()?,
        }
        if eager {
            // What was mapped is resident again. It is zero either way.
            let _ = self.os.purge(span.start, span.len);
        }
        self.reenter().regions.set_shift(span, 0);
        Some(State::Zero)
    }

    /// Takes back a block parts of which were hardly touched: those (whole chunks, ascending) are purged, which
    /// costs little where there is little to purge, and are zero afterwards. What that tells of the highest level is booked; gives
    /// how often that turned out to have been too high.
    pub(crate) fn give_absent(&self, span: Span, absent: &[Span], overstated: Overstated) -> u64 {
        if self.misuse.is_on() {
            let mut at = span.start;
            for part in absent.iter().copied().chain([Span::new(span.end(), 0)]) {
                self.misuse.paint(at, part.start - at);
                at = part.end();
            }
        }
        let mut inner = self.enter();
        if absent.len() * 2 + 1 > super::SPLITS || !inner.ensure_spare(&self.os) {
            drop(inner);
            self.give(&[span], 0);
            return 0;
        }
        inner.note_peak();
        inner.out -= span.len;
        inner.correct_peak(overstated);
        let corrections = inner.corrections;
        inner.transit += span.len;
        inner.operations += 1;
        let mut at = span.start;
        for part in absent.iter().copied().chain([Span::new(span.end(), 0)]) {
            let touched = Span::between(at, part.start);
            if !touched.is_empty() {
                inner.cut();
                inner.settle(touched, State::Dirty);
            }
            inner.loose += usize::from(!part.is_empty());
            at = part.end();
        }
        inner.loose -= 1;
        drop(inner);
        for &part in absent {
            let _ = self.make_zero(part);
        }
        self.reenter().operations -= 1;
        corrections
    }

    /// Offers all dirty memory to the kernel, to take when it needs it. Gives the bytes offered.
    pub(crate) fn soften(&self) -> usize {
        let mut done = 0;
        let mut below = (usize::MAX, usize::MAX);
        loop {
            let mut inner = self.enter();
            if !inner.setup.soften {
                return done;
            }
            let Some(span) =
                inner.claim_longest(State::Dirty, &mut below, usize::MAX, Unit::WholePages, &self.os)
            else {
                return done;
            };
            inner.operations += 1;
            drop(inner);
            let softened = self.os.soften(span.start, span.len).is_ok();
            let mut inner = self.reenter();
            inner.settle(span, if softened { State::Soft } else { State::Dirty });
            inner.operations -= 1;
            if !softened {
                return done;
            }
            inner.softened += span.len as u64;
            done += span.len;
        }
    }
}

impl Inner {
    /// Bytes that are free and resident beyond what is to be kept.
    fn over(&self, keep: Keep) -> usize {
        match keep {
            Keep::Nothing => usize::MAX,
            Keep::Dirty(most) => self.dirty().saturating_sub(most),
            Keep::Present(most) => self.dirty().saturating_sub(most.saturating_sub(self.present())),
        }
    }

    /// Takes up to `most` bytes of the longest piece of a state under `below` into transit, in whole units, with
    /// what of its first and last page is free in another state where the unit says so; lowers `below` to that piece.
    fn claim_longest<O: Os>(
        &mut self,
        state: State,
        below: &mut (usize, usize),
        most: usize,
        unit: Unit,
        os: &O,
    ) -> Option<Span> {
        let page = self.setup.page;
        let (unit, widens, most) = match unit {
            Unit::Chunks => (CHUNK, false, Some(most & !(CHUNK - 1))),
            Unit::Pages => (page, page > GRANULE, most.checked_next_multiple_of(page)),
            Unit::WholePages => (page, false, most.checked_next_multiple_of(page)),
        };
        let has_none = unit == CHUNK && self.pieces.in_chunks(state) == 0;
        if most == Some(0) || has_none || !self.ensure_spare(os) {
            return None;
        }
        let is_bounded = unit == CHUNK;
        let mut tries = 0;
        loop {
            let index = self.pieces.longest_below(state, *below);
            let found = index.map(|index| self.pieces.span(index)).filter(|span| span.len >= unit || widens);
            let Some(span) = found else {
                if is_bounded {
                    self.passed_over[state as usize] = NOTHING_YET;
                }
                return None;
            };
            *below = (span.len, span.start);
            let inner = if widens { self.free_pages_around(span, unit) } else { span.inner(unit) };
            if inner.is_empty() {
                if is_bounded {
                    tries += 1;
                    if tries == TRIES {
                        self.passed_over[state as usize] = *below;
                        return None;
                    }
                    // Those down to there were looked at by the last purge.
                    *below = self.passed_over[state as usize].min(*below);
                }
                continue;
            }
            // From the side on which the piece ends with a chunk: on the other, what is less than a chunk would be cut
            // off from the rest. If that is both sides or none, from the end: most blocks are cut from the beginning.
            let len = most.map_or(inner.len, |m| m.min(inner.len));
            let from_below = inner.start == span.start && inner.end() < span.end();
            let start = if from_below { inner.start } else { inner.end() - len };
            let part = Span::new(start, len);
            self.claim_all(part);
            return Some(part);
        }
    }

    /// The whole pages that `span`, which is free, lies in or touches, as far as all of them is free and open.
    fn free_pages_around(&self, span: Span, page: usize) -> Span {
        let is_free = |range: Span| {
            let mut at = range.start;
            while at < range.end() {
                match self.pieces.at(at) {
                    Some(index) if self.pieces.get(index).state != State::Closed => {
                        at = self.pieces.span(index).end();
                    }
                    _ => return false,
                }
            }
            true
        };
        let (head, tail) = (span.start & !(page - 1), span.end().next_multiple_of(page));
        let start = if is_free(Span::between(head, span.start)) { head } else { head + page };
        let end = if is_free(Span::between(span.end(), tail)) { tail } else { tail - page };
        Span::between(start, end)
    }

    /// Takes a range that is free, in any number of pieces, into transit as one.
    fn claim_all(&mut self, range: Span) {
        let mut at = range.start;
        while at < range.end() {
            let Some(index) = self.pieces.at(at) else {
                crate::invariant::broken("H1: a purge of memory that is not free")
            };
            let part = self.pieces.span(index).common(range);
            self.claim(index, part);
            // All but the first are part of the first.
            self.loose -= usize::from(at > range.start);
            at = part.end();
        }
    }

    /// The leading part of a range that is either all native or all in moved chunks, and whether it is moved.
    fn same_kind(&self, span: Span) -> (Span, bool) {
        let chunks = span.inner(CHUNK);
        let foreign = |at: usize| self.regions.shift(at) != 0;
        if chunks.is_empty() || chunks.start > span.start {
            // Part of a chunk is shared with others: nothing can be mapped over it.
            return (
                Span::between(span.start, if chunks.is_empty() { span.end() } else { chunks.start }),
                false,
            );
        }
        let first = foreign(span.start);
        let mut end = span.start;
        while end < chunks.end() && foreign(end) == first {
            end += CHUNK;
        }
        if end == chunks.end() && !first {
            end = span.end();
        }
        (Span::between(span.start, end), first)
    }
}
