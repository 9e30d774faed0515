//! The lock: a word with three values, after the second mutex of Drepper's "Futexes Are Tricky".
//!
//! Invariants (docs/SAFETY.md): S1, one guard at a time; S2, a waiter that sleeps has made the word `WAITED` and
//! is woken by whoever frees it from there.

#![expect(unsafe_code, reason = "the lock hands out `&mut` to what it guards")]

use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use super::atomic::{AtomicU32, Ordering};
use super::{Park, spin_loop};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may sleep on the word.
const WAITED: u32 = 2;

/// How often a waiter looks before it sleeps. A pause takes 10 to 50 ns, depending on the CPU: so four to twenty
/// microseconds, longer than any section that makes no system call, and about what sleeping and waking take (by hand: four
/// threads that only allocate and free blocks of random sizes took 0.45 s with it, 0.59 with a quarter of it, 0.42 with five
/// times as much).
const SPINS: u32 = if cfg!(all(test, loom)) { 1 } else { 400 };

/// How a lock waits and is freed.
pub(crate) trait Manner {
    /// Takes a lock that was not free, waiting as long as it is held.
    fn lock_slow<P: Park>(word: &AtomicU32, park: &P);
    /// Frees a lock that is held.
    fn unlock<P: Park>(word: &AtomicU32, park: &P);
}

/// Waiters sleep on a futex: for sections that many threads ask for.
#[derive(Debug)]
pub(crate) enum Futex {}

/// Waiters take naps: for sections of some tens of nanoseconds that hardly anybody waits for. The word is never
/// `WAITED`, so freeing it is a plain store, half the price of the pair of locking and unlocking.
#[derive(Debug)]
pub(crate) enum Nap {}

/// A mutual-exclusion lock that can be used inside an allocator.
pub(crate) struct Lock<T, M: Manner = Futex> {
    word: AtomicU32,
    manner: PhantomData<M>,
    data: cell::Cell<T>,
}

/// A lock for the shortest sections.
pub(crate) type Latch<T> = Lock<T, Nap>;

// SAFETY: `data` is reached only through a guard, and there is one guard at a time (S1), so sharing the lock
// shares `T` between threads one at a time, which is what `T: Send` allows.
unsafe impl<T: Send, M: Manner> Sync for Lock<T, M> {}

impl<T, M: Manner> Lock<T, M> {
    super::constant! {
        pub(crate) const fn new(data: T) -> Self {
            Self { word: AtomicU32::new(FREE), manner: PhantomData, data: cell::Cell::new(data) }
        }
    }

    /// Takes the lock, waiting as long as it is held.
    #[inline]
    pub(crate) fn lock<'a, P: Park>(&'a self, park: &'a P) -> Guard<'a, T, P, M> {
        if !self.take() {
            M::lock_slow(&self.word, park);
        }
        self.guard(park)
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(crate) fn try_lock<'a, P: Park>(&'a self, park: &'a P) -> Option<Guard<'a, T, P, M>> {
        // Lazily: a guard made and dropped here would free a lock that somebody else holds.
        self.take().then(|| self.guard(park))
    }

    /// Makes the word `HELD` if it is `FREE`.
    #[inline]
    fn take(&self) -> bool {
        take(&self.word)
    }

    /// The guard of whoever has just made the word `HELD` or `WAITED` from `FREE`.
    #[inline]
    fn guard<'a, P: Park>(&'a self, park: &'a P) -> Guard<'a, T, P, M> {
        Guard { data: self.data.access(), lock: self, park }
    }

    #[inline]
    fn unlock<P: Park>(&self, park: &P) {
        M::unlock(&self.word, park);
    }

    /// Frees a lock whose guard was forgotten (`core::mem::forget`), as when it is taken before a `fork` and freed
    /// after it, in both processes.
    ///
    /// # Safety
    /// The guard was forgotten by this thread, or in a forked child by the thread that it is a copy of, and nobody
    /// has freed the lock since. No reference got through that guard is used any more.
    pub(crate) unsafe fn unlock_forgotten<P: Park>(&self, park: &P) {
        self.data.forget_access();
        self.unlock(park);
    }
}

impl<T, M: Manner> Lock<T, M> {
    /// Frees the lock whoever held it. In a child after a fork, where its holder does not exist, by the thread that forked,
    /// before any other takes the lock there (S1): what it guards must be whole all the same.
    pub(crate) fn reset_in_child(&self) {
        // Relaxed: any other thread of the child sees first that this thread is done, by an acquire (`Cache::see_child`).
        self.word.store(FREE, Ordering::Relaxed);
    }
}

/// Makes the word `HELD` if it is `FREE`.
#[inline]
fn take(word: &AtomicU32) -> bool {
    // Acquire: pairs with the release in `unlock`, so that we see what the last holder wrote. Relaxed on
    // failure: nothing is concluded from it.
    word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Tries for a moment; whether the word is ours.
fn spin(word: &AtomicU32) -> bool {
    for _ in 0..SPINS {
        // Relaxed: only a hint, which keeps the line shared; `take` is what synchronises.
        if word.load(Ordering::Relaxed) == FREE && take(word) {
            return true;
        }
        spin_loop();
    }
    false
}

impl Manner for Futex {
    #[cold]
    fn lock_slow<P: Park>(word: &AtomicU32, park: &P) {
        if spin(word) {
            return;
        }
        // Whoever has slept takes the lock as WAITED: it cannot know whether others still sleep (S2).
        // Acquire: as in `take`.
        while word.swap(WAITED, Ordering::Acquire) != FREE {
            park.wait(word, WAITED);
        }
    }

    #[inline]
    fn unlock<P: Park>(word: &AtomicU32, park: &P) {
        // Release: pairs with the acquire of the next holder, in `take` or `lock_slow`.
        if word.swap(FREE, Ordering::Release) == WAITED {
            // A new holder may have the lock by now, and even have freed the memory that it lies in were it not
            // static or kept by its users: only the word's address is used, and a wake-up too many does no harm.
            park.wake_one(word);
        }
    }
}

impl Manner for Nap {
    #[cold]
    fn lock_slow<P: Park>(word: &AtomicU32, park: &P) {
        while !spin(word) {
            park.nap();
        }
    }

    #[inline]
    fn unlock<P: Park>(word: &AtomicU32, _: &P) {
        // Release: pairs with the acquire of the next holder, in `take`.
        word.store(FREE, Ordering::Release);
    }
}

/// The right to use what a [`Lock`] guards; gives it back when dropped.
pub(crate) struct Guard<'a, T, P: Park, M: Manner = Futex> {
    data: cell::Access<'a, T>,
    lock: &'a Lock<T, M>,
    park: &'a P,
}

impl<T, P: Park, M: Manner> Drop for Guard<'_, T, P, M> {
    #[inline]
    fn drop(&mut self) {
        self.data.end();
        self.lock.unlock(self.park);
    }
}

impl<T, P: Park, M: Manner> Deref for Guard<'_, T, P, M> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a guard exists only while the word says held by us (S1), so all references to the data come
        // through this guard, and borrow it.
        unsafe { &*self.data.get() }
    }
}

impl<T, P: Park, M: Manner> DerefMut for Guard<'_, T, P, M> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; `&mut self` makes this the only reference through this guard.
        unsafe { &mut *self.data.get() }
    }
}

/// The cell of the data, and the access that a guard has to it.
#[cfg(not(all(test, loom)))]
mod cell {
    use core::cell::UnsafeCell;

    pub(super) struct Cell<T>(UnsafeCell<T>);

    impl<T> Cell<T> {
        pub(super) const fn new(data: T) -> Self {
            Self(UnsafeCell::new(data))
        }

        #[inline]
        pub(super) fn access(&self) -> Access<'_, T> {
            Access(&self.0)
        }

        pub(super) fn forget_access(&self) {}
    }

    pub(super) struct Access<'a, T>(&'a UnsafeCell<T>);

    impl<T> Access<'_, T> {
        #[inline]
        pub(super) fn get(&self) -> *mut T {
            self.0.get()
        }

        #[inline]
        pub(super) fn end(&mut self) {}
    }
}

/// The same in loom's terms: an access is announced for as long as the guard lives, and loom fails the test when
/// two overlap or one does not see what the last one wrote.
#[cfg(all(test, loom))]
mod cell {
    use core::marker::PhantomData;
    use loom::cell::{MutPtr, UnsafeCell};

    pub(super) struct Cell<T>(UnsafeCell<T>);

    impl<T> Cell<T> {
        pub(super) fn new(data: T) -> Self {
            Self(UnsafeCell::new(data))
        }

        pub(super) fn access(&self) -> Access<'_, T> {
            Access(Some(self.0.get_mut()), PhantomData)
        }

        /// An access that was forgotten is still announced to loom: there is no test of that.
        pub(super) fn forget_access(&self) {}
    }

    pub(super) struct Access<'a, T>(Option<MutPtr<T>>, PhantomData<&'a T>);

    impl<T> Access<'_, T> {
        pub(super) fn get(&self) -> *mut T {
            let ptr = self.0.as_ref().expect("an access that has not ended");
            ptr.with(|ptr| ptr)
        }

        pub(super) fn end(&mut self) {
            self.0 = None;
        }
    }
}

#[cfg(test)]
mod tests;
