//! Growing a live block: into what lies behind it, or under another address by moving its pages.
//!
//! A live move must never lose a byte. Each call moves what is one VMA, by our records and by the kernel's own
//! word, so that a call that fails leaves its source whole; where the kernel does not tell, nothing is moved, unless it refuses
//! to move several VMAs anyhow. What has moved stays moved; if the target then
//! cannot be completed, its bytes are copied home, where the memory is still mapped: nothing is ever moved back,
//! because a failing move unmaps its target first, and that would be the block itself.

use super::pieces::{Fit, RESIDENT, Span};
use super::pool::State;
use super::region::Kind;
use super::take::Wish;
use super::window::{Run, Window};
use super::{Inner, PageHeap, SEAMS_MAX_LIVE};
use crate::os::{CHUNK, Os};

/// What a block may grow into in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// Resident memory alone.
    Resident,
    /// Anything free.
    Any,
}

/// A block that grew under another address. The new one's pages are there; the caller copies what did not
/// move and then calls [`PageHeap::finish_relocation`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relocated {
    pub(crate) span: Span,
    /// The part of the old block whose pages are under the new one now, at the same offset.
    pub(crate) moved: Span,
    /// Bytes of the new block that were neither moved nor resident.
    pub(crate) fresh: usize,
}

/// Blocks from which on growth gets address space of its own in the middle of the widest gap, in bytes: each
/// costs two VMAs, and below it moving again at the next doubling costs less than the VMAs.
const ISLAND_MIN: usize = 64 << 20;

/// What a page-table page of the second level maps. Runs that are congruent modulo this move by whole
/// page-table pages (measured: 1 GiB in 4 µs instead of 230).
const TABLE: usize = 1 << 30;

impl<O: Os> PageHeap<O> {
    /// Makes a block longer in place. Gives what it grew by, or `None` if what lies behind it is not free or cannot be opened;
    /// nothing has changed then. Pages are moved only under its leading `reach` bytes.
    pub(crate) fn extend(&self, block: Span, longer: usize, behind: Behind, reach: usize) -> Option<Run> {
        let more = Span::between(block.end(), block.start + longer);
        let mut inner = self.enter();
        if !inner.ensure_spare(&self.os) || !inner.is_free(more, behind) {
            return None;
        }
        let mut window = inner.claim_window(more);
        inner.operations += 1;
        let (inner, opened) = self.open_window(inner, &mut window);
        if !opened {
            self.settle_window(inner, &window);
            return None;
        }
        drop(inner);
        if !self.fill(&mut window, reach.saturating_sub(block.len)) {
            self.settle_window(self.reenter(), &window);
            return None;
        }
        Some(self.hand_out(&window, 0))
    }

    /// Takes a run of resident memory with as much free behind it as it is long; and before it, where that is to be had, for what
    /// lies there to grow into.
    pub(crate) fn take_with_room(&self, fit: Fit) -> Option<Run> {
        let mut inner = self.enter();
        if !inner.ensure_spare(&self.os) {
            return None;
        }
        let pieces = &inner.pieces;
        let roomy = Fit { len: fit.len.checked_mul(2)?, ..fit };
        let within = |state, before: usize| {
            let index = pieces.shortest_from(state, roomy.len.checked_add(before)?)?;
            let piece = pieces.span(index);
            Some((index, roomy.lowest_in(Span::between(piece.start + before, piece.end()))?))
        };
        let (index, start) =
            RESIDENT.into_iter().find_map(|state| within(state, fit.len).or_else(|| within(state, 0)))?;
        Some(self.cut_resident(inner, index, Span::new(start, fit.len)))
    }

    /// As [`PageHeap::take_slow`], of memory to be written, with as much free on either side as the run is long; this is two chunks
    /// at least, and aligned to one at most. `None` where pages cannot be moved under it, or all memory is locked, so that each such place
    /// would be opened by itself.
    pub(crate) fn take_slow_with_room(&self, fit: Fit, reach: usize) -> Option<Run> {
        debug_assert!(fit.len >= 2 * CHUNK && fit.modulus <= CHUNK);
        let inner = self.enter();
        if inner.eager || !inner.setup.moves {
            return None;
        }
        drop(inner);
        let roomy = Fit { len: fit.len.checked_mul(3)?, ..fit };
        self.take_planned(fit, roomy, Wish::Any, reach)
    }

    /// Moves the whole chunks of a live block under a new run of `longer` bytes. `None` if moves are off, or
    /// no address space is to be had, or the kernel refused; the block is as it was then. Others' pages are moved only under the
    /// leading `reach` bytes.
    pub(crate) fn relocate(
        &self,
        block: Span,
        longer: usize,
        align: usize,
        reach: usize,
    ) -> Option<Relocated> {
        let mut inner = self.enter();
        if inner.regions.seams() >= SEAMS_MAX_LIVE {
            // Of free memory there may be some that can be healed.
            drop(inner);
            self.heal_free();
            inner = self.enter();
            if inner.regions.seams() >= SEAMS_MAX_LIVE {
                return None;
            }
        }
        let home = inner.regions.of(block.start);
        // Eager: as in `claim_sources`.
        if !inner.setup.moves
            || inner.eager
            || home.kind == Kind::Plain
            || block.inner(CHUNK).is_empty()
            || !inner.ensure_spare(&self.os)
        {
            return None;
        }
        let start = inner.plan_growth(block, longer, align)?;
        let mut window = inner.claim_window(Span::new(start, longer));
        inner.operations += 1;
        let (inner, opened) = self.open_window(inner, &mut window);
        if !opened {
            self.settle_window(inner, &window);
            return None;
        }
        drop(inner);
        let moved = self.move_live(block, &mut window, start)?;
        if moved.is_empty() {
            // Then it is as good anywhere else, in resident memory perhaps.
            self.settle_window(self.reenter(), &window);
            return None;
        }
        // What did not move is filled as any new run is.
        if !self.fill(&mut window, reach) {
            self.copy_home(moved, block.start, start);
            self.settle_window(self.reenter(), &window);
            return None;
        }
        let mut inner = self.reenter();
        inner.loose -= window.parts().len() - 1;
        let fresh = window.parts().iter().filter(|p| p.state == State::Zero).map(|p| p.span.len).sum();
        Some(Relocated { span: Span::new(start, longer), moved, fresh })
    }

    /// Gives back the memory that a relocated block has left, once the rest of it is copied.
    pub(crate) fn finish_relocation(&self, block: Span, to: Relocated) {
        let mut inner = self.reenter();
        inner.note_peak();
        inner.insert(Span::between(block.start, to.moved.start), State::Dirty);
        inner.insert(to.moved, State::Zero);
        inner.insert(Span::between(to.moved.end(), block.end()), State::Dirty);
        inner.transit -= to.span.len;
        inner.out = inner.out + to.span.len - block.len;
        inner.loose -= 1;
        inner.operations -= 1;
    }

    /// Moves the whole chunks of `block`, the first ones first, under the window that begins at `start`. Gives
    /// what moved, which may be less than all; `None` if part of the window was lost, everything is home
    /// again, and the operation has ended.
    fn move_live(&self, block: Span, window: &mut Window, start: usize) -> Option<Span> {
        let all = block.inner(CHUNK);
        let there = |address: usize| address - block.start + start;
        let mut moved = Span::new(all.start, 0);
        while moved.len < all.len {
            let rest = Span::between(moved.end(), all.end());
            let inner = self.reenter();
            let (recorded, shift) = (inner.regions.same_shift(rest), inner.regions.shift(rest.start));
            let (huge, moves_several) = (inner.setup.huge, inner.setup.moves_several);
            drop(inner);
            let vma_end = match self.os.vma_end(rest.start) {
                Some(end) => end,
                // What a user advised or protected may be a VMA of its own, of which our records know nothing.
                None if moves_several => break,
                None => recorded.end(),
            };
            let span = Span::between(rest.start, recorded.end().min(vma_end & !(CHUNK - 1)));
            if span.is_empty() {
                break;
            }
            if self.os.move_pages(span.start, there(span.start), span.len).is_ok() {
                self.reenter().note_move(span, shift, there(span.start));
                moved.len += span.len;
                continue;
            }
            let target = Span::new(there(span.start), span.len);
            let plugged = self.os.plug(target.start, target.len, huge).is_ok();
            let mut inner = self.reenter();
            inner.refused_moves += 1;
            if plugged {
                inner.regions.set_shift(target, 0);
                break;
            }
            drop(inner);
            self.copy_home(moved, block.start, start);
            self.mark(window, Span::new(there(moved.start), moved.len));
            self.lose(window, target);
            self.settle_window(self.reenter(), window);
            return None;
        }
        self.mark(window, Span::new(there(moved.start), moved.len));
        Some(moved)
    }

    /// Notes that a part of a window holds something.
    fn mark(&self, window: &mut Window, span: Span) {
        let mut at = 0;
        while at < window.parts().len() {
            let part = window.parts()[at];
            let common = part.span.common(span);
            at += 1;
            if part.state == State::Zero && !common.is_empty() {
                let more = window.split(at - 1, common, State::Dirty);
                self.reenter().loose += more;
                at += more;
            }
        }
    }

    /// Copies what had moved back to where it came from, which is still mapped and the block's own.
    fn copy_home(&self, moved: Span, home: usize, start: usize) {
        // Both ranges are mapped and ours alone: the source of a move stays mapped (contract of `move_pages`) and is
        // part of the caller's block; the target is in transit (H1). They do not overlap.
        self.os.copy(moved.start - home + start, moved.start, moved.len);
        if self.reenter().setup.wipes {
            self.os.wipe(moved.start - home + start, moved.len);
        }
    }
}

impl Inner {
    /// Whether a range lies in one region and is free, in few enough pieces.
    fn is_free(&self, range: Span, behind: Behind) -> bool {
        let Some(before) = range.start.checked_sub(1) else { return false };
        if self.regions.of(before).span.end() < range.end() {
            return false;
        }
        let mut at = range.start;
        for _ in 0..super::window::REACH {
            let Some(index) = self.pieces.at(at) else { return false };
            if behind == Behind::Resident && !RESIDENT.contains(&self.pieces.get(index).state) {
                return false;
            }
            at = self.pieces.span(index).end();
            if at >= range.end() {
                return true;
            }
        }
        false
    }

    /// Where a block that grows shall go: untouched memory, congruent with where it is, with room behind it. An island that
    /// another block has left comes first, or more address space would be open after each round than before it; but no hole
    /// between blocks, nor what was opened behind one, which would then be in each other's way.
    fn plan_growth(&self, block: Span, longer: usize, align: usize) -> Option<usize> {
        let modulus = if longer >= TABLE { TABLE } else { CHUNK }.max(align);
        let fit = Fit { len: longer, modulus, residue: block.start & (modulus - 1) };
        let roomy = Fit { len: longer.checked_mul(2)?, ..fit };
        let within = |state, fit| {
            let (_, start) = self.pieces.best_fit(state, fit)?;
            (self.regions.of(start).kind == Kind::Reserved).then_some(start)
        };
        let is_island = |&start: &usize| {
            let piece = self.pieces.at(start).map(|index| self.pieces.span(index));
            let before = piece.and_then(|piece| self.pieces.at(piece.start.checked_sub(1)?));
            before.is_some_and(|index| self.pieces.get(index).state == State::Closed)
        };
        let left = [roomy, fit].into_iter().find_map(|fit| within(State::Zero, fit).filter(is_island));
        if left.is_some() {
            return left;
        }
        if longer >= ISLAND_MIN
            && let Some(index) = self.pieces.longest_below(State::Closed, (usize::MAX, usize::MAX))
        {
            let gap = self.pieces.span(index);
            let middle = Span::between(gap.start + gap.len / 2, gap.end());
            if let Some(start) = fit.lowest_in(middle).filter(|s| gap.end() - s >= longer.saturating_mul(4)) {
                return Some(start);
            }
        }
        [roomy, fit]
            .into_iter()
            .find_map(|fit| within(State::Zero, fit).or_else(|| within(State::Closed, fit)))
    }
}
