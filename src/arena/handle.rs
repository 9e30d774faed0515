//! [`Arena`]: what users hold. Its life, and what it says about itself.
//!
//! An arena is a pointer to its body, which lies in a mapping of its own. So it moves by value as a number does, while
//! what threads find by their numbers stays where it is; and since nothing writes to the pointer, a loop that allocates
//! loads it once.
//!
//! Never here: what a method does beyond naming it (see `parts`), lifetimes of blocks (see `place`), and destructors.

#![expect(unsafe_code, reason = "owns its body by address")]

use core::fmt;
use core::ptr::NonNull;

use super::mapping::Mapping;
use super::number::NOBODY;
use super::parts::{Body, Parts};
use super::spare;
use crate::error::MapFailed;

/// Scratch memory that dies together.
///
/// Allocation needs only `&Arena`, from any thread: each finds a window of its own by its thread and moves a cursor, which
/// takes a few instructions and no locked exchange. What is allocated borrows from the arena, so that
/// [`reset`](Self::reset), which needs `&mut`, is safe, and costs some nanoseconds.
///
/// The capacity is a hard bound. Where several threads allocate, one may be refused while others have some of their windows
/// left: each at most what it has used, 64 KiB or a 256th of the capacity, whichever is least; the one that was there first 1 MiB or
/// a 16th, whichever is less. Past it the `alloc` methods panic with what was asked and what is left; the `try_alloc` methods
/// return that as an [`Exhausted`](super::Exhausted).
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
pub struct Arena {
    body: NonNull<Body>,
}

// SAFETY: the body is owned, and of its parts each can be sent to another thread.
unsafe impl Send for Arena {}
// SAFETY: shared references to an arena give shared references to the body, of which each part can be shared.
unsafe impl Sync for Arena {}

const _: () = {
    const fn sent_and_shared<T: Send + Sync>() {}
    sent_and_shared::<Body>();
};

impl Arena {
    /// Maps an arena of at least `bytes` bytes, rounded up to 64 KiB or, from 2 MiB on, to 2 MiB.
    ///
    /// Arenas of 2 MiB and more ask for huge pages, as [`Config::thp`](crate::Config::thp) says once `NAlloc` has served a large
    /// request, else as `ZK_NALLOC_THP` does. Pages become resident as they are touched; under strict overcommit
    /// (`vm.overcommit_memory=2`) the whole capacity is charged at once, which [`reserve`](Self::reserve) avoids.
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
        Self::new(Mapping::whole(bytes)?)
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
        Self::new(Mapping::reserved(bytes)?)
    }

    fn new(map: Mapping) -> Result<Self, MapFailed> {
        let body = spare::take()?;
        // SAFETY: the memory is a body's, and nobody else's.
        unsafe { (&raw mut (*body.as_ptr()).parts).write(Parts::new(map)) };
        // The seats are as they are to be. Writing them would touch all of their pages.
        Ok(Self { body })
    }

    #[inline(always)]
    pub(super) fn body(&self) -> &Body {
        // SAFETY: the body lives as long as this, both of its fields have values (`new`), and after `new` there are only
        // shared references to it until the drop.
        unsafe { self.body.as_ref() }
    }

    /// Frees everything at once and keeps the pages warm. No system call; some nanoseconds, and one or two for each thread
    /// that has allocated since the last reset.
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
        self.body().start_over();
    }

    /// Frees everything and gives the pages back to the kernel. Says how many bytes were given back at most: all
    /// that were ever in use, touched or not, or 0 where the kernel refused (locked memory, for one, before Linux 5.18).
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
        let body = self.body();
        let dirty = body.dirty();
        if !body.map.purge(body.map.start() + dirty) {
            return 0;
        }
        body.note_clean();
        dirty
    }

    /// Frees everything and overwrites all that was ever in use with zeros, in a way that the compiler cannot leave
    /// out. Pages stay warm, and what was never touched gets none. Dropping an arena does not wipe it, nor does
    /// [`Config::wipe_on_free`](crate::Config::wipe_on_free).
    ///
    /// What it does not reach: copies in registers, on stacks, in swap or in a core dump. Secrets that need more than
    /// this need a [`SecretBuf`](crate::SecretBuf).
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
        let body = self.body();
        // SAFETY: what was in use lies below `opened` (R2), and the arena is borrowed exclusively, so that no block of it is (R10).
        unsafe { body.map.wipe(body.map.start() + body.dirty()) };
        body.note_clean();
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
        self.body().used()
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
        self.body().map.capacity()
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

    /// Says the most that was ever in use, in bytes from the start of the arena, with what workers held: what a capacity must be.
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
        self.body().high()
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena")
            .field("capacity", &self.capacity())
            .field("used", &self.used())
            .finish_non_exhaustive()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // No thread that has used it keeps a seat.
        self.body().seats.start_over(NOBODY);
        // SAFETY: nobody has a reference to the body any more, and its parts are not used after this.
        unsafe { (&raw mut (*self.body.as_ptr()).parts).drop_in_place() };
        // SAFETY: the body came from `take`, nobody uses it any more, and its seats are all unused.
        unsafe { spare::give(self.body) };
    }
}
