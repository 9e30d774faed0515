//! The page heap: who owns which granule of the address space that we have mapped.
//!
//! It takes, gives, extends, moves and purges runs; sizes, classes, zeroing and limits are others' business.
//! Its invariants are H1 to H8 of `docs/SAFETY.md`. One lock guards its books; no system call on memory is made
//! while that lock is held: what is worked on is *in transit*, in nobody's books, until the books are opened again.

mod fill;
mod pieces;
mod pool;
mod purge;
mod region;
mod relocate;
mod take;
mod tree;
mod trim;
#[cfg(any(test, proof))]
mod walk;

pub(crate) use pieces::{Fit, Span};
pub(crate) use pool::State;
pub(crate) use purge::Unit;
pub(crate) use relocate::{Behind, Relocated};
pub(crate) use take::{Found, Run, Unclean, Wish};

use crate::misuse::Misuse;
use crate::os::{CHUNK, Huge, Os};
use crate::sync::{
    Guard, Lock,
    atomic::{AtomicU32, AtomicUsize, Ordering},
};
use pieces::Pieces;
use region::{Kind, Regions};

/// What the heap is told about its host before its first use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// The kernel's page size in bytes.
    pub(crate) page: usize,
    pub(crate) huge: Huge,
    /// Whether pages may be moved.
    pub(crate) moves: bool,
    /// Whether `mincore` is worth asking.
    pub(crate) residency: bool,
    pub(crate) soften: bool,
    /// Address space to set aside at first, in bytes.
    pub(crate) reserve: usize,
    /// What more may be mapped.
    pub(crate) growth: Growth,
    /// Whether copies of a block's content that the heap makes are wiped.
    pub(crate) wipes: bool,
}

/// How a heap may come by memory once its first reservation is full, or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// By further reservations, and by plain mappings where those are refused.
    Any,
    /// Not at all: all of the heap is one reservation, and [`PageHeap::covers`] tells its blocks.
    Never,
}

/// Bytes in each part of the books, and what has been counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Books {
    /// Handed out: to callers and into stacks.
    pub(crate) out: usize,
    pub(crate) zero: usize,
    pub(crate) soft: usize,
    /// Dirty or inherited.
    pub(crate) dirty: usize,
    /// Bytes in the hands of an operation.
    pub(crate) transit: usize,
    pub(crate) retired: usize,
    /// Free pieces.
    pub(crate) pieces: usize,
    /// Places where neighbouring chunks cannot share a VMA.
    pub(crate) seams: usize,
    pub(crate) moved: u64,
    pub(crate) purged: u64,
    pub(crate) softened: u64,
    pub(crate) refused_moves: u64,
    /// Bytes moved from free runs to where they were wanted.
    pub(crate) gathered: u64,
    /// Times that nothing was gathered because the budget of seams was used up.
    pub(crate) over_budget: u64,
    pub(crate) refused_growth: u64,
}

impl Books {
    /// The books of two heaps together.
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            out: self.out + other.out,
            zero: self.zero + other.zero,
            soft: self.soft + other.soft,
            dirty: self.dirty + other.dirty,
            transit: self.transit + other.transit,
            retired: self.retired + other.retired,
            pieces: self.pieces + other.pieces,
            seams: self.seams + other.seams,
            moved: self.moved + other.moved,
            purged: self.purged + other.purged,
            softened: self.softened + other.softened,
            refused_moves: self.refused_moves + other.refused_moves,
            gathered: self.gathered + other.gathered,
            over_budget: self.over_budget + other.over_budget,
            refused_growth: self.refused_growth + other.refused_growth,
        }
    }
}

/// How full the heap is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    /// Handed out, less what is expected to stay untouched.
    pub(crate) out: usize,
    /// The most of it in this window.
    pub(crate) out_max: usize,
    /// Free and presumed resident.
    pub(crate) dirty: usize,
    /// Of those, in parts of chunks, which serve short runs alone and are not purged while memory is to be had.
    pub(crate) stranded: usize,
}

/// Seams beyond which nothing is gathered: `fork` takes 4 ms with 257 VMAs and 20 ms with 3,700 (measured), and
/// a thousand keeps a process that forks under 10.
const SEAMS_MAX: usize = 1000;

/// How often an operation may cut what it has in transit.
const SPLITS: usize = 16;

/// Spare nodes that one section under the lock may use: two for each of the ranges it claims, of which a
/// window has most.
const MARGIN: usize = 128;

struct Inner {
    pieces: Pieces,
    regions: Regions,
    setup: Setup,
    out: usize,
    /// The highest `present` of this window.
    out_max: usize,
    /// Bytes handed out that are expected to stay untouched.
    absent: usize,
    /// Bytes of the process that are not ours and in memory, as last seen.
    beside: usize,
    /// Blocks handed out and ranges in transit: each may need a node when it comes back (H6).
    loose: usize,
    transit: usize,
    /// Operations that hold something in transit.
    operations: usize,
    retired: usize,
    opened: usize,
    /// Whether memory was seen to become resident just because it was opened or mapped: all of it is locked.
    eager: bool,
    /// The thread that is about to fork, or 0: it waits for `operations` to end, and nobody else begins any.
    forking: u64,
    moved: u64,
    purged: u64,
    softened: u64,
    refused_moves: u64,
    gathered: u64,
    over_budget: u64,
    refused_growth: u64,
}

pub(crate) struct PageHeap<O: Os> {
    os: O,
    inner: Lock<Inner>,
    /// Threads that are moving pages now.
    movers: AtomicU32,
    /// Start and end of the one reservation of a heap that grows by no other; 0 before it is made.
    bounds: [AtomicUsize; 2],
    /// Start and end of the one hole that such a reservation can have: something of another heap's may lie in it.
    hole: [AtomicUsize; 2],
    misuse: Misuse,
}

impl<O: Os> PageHeap<O> {
    crate::sync::constant! {
        pub(crate) const fn new(os: O) -> Self {
            let setup = Setup {
                page: 4096,
                huge: Huge::Leave,
                moves: false,
                residency: false,
                soften: false,
                reserve: 0,
                growth: Growth::Any,
                wipes: false,
            };
            let inner = Inner {
                pieces: Pieces::new(),
                regions: Regions::new(),
                setup,
                out: 0,
                out_max: 0,
                absent: 0,
                beside: 0,
                loose: 0,
                transit: 0,
                operations: 0,
                retired: 0,
                opened: 0,
                eager: false,
                forking: 0,
                moved: 0,
                purged: 0,
                softened: 0,
                refused_moves: 0,
                gathered: 0,
                over_budget: 0,
                refused_growth: 0,
            };
            let bounds = [AtomicUsize::new(0), AtomicUsize::new(0)];
            let hole = [AtomicUsize::new(0), AtomicUsize::new(0)];
            Self { os, inner: Lock::new(inner), movers: AtomicU32::new(0), bounds, hole, misuse: Misuse::new() }
        }
    }

    /// What is kept in checked mode.
    pub(crate) fn misuse(&self) -> &Misuse {
        &self.misuse
    }

    /// Notes where the one reservation of a heap lies that grows by no other.
    fn note_bounds(&self, inner: &Inner) {
        if inner.setup.growth == Growth::Never
            && let [only] = inner.regions.all()
        {
            // Relaxed: as in `covers`.
            self.bounds[0].store(only.span.start, Ordering::Relaxed);
            self.bounds[1].store(only.span.end(), Ordering::Relaxed);
        }
    }

    /// Whether `address`, which lies in a block of this heap or of another, lies in one of this heap, if that is one
    /// reservation.
    #[inline]
    pub(crate) fn covers(&self, address: usize) -> bool {
        // Relaxed: whoever has a block of this heap came by it after the bounds were written, and whoever has one that
        // lies in the hole after that was.
        let lies_in = |[start, end]: &[AtomicUsize; 2]| {
            address >= start.load(Ordering::Relaxed) && address < end.load(Ordering::Relaxed)
        };
        lies_in(&self.bounds) && !lies_in(&self.hole)
    }

    /// Loses a range in transit for ever.
    fn retire(&self, inner: &mut Inner, span: Span) {
        // Relaxed: as in `covers`.
        self.hole[0].store(span.start, Ordering::Relaxed);
        self.hole[1].store(span.end(), Ordering::Relaxed);
        inner.retire(span);
    }

    pub(crate) fn os(&self) -> &O {
        &self.os
    }

    /// Tells the heap about its host. To be called before its first use.
    pub(crate) fn start(&self, setup: Setup) {
        self.inner.lock(&self.os).setup = setup;
    }

    /// Opens the books, waiting while another thread forks. The thread that forks may enter: handlers that
    /// others registered for a fork run between ours, and they may allocate.
    fn enter(&self) -> Guard<'_, Inner, O> {
        loop {
            let inner = self.inner.lock(&self.os);
            if inner.forking == 0 || inner.forking == self.os.thread() {
                return inner;
            }
            drop(inner);
            self.os.nap();
        }
    }

    /// Opens the books again in the middle of an operation, which a fork waits for.
    fn reenter(&self) -> Guard<'_, Inner, O> {
        self.inner.lock(&self.os)
    }

    /// Takes back blocks that `take` handed out, whose content may be anything, and books as dirty what shares a huge page
    /// with them. Gives the bytes that are free and dirty now.
    pub(crate) fn give(&self, spans: &[Span]) -> usize {
        let mut inner = self.give_all(spans);
        // In checked mode dirty memory is painted, and this is not.
        if !self.misuse.is_on() {
            let out_before = inner.present() + spans.iter().map(|span| span.len).sum::<usize>();
            let restated: usize = spans.iter().map(|&span| inner.restate_around(span)).sum();
            // It was resident while the blocks were out: a peak that left it out would have it purged, and faulted in again.
            inner.out_max = inner.out_max.max(out_before + restated);
        }
        inner.dirty()
    }

    /// Takes back blocks that nobody freed just now: a drain serves a request, and nothing is purged for what it would
    /// book as dirty beside them.
    pub(crate) fn give_stacked(&self, spans: &[Span]) {
        let _ = self.give_all(spans);
    }

    fn give_all(&self, spans: &[Span]) -> Guard<'_, Inner, O> {
        if self.misuse.is_on() {
            spans.iter().for_each(|span| self.misuse.paint(span.start, span.len));
        }
        let mut inner = self.enter();
        inner.note_peak();
        for &span in spans {
            inner.insert(span, State::Dirty);
            inner.out -= span.len;
            inner.loose -= 1;
        }
        inner
    }

    /// Takes back what was taken as a piece ([`PageHeap::take_piece`]) and not handed on, with the nodes of `tokens` blocks.
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

    /// Takes back a block, or the end of one from `keep` bytes on, and purges it at once. `false` if a node for an end
    /// cannot be had, and nothing has changed.
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
        drop(inner);
        let purged = self.os.purge(span.start, span.len).is_ok();
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

    /// Sets nodes aside for so many blocks yet to be cut; `false` if they cannot be had.
    pub(crate) fn hold_nodes(&self, count: usize) -> bool {
        let mut inner = self.enter();
        let held = inner.ensure_spare_for(count, &self.os);
        inner.loose += if held { count } else { 0 };
        held
    }

    /// Gives nodes back that were set aside.
    pub(crate) fn drop_nodes(&self, count: usize) {
        self.enter().loose -= count;
    }

    /// Reads the books.
    pub(crate) fn books(&self) -> Books {
        let inner = self.inner.lock(&self.os);
        let free = |state| inner.pieces.bytes(state);
        Books {
            out: inner.out,
            zero: free(State::Zero),
            soft: free(State::Soft),
            dirty: free(State::Dirty) + free(State::Inherited),
            transit: inner.transit,
            retired: inner.retired,
            pieces: inner.pieces.count(),
            seams: inner.regions.seams(),
            moved: inner.moved,
            purged: inner.purged,
            softened: inner.softened,
            refused_moves: inner.refused_moves,
            gathered: inner.gathered,
            over_budget: inner.over_budget,
            refused_growth: inner.refused_growth,
        }
    }

    /// Whether `address` lies in memory of this heap. For whoever looks at the mappings of the process.
    pub(crate) fn holds(&self, address: usize) -> bool {
        self.inner
            .lock(&self.os)
            .regions
            .all()
            .iter()
            .any(|r| address >= r.span.start && address < r.span.end())
    }

    /// Bytes set aside that hold nothing.
    pub(crate) fn closed(&self) -> usize {
        self.inner.lock(&self.os).pieces.bytes(State::Closed)
    }

    /// Whether half of the budget of seams is used up.
    pub(crate) fn is_seamed(&self) -> bool {
        self.inner.lock(&self.os).regions.seams() > SEAMS_MAX / 2
    }

    /// What the limits are about.
    pub(crate) fn level(&self) -> Level {
        let mut inner = self.inner.lock(&self.os);
        inner.note_peak();
        Level {
            out: inner.present(),
            out_max: inner.out_max,
            dirty: inner.dirty(),
            stranded: inner.pieces.stranded(State::Dirty),
        }
    }

    /// Bytes handed out, less what is expected to stay untouched.
    pub(crate) fn out_presumed_resident(&self) -> usize {
        let inner = self.inner.lock(&self.os);
        inner.out.saturating_sub(inner.absent)
    }

    /// Begins a new window: the highest level is the present one.
    pub(crate) fn begin_window(&self) {
        let mut inner = self.inner.lock(&self.os);
        inner.out_max = inner.present();
    }

    /// Notes how many bytes of the process, of `anonymous` in all, are not ours.
    pub(crate) fn note_beside(&self, anonymous: usize) {
        let mut inner = self.inner.lock(&self.os);
        let ours = inner.out + inner.dirty() + inner.transit;
        inner.beside = anonymous.saturating_sub(ours);
    }

    /// Notes how many of the bytes handed out are expected to stay untouched.
    pub(crate) fn expect_absent(&self, bytes: usize) {
        self.inner.lock(&self.os).absent = bytes;
    }

    /// Waits until nothing is in transit, or for about 50 ms.
    pub(crate) fn wait_for_transit(&self) {
        for _ in 0..1000 {
            if self.inner.lock(&self.os).operations == 0 {
                return;
            }
            self.os.nap();
        }
    }

    /// Before a fork: lets no other thread in until [`PageHeap::after_fork`], and waits until nothing is in
    /// transit.
    pub(crate) fn before_fork(&self) {
        self.enter().forking = self.os.thread();
        while self.inner.lock(&self.os).operations > 0 {
            self.os.nap();
        }
    }

    /// After a fork, in the parent.
    pub(crate) fn after_fork(&self) {
        self.inner.lock(&self.os).forking = 0;
    }

    /// Whether it is this thread that is about to fork, or has just.
    pub(crate) fn is_forking_here(&self) -> bool {
        self.inner.lock(&self.os).forking == self.os.thread()
    }

    /// After a fork, in the child, before anything else.
    pub(crate) fn reset_in_child(&self) {
        // Another thread may have held the lock at the moment of the fork, but only to see that it must wait.
        self.inner.reset_in_child();
    }

    /// After a fork, in the child: what is free is still shared with the parent, and purged before it is used.
    pub(crate) fn after_fork_in_child(&self) {
        let mut inner = self.inner.lock(&self.os);
        let Inner { pieces, regions, .. } = &mut *inner;
        for state in [State::Dirty, State::Soft] {
            pieces.restate(state, State::Inherited, |address| regions.of(address).span);
        }
        inner.setup.moves = false;
        inner.forking = 0;
    }
}

impl Inner {
    /// Bytes handed out, less what is expected to stay untouched.
    const fn present(&self) -> usize {
        self.out.saturating_sub(self.absent) + self.beside
    }

    /// Notes how much is handed out; before anything is given back, so that no peak is missed.
    fn note_peak(&mut self) {
        self.out_max = self.out_max.max(self.present());
    }

    /// Bytes free and presumed resident.
    const fn dirty(&self) -> usize {
        self.pieces.bytes(State::Dirty) + self.pieces.bytes(State::Inherited)
    }

    /// Sees to it that every loose range, and this operation's cuts, will find a node (H6).
    fn ensure_spare<O: Os>(&mut self, os: &O) -> bool {
        self.pieces.ensure_spare(self.loose + SPLITS * (self.operations + 1) + MARGIN, os)
    }

    /// As [`Inner::ensure_spare`], for as many loose ranges more.
    fn ensure_spare_for<O: Os>(&mut self, more: usize, os: &O) -> bool {
        self.pieces.ensure_spare(self.loose + more + SPLITS * (self.operations + 1) + MARGIN, os)
    }

    /// Adds a free range.
    fn insert(&mut self, span: Span, state: State) {
        if !span.is_empty() {
            let region = self.regions.of(span.start);
            self.pieces.insert(span, state, region.span);
        }
    }

    /// Books what is zero right before and behind a block that was given back as dirty, as far as it shares a huge page with
    /// it: the block's first touch made it resident. Where it stayed zero in the books, nobody looked for resident memory
    /// there, and blocks that come and go at other places each round left more and more of it behind. Gives the bytes. Needs
    /// no node: what is cut off one piece goes to its neighbour.
    fn restate_around(&mut self, block: Span) -> usize {
        if self.setup.huge != Huge::Advise {
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

    /// Takes `span`, which lies in one piece, into transit.
    fn claim(&mut self, index: pool::Index, span: Span) -> State {
        self.transit += span.len;
        self.loose += 1;
        self.pieces.carve(index, span)
    }

    /// Puts a range in transit back into the books.
    fn settle(&mut self, span: Span, state: State) {
        self.transit -= span.len;
        self.loose -= 1;
        self.insert(span, state);
    }

    /// Cuts a range in transit into two, each of which settles by itself.
    fn cut(&mut self) {
        self.loose += 1;
    }

    /// Loses a range in transit for ever: something else may be mapped in it.
    fn retire(&mut self, span: Span) {
        self.transit -= span.len;
        self.loose -= 1;
        self.retired += span.len;
        self.regions.lose(span);
    }

    /// Sets more address space aside, or maps `len` bytes outright; `false` if the kernel refuses both.
    fn add_region<O: Os>(&mut self, fit: Fit, os: &O) -> bool {
        if self.setup.growth == Growth::Never && !self.regions.all().is_empty() {
            return false;
        }
        let Some(wanted) = fit.len.checked_add(fit.modulus.max(CHUNK)) else { return false };
        let Some(wanted) = wanted.checked_next_multiple_of(CHUNK) else { return false };
        let align = CHUNK.max(fit.modulus);
        if let Some(reserve) = wanted.checked_mul(2).map(|w| w.max(self.setup.reserve))
            && self.setup.reserve > 0
            && let Some(reserve) = reserve.checked_next_multiple_of(CHUNK)
            && let Ok(start) = os.reserve(reserve, align.max(1 << 30))
        {
            let span = Span::new(start, reserve);
            if self.regions.add(span, Kind::Reserved, os) {
                // To the whole at once, so that what is opened later is one VMA with its neighbours. A
                // refused advice costs speed alone.
                let _ = os.advise(span.start, span.len, self.setup.huge);
                self.pieces.insert(span, State::Closed, span);
                return true;
            }
            let _ = os.unmap(start, reserve);
        }
        self.setup.growth == Growth::Any && self.add_plain(wanted, align, os)
    }

    /// Maps accessible memory outright: as much as an eighth of what is open, or just enough.
    fn add_plain<O: Os>(&mut self, wanted: usize, align: usize, os: &O) -> bool {
        /// The least that is mapped at once, where the limits let it.
        const PLAIN_MIN: usize = 32 << 20;
        let generous = match self.eager {
            true => wanted,
            false => wanted.max((self.opened / 8).clamp(PLAIN_MIN, 1 << 30).next_multiple_of(CHUNK)),
        };
        for len in [generous, wanted] {
            if let Ok(start) = os.map(len, align) {
                let span = Span::new(start, len);
                if self.regions.add(span, Kind::Plain, os) {
                    let _ = os.advise(start, len, self.setup.huge);
                    self.opened += len;
                    self.pieces.insert(span, State::Zero, span);
                    if take::is_resident_at_end(span, &self.setup, os) {
                        self.eager = true;
                        // It is zero either way; a refusal costs memory alone.
                        let _ = os.purge(start, len);
                    }
                    return true;
                }
                let _ = os.unmap(start, len);
                return false;
            }
        }
        self.refused_growth += 1;
        false
    }
}
