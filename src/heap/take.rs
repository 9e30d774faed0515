//! Taking runs out of the heap: best fit in place first, then windows over mixed memory, filled or faulted.

use super::pieces::{Fit, Span};
use super::pool::{Index, State};
use super::region::Kind;
use super::{Guard, Inner, PageHeap, SPLITS, Setup};
use crate::os::{CHUNK, Os};

/// What a run is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// To be written: resident memory first.
    Any,
    /// To read as zero: untouched memory first.
    Zeroed,
}

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
    fn push(&mut self, part: Span) {
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
    parts: [Part; Self::MAX + SPLITS],
    count: usize,
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

    /// Whether a part may still be cut into three.
    pub(super) const fn may_split(&self) -> bool {
        self.count + 2 <= Self::MAX + SPLITS
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

/// Whether the last page of a range of whole pages that nobody has touched is resident, as far as the kernel tells.
pub(super) fn is_resident_at_end<O: Os>(span: Span, setup: &Setup, os: &O) -> bool {
    setup.residency && os.resident(span.end() - setup.page, setup.page).is_some_and(|bytes| bytes > 0)
}

/// Pieces looked at on either side of a candidate.
pub(super) const REACH: usize = Window::MAX / 2 - 2;

/// Candidates looked at for a window.
const CANDIDATES: usize = 8;

impl<O: Os> PageHeap<O> {
    /// Takes one free run of resident memory that is long enough, the shortest such; no page is faulted in.
    pub(crate) fn take_resident(&self, fit: Fit) -> Option<Run> {
        let mut inner = self.enter();
        if !inner.ensure_spare(&self.os) {
            return None;
        }
        let (index, start) =
            [State::Dirty, State::Soft].into_iter().find_map(|state| inner.pieces.best_fit(state, fit))?;
        let span = Span::new(start, fit.len);
        inner.pieces.carve(index, span);
        inner.out += span.len;
        inner.loose += 1;
        drop(inner);
        if self.misuse.is_on() {
            self.misuse.check_painted(&self.os, span.start, span.len);
        }
        Some(Run { span, unclean: Unclean::all(span), found: Found::Run })
    }

    /// Takes a piece of resident memory that will be handed on in `tokens` blocks at most, from a run that is much longer
    /// if there is one, so that more can be had behind it.
    pub(crate) fn take_piece(&self, len: usize, tokens: usize) -> Option<Span> {
        let fit = |len| Fit::aligned(len, 1);
        let mut inner = self.enter();
        if !inner.ensure_spare_for(tokens, &self.os) {
            return None;
        }
        let (index, start) =
            [8, 1].into_iter().find_map(|n| inner.pieces.best_fit(State::Dirty, fit(n * len)))?;
        let span = Span::new(start, len);
        inner.hand_on(index, span, tokens);
        Some(span)
    }

    /// Takes the longest piece of resident memory, or as much of it as `most`, if it is as long as `least`.
    pub(crate) fn take_longest(&self, least: usize, most: usize, tokens: usize) -> Option<Span> {
        let mut inner = self.enter();
        if !inner.ensure_spare_for(tokens, &self.os) {
            return None;
        }
        let index = inner.pieces.longest_below(State::Dirty, (usize::MAX, usize::MAX))?;
        let span = inner.pieces.span(index);
        let span = Span::new(span.start, span.len.min(most));
        if span.len < least {
            return None;
        }
        inner.hand_on(index, span, tokens);
        Some(span)
    }

    /// Takes up to `len` bytes of resident memory at `at`, behind a piece that was taken.
    pub(crate) fn take_more(&self, at: usize, len: usize, tokens: usize) -> Option<Span> {
        let mut inner = self.enter();
        let index = inner.pieces.at(at).filter(|&i| inner.pieces.get(i).state == State::Dirty)?;
        let span = inner.pieces.span(index).common(Span::new(at, len));
        // No block lies in two regions.
        if inner.regions.of(at).span.start == at
            || span.start != at
            || span.len < len
            || !inner.ensure_spare_for(tokens, &self.os)
        {
            return None;
        }
        // Asking for nodes moves no piece.
        inner.hand_on(index, span, tokens);
        Some(span)
    }

    /// Takes a run, whatever it costs: over pieces of several states, opening or mapping address space,
    /// moving pages in. `None` if the kernel refuses. Pages are moved only under the leading `reach` bytes, since
    /// the rest is not expected to be touched.
    pub(crate) fn take_slow(&self, fit: Fit, wish: Wish, reach: usize) -> Option<Run> {
        let mut inner = self.enter();
        if !inner.ensure_spare(&self.os) {
            return None;
        }
        let start = match inner.plan(fit, wish, reach) {
            Some(start) => start,
            None => {
                if !inner.add_region(fit, &self.os) {
                    return None;
                }
                self.note_bounds(&inner);
                inner.plan(fit, wish, reach)?
            }
        };
        let mut window = inner.claim_window(Span::new(start, fit.len));
        inner.operations += 1;
        let (inner, opened) = self.open_window(inner, &mut window);
        if !opened {
            self.settle_window(inner, &window);
            return None;
        }
        drop(inner);
        if wish == Wish::Any && !self.fill(&mut window, reach) {
            // A piece of the window is lost for ever: give back the rest and do without moves.
            self.settle_window(self.reenter(), &window);
            return self.take_slow(fit, Wish::Zeroed, 0);
        }
        Some(self.hand_out(&window))
    }

    /// Ends the operation that holds `window`, whose range is its caller's now.
    pub(super) fn hand_out(&self, window: &Window) -> Run {
        if self.misuse.is_on() {
            self.check_parts(window);
        }
        let mut unclean = Unclean::default();
        let mut fresh = 0;
        for part in window.parts() {
            if part.state == State::Zero {
                fresh += part.span.len;
            } else {
                unclean.push(part.span);
            }
        }
        let span = window.span();
        let mut inner = self.reenter();
        inner.transit -= span.len;
        inner.loose -= window.parts().len() - 1;
        inner.out += span.len;
        inner.operations -= 1;
        let found = match fresh {
            0 if window.parts().len() == 1 => Found::Run,
            fresh if fresh < 2 * CHUNK && fresh * 2 < span.len => Found::Gathered(fresh),
            fresh => Found::Fresh(fresh),
        };
        Run { span, unclean, found }
    }

    /// In checked mode: ends the process if somebody has written to what a window holds.
    #[cold]
    fn check_parts(&self, window: &Window) {
        for part in window.parts() {
            let Span { start, len } = part.span;
            if part.state != State::Zero {
                self.misuse.check_painted(&self.os, start, len);
            } else if self.os.resident(start, len).is_none_or(|bytes| bytes > 0) {
                self.misuse.check_zero(&self.os, start, len);
            }
        }
    }

    /// Makes all parts of a window in transit accessible, and inherited ones private. Says whether that
    /// worked; if not, what could be opened is `Zero` now and the rest as it was.
    pub(super) fn open_window<'a>(
        &'a self,
        mut inner: Guard<'a, Inner, O>,
        window: &mut Window,
    ) -> (Guard<'a, Inner, O>, bool) {
        let page = inner.setup.page;
        for i in 0..window.count {
            let part = window.parts[i];
            match part.state {
                State::Closed => {
                    // More than the window is opened at once, so that most takes open nothing.
                    let more = inner.claim_step(part.span);
                    drop(inner);
                    let (opened, done) = self.open_some(more, part.span);
                    let eager = self.shed_surplus(opened, part.span);
                    inner = self.reenter();
                    inner.eager |= eager;
                    inner.opened += opened.len;
                    inner.settle_step(more, part.span, opened);
                    if !done {
                        inner.refused_growth += 1;
                        return (inner, false);
                    }
                    window.parts[i].state = State::Zero;
                }
                State::Inherited => {
                    drop(inner);
                    // What lies in a page of the kernel beside others' memory stays shared and dirty.
                    let whole = part.span.inner(page);
                    let done = !whole.is_empty() && self.os.purge(whole.start, whole.len).is_ok();
                    inner = self.reenter();
                    let zero = done && whole == part.span;
                    if !zero && self.misuse.is_on() {
                        self.misuse.paint(part.span.start, part.span.len);
                    }
                    window.parts[i].state = if zero { State::Zero } else { State::Dirty };
                }
                State::Zero | State::Soft | State::Dirty => {}
            }
        }
        (inner, true)
    }

    /// Opens `more`, or at least `need`, which lies in it. Gives what was opened and whether `need` was.
    fn open_some(&self, more: Span, need: Span) -> (Span, bool) {
        let least = Span::between(need.start & !(CHUNK - 1), need.end().next_multiple_of(CHUNK)).common(more);
        for span in [more, least] {
            if self.os.open(span.start, span.len).is_ok() {
                return (span, true);
            }
        }
        (Span::new(need.start, 0), false)
    }

    /// Gives back what of `opened` beyond `need` the kernel made resident just because it was opened, as it does where all
    /// memory is locked (`mlockall`). Says whether it does so.
    fn shed_surplus(&self, opened: Span, need: Span) -> bool {
        let setup = self.reenter().setup;
        let surplus = Span::between(need.end().min(opened.end()), opened.end()).inner(setup.page);
        if surplus.is_empty() || !is_resident_at_end(surplus, &setup, &self.os) {
            return false;
        }
        // It is zero either way; a refusal costs memory alone.
        let _ = self.os.purge(surplus.start, surplus.len);
        true
    }

    /// Gives all parts of a window back as they are and ends the operation.
    pub(super) fn settle_window(&self, mut inner: Guard<'_, Inner, O>, window: &Window) {
        for part in window.parts() {
            if !part.span.is_empty() {
                inner.settle(part.span, part.state);
            }
        }
        inner.operations -= 1;
    }
}

impl Inner {
    /// Chooses where a run shall lie: the window with most resident memory in it for [`Wish::Any`], with none
    /// for [`Wish::Zeroed`] if there is one.
    fn plan(&self, fit: Fit, wish: Wish, reach: usize) -> Option<usize> {
        let dirty = [State::Dirty, State::Soft, State::Inherited];
        if wish == Wish::Any
            && let Some(start) = self.best_window(&dirty, fit, reach)
        {
            return Some(start);
        }
        if let Some((_, start)) = self.pieces.best_fit(State::Zero, fit) {
            return Some(start);
        }
        if let Some(start) = self.best_window(&[State::Zero], fit, fit.len) {
            return Some(start);
        }
        if let Some((_, start)) = self.pieces.best_fit(State::Closed, fit) {
            return Some(start);
        }
        self.best_window(&dirty, fit, reach)
    }

    /// The window around the longest pieces of some states that holds most bytes of these states in its leading
    /// `reach` bytes and, among such, fewest behind them, and then the one whose ends ask for no huge page of their own.
    fn best_window(&self, states: &[State], fit: Fit, reach: usize) -> Option<usize> {
        let reach = reach.min(fit.len);
        let mut best: Option<((usize, usize, usize), usize)> = None;
        for &state in states {
            let mut below = (usize::MAX, usize::MAX);
            for _ in 0..CANDIDATES {
                let Some(index) = self.pieces.longest_below(state, below) else { break };
                let span = self.pieces.span(index);
                below = (span.len, span.start);
                if best.is_some_and(|((most, _, _), _)| most >= span.len.saturating_mul(4)) {
                    break;
                }
                let extent = self.extent(index, fit);
                // Where the piece ends as the reach does, where either begins or ends, and where there is room last.
                let behind = span.end().saturating_add(fit.len - reach);
                let starts = [
                    fit.last_before(behind).filter(|&s| s >= extent.start && s + fit.len <= extent.end()),
                    fit.first_from(span.start).filter(|&s| s.saturating_add(fit.len) <= extent.end()),
                    fit.last_before(span.end()).filter(|&s| s >= extent.start),
                    fit.last_before(extent.end()).filter(|&s| s >= extent.start),
                ];
                for start in starts.into_iter().flatten() {
                    let lead = self.held(Span::new(start, reach), states);
                    let rest = self.held(Span::between(start + reach, start + fit.len), states);
                    let score = (lead, fit.len - rest, self.good_ends(Span::new(start, fit.len), states));
                    if lead > 0 && best.is_none_or(|(most, _)| score > most) {
                        best = Some((score, start));
                    }
                }
            }
        }
        best.map(|(_, start)| start)
    }

    /// How many of the two ends of a window begin or end on a chunk, are held by pieces of some states, or lie in a chunk
    /// that pages can be moved under.
    fn good_ends(&self, window: Span, states: &[State]) -> usize {
        let is_good = |&end: &usize| {
            let chunk = Span::new(end & !(CHUNK - 1), CHUNK);
            let inside = chunk.common(window);
            inside.len.is_multiple_of(CHUNK)
                || self.held(inside, states) == inside.len
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
    fn extent(&self, index: Index, fit: Fit) -> Span {
        let span = self.pieces.span(index);
        let region = self.regions.of(span.start).span;
        let reach = fit.len.saturating_add(fit.modulus);
        let (mut start, mut end) = (span.start, span.end());
        for _ in 0..REACH {
            let Some(next) = self.pieces.next(end) else { break };
            let s = self.pieces.span(next);
            if s.start != end || s.start >= region.end() || end - span.end() >= reach {
                break;
            }
            end = s.end();
        }
        for _ in 0..REACH {
            let Some(previous) = self.pieces.previous(start) else { break };
            let s = self.pieces.span(previous);
            if s.end() != start || s.start < region.start || span.start - start >= reach {
                break;
            }
            start = s.start;
        }
        Span::between(start, end)
    }

    /// Books a part of a piece as out, in blocks yet to be cut.
    fn hand_on(&mut self, index: Index, span: Span, tokens: usize) {
        self.pieces.carve(index, span);
        self.out += span.len;
        self.loose += tokens;
    }

    /// How many bytes of some states a range holds.
    fn held(&self, range: Span, states: &[State]) -> usize {
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

    /// Takes what is closed around `part`, which is in transit, into transit too, as far as the next step;
    /// gives all of it together.
    fn claim_step(&mut self, part: Span) -> Span {
        /// The least that is opened at once: a call of a microsecond per 32 MiB touched.
        const STEP_MIN: usize = 32 << 20;
        /// The most: beyond it the calls no longer show, and a core dump walks what is open.
        const STEP_MAX: usize = 1 << 30;
        let step = match self.eager {
            // What is opened becomes resident: no more than is needed.
            true => CHUNK,
            false => (self.opened / 8).clamp(STEP_MIN, STEP_MAX).next_multiple_of(CHUNK),
        };
        let mut all = part;
        let up_to = part.end().next_multiple_of(step);
        if let Some(index) = self.pieces.at(part.end())
            && self.pieces.get(index).state == State::Closed
            && self.regions.of(part.start).span.end() > part.end()
        {
            let more = Span::between(part.end(), up_to).common(self.pieces.span(index));
            if !more.is_empty() {
                self.claim(index, more);
                all.len += more.len;
            }
        }
        // A window may begin inside a chunk; the kernel's pages may be larger than a granule.
        let down_to = part.start & !(CHUNK - 1);
        if down_to < part.start
            && let Some(index) = self.pieces.at(down_to)
            && self.pieces.get(index).state == State::Closed
        {
            self.claim(index, Span::between(down_to, part.start));
            all = Span::between(down_to, all.end());
        }
        all
    }

    /// Settles what lies around `part` in `more`: `opened` of it is open now.
    fn settle_step(&mut self, more: Span, part: Span, opened: Span) {
        for rest in [Span::between(more.start, part.start), Span::between(part.end(), more.end())] {
            if rest.is_empty() {
                continue;
            }
            let open = opened.common(rest);
            let closed = if open.is_empty() {
                rest
            } else {
                self.settle(open, State::Zero);
                // `opened` is all of `more`, or covers whole chunks around `part`: what is left lies behind it.
                Span::between(open.end(), rest.end())
            };
            if !closed.is_empty() {
                if !open.is_empty() {
                    self.cut();
                }
                self.settle(closed, State::Closed);
            }
        }
    }

    /// The free whole chunks at the end of a plain region, which can be unmapped: their piece, the region, and they.
    pub(super) fn free_plain_end(&self) -> Option<(Index, Span, Span)> {
        self.regions.all().iter().filter(|r| r.kind == Kind::Plain).find_map(|r| {
            let index = self.pieces.at(r.span.end() - 1)?;
            let free = self.pieces.span(index).common(r.span).inner(CHUNK);
            (!free.is_empty() && free.end() == r.span.end()).then_some((index, r.span, free))
        })
    }
}
