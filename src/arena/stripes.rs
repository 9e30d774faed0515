//! Stripes: a window for each thread that allocates from an arena which another thread owns.
//!
//! Why it is here: threads that all take blocks from one counter wait for one another's cache line at every block. So
//! each thread finds a stripe of its own by its tag, in a table beside the arena, and goes to the counter once a
//! chunk. It costs a search where a [`Worker`](super::Worker) costs nothing, and nobody has to make one.
//!
//! Nobody clears the table. A stripe belongs to a thread *for an era*; a reset begins a new one, and a checkpoint one
//! inside the one before, which goes on when the checkpoint is dropped, with its stripes as they were.
//!
//! Invariant (docs/SAFETY.md): R15, a stripe has one user. Never here: memory for blocks.

#![expect(unsafe_code, reason = "keeps its table in memory of its own")]

use super::owner::{NEW, SPACING};
use super::parts::Apart;
use super::raw;
use super::window::Window;
use crate::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// How many threads may have stripes at once: more than most machines have cores. Those beyond share the counter.
const STRIPES: usize = if cfg!(loom) { 2 } else { 256 };

/// How many stripes a thread looks at, from its own place on. Tags are consecutive, so the first is nearly always it.
const PROBES: usize = if cfg!(loom) { 2 } else { 8 };

/// How many checkpoints may lie inside one another before those within do without stripes.
const DEPTH: usize = 8;

/// An era that no stripe is ever of: where it is in force, there are no stripes.
const NO_ERA: u64 = 0;

/// The first chunk of a stripe, in bytes. Each next one is twice as long, so that a thread that allocates little, or ends,
/// strands no more than it used.
const STEP_MIN: usize = 256;

#[derive(Debug)]
pub(super) struct Stripe {
    /// The tag of its thread plus the era, which is less than the spacing of tags; 0 for a stripe never used.
    user: AtomicU64,
    pub(super) window: Window,
    /// How long its last chunk was to be, in bytes.
    step: AtomicUsize,
}

impl Stripe {
    /// How long the next chunk is to be, in bytes: at most `most`, at least 256 of them.
    pub(super) fn next_step(&self, most: usize) -> usize {
        // Relaxed: its user's alone.
        let step = (2 * self.step.load(Ordering::Relaxed)).clamp(STEP_MIN, most);
        self.step.store(step, Ordering::Relaxed);
        step
    }
}

type Table = [Apart<Stripe>; STRIPES];

#[derive(Debug)]
pub(super) struct Stripes {
    /// Null until somebody needs it; `refused` where the kernel gave no memory for it.
    table: AtomicPtr<Apart<Stripe>>,
    /// The era in force.
    now: AtomicU64,
    /// Whether a second thread has allocated since the last reset.
    shared: AtomicBool,
    /// The eras that checkpoints interrupt, from the outermost on, and that in force: `depth + 1` of them.
    eras: [AtomicU64; DEPTH],
    depth: AtomicUsize,
    /// The last era that was begun.
    last: AtomicU64,
}

/// What stands for a table that could not be had; nothing is there.
fn refused() -> *mut Apart<Stripe> {
    core::ptr::without_provenance_mut(align_of::<Apart<Stripe>>())
}

const TABLE_BYTES: usize = size_of::<Table>().next_multiple_of(super::mapping::PAGE_MAX);

impl Stripes {
    pub(super) fn new() -> Self {
        let stripes = Self {
            table: AtomicPtr::new(core::ptr::null_mut()),
            now: AtomicU64::new(NO_ERA),
            shared: AtomicBool::new(false),
            eras: core::array::from_fn(|_| AtomicU64::new(NO_ERA)),
            depth: AtomicUsize::new(0),
            last: AtomicU64::new(NO_ERA),
        };
        stripes.start_over();
        stripes
    }

    /// Whether the arena has more users than its owner.
    #[inline]
    pub(super) fn shared(&self) -> bool {
        // Relaxed: a hint; who misses it allocates as the only user does, which is right at any time.
        self.shared.load(Ordering::Relaxed)
    }

    /// Notes that the arena has more users than its owner; says whether that is new.
    #[inline]
    pub(super) fn share(&self) -> bool {
        let new = !self.shared();
        if new {
            self.shared.store(true, Ordering::Relaxed);
        }
        new
    }

    // What follows on eras is done with the arena held exclusively, so relaxed accesses do: whoever shares the arena
    // afterwards got it from the holder.

    /// Takes all stripes from everybody. To be called with the arena held exclusively.
    pub(super) fn start_over(&self) {
        self.shared.store(false, Ordering::Relaxed);
        self.begin(0);
    }

    /// Begins an era inside the one in force and says what to go [`back`](Self::back) to. As [`Self::start_over`].
    pub(super) fn enter(&self) -> usize {
        let depth = self.depth.load(Ordering::Relaxed);
        self.begin(depth + 1);
        depth
    }

    /// Ends all eras begun since [`enter`](Self::enter) gave `depth`, with their stripes. As [`Self::start_over`].
    pub(super) fn back(&self, depth: usize) {
        self.depth.store(depth, Ordering::Relaxed);
        let era = self.eras.get(depth).map_or(NO_ERA, |era| era.load(Ordering::Relaxed));
        self.now.store(era, Ordering::Relaxed);
    }

    fn begin(&self, depth: usize) {
        if let Some(slot) = self.eras.get(depth) {
            // When all are used up, after hours of nothing but this, there are no more stripes.
            let next = (self.last.load(Ordering::Relaxed) + 1).min(SPACING);
            self.last.store(next, Ordering::Relaxed);
            slot.store(if next < SPACING { next } else { NO_ERA }, Ordering::Relaxed);
        }
        self.back(depth);
    }

    /// Whether `era` is in force, or will be again.
    fn lasts(&self, era: u64) -> bool {
        let depth = self.depth.load(Ordering::Relaxed);
        era != NO_ERA && self.eras.iter().take(depth + 1).any(|slot| slot.load(Ordering::Relaxed) == era)
    }

    /// The table, or `None` where there is none.
    #[inline]
    fn table(&self) -> Option<&Table> {
        // Acquire: pairs with the release in `made_slow`: its bytes are seen as zeros or as what came after.
        Self::at(self.table.load(Ordering::Acquire))
    }

    #[inline]
    fn at<'a>(table: *mut Apart<Stripe>) -> Option<&'a Table> {
        let there = !table.is_null() && table != refused();
        // SAFETY: what is neither null nor `refused` is a table from `made_slow`, mapped until this is dropped (which
        // the borrow in `table` and `made_slow` rules out), and only shared references to it exist. Zeros are a value of
        // all its fields: of atomic numbers and atomic pointers (loom's are put there as values).
        there.then(|| unsafe { &*table.cast::<Table>() })
    }

    /// The places of this thread's stripe, likeliest first.
    #[inline]
    fn places(table: &Table, me: u64) -> impl Iterator<Item = &Stripe> {
        let home = (me / SPACING) as usize;
        (home..home + PROBES).map(|place| &table[place % STRIPES].0)
    }

    /// This thread's stripe, if it has one in this era.
    #[inline]
    pub(super) fn mine(&self, me: u64) -> Option<&Stripe> {
        let table = self.table()?;
        let era = self.now.load(Ordering::Relaxed);
        if era == NO_ERA || me == NEW {
            return None;
        }
        // Relaxed: our own tag is there only if we put it there (R15).
        let mine = |stripe: &&Stripe| stripe.user.load(Ordering::Relaxed) == me + era;
        Self::places(table, me).find(mine)
    }

    /// Makes a stripe this thread's, with an empty window. It has none in this era.
    #[cold]
    pub(super) fn claim_slow(&self, me: u64) -> Option<&Stripe> {
        let table = self.table().or_else(|| self.made_slow())?;
        let era = self.now.load(Ordering::Relaxed);
        if era == NO_ERA || me == NEW {
            return None;
        }
        for stripe in Self::places(table, me) {
            let was = stripe.user.load(Ordering::Relaxed);
            // Relaxed: what its last user wrote happened before the arena was held exclusively, which ended its era.
            if !self.lasts(was % SPACING)
                && stripe.user.compare_exchange(was, me + era, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            {
                stripe.window.set(core::ptr::null_mut(), core::ptr::null_mut());
                stripe.step.store(0, Ordering::Relaxed);
                return Some(stripe);
            }
        }
        None
    }

    /// Bytes in the windows of all stripes that no block has; out of date by what other threads are just doing.
    pub(super) fn unused(&self) -> usize {
        let stripes = self.table().into_iter().flatten();
        let lasting =
            stripes.filter(|Apart(stripe)| self.lasts(stripe.user.load(Ordering::Relaxed) % SPACING));
        lasting.map(|Apart(stripe)| stripe.window.room()).sum()
    }

    #[cold]
    fn made_slow(&self) -> Option<&Table> {
        if !self.table.load(Ordering::Relaxed).is_null() {
            return self.table();
        }
        let made =
            raw::map(TABLE_BYTES, crate::os::GRANULE).map_or(refused(), |at| at.cast::<Apart<Stripe>>());
        #[cfg(all(test, loom))]
        for place in 0..STRIPES {
            let window = Window::empty(core::ptr::null_mut());
            let stripe = Stripe { user: AtomicU64::new(0), window, step: AtomicUsize::new(0) };
            // SAFETY: the mapping is as long as the table, and nobody else knows of it.
            unsafe { made.add(place).write(Apart(stripe)) };
        }
        // Release: pairs with the acquire in `table`. Acquire: the table of another may be used at once.
        match self.table.compare_exchange(core::ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Self::at(made),
            Err(theirs) => {
                Self::unmap(made);
                Self::at(theirs)
            }
        }
    }

    fn unmap(table: *mut Apart<Stripe>) {
        if !table.is_null() && table != refused() {
            raw::unmap(table.cast(), TABLE_BYTES);
        }
    }
}

impl Drop for Stripes {
    fn drop(&mut self) {
        // Acquire: as in `table`.
        Self::unmap(self.table.load(Ordering::Acquire));
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
