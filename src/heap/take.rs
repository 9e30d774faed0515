//! Taking runs out of the heap: best fit in place first, then windows over mixed memory, filled or faulted.

use super::pieces::{Fit, RESIDENT, Span};
use super::pool::{Index, State};
use super::region::Kind;
use super::window::{Found, Run, Unclean, Window};
use super::{Guard, Inner, PageHeap, Setup};
use crate::os::{CHUNK, Os};

/// What a run is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// To be written: resident memory first.
    Any,
    /// To read as zero: untouched memory first.
    Zeroed,
}

/// From which end of a piece a run is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// What is taken next lies behind it.
    Low,
    /// What is taken next lies before it.
    High,
}

/// Whether the last page of a range of whole pages that nobody has touched is resident, as far as the kernel tells.
pub(super) fn is_resident_at_end<O: Os>(span: Span, setup: &Setup, os: &O) -> bool {
    setup.residency && os.resident(span.end() - setup.page, setup.page).is_some_and(|bytes| bytes > 0)
}

impl<O: Os> PageHeap<O> {
    /// Takes a run of the shortest piece of resident memory that is long enough, from one of its ends; no page is faulted in.
    pub(crate) fn take_resident(&self, fit: Fit, from: End) -> Option<Run> {
        let mut inner = self.enter();
        if !inner.ensure_spare(&self.os) {
            return None;
        }
        let pieces = &inner.pieces;
        let (index, lowest) = RESIDENT.into_iter().find_map(|state| pieces.best_fit(state, fit))?;
        let start = match from {
            End::Low => lowest,
            End::High => fit.last_before(pieces.span(index).end()).unwrap_or(lowest),
        };
        Some(self.cut_resident(inner, index, Span::new(start, fit.len)))
    }

    /// Takes the shortest piece of resident memory that is as long as `long`; where there is none, the shortest that is as long
    /// as `len`. Before either, what is free from `place` on, if that is as long as `long`. As much of it as `most`, for a block
    /// of `len` bytes and, if that leaves a rest, another node for that. Where free memory is shattered, that block alone, where it fits
    /// best.
    pub(crate) fn take_run(
        &self,
        len: usize,
        long: usize,
        most: usize,
        place: Option<usize>,
    ) -> Option<Span> {
        let mut inner = self.enter();
        if !inner.ensure_spare_for(1, &self.os) {
            return None;
        }
        let pieces = &inner.pieces;
        let (long, most) = if pieces.is_shattered() { (len, len) } else { (long, most) };
        let at_place = place.and_then(|place| pieces.dirty_from(place)).filter(|(_, rest)| rest.len >= long);
        let shortest = || pieces.shortest_resident([long, len]).map(|index| (index, pieces.span(index)));
        let (index, piece) = at_place.or_else(shortest)?;
        let span = Span::new(piece.start, piece.len.min(most));
        inner.pieces.carve(index, span);
        inner.out += span.len;
        inner.loose += 1 + usize::from(span.len > len);
        Some(span)
    }

    /// Takes `long` bytes, or at least `len`, off one of the ends of the shortest piece of resident memory that has so many, for
    /// blocks that get `len` bytes long; a whole number of these, with a node for one and one for what is left meanwhile.
    pub(crate) fn take_room(&self, len: usize, long: usize, from: End) -> Option<Span> {
        let mut inner = self.enter();
        if !inner.ensure_spare_for(1, &self.os) {
            return None;
        }
        let pieces = &inner.pieces;
        let index = pieces.shortest_resident([long, len])?;
        let piece = pieces.span(index);
        let at_end = piece.last_of(len, long);
        let span = match from {
            End::High => at_end,
            End::Low => Span::new(piece.start, at_end.len),
        };
        inner.pieces.carve(index, span);
        inner.out += span.len;
        inner.loose += 2;
        Some(span)
    }

    /// Takes a run that lies in a piece of resident memory.
    pub(super) fn cut_resident(&self, mut inner: Guard<'_, Inner, O>, index: Index, span: Span) -> Run {
        inner.pieces.carve(index, span);
        inner.out += span.len;
        inner.loose += 1;
        drop(inner);
        if self.misuse.is_on() {
            self.misuse.check_painted(&self.os, span.start, span.len);
        }
        Run { span, unclean: Unclean::all(span), found: Found::Run }
    }

    /// Takes a run, whatever it costs: over pieces of several states, opening or mapping address space,
    /// moving pages in. `None` if the kernel refuses. Pages are moved only under the leading `reach` bytes, since
    /// the rest is not expected to be touched.
    pub(crate) fn take_slow(&self, fit: Fit, wish: Wish, reach: usize) -> Option<Run> {
        self.take_planned(fit, fit, wish, reach)
    }

    /// As [`PageHeap::take_slow`], in the middle of where `place` fits.
    pub(super) fn take_planned(&self, fit: Fit, place: Fit, wish: Wish, reach: usize) -> Option<Run> {
        let room = place.len - fit.len;
        // Nothing is mapped for room. Where the leading third of the place is resident, pages are moved on from there (measured: to plan
        // with none, or to begin with a chunk, took up to twice as long or an eighth more memory).
        let (mut inner, start) = self.plan_alone(place, wish, reach, room == 0)?;
        let start = fit.first_from(start + room / 2)?;
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
        Some(self.hand_out(&window, 1))
    }

    /// Chooses where a run shall lie. If address space must be opened for it, waits until nobody else is opening any: what
    /// another thread opens now goes on behind its own run, where ours may fit without asking for a huge page of its own. A new
    /// region is mapped for it if it `may_map` one.
    fn plan_alone(
        &self,
        fit: Fit,
        wish: Wish,
        reach: usize,
        may_map: bool,
    ) -> Option<(Guard<'_, Inner, O>, usize)> {
        loop {
            let mut inner = self.enter();
            if !inner.ensure_spare(&self.os) {
                return None;
            }
            // Where all memory is locked, opening it means filling it, which threads had better do at the same time.
            let may_open = inner.opening == 0 || inner.eager;
            let planned = if may_map && wish == Wish::Any && self.may_move() {
                inner.plan_unspoiled(fit, reach)
            } else {
                inner.plan(fit, wish, reach)
            };
            match planned {
                Some(start) if may_open || inner.held(Span::new(start, fit.len), &[State::Closed]) == 0 => {
                    return Some((inner, start));
                }
                None if !may_map => return None,
                None if may_open => {
                    if !inner.add_region(fit, &self.os) {
                        return None;
                    }
                    self.note_region(&inner);
                    let start = inner.plan(fit, wish, reach)?;
                    return Some((inner, start));
                }
                _ => {}
            }
            drop(inner);
            self.os.nap();
        }
    }

    /// Ends the operation that holds `window`, whose range is its caller's now, and comes back as so many ranges: one, or none if it
    /// comes back with the block before it.
    pub(super) fn hand_out(&self, window: &Window, ranges: usize) -> Run {
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
        inner.loose -= window.parts().len() - ranges;
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
        // What is closed comes first: its first part is claimed by whole chunks under the lock that the window was claimed under. Once
        // that is let go, others find what is left closed beside it, which must not begin inside a page of the kernel.
        for i in 0..window.count {
            let part = window.parts[i];
            if part.state != State::Closed {
                continue;
            }
            // More than the window is opened at once, so that most takes open nothing.
            let more = inner.claim_step(part.span);
            inner.opening += 1;
            drop(inner);
            let (opened, done) = self.open_some(more, part.span);
            let eager = self.shed_surplus(opened, part.span);
            inner = self.reenter();
            inner.opening -= 1;
            inner.eager |= eager;
            inner.opened += opened.len;
            inner.settle_step(more, part.span, opened);
            if !done {
                inner.refused_growth += 1;
                return (inner, false);
            }
            window.parts[i].state = State::Zero;
        }
        for i in 0..window.count {
            let part = window.parts[i];
            if part.state != State::Inherited {
                continue;
            }
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

    /// The free whole chunks at the end of a plain region, which can be unmapped: their piece, the region, and they. All of a
    /// region or nothing where there are many.
    pub(super) fn free_plain_end(&self) -> Option<(Index, Span, Span)> {
        self.regions.all().iter().filter(|r| r.kind == Kind::Plain).find_map(|r| {
            let index = self.pieces.at(r.span.end() - 1)?;
            let free = self.pieces.span(index).common(r.span).inner(CHUNK);
            let is_end = !free.is_empty() && free.end() == r.span.end();
            (is_end && (free == r.span || self.regions.are_few())).then_some((index, r.span, free))
        })
    }
}
