//! One thread's part of an arena that many threads use.
//!
//! Why it is here: it does without a thread's number, of which there are so many and no more, and it gives back what is left
//! of its chunk when it is told to. Its blocks live as long as the arena's borrow and not only as long as the worker.
//!
//! Invariant (docs/SAFETY.md): R4, a worker's window is used by one thread at a time, since a worker is not `Sync`.
//! Never here: `Clone`.

use core::alloc::Layout;
use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

use super::parts::Body;
use super::place::Source;
use super::refill::CHUNK_ALIGN;
use super::window::Window;
use super::{Arena, Exhausted};

/// How much a worker takes at once: rare enough that the counter is not contended, little enough that the
/// chunks in which workers end do not matter.
const CHUNK_DEFAULT: usize = 64 << 10;

/// An arena has room for so many workers' chunks at least, unless they are told to take longer ones.
const CHUNKS_MIN: usize = 16;

/// The least that a worker takes: below, it would go to the counter for almost every block.
const CHUNK_MIN: usize = 256;

/// Allocates from an arena by chunks of its own, for one thread among many.
///
/// ```
/// # use zk_nalloc::Arena;
/// let arena = Arena::with_capacity(1 << 20)?;
/// let sums: Vec<&mut u64> = std::thread::scope(|threads| {
///     let run = |n| threads.spawn({ let arena = &arena; move || arena.worker().alloc(n) });
///     [run(1), run(2)].map(|thread| thread.join().unwrap()).into()
/// });
/// assert_eq!(sums, [&1, &2]);
/// # Ok::<(), zk_nalloc::MapFailed>(())
/// ```
///
/// It can be sent to another thread, but not shared with one:
///
/// ```compile_fail,E0277
/// fn share(_: impl Sync) {}
/// # let arena = zk_nalloc::Arena::with_capacity(1 << 20)?;
/// share(arena.worker());
/// # Ok::<(), zk_nalloc::MapFailed>(())
/// ```
pub struct Worker<'a> {
    body: &'a Body,
    window: Window,
    chunk: usize,
    /// The window is for one thread at a time (R4).
    not_sync: PhantomData<Cell<()>>,
}

impl Arena {
    /// Gives a worker for one thread, which takes 64 KiB at a time from this arena, or a sixteenth of its capacity where that is less.
    ///
    /// What is left of its chunk goes back when it is dropped, if nobody has taken anything since; else it is lost until the
    /// arena is reset. So is up to a chunk of each worker while it lives: an arena for many threads has room for that.
    ///
    /// `&Arena` serves hundreds of threads at once as fast, and needs nothing that is made for each. Make no worker in the `init` of
    /// rayon's `map_init` and `for_each_init`: it runs for each job, of which there are many more than threads.
    ///
    /// ```
    /// # use zk_nalloc::Arena;
    /// let arena = Arena::with_capacity(1 << 20)?;
    /// let worker = arena.worker();
    /// let x = worker.alloc(1);
    /// drop(worker); // `x` lives on
    /// assert_eq!((*x, arena.used()), (1, 8));
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub fn worker(&self) -> Worker<'_> {
        self.worker_with_chunk(CHUNK_DEFAULT.min(self.capacity() / CHUNKS_MIN))
    }

    /// Gives a worker that takes about `bytes` bytes at a time, at least 256.
    ///
    /// ```
    /// # use zk_nalloc::Arena;
    /// let arena = Arena::with_capacity(1 << 20)?;
    /// let worker = arena.worker_with_chunk(1 << 12);
    /// worker.alloc(1);
    /// assert!(arena.used() <= 1 << 12);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub fn worker_with_chunk(&self, bytes: usize) -> Worker<'_> {
        let chunk = bytes.clamp(CHUNK_MIN, self.capacity().max(CHUNK_MIN)) & !(CHUNK_ALIGN - 1);
        // An empty window at an address that is the end of nothing that was given away.
        let body = self.body();
        let window = Window::empty(body.map.base().as_ptr());
        Worker { body, window, chunk, not_sync: PhantomData }
    }
}

impl fmt::Debug for Worker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("chunk", &self.chunk).finish_non_exhaustive()
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        let (cursor, limit) = self.window.get();
        if cursor != limit {
            // What workers hold counts as in use.
            self.body.note_high(limit.addr());
            self.body.shared.0.give_back(limit.addr(), cursor.addr());
        }
    }
}

impl Source for Worker<'_> {
    #[inline(always)]
    fn body(&self) -> &Body {
        self.body
    }

    #[inline(always)]
    fn window(&self) -> &Window {
        &self.window
    }

    fn find_slow(&self, layout: Layout) -> Result<NonNull<u8>, Exhausted> {
        self.body.refill_slow(&self.window, self.chunk, CHUNK_ALIGN, layout)
    }
}
