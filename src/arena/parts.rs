//! [`Arena`]: its parts, its life, and what it says about itself.
//!
//! The memory is one mapping, given away from its start. The first thread that allocates owns a window at the
//! front and bumps it without an atomic exchange; other threads, and workers, take windows from the shared counter. As
//! long as nobody else takes anything, the owner's window grows in place and wastes nothing.
//!
//! Invariants (docs/SAFETY.md): R7 and R8 for who may bump; R9, every byte at or above `dirty` that is in no live
//! block is zero. Never here: lifetimes of blocks (see `place`) and destructors.

use super::mapping::Mapping;
use super::owner::{self, Key};
use super::shared::Shared;
use super::stripes::Stripes;
use super::window::Window;
use crate::error::MapFailed;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The most that a window grows by at once: so large that the way to more memory, about 150 instructions, does not
/// show (at 64 KiB and 128 B a block, it is 0.3 of an instruction each). What is not touched costs no memory.
const REFILL_MAX: usize = 1 << 20;

/// A window grows by at most this share of the capacity, so that a small arena can serve several threads: no more than
/// this is stranded when the owner stops allocating. Smaller steps show: a step takes about 0.2 us.
const REFILL_SHARE: usize = 16;

/// The most that another thread's window grows by at once, as for a worker.
const CHUNK_MAX: usize = 64 << 10;

/// As [`REFILL_SHARE`]: with 16 threads, a sixteenth of a small arena is stranded at worst.
const CHUNK_SHARE: usize = 256;

/// Keeps what threads write to apart: two cache lines, since processors fetch them in pairs.
#[repr(align(128))]
#[derive(Debug)]
pub(super) struct Apart<T>(pub(super) T);

/// Scratch memory that dies together.
///
/// Allocation needs only `&Arena`, from any thread. As long as one thread allocates, it moves a cursor, which takes a
/// few instructions; when another joins it, each finds a chunk of its own by its thread, which takes two or three times
/// as many and no locked exchange. A [`Worker`](super::Worker) saves that search. What is allocated borrows from the
/// arena, so that [`reset`](Self::reset), which needs `&mut`, is O(1) and safe.
///
/// The capacity is a hard bound. Where several threads allocate, each may be refused while others have some of
/// their chunks left: no more than they used, at most 64 KiB and a 256th of the capacity. Past it the `alloc` methods panic with what was asked and what is left; the
/// `try_alloc` methods return that as an [`Exhausted`](super::Exhausted).
///
/// ```
/// use zk_nalloc::Arena;
///
/// let mut arena = Arena::with_capacity(1 << 20)?;
/// let column = arena.alloc_zeroed::<u64>(1000);
/// let point = arena.alloc((3_u32, 4_u32));
/// column[point.0 as usize] = 5;
/// arena.reset();
/// assert_eq!(arena.used(), 0);
/// # Ok::<(), zk_nalloc::MapFailed>(())
/// ```
#[derive(Debug)]
pub struct Arena {
    /// The tag of the thread that owns the window. Read by every allocation, written about once a round.
    pub(super) owner: AtomicU64,
    /// By how much the window grows.
    pub(super) refill: usize,
    /// By how much the windows of other threads grow, at most.
    pub(super) chunk: usize,
    /// The windows of other threads. Read by each of their allocations, written about once a round.
    pub(super) stripes: Stripes,
    /// No byte at or above this address was written since the kernel gave it (R9).
    dirty: AtomicUsize,
    /// The most that was in use at once before now, in bytes.
    high: AtomicUsize,
    pub(super) map: Mapping,
    /// The owner's window, and the owner's key to it.
    pub(super) window: Apart<(Window, Key)>,
    pub(super) shared: Apart<Shared>,
}

/// A state of an arena to come back to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    top: usize,
    cursor: usize,
    limit: usize,
    depth: usize,
}

impl Arena {
    /// Maps an arena of at least `bytes` bytes, rounded up to 64 KiB or, from 2 MiB on, to 2 MiB.
    ///
    /// Huge pages are asked for as `ZK_NALLOC_THP` says. Memory is used as it is touched.
    ///
    /// # Errors
    /// Where the kernel refuses, or where no address space is that large.
    ///
    /// ```
    /// # use zk_nalloc::Arena;
    /// let arena = Arena::with_capacity(100_000)?;
    /// assert!(arena.capacity() >= 100_000);
    /// assert!(Arena::with_capacity(usize::MAX).is_err());
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn with_capacity(bytes: usize) -> Result<Self, MapFailed> {
        Mapping::whole(bytes).map(Self::new)
    }

    /// Sets `bytes` bytes of address space aside, a terabyte if need be; memory is opened as it is used.
    ///
    /// An array at the end of such an arena grows without being copied, for ever. The range neither counts as
    /// committed memory nor is it made resident by `mlockall`, apart from what was opened: at most twice what is used,
    /// or 1 GiB more.
    ///
    /// # Errors
    /// Where the kernel refuses; the error names the setting that did, where it can be told.
    ///
    /// ```
    /// # use zk_nalloc::Arena;
    /// let arena = Arena::reserve(1 << 40)?;
    /// arena.alloc_slice_copy(&[1, 2, 3]);
    /// assert!(arena.capacity() >= 1 << 40);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn reserve(bytes: usize) -> Result<Self, MapFailed> {
        Mapping::reserved(bytes).map(Self::new)
    }

    fn new(map: Mapping) -> Self {
        let start = map.start();
        Self {
            owner: AtomicU64::new(owner::NOBODY),
            refill: (map.capacity() / REFILL_SHARE).min(REFILL_MAX),
            chunk: (map.capacity() / CHUNK_SHARE).min(CHUNK_MAX),
            stripes: Stripes::new(),
            dirty: AtomicUsize::new(start),
            high: AtomicUsize::new(0),
            window: Apart((Window::empty(map.base().as_ptr()), Key::unfit(start))),
            shared: Apart(Shared::new(start)),
            map,
        }
    }

    /// Frees everything at once and keeps the pages warm. O(1), no system call.
    ///
    /// Safe where other arenas ask for `unsafe`: whatever was allocated borrows from the arena, and `&mut self`
    /// says that no such borrow is left. Code written against an `unsafe` reset needs `let mut arena` and no
    /// `unsafe`; a use after the reset no longer compiles:
    ///
    /// ```compile_fail,E0502
    /// # use zk_nalloc::Arena;
    /// let mut arena = Arena::with_capacity(1 << 20)?;
    /// let x = arena.alloc(1);
    /// arena.reset();
    /// *x += 1; // `x` still borrows from `arena`
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    ///
    /// ```
    /// # use zk_nalloc::Arena;
    /// let mut arena = Arena::with_capacity(1 << 20)?;
    /// let x = arena.alloc(1);
    /// *x += 1;
    /// arena.reset();
    /// assert_eq!(arena.used(), 0);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn reset(&mut self) {
        if self.owner.load(Relaxed) != owner::current() {
            self.owner.store(owner::NOBODY, Relaxed);
        }
        let start = self.map.start();
        self.stripes.start_over();
        self.rewind_to(start, start, start);
    }

    /// Frees everything and gives the pages back to the kernel. Says how many bytes were given back at most: all
    /// that were ever in use, touched or not, or 0 where the kernel refused (locked memory, for one).
    ///
    /// ```
    /// # use zk_nalloc::Arena;
    /// let mut arena = Arena::with_capacity(1 << 20)?;
    /// arena.alloc_slice_fill_with(100_000, |_| 1_u8);
    /// assert!(arena.reset_and_release() >= 100_000);
    /// assert_eq!(arena.used(), 0);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn reset_and_release(&mut self) -> usize {
        self.reset();
        let dirty = self.dirty.load(Relaxed);
        if !self.map.purge(dirty) {
            return 0;
        }
        self.dirty.store(self.map.start(), Relaxed);
        dirty - self.map.start()
    }

    /// Frees everything and overwrites all that was ever in use with zeros, in a way that the compiler cannot leave
    /// out. Pages stay warm; dropping an arena does not wipe it.
    ///
    /// What it does not reach: copies in registers, on stacks, in swap or in a core dump. Secrets that need more than
    /// this need a buffer of their own.
    ///
    /// ```
    /// # use zk_nalloc::Arena;
    /// let mut arena = Arena::with_capacity(1 << 20)?;
    /// arena.alloc([7_u8; 32]);
    /// arena.wipe();
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn wipe(&mut self) {
        self.reset();
        super::place::wipe(self.map.base(), self.dirty.load(Relaxed) - self.map.start(), self);
        self.dirty.store(self.map.start(), Relaxed);
    }

    /// Says how many bytes are in use, with what aligning took and what workers hold. What is left of the chunks of
    /// threads that allocate by `&Arena` counts as free.
    ///
    /// ```
    /// # use zk_nalloc::Arena;
    /// let arena = Arena::with_capacity(1 << 20)?;
    /// arena.alloc_array::<u64>(10);
    /// assert_eq!(arena.used(), 80);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub fn used(&self) -> usize {
        // Out of date at worst, by what other threads are just doing.
        let unused = self.window.0.0.room() + self.stripes.unused();
        (self.shared.0.top() - self.map.start()).saturating_sub(unused)
    }

    /// Says how many bytes there are in all; never changes.
    ///
    /// ```
    /// # use zk_nalloc::Arena;
    /// assert!(Arena::with_capacity(1 << 20)?.capacity() >= 1 << 20);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.map.capacity()
    }

    /// Says how many bytes are left: [`capacity`](Self::capacity) less [`used`](Self::used).
    ///
    /// ```
    /// # use zk_nalloc::Arena;
    /// let arena = Arena::with_capacity(1 << 20)?;
    /// arena.alloc_array::<u64>(10);
    /// assert_eq!(arena.remaining(), arena.capacity() - 80);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.capacity() - self.used()
    }

    /// Says the most that was ever in use, in bytes from the start of the arena: what a capacity must be.
    ///
    /// ```
    /// # use zk_nalloc::Arena;
    /// let mut arena = Arena::with_capacity(1 << 20)?;
    /// arena.alloc_array::<u64>(10);
    /// arena.reset();
    /// arena.alloc(1_u64);
    /// assert_eq!((arena.used(), arena.high_water()), (8, 80));
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub fn high_water(&self) -> usize {
        self.high.load(Relaxed).max(self.extent() - self.map.start())
    }

    /// The address behind the last byte in use; exact where no other thread allocates.
    fn extent(&self) -> usize {
        let (cursor, limit) = self.window.0.0.get();
        let top = self.shared.0.top();
        if limit.addr() == top { cursor.addr() } else { top }
    }

    /// Takes note that memory below `end` may have been written (R9). To be called before any of it is free again.
    pub(super) fn note_dirty(&self, end: usize) {
        // Relaxed: whoever is given the memory later sees this by what hands the memory on (R6).
        if self.dirty.load(Relaxed) < end {
            self.dirty.fetch_max(end, Relaxed);
        }
        if self.high.load(Relaxed) < end - self.map.start() {
            self.high.fetch_max(end - self.map.start(), Relaxed);
        }
    }

    /// How many of `len` bytes from `at` on, a block just handed out, may not be zero (R9).
    pub(super) fn dirty_len(&self, at: *mut u8, len: usize) -> usize {
        self.dirty.load(Relaxed).saturating_sub(at.addr()).min(len)
    }

    /// The state to come back to. The caller holds the arena exclusively, and every mark is rewound to, or forgotten
    /// with all that came after it.
    pub(super) fn mark(&self) -> Mark {
        let (cursor, limit) = self.window.0.0.get();
        let depth = self.stripes.enter();
        Mark { top: self.shared.0.top(), cursor: cursor.addr(), limit: limit.addr(), depth }
    }

    /// Frees everything allocated since `mark`. The caller has made sure that none of it is in use, and that
    /// nobody else is using the arena (R10).
    pub(super) fn rewind(&self, mark: Mark) {
        self.stripes.back(mark.depth);
        self.rewind_to(mark.top, mark.cursor, mark.limit);
    }

    fn rewind_to(&self, top: usize, cursor: usize, limit: usize) {
        self.note_dirty(self.extent());
        self.window.0.0.set(self.map.at(cursor), self.map.at(limit));
        self.set_key();
        self.shared.0.rewind(top);
    }

    /// Makes the key fit the owner and the window, or nobody where the arena has more users. To be called by the owner,
    /// or with the arena held exclusively.
    pub(super) fn set_key(&self) {
        let (window, key) = &self.window.0;
        if self.stripes.shared() {
            key.close(self.map.start());
        } else {
            key.set(self.owner.load(Relaxed), window.get().1.addr(), self.map.capacity());
        }
    }
}
