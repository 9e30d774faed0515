//! What the rest of the process holds, and what the C library keeps free of it.
//!
//! Why it is here: glibc is told to keep what bursts of small blocks leave free (`global`), or each would be faulted in
//! again. No large block can use that memory. So glibc is asked for it before fresh memory would make the process larger
//! than it was of late; when all that is cached is given up; and when the process falls silent.
//!
//! Invariants: the C library is asked without any lock of ours, since its own are taken for it. Never here: what it is told
//! to keep.

use super::Cache;
use super::heaps::Heaps;
use crate::os::Os;
use crate::sync::Lock;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// How long what the rest of the process holds is taken to be as it was, in nanoseconds. To measure it takes 10 us, and
/// a thread that only allocates and frees tells the limits every 50 us; a small side does not grow by much in the time.
const MEASURE_AFTER: u64 = 2_000_000;

/// What the rest of the process holds at least where the C library is asked, in bytes: so much glibc keeps untold.
const WORTH_ASKING: usize = 64 << 20;

/// Before the C library is asked again, memory has to be needed beyond what it was then by this part of that, as a divisor:
/// it looks at all that is free in its heap, and what is in use is none of that, so it shall not be asked at each step
/// of a first proof.
const RISE: usize = 4;

/// How long it is not asked again because memory is short, in nanoseconds: memory may be short for as long as a proof takes,
/// and while the library looks, `malloc` waits in all threads.
const IN_NEED_AGAIN_AFTER: u64 = 5_000_000_000;

pub(super) struct Beside {
    /// Whether the C library keeps free memory because we have told it to.
    keeps: AtomicBool,
    /// What was in use when it was asked last, in bytes, the rest of the process included.
    asked_at: AtomicUsize,
    /// Whether it is to keep the heaps of threads but the first as well.
    pub(super) heaps: Lock<Heaps>,
    /// When to measure again what the rest of the process holds, by the clock of `Os`.
    next_measure: AtomicU64,
    /// When to ask again because memory is short, likewise.
    next_in_need: AtomicU64,
}

impl Beside {
    crate::sync::constant! {
        pub(super) const fn new() -> Self {
            Self {
                keeps: AtomicBool::new(false),
                asked_at: AtomicUsize::new(0),
                heaps: Lock::new(Heaps::new()),
                next_measure: AtomicU64::new(0),
                next_in_need: AtomicU64::new(0),
            }
        }
    }
}

impl<O: Os> Cache<O> {
    /// Notes that the C library has been told to keep free memory.
    pub(crate) fn library_keeps(&self) {
        // Relaxed: whoever does not see it yet asks a moment later.
        self.beside.keeps.store(true, Ordering::Relaxed);
    }

    /// Measures what the rest of the process holds, if that was not done a moment ago. Of what is handed out `untouched` bytes
    /// have had no time to be touched.
    fn measure_now_and_then(&self, now: u64, untouched: usize) {
        // Relaxed, both: whoever is a moment late measures once more.
        if now >= self.beside.next_measure.load(Ordering::Relaxed) {
            self.beside.next_measure.store(now + MEASURE_AFTER, Ordering::Relaxed);
            self.measure(untouched);
        }
    }

    fn measure(&self, untouched: usize) {
        if let Some(anonymous) = self.os().anonymous() {
            self.heap.note_beside(anonymous, untouched);
            self.see_heaps(anonymous);
        }
    }

    /// Sees what the rest of the process holds, and asks the C library for what it keeps free before more is in use than the
    /// limits remember. To be called without any lock, and before the heap notes what is in use as a peak; `untouched` as for
    /// [`PageHeap::note_beside`](crate::heap::PageHeap::note_beside).
    pub(super) fn see_beside(&self, now: u64, untouched: usize) {
        self.measure_now_and_then(now, untouched);
        // Relaxed, all: the numbers are estimates, and whoever sees old ones asks once more, or once less.
        if !self.beside.keeps.load(Ordering::Relaxed) || self.heap.beside() < WORTH_ASKING {
            return;
        }
        let asked_at = self.beside.asked_at.load(Ordering::Relaxed);
        let present = self.heap.present();
        if present <= asked_at.saturating_add(asked_at / RISE)
            || present <= self.limits.lock(self.os()).total()
        {
            return;
        }
        // One asks for all that come by now.
        let claim =
            self.beside.asked_at.compare_exchange(asked_at, present, Ordering::Relaxed, Ordering::Relaxed);
        if claim.is_ok() {
            self.ask_library();
            self.measure(untouched);
        }
    }

    /// Has the C library keep the heaps that it has for each thread, or no longer, as [`Heaps`] says. Not under a ceiling, and not while
    /// it holds too little to have filled one. To be called without any lock.
    fn see_heaps(&self, held: usize) {
        // Relaxed, both: as above; and set once, before anything was handed out.
        if !self.beside.keeps.load(Ordering::Relaxed)
            || self.dirty_max.load(Ordering::Relaxed) < usize::MAX
            || self.heap.beside() < WORTH_ASKING
            || self.heap.is_forking_here()
        {
            return;
        }
        let (faults, most) = (self.os().faults(), self.os().resident_max());
        let change = self.beside.heaps.lock(self.os()).saw(faults, held, most);
        if let Some(keeps) = change {
            // Outside of the lock, as the library's own are taken: who is overtaken by the next change leaves it told the other thing,
            // until the one after that.
            self.os().keep_library_heaps(keeps);
            if !keeps {
                self.ask_library();
            }
        }
    }

    /// Forgets when the C library was asked, where so much less is remembered as needed by now.
    pub(super) fn forget_asking(&self, remembered: usize) {
        // Relaxed: as above.
        self.beside.asked_at.fetch_min(remembered, Ordering::Relaxed);
    }

    /// Asks the C library because memory is short, unless that was done a moment ago. To be called without any lock.
    pub(super) fn ask_library_in_need(&self, now: u64) {
        // Relaxed, both: whoever is a moment late asks once more.
        if now >= self.beside.next_in_need.load(Ordering::Relaxed) {
            self.beside.next_in_need.store(now.saturating_add(IN_NEED_AGAIN_AFTER), Ordering::Relaxed);
            self.ask_library();
        }
    }

    /// Asks the C library for what it keeps free, if we have told it to keep any. To be called without any lock; in a handler
    /// before a fork, when this thread has them all, it does nothing.
    pub(super) fn ask_library(&self) {
        // Relaxed: as above. Before the start forks may not be watched yet, and in a child the heap's lock be that of a thread
        // which is not there.
        if self.beside.keeps.load(Ordering::Relaxed) && !(self.has_started() && self.heap.is_forking_here()) {
            self.os().trim_library();
        }
    }
}
