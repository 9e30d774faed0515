//! The page heap: who owns which granule of the address space that we have mapped.
//!
//! It takes, gives, extends, moves and purges runs; sizes, classes, zeroing and limits are others' business.
//! Its invariants are H1 to H8 of `docs/SAFETY.md`. One lock guards its books; no system call on memory is made
//! while that lock is held: what is worked on is *in transit*, in nobody's books, until the books are opened again.

mod books;
mod bounds;
mod fill;
mod give;
mod map;
mod pieces;
mod pool;
mod purge;
mod region;
mod relocate;
mod take;
#[cfg(all(test, not(loom)))]
mod tests;
mod tree;
mod trim;
#[cfg(any(test, zk_nalloc_proof))]
mod walk;
mod window;

pub(crate) use books::{Books, Level, Overstated};
pub(crate) use pieces::{Fit, Span};
pub(crate) use pool::State;
pub(crate) use purge::{Keep, Unit};
pub(crate) use relocate::{Behind, Relocated};
pub(crate) use take::{End, Wish};
pub(crate) use window::{Found, Run, Unclean};

use crate::misuse::Misuse;
use crate::os::{Huge, Os};
use crate::sync::{
    Guard, Lock,
    atomic::{AtomicBool, AtomicU32, Ordering},
};
use bounds::Bounds;
use pieces::Pieces;
use region::Regions;

/// What the heap is told about its host before its first use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// The kernel's page size in bytes.
    pub(crate) page: usize,
    pub(crate) huge: Huge,
    /// Whether the host gives any huge pages; one that does not is advised all the same, since that may change.
    pub(crate) has_huge: bool,
    /// Whether pages may be moved.
    pub(crate) moves: bool,
    /// Whether a move that fails may have moved some VMAs of its source.
    pub(crate) moves_several: bool,
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

/// Seams beyond which nothing is gathered: `fork` takes 4 ms with 257 VMAs and 20 ms with 3,700 (measured), and
/// a thousand keeps a process that forks under 10.
const SEAMS_MAX: usize = 1000;

/// Holes of closed memory beyond which only what lies beside one is closed: each is two VMAs.
const HOLES_MAX: usize = SEAMS_MAX / 2;

/// Seams beyond which no live block is moved either, so that it is copied where it grows: blocks in use may have two or three
/// each, and are worth more than gathering, but not without end.
const SEAMS_MAX_LIVE: usize = 2 * SEAMS_MAX;

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
    /// The highest `present` of this window, how often it was raised, and how often it turned out to have been too high.
    out_max: usize,
    raises: u64,
    corrections: u64,
    /// Bytes handed out that are expected to stay untouched.
    absent: usize,
    /// Bytes of the process that are not ours and in memory, as last seen.
    beside: usize,
    /// Blocks handed out and ranges in transit: each may need a node when it comes back (H6).
    loose: usize,
    transit: usize,
    /// Operations that hold something in transit.
    operations: usize,
    /// Of those, how many are opening address space now.
    opening: usize,
    /// And how many are closing some.
    closing: usize,
    retired: usize,
    opened: usize,
    /// Whether memory was seen to become resident just because it was opened or mapped: all of it is locked.
    eager: bool,
    /// For each state the piece at which the last purge ended that found none with a whole chunk, by length and start: a hint.
    passed_over: [(usize, usize); State::COUNT],
    /// The same where something was to be gathered: down to there dirty pieces were looked at.
    sources_passed: (usize, usize),
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
    /// The one reservation of a heap that grows by no other, once it is made.
    bounds: Bounds,
    /// The one hole that such a reservation can have: something of another heap's may lie in it.
    hole: Bounds,
    /// Whether two regions have ever touched.
    touched: AtomicBool,
    misuse: Misuse,
}

impl<O: Os> PageHeap<O> {
    crate::sync::constant! {
        pub(crate) const fn new(os: O) -> Self {
            let setup = Setup {
                page: 4096,
                huge: Huge::Leave,
                has_huge: false,
                moves: false,
                moves_several: true,
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
                raises: 0,
                corrections: 0,
                absent: 0,
                beside: 0,
                loose: 0,
                transit: 0,
                operations: 0,
                opening: 0,
                closing: 0,
                retired: 0,
                opened: 0,
                eager: false,
                passed_over: [purge::NOTHING_YET; State::COUNT],
                sources_passed: purge::NOTHING_YET,
                forking: 0,
                moved: 0,
                purged: 0,
                softened: 0,
                refused_moves: 0,
                gathered: 0,
                over_budget: 0,
                refused_growth: 0,
            };
            let touched = AtomicBool::new(false);
            Self {
                os,
                inner: Lock::new(inner),
                movers: AtomicU32::new(0),
                bounds: Bounds::new(),
                hole: Bounds::new(),
                touched,
                misuse: Misuse::new(),
            }
        }
    }

    /// What is kept in checked mode.
    pub(crate) fn misuse(&self) -> &Misuse {
        &self.misuse
    }

    /// Whether blocks that touch may lie in different regions.
    pub(crate) fn has_touching_regions(&self) -> bool {
        // Relaxed: whoever has a block of a region came by it after this was written for it.
        self.touched.load(Ordering::Relaxed)
    }

    /// Notes whether a region that was added touches another, and where the one reservation of a heap lies that grows by no
    /// other.
    fn note_region(&self, inner: &Inner) {
        if inner.regions.any_touch() {
            // Relaxed: as in `has_touching_regions`.
            self.touched.store(true, Ordering::Relaxed);
        }
        if inner.setup.growth == Growth::Never
            && let [only] = inner.regions.all()
        {
            self.bounds.set(only.span);
        }
    }

    /// Whether `address`, which lies in a block of this heap or of another, lies in one of this heap, if that is one
    /// reservation.
    #[inline]
    pub(crate) fn covers(&self, address: usize) -> bool {
        self.bounds.holds(address) && !self.hole.holds(address)
    }

    /// Loses a range in transit for ever.
    fn retire(&self, inner: &mut Inner, span: Span) {
        self.hole.set(span);
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
        // Another thread may have held the lock at the moment of the fork, but only to see that it must wait, to read, or to
        // write numbers that steer, one at a time. Threads that others' handlers have started in this child wait until this is
        // done (`Cache::see_child`).
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
        self.raise(self.present());
    }

    fn raise(&mut self, present: usize) {
        if present > self.out_max {
            self.out_max = present;
            self.raises += 1;
        }
    }

    /// Lowers the highest level by what it was too high for a block that has just gone back, if that was out when it was noted.
    fn correct_peak(&mut self, overstated: Overstated) {
        if overstated.bytes > 0 && overstated.since < self.raises {
            self.out_max = self.out_max.saturating_sub(overstated.bytes).max(self.present());
            self.corrections += 1;
        }
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

    /// Loses a range in transit for ever: something else may be mapped in it. From here on no page is moved: at the kernel's
    /// limit of mappings each move would be refused, and its target be lost.
    fn retire(&mut self, span: Span) {
        self.setup.moves = false;
        self.transit -= span.len;
        self.loose -= 1;
        self.retired += span.len;
        self.regions.lose(span);
    }
}
