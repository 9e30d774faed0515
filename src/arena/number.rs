//! Numbers of threads: small, and each one's own while it lives. By it a thread finds its seat in any arena.
//!
//! Why it is here: `&Arena` allocates from any thread, and one load must tell a thread which window is its own. A test of who
//! owns a window is a load more on the hot path than the best arenas of one thread have, and that shows; a place that
//! nobody else has needs no test.
//!
//! A number comes back when its thread ends, and the next thread takes the lowest there is. So what a thread left in an
//! arena serves the one that follows it, and a process whose threads come and go needs no more numbers than threads live at once.
//!
//! Invariant (docs/SAFETY.md): R7, no two threads have the same number at once, and whoever takes one sees all that its
//! holders before did. Never here: anything of an arena.

use core::cell::Cell;

use crate::sync;

/// How many words of bits there are, one bit for each number.
pub(super) const WORDS: usize = if cfg!(all(test, loom)) { 1 } else { 7 };

/// How many threads may have numbers at once: more than most machines have cores. Those beyond take every block from the
/// shared counter. More of them would make what stands beside an arena longer than 64 KiB.
pub(super) const NUMBERS: usize = if cfg!(all(test, loom)) { 2 } else { 64 * WORDS };

/// The number of all threads that have none of their own.
pub(super) use crate::sync::NOBODY;

/// How far the seats of two numbers are apart in an arena, in bytes.
pub(super) const STRIDE: usize = 128;

/// A set of the numbers from 1 to [`NUMBERS`].
pub(super) type Numbers = sync::Numbers<WORDS>;

thread_local! {
    /// The number of this thread times [`STRIDE`]: it has no destructor, so that it can be read in those of others.
    static OFFSET: Cell<usize> = const { Cell::new(NOBODY * STRIDE) };
    static LEAVING: Leaving = const { Leaving };
}

/// Gives the number of its thread back when the thread ends.
struct Leaving;

impl Drop for Leaving {
    fn drop(&mut self) {
        // What the thread allocates in destructors after this one comes from the shared counters of its arenas.
        let number = OFFSET.replace(NOBODY * STRIDE) / STRIDE;
        #[cfg(not(all(test, loom)))]
        if number != NOBODY {
            TAKEN.give_back(number);
        }
        #[cfg(all(test, loom))]
        let _ = number;
    }
}

/// The numbers of this process's threads. (Not under loom, whose atomics cannot be `static`: no thread has one there.)
#[cfg(not(all(test, loom)))]
static TAKEN: Numbers = Numbers::new();

/// How far this thread's seat lies from that of [`NOBODY`], in bytes: [`STRIDE`] times a number up to [`NUMBERS`].
#[inline(always)]
pub(super) fn offset() -> usize {
    OFFSET.get()
}

/// This thread's number.
#[inline]
pub(super) fn current() -> usize {
    offset() / STRIDE
}

/// This thread's number, which it is given now if it has none and there is one.
pub(super) fn assigned() -> usize {
    // Asked for first, so that no number is taken that is not given back. It is refused to a thread that has left.
    #[cfg(not(all(test, loom)))]
    if current() == NOBODY && LEAVING.try_with(|_| ()).is_ok() {
        OFFSET.set(TAKEN.take(NUMBERS) * STRIDE);
    }
    current()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn threads_have_numbers_of_their_own_as_long_as_they_live() {
        let mine = assigned();
        assert!((1..=NUMBERS).contains(&mine) && mine == assigned() && offset() == mine * STRIDE);
        let wait = std::sync::Barrier::new(4);
        let others: Vec<usize> = std::thread::scope(|scope| {
            let ask = || {
                let number = assigned();
                wait.wait();
                number
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let mut all = [&[mine], &*others].concat();
        all.sort_unstable();
        all.dedup();
        assert!(all.len() == 5 && !all.contains(&NOBODY), "{all:?}");
    }

    #[test]
    fn more_threads_than_numbers_may_live_in_turns() {
        for _ in 0..if cfg!(miri) { 10 } else { 2 * NUMBERS } {
            assert_ne!(std::thread::spawn(assigned).join().unwrap(), NOBODY);
        }
    }

    #[test]
    fn who_has_left_has_no_number_and_gets_none() {
        use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
        static SEEN: AtomicUsize = AtomicUsize::new(usize::MAX);
        thread_local!(static LATE: Late = const { Late });
        struct Late;
        impl Drop for Late {
            fn drop(&mut self) {
                if LEAVING.try_with(|_| ()).is_err() {
                    SEEN.store(assigned(), Relaxed);
                }
            }
        }
        // In either order: one of the two comes after the number has gone.
        for late_first in [false, true] {
            let run = move || {
                if late_first {
                    LATE.with(|_| ());
                }
                assigned();
                LATE.with(|_| ());
            };
            std::thread::spawn(run).join().unwrap();
        }
        assert_eq!(SEEN.load(Relaxed), NOBODY);
    }
}
