//! Where a run shall lie, and what it is made of: windows over free pieces of several states.
//!
//! A window is chosen under the heap's lock and claimed there; what is then done to its parts is others' business.

use super::pieces::{Fit, Span};
use super::pool::{Index, State};
use super::region::Kind;
use super::take::Wish;
use super::{Inner, SEAMS_MAX, SPLITS};
use crate::os::{CHUNK, Huge};

/// The parts of a run that are not known to be zero, in ascending order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unclean {
    parts: [Span; Self::MAX],
    count: usize,
}

impl Unclean {
    const MAX: usize = 8;

    pub(crate) fn all(span: Span) -> Self {
        let mut all = Self::default();
        all.push(span);
        all
    }

    pub(crate) fn parts(&self) -> &[Span] {
        &self.parts[..self.count]
    }

    pub(crate) fn bytes(&self) -> usize {
        self.parts().iter().map(|p| p.len).sum()
    }

    /// Adds a part that lies behind all others. Where there are too many, the last one grows over the gap:
    /// calling zero memory unclean costs time alone.
    pub(crate) fn push(&mut self, part: Span) {
        if part.is_empty() {
            return;
        }
        if let Some(last) = self.count.checked_sub(1).map(|i| &mut self.parts[i])
            && (last.end() == part.start || self.count == Self::MAX)
        {
            last.len = part.end() - last.start;
            return;
        }
        self.parts[self.count] = part;
        self.count += 1;
    }
}

impl Run {
    /// Keeps the first `len` bytes of it, and of what is known of it what concerns those; gives the rest.
    pub(crate) fn cut_back(&mut self, len: usize) -> Span {
        let rest = Span::between(self.span.start + len, self.span.end());
        self.span.len -= rest.len;
        let mut unclean = Unclean::default();
        self.unclean.parts().iter().for_each(|part| unclean.push(part.common(self.span)));
        self.unclean = unclean;
        let fresh = self.span.len.saturating_sub(unclean.bytes());
        self.found = match self.found {
            Found::Run => Found::Run,
            Found::Gathered(_) => Found::Gathered(fresh),
            Found::Fresh(_) => Found::Fresh(fresh),
        };
        rest
    }
}

/// How a run was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// One free run was there.
    Run,
    /// All that was not already there was moved in, but for so many bytes, less than a chunk at each end.
    Gathered(usize),
    /// This many of its bytes were neither there nor moved in.
    Fresh(usize),
}

impl Found {
    /// How many bytes were neither there nor moved in.
    pub(crate) const fn fresh(self) -> usize {
        match self {
            Self::Run => 0,
            Self::Gathered(fresh) | Self::Fresh(fresh) => fresh,
        }
    }
}

/// A run that is the caller's now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) span: Span,
    pub(crate) unclean: Unclean,
    pub(crate) found: Found,
}

/// A part of a window, in transit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) span: Span,
    pub(super) state: State,
}

/// The parts of a window, in ascending order, without gaps.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) parts: [Part; Self::MAX + SPLITS],
    pub(super) count: usize,
}

impl Window {
    /// As many pieces as a window may be made of: what fits on a signal handler's stack.
    const MAX: usize = 40;

    const fn new() -> Self {
        Self { parts: [Part { span: Span::new(0, 0), state: State::Zero }; Self::MAX + SPLITS], count: 0 }
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.parts[..self.count]
    }

    fn push(&mut self, part: Part) {
        self.parts[self.count] = part;
        self.count += 1;
    }

    /// Whether a part may still be cut into three, and one of these in two, since what is lost behind what was filled is a part
    /// of its own.
    pub(super) const fn may_split(&self) -> bool {
        self.count + 3 <= Self::MAX + SPLITS
    }

    /// Cuts the part `at` so that `middle`, which lies in it, is a part of its own with `state`. Gives how
    /// many parts there are more.
    pub(super) fn split(&mut self, at: usize, middle: Span, state: State) -> usize {
        let whole = self.parts[at];
        let pieces = [
            Part { span: Span::between(whole.span.start, middle.start), state: whole.state },
            Part { span: middle, state },
            Part { span: Span::between(middle.end(), whole.span.end()), state: whole.state },
        ];
        let more = pieces.iter().filter(|p| !p.span.is_empty()).count() - 1;
        self.parts.copy_within(at + 1..self.count, at + 1 + more);
        for (i, piece) in pieces.into_iter().filter(|p| !p.span.is_empty()).enumerate() {
            self.parts[at + i] = piece;
        }
        self.count += more;
        more
    }

    /// Removes the part `at`, which is lost.
    pub(super) fn lose(&mut self, at: usize) {
        self.parts.copy_within(at + 1..self.count, at);
        self.count -= 1;
    }

    pub(super) fn span(&self) -> Span {
        let (first, last) = (self.parts[0].span, self.parts[self.count - 1].span);
        Span::between(first.start, last.end())
    }
}

/// Pieces looked at on either side of a candidate.
pub(super) const REACH: usize = Window::MAX / 2 - 2;

/// A candidate and what is free on either side of it, without gaps, ascending: read from the tree once, and added up as often as there
/// are places for a window.
struct Around {
    parts: [Part; Self::MAX],
    from: usize,
    to: usize,
}

impl Around {
    const MAX: usize = 2 * REACH + 1;

    const fn of(part: Part) -> Self {
        Self { parts: [part; Self::MAX], from: REACH, to: REACH + 1 }
    }

    fn span(&self) -> Span {
        Span::between(self.parts[self.from].span.start, self.parts[self.to - 1].span.end())
    }

    /// How many bytes of some states a range holds, which lies in it.
    fn held(&self, range: Span, states: &[State]) -> usize {
        let parts = self.parts[self.from..self.to].iter();
        parts.filter(|part| states.contains(&part.state)).map(|part| part.span.common(range).len).sum()
    }
}

/// Up to this part of a window that shall be zero, as a divisor, may be resident before other memory is opened for it: that part
/// is lost to others, though it may stay untouched, and tells nobody whether it is touched.
const DIRTY_PART: usize = 8;

/// Candidates looked at for a window.
const CANDIDATES: usize = 8;

/// What is resident.
const DIRTY: [State; 3] = [State::Dirty, State::Soft, State::Inherited];

/// Pages of no longer runs are moved to spare others one chunk: a thirty-second of that.
const UNSPOILED_MAX: usize = 32 * CHUNK;

impl Inner {
    /// Chooses where a run shall lie: the window that gains most resident memory for [`Wish::Any`], with none
    /// for [`Wish::Zeroed`] if there is one.
    pub(super) fn plan(&self, fit: Fit, wish: Wish, reach: usize) -> Option<usize> {
        if wish == Wish::Any
            && let Some(start) = self.best_window(&DIRTY, fit, reach)
        {
            return Some(start);
        }
        if let Some((_, start)) = self.pieces.best_fit(State::Zero, fit) {
            return Some(start);
        }
        let zero = self.best_window(&[State::Zero], fit, fit.len);
        let is_little_dirty = |&start: &usize| {
            wish == Wish::Any || self.held(Span::new(start, fit.len), &DIRTY) <= fit.len / DIRTY_PART
        };
        zero.filter(is_little_dirty)
            .or_else(|| self.pieces.best_fit(State::Closed, fit).map(|(_, start)| start))
            .or(zero)
            .or_else(|| self.best_window(&DIRTY, fit, reach))
    }

    /// As [`Inner::plan`] for [`Wish::Any`], where pages may be moved under the run. If its end, behind the `reach` bytes of it that will be
    /// touched, lay in a chunk of resident memory, the rest of that would be no whole chunk any more, which could serve elsewhere: a
    /// block of a power of two is a granule longer, for its colour. So it lies where it spoils none.
    pub(super) fn plan_unspoiled(&self, fit: Fit, reach: usize) -> Option<usize> {
        let start = self.plan(fit, Wish::Any, reach)?;
        // Where pages are refused, or each run asks for a VMA or two, what is resident in place is better.
        let is_able = !self.eager && self.refused_moves == 0 && self.regions.seams() < SEAMS_MAX / 2;
        let is_worth_it = self.setup.huge == Huge::Advise && self.setup.has_huge && reach <= UNSPOILED_MAX;
        if is_able && is_worth_it && fit.modulus >= CHUNK && self.spoils(Span::new(start, fit.len), reach) {
            return self.plan_whole(fit, reach).or_else(|| self.plan_gathered(fit, reach)).or(Some(start));
        }
        Some(start)
    }

    /// Whether behind the leading `reach` bytes of a window its end lies in a chunk that is resident.
    fn spoils(&self, window: Span, reach: usize) -> bool {
        let last = Span::new(window.end() & !(CHUNK - 1), CHUNK);
        last.start < window.end() && last.start >= window.start + reach && self.held(last, &DIRTY) == CHUNK
    }

    /// Where a run spoils no chunk, and its leading `reach` bytes lie in the shortest resident piece that has them.
    fn plan_whole(&self, fit: Fit, reach: usize) -> Option<usize> {
        let index = self.pieces.shortest_from(State::Dirty, reach)?;
        let piece = self.pieces.span(index);
        let window = Span::new(fit.first_from(piece.start)?, fit.len);
        let lead = Span::new(window.start, reach);
        let is_free = self.around(index, fit).span().common(window) == window;
        (is_free && piece.common(lead) == lead && !self.spoils(window, reach)).then_some(window.start)
    }

    /// Where a run lies alone in its chunks, in untouched memory, if there are pages enough to be moved under its leading `reach` bytes.
    fn plan_gathered(&self, fit: Fit, reach: usize) -> Option<usize> {
        if !self.setup.moves || self.pieces.in_chunks(State::Dirty) < reach {
            return None;
        }
        let whole = Fit { len: fit.len.next_multiple_of(CHUNK), ..fit };
        let place = |state| self.pieces.best_fit(state, whole).map(|(_, start)| start);
        // What opens memory may be refused.
        let closed = || if self.refused_growth == 0 { place(State::Closed) } else { None };
        let start = place(State::Zero).or_else(closed)?;
        (self.regions.of(start).kind == Kind::Reserved).then_some(start)
    }

    /// The window around the longest pieces of some states that holds most bytes of these states in its leading
    /// `reach` bytes, less what it holds of them behind those; among such, the one whose ends ask for no huge page of their
    /// own. What lies behind is lost to others, and costs them the fault that what is missing before costs here. So none is
    /// taken that holds more behind than before; nor half as much, where pages can be moved in before, since that is cheaper than
    /// their faults.
    fn best_window(&self, states: &[State], fit: Fit, reach: usize) -> Option<usize> {
        let reach = reach.min(fit.len);
        let moves = self.setup.moves && !self.eager && self.pieces.in_chunks(State::Dirty) >= reach;
        let lost = if moves { 2 } else { 1 };
        // What is gained, and good ends; and where.
        let mut best: Option<((usize, usize), usize)> = None;
        for &state in states {
            let mut below = (usize::MAX, usize::MAX);
            for _ in 0..CANDIDATES {
                let Some(index) = self.pieces.longest_below(state, below) else { break };
                let span = self.pieces.span(index);
                below = (span.len, span.start);
                // The pieces around one may hold some more.
                let most = (span.len.saturating_mul(4)).min(reach) + (fit.len - reach);
                if best.is_some_and(|((gained, _), _)| gained >= most) {
                    break;
                }
                let around = self.around(index, fit);
                let extent = around.span();
                // Where the piece ends as the reach does, where either begins or ends, and where there is room last.
                let behind = span.end().saturating_add(fit.len - reach);
                let starts = [
                    fit.last_before(behind).filter(|&s| s >= extent.start && s + fit.len <= extent.end()),
                    fit.first_from(span.start).filter(|&s| s.saturating_add(fit.len) <= extent.end()),
                    fit.last_before(span.end()).filter(|&s| s >= extent.start),
                    fit.last_before(extent.end()).filter(|&s| s >= extent.start),
                ];
                for start in starts.into_iter().flatten() {
                    let lead = around.held(Span::new(start, reach), states);
                    let rest = around.held(Span::between(start + reach, start + fit.len), states);
                    let gained = lead + (fit.len - reach) - rest;
                    if lead <= rest * lost || best.is_some_and(|((most, _), _)| gained < most) {
                        continue;
                    }
                    let score = (gained, self.good_ends(Span::new(start, fit.len), &around, states));
                    if best.is_none_or(|(most, _)| score > most) {
                        best = Some((score, start));
                    }
                }
            }
        }
        best.map(|(_, start)| start)
    }

    /// How many of the two ends of a window begin or end on a chunk, are held by pieces of some states, or lie in a chunk
    /// that pages can be moved under.
    fn good_ends(&self, window: Span, around: &Around, states: &[State]) -> usize {
        let is_good = |&end: &usize| {
            let chunk = Span::new(end & !(CHUNK - 1), CHUNK);
            let inside = chunk.common(window);
            inside.len.is_multiple_of(CHUNK)
                || around.held(inside, states) == inside.len
                || self.zero_beside(inside).is_some()
        };
        [window.start, window.end()].iter().filter(|end| is_good(end)).count()
    }

    /// What else there is of the chunk of which `inside` is one end, and its piece, if all of that is zero and free.
    pub(super) fn zero_beside(&self, inside: Span) -> Option<(Index, Span)> {
        let chunk = Span::new(inside.start & !(CHUNK - 1), CHUNK);
        let outside = match (inside.start == chunk.start, inside.end() == chunk.end()) {
            (true, false) => Span::between(inside.end(), chunk.end()),
            (false, true) => Span::between(chunk.start, inside.start),
            _ => return None,
        };
        let index = self.pieces.at(outside.start)?;
        let is_zero = self.pieces.get(index).state == State::Zero
            && self.pieces.span(index).common(outside) == outside
            && self.regions.of(outside.start).span == self.regions.of(inside.start).span;
        is_zero.then_some((index, outside))
    }

    /// The free memory around a piece, as far as a run that touches it can use it.
    fn around(&self, index: Index, fit: Fit) -> Around {
        let span = self.pieces.span(index);
        let region = self.regions.of(span.start).span;
        let reach = fit.len.saturating_add(fit.modulus);
        let mut around = Around::of(self.part(index));
        let mut end = span.end();
        while around.to < Around::MAX {
            let Some(part) = self.pieces.next(end).map(|next| self.part(next)) else { break };
            let is_beside = part.span.start == end && end < region.end() && end - span.end() < reach;
            if !is_beside {
                break;
            }
            end = part.span.end();
            around.parts[around.to] = part;
            around.to += 1;
        }
        let mut start = span.start;
        while around.from > 0 {
            let Some(part) = self.pieces.previous(start).map(|previous| self.part(previous)) else { break };
            let is_beside =
                part.span.end() == start && part.span.start >= region.start && span.start - start < reach;
            if !is_beside {
                break;
            }
            start = part.span.start;
            around.from -= 1;
            around.parts[around.from] = part;
        }
        around
    }

    fn part(&self, index: Index) -> Part {
        Part { span: self.pieces.span(index), state: self.pieces.get(index).state }
    }

    /// How many bytes of some states a range holds.
    pub(super) fn held(&self, range: Span, states: &[State]) -> usize {
        let mut held = 0;
        let mut at = self.pieces.at(range.start).or_else(|| self.pieces.next(range.start));
        while let Some(index) = at {
            let span = self.pieces.span(index);
            if span.start >= range.end() {
                break;
            }
            if states.contains(&self.pieces.get(index).state) {
                held += span.common(range).len;
            }
            at = self.pieces.next(span.end());
        }
        held
    }

    /// Takes a free range of at most [`Window::MAX`] pieces into transit.
    pub(super) fn claim_window(&mut self, range: Span) -> Window {
        let mut window = Window::new();
        let mut at = range.start;
        while at < range.end() {
            let Some(index) = self.pieces.at(at) else {
                crate::invariant::broken("H1: a window over memory that is not free")
            };
            let span = self.pieces.span(index).common(range);
            let state = self.claim(index, span);
            window.push(Part { span, state });
            at = span.end();
        }
        window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was cut while there was a place for two more parts, and what was lost behind the second needed a third.
    #[test]
    fn a_part_is_cut_while_there_is_a_place_for_what_may_be_lost_of_it() {
        let mut window = Window::new();
        let part = |nth: usize| Part { span: Span::new(nth * CHUNK, CHUNK), state: State::Zero };
        for nth in 0.. {
            if !window.may_split() {
                break;
            }
            window.push(part(nth));
        }
        let mut last = window.parts().len() - 1;
        // As the one before it is cut in three, and the last of these in two.
        window.lose(last);
        last -= 1;
        let Span { start, len } = window.parts()[last].span;
        let more = window.split(last, Span::new(start + len / 8, len / 8), State::Dirty);
        assert_eq!(more, 2);
        let rest = window.parts()[last + 2].span;
        assert_eq!(window.split(last + 2, Span::new(rest.start, len / 8), State::Zero), 1);
        assert_eq!(window.span(), Span::new(0, (last + 1) * CHUNK));
    }
}
