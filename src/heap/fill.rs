//! Gathering: giving a window the pages of free memory that lies elsewhere, by moving whole chunks.
//!
//! Both sides are free, so a move that fails loses nothing but, at worst, a range of addresses.

use super::pieces::Span;
use super::pool::{Index, State};
use super::purge::NOTHING_YET;
use super::region::{Kind, Regions};
use super::window::Window;
use super::{Inner, PageHeap, SEAMS_MAX};
use crate::os::{CHUNK, Huge, Os};
use crate::sync::atomic::Ordering;

/// Threads that gather at a time; others fault instead. Moves serialise on the address space's lock and
/// interrupt every CPU of the process, faults do neither; but what is faulted in is purged elsewhere, too.
const MOVERS_MAX: u32 = 4;

/// Pieces that are in transit at a time for one part of a window.
const SOURCES: usize = 24;

/// A free range whose pages may serve elsewhere, in transit; one VMA as far as we know.
#[derive(Clone, Copy, Debug)]
struct Source {
    span: Span,
    shift: i32,
    became: State,
}

/// What came of filling a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filled {
    /// So many of its leading bytes.
    Bytes(usize),
    /// So many, and the next so many are lost for ever.
    Lost(usize, usize),
}

impl<O: Os> PageHeap<O> {
    /// Gives the zero parts of the leading `reach` bytes of a window the pages of dirty memory elsewhere, as far as
    /// that is allowed and there is any. `false` if a part of the window was lost.
    pub(super) fn fill(&self, window: &mut Window, reach: usize) -> bool {
        let reach = Span::new(window.span().start, reach.min(window.span().len));
        for end in [window.span().start, window.span().end()] {
            let chunk = Span::new(end & !(CHUNK - 1), CHUNK);
            let inside = chunk.common(window.span());
            let is_end = !inside.is_empty() && inside.len < CHUNK;
            if is_end && inside.common(reach) == inside && !self.fill_end(window, chunk) {
                return false;
            }
        }
        let mut at = 0;
        while at < window.parts().len() {
            let part = window.parts()[at];
            at += 1;
            let target = part.span.common(reach).inner(CHUNK);
            if part.state != State::Zero || target.is_empty() || !window.may_split() {
                continue;
            }
            let filled = self.fill_range(target);
            let (Filled::Bytes(bytes) | Filled::Lost(bytes, _)) = filled;
            if bytes > 0 {
                let more = window.split(at - 1, Span::new(target.start, bytes), State::Dirty);
                self.reenter().loose += more;
                at += more;
            }
            if let Filled::Lost(_, lost) = filled {
                self.lose(window, Span::new(target.start + bytes, lost));
                return false;
            }
        }
        true
    }

    /// Gives the end of a window that lies in `chunk` the pages of a whole one, if all of `chunk` is zero and free: the
    /// first touch would make all of it resident, for the sake of a granule where a block is a power of two long. `false` if
    /// that end was lost.
    fn fill_end(&self, window: &mut Window, chunk: Span) -> bool {
        let inside = chunk.common(window.span());
        let Some(at) = window.parts().iter().position(|p| p.span.common(inside) == inside) else {
            return true;
        };
        if window.parts()[at].state != State::Zero || !window.may_split() {
            return true;
        }
        let mut inner = self.reenter();
        // In small pages the first touch takes one of them.
        let setup = &inner.setup;
        let is_worth_it = setup.moves && !inner.eager && setup.huge == Huge::Advise && setup.has_huge;
        let is_there = is_worth_it && inner.source_for(CHUNK).is_some_and(|(_, span)| !span.is_empty());
        let Some((index, outside)) = inner.zero_beside(inside).filter(|_| is_there) else { return true };
        if !inner.ensure_spare(&self.os) {
            return true;
        }
        inner.claim(index, outside);
        drop(inner);
        let filled = self.fill_range(chunk);
        let mut inner = self.reenter();
        match filled {
            Filled::Bytes(0) => inner.settle(outside, State::Zero),
            Filled::Bytes(_) => {
                inner.settle(outside, State::Dirty);
                inner.loose += window.split(at, inside, State::Dirty);
            }
            Filled::Lost(..) => {
                // Both parts of it are one range from here on, since what is retired is whole chunks.
                inner.loose += window.split(at, inside, State::Zero);
                inner.loose -= 1;
                inner.retire(chunk);
                window.lose(at + usize::from(window.parts()[at].span != inside));
                return false;
            }
        }
        true
    }

    /// Loses a part of a window.
    pub(super) fn lose(&self, window: &mut Window, lost: Span) {
        let Some(at) = window.parts().iter().position(|p| !p.span.common(lost).is_empty()) else { return };
        let more = window.split(at, lost, State::Zero);
        let mut inner = self.reenter();
        inner.loose += more;
        inner.retire(lost);
        if let Some(at) = window.parts().iter().position(|p| p.span == lost) {
            window.lose(at);
        }
    }

    /// Whether few enough threads gather for one more.
    pub(super) fn may_move(&self) -> bool {
        // Relaxed: a hint, as in `fill_range`.
        self.movers.load(Ordering::Relaxed) < MOVERS_MAX
    }

    /// Whether so many bytes are dirty in whole chunks, which may be moved.
    pub(crate) fn has_to_move(&self, bytes: usize) -> bool {
        let inner = self.enter();
        inner.setup.moves && !inner.eager && inner.pieces.in_chunks(State::Dirty) >= bytes
    }

    /// Moves free dirty chunks under `target`, which is zero, in transit, and whole chunks, unless too many threads do such
    /// a thing.
    fn fill_range(&self, target: Span) -> Filled {
        // Relaxed: a count of threads, nothing else hangs on it.
        let movers = self.movers.fetch_add(1, Ordering::Relaxed);
        let filled = if movers < MOVERS_MAX { self.move_all_under(target) } else { Filled::Bytes(0) };
        self.movers.fetch_sub(1, Ordering::Relaxed);
        filled
    }

    /// Moves free dirty chunks under `target`, which is zero, in transit, and whole chunks, some pieces after others.
    fn move_all_under(&self, target: Span) -> Filled {
        let mut at = target.start;
        loop {
            let (filled, goes_on) = self.move_under(Span::between(at, target.end()));
            match filled {
                Filled::Bytes(bytes) => at += bytes,
                Filled::Lost(bytes, lost) => return Filled::Lost(at + bytes - target.start, lost),
            }
            if !goes_on || at == target.end() {
                return Filled::Bytes(at - target.start);
            }
        }
    }

    /// Makes believe that so many threads are gathering.
    #[cfg(test)]
    pub(crate) fn pretend_movers(&self, threads: u32) {
        self.movers.store(threads, Ordering::Relaxed);
    }

    /// Moves as many pieces under `target`, at its front, as are in transit at a time. Gives whether nothing was in the way of more.
    fn move_under(&self, target: Span) -> (Filled, bool) {
        let mut sources = [Source { span: Span::new(0, 0), shift: 0, became: State::Dirty }; SOURCES];
        let mut inner = self.reenter();
        let count = inner.claim_sources(target, &mut sources, &self.os);
        let (residency, huge) = (inner.setup.residency, inner.setup.huge);
        drop(inner);
        let mut at = target.start;
        let (mut lost, mut goes_on) = (0, count == SOURCES);
        for source in &mut sources[..count] {
            if lost > 0 {
                break;
            }
            let Span { start, len } = source.span;
            // Memory that was never touched is not worth moving, but worth knowing as zero.
            if residency && self.os.resident(start, len).is_some_and(|bytes| bytes < len / 2) {
                if self.os.purge(start, len).is_ok() {
                    source.became = State::Zero;
                } else {
                    // It would be the next one again.
                    goes_on = false;
                }
            } else if self.os.move_pages(start, at, len).is_ok() {
                source.became = State::Zero;
                let mut inner = self.reenter();
                inner.note_move(source.span, source.shift, at);
                inner.gathered += len as u64;
                drop(inner);
                at += len;
            } else {
                let plugged = self.os.plug(at, len, huge).is_ok();
                lost = if plugged { 0 } else { len };
                let mut inner = self.reenter();
                inner.refused_moves += 1;
                if plugged {
                    inner.regions.set_shift(Span::new(at, len), 0);
                }
                // Whatever refused this will refuse the next.
                goes_on = false;
                break;
            }
        }
        let mut inner = self.reenter();
        for source in &sources[..count] {
            inner.settle(source.span, source.became);
        }
        drop(inner);
        let filled = match (at - target.start, lost) {
            (bytes, 0) => Filled::Bytes(bytes),
            (bytes, lost) => Filled::Lost(bytes, lost),
        };
        (filled, goes_on)
    }
}

impl Inner {
    /// Books a move that has happened.
    pub(super) fn note_move(&mut self, from: Span, shift: i32, to: usize) {
        self.regions.set_shift(Span::new(to, from.len), Regions::moved_shift(shift, from.start, to));
        self.moved += from.len as u64;
    }

    /// Takes dirty whole chunks into transit, of as few pieces as will do, up to the length of `target`.
    fn claim_sources<O: Os>(&mut self, target: Span, sources: &mut [Source; SOURCES], os: &O) -> usize {
        // Where all memory is locked a move unlocks the VMA from which pages go, and most of the heap is one.
        let allowed = self.setup.moves && !self.eager && self.regions.of(target.start).kind == Kind::Reserved;
        if allowed && self.regions.seams() >= SEAMS_MAX {
            self.over_budget += 1;
            return 0;
        }
        if !allowed || !self.ensure_spare(os) {
            return 0;
        }
        let mut count = 0;
        let mut need = target.len;
        while need > 0 && count < SOURCES {
            let Some((index, inner)) = self.source_for(need) else { break };
            let wanted = Span::new(inner.start, inner.len.min(need));
            let span = self.regions.same_shift(wanted);
            let shift = self.regions.shift(span.start);
            self.claim(index, span);
            sources[count] = Source { span, shift, became: State::Dirty };
            count += 1;
            need -= span.len;
        }
        count
    }

    /// A piece whose pages may be moved under `need` bytes, and its whole chunks; in the order of [`RESIDENT`](super::pieces::RESIDENT).
    /// Of what was offered to the kernel the longest piece alone.
    fn source_for(&mut self, need: usize) -> Option<(Index, Span)> {
        self.dirty_source_for(need).or_else(|| {
            let index = self.pieces.longest_below(State::Soft, (usize::MAX, usize::MAX))?;
            let inner = self.pieces.span(index).inner(CHUNK);
            (!inner.is_empty()).then_some((index, inner))
        })
    }

    /// The longest dirty piece that is not longer than what is needed, else the shortest that is; and its
    /// whole chunks.
    fn dirty_source_for(&mut self, need: usize) -> Option<(Index, Span)> {
        /// Pieces that turn out to hold no whole chunk before a longer one than is needed is taken.
        const TRIES: usize = 8;
        /// The same before we give up, where none is longer (docs/EXPERIMENTS.md, "Purges that find nothing").
        const TRIES_MAX: usize = 256;
        let longer = need + 2 * CHUNK;
        let mut below = (longer, 0);
        // Where those begin that are looked at for a second time, if need be.
        let mut again = None;
        if self.pieces.in_chunks(State::Dirty) == 0 {
            return None;
        }
        for tried in 0..TRIES_MAX {
            if tried == TRIES {
                if let Some(index) = self.pieces.shortest_from(State::Dirty, longer) {
                    return Some((index, self.pieces.span(index).inner(CHUNK)));
                }
                again = Some(below).filter(|&below| self.sources_passed < below);
                below = self.sources_passed.min(below);
            }
            let found = self.pieces.longest_below(State::Dirty, below);
            let Some(index) = found.filter(|&index| self.pieces.get(index).len >= CHUNK) else {
                self.sources_passed = NOTHING_YET;
                let Some(from) = again.take() else { break };
                below = from;
                continue;
            };
            let span = self.pieces.span(index);
            let inner = span.inner(CHUNK);
            if !inner.is_empty() {
                if tried >= TRIES {
                    // The next one that is looked for goes on here.
                    self.sources_passed = (span.len, span.start + 1);
                }
                return Some((index, inner));
            }
            below = (span.len, span.start);
            if tried + 1 == TRIES_MAX {
                self.sources_passed = below;
            }
        }
        let index = self.pieces.shortest_from(State::Dirty, longer)?;
        Some((index, self.pieces.span(index).inner(CHUNK)))
    }
}
