//! Atomics and the one lock of the crate, behind a facade so that loom can stand in for them.
//!
//! [`Lock`] spins for about a microsecond, then sleeps on a futex through [`Park`], which the os layer
//! implements. It is `const`, four bytes beside its data, never allocates, is not re-entrant, and is released
//! when its guard is dropped.

#![expect(unsafe_code, reason = "the lock hands out `&mut` to what it guards")]

use core::ops::{Deref, DerefMut};

#[cfg(not(loom))]
pub(crate) use core::{cell::UnsafeCell, sync::atomic};
#[cfg(loom)]
pub(crate) use loom::{cell::UnsafeCell, sync::atomic};

/// Atomics of the process rather than of a value under test: never loom's, so that they can be `static`.
pub(crate) mod process {
    pub(crate) use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
}

use atomic::{AtomicU32, Ordering};

/// Putting a thread to sleep until a word changes, and waking it.
pub(crate) trait Park {
    /// Sleeps while `*word == expected`; may wake for no reason.
    fn wait(&self, word: &AtomicU32, expected: u32);
    /// Wakes one thread that sleeps on `word`.
    fn wake_one(&self, word: &AtomicU32);
}

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may sleep on the word.
const WAITED: u32 = 2;

/// How often a waiter looks before it sleeps: about a microsecond, the length of the longest section that
/// makes no system call.
const SPINS: u32 = if cfg!(loom) { 1 } else { 100 };

/// A mutual-exclusion lock that can be used inside an allocator.
pub(crate) struct Lock<T> {
    word: AtomicU32,
    data: UnsafeCell<T>,
}

// SAFETY: `data` is reached only through a guard, and there is one guard at a time (S1), so sharing the lock
// shares `T` between threads one at a time, which is what `T: Send` allows.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    #[cfg(not(loom))]
    pub(crate) const fn new(data: T) -> Self {
        Self { word: AtomicU32::new(FREE), data: UnsafeCell::new(data) }
    }

    #[cfg(loom)]
    pub(crate) fn new(data: T) -> Self {
        Self { word: AtomicU32::new(FREE), data: UnsafeCell::new(data) }
    }

    /// Takes the lock, waiting as long as it is held.
    #[inline]
    pub(crate) fn lock<'a, P: Park>(&'a self, park: &'a P) -> Guard<'a, T, P> {
        // Acquire: pairs with the release in `unlock`, so that we see what the last holder wrote.
        if self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_slow(park);
        }
        Guard { lock: self, park }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(crate) fn try_lock<'a, P: Park>(&'a self, park: &'a P) -> Option<Guard<'a, T, P>> {
        // Acquire: as in `lock`.
        self.word
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            // Lazily: a guard made and dropped here would free a lock that somebody else holds.
            .then(|| Guard { lock: self, park })
    }

    #[cold]
    fn lock_slow<P: Park>(&self, park: &P) {
        for _ in 0..SPINS {
            // Relaxed: only a hint; the exchange below is what synchronises.
            if self.word.load(Ordering::Relaxed) == FREE
                && self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return;
            }
            core::hint::spin_loop();
        }
        // Whoever has slept takes the lock as WAITED: it cannot know whether others still sleep.
        // Acquire: as in `lock`.
        while self.word.swap(WAITED, Ordering::Acquire) != FREE {
            park.wait(&self.word, WAITED);
        }
    }

    #[inline]
    fn unlock<P: Park>(&self, park: &P) {
        // Release: pairs with the acquire of the next holder.
        if self.word.swap(FREE, Ordering::Release) == WAITED {
            park.wake_one(&self.word);
        }
    }
}

/// The right to use what a [`Lock`] guards; gives it back when dropped.
pub(crate) struct Guard<'a, T, P: Park> {
    lock: &'a Lock<T>,
    park: &'a P,
}

impl<T, P: Park> Drop for Guard<'_, T, P> {
    #[inline]
    fn drop(&mut self) {
        self.lock.unlock(self.park);
    }
}

#[cfg(not(loom))]
impl<T, P: Park> Deref for Guard<'_, T, P> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a guard exists only while the word says held by us (S1), so nobody else has a reference.
        unsafe { &*self.lock.data.get() }
    }
}

#[cfg(not(loom))]
impl<T, P: Park> DerefMut for Guard<'_, T, P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; `&mut self` makes this the only reference through this guard.
        unsafe { &mut *self.lock.data.get() }
    }
}
