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

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{constant, counters};

/// How many words of bits there are, one bit for each number.
pub(super) const WORDS: usize = if cfg!(all(test, loom)) { 1 } else { 7 };

/// How many threads may have numbers at once: more than most machines have cores. Those beyond take every block from the
/// shared counter. More of them would make what stands beside an arena longer than 64 KiB.
pub(super) const NUMBERS: usize = if cfg!(all(test, loom)) { 2 } else { 64 * WORDS };

/// The number of all threads that have none of their own.
pub(super) const NOBODY: usize = 0;

/// How far the seats of two numbers are apart in an arena, in bytes.
pub(super) const STRIDE: usize = 128;

/// A set of the numbers from 1 to [`NUMBERS`].
#[derive(Debug)]
pub(super) struct Numbers([AtomicU64; WORDS]);

/// The word and the bit of a number that is not [`NOBODY`].
fn bit(number: usize) -> (usize, u64) {
    ((number - 1) / 64, 1 << ((number - 1) % 64))
}

impl Numbers {
    constant! {
        pub(super) const fn new() -> Self {
            Self(counters())
        }
    }

    /// Takes the lowest number that is not in the set into it; [`NOBODY`] where there is none.
    fn take(&self) -> usize {
        for (word, first) in self.0.iter().zip((1..=NUMBERS).step_by(64)) {
            let some = NUMBERS + 1 - first;
            let all = if some < 64 { (1 << some) - 1 } else { u64::MAX };
            // Relaxed: a guess; the exchange below decides.
            let mut free = !word.load(Ordering::Relaxed) & all;
            while free != 0 {
                let lowest = free & free.wrapping_neg();
                // Acquire: pairs with the release in `give_back`, so that what the holder before did happened before. All
                // changes are exchanges, so that each continues the release sequences of those before it.
                let was = word.fetch_or(lowest, Ordering::Acquire);
                if was & lowest == 0 {
                    return first + lowest.trailing_zeros() as usize;
                }
                free = !was & all;
            }
        }
        NOBODY
    }

    /// Takes a number out of the set, which the caller has taken into it.
    fn give_back(&self, number: usize) {
        let (word, bit) = bit(number);
        // Release: see `take`.
        self.0[word].fetch_and(!bit, Ordering::Release);
    }

    // What follows is for sets of which a number is taken in by its holder alone, or by who holds the whole exclusively.

    /// Whether the set has `number`.
    #[inline]
    pub(super) fn has(&self, number: usize) -> bool {
        let (word, bit) = bit(number);
        // Relaxed: of the number asked about, only its holder has changed anything.
        self.0[word].load(Ordering::Relaxed) & bit != 0
    }

    /// Takes `number` into the set.
    pub(super) fn add(&self, number: usize) {
        let (word, bit) = bit(number);
        // Relaxed: it hands nothing on.
        self.0[word].fetch_or(bit, Ordering::Relaxed);
    }

    /// Empties the set, which the caller holds exclusively.
    pub(super) fn clear(&self) {
        for word in &self.0 {
            // Relaxed: whoever uses it next got it from the caller.
            word.store(0, Ordering::Relaxed);
        }
    }

    /// The numbers in the set; out of date by those that are just being taken in.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().zip((1..).step_by(64)).flat_map(|(word, first)| {
            let mut left = word.load(Ordering::Relaxed);
            core::iter::from_fn(move || {
                let place = left.trailing_zeros() as usize;
                left &= left.wrapping_sub(1);
                (place < 64).then_some(first + place)
            })
        })
    }
}

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
        OFFSET.set(TAKEN.take() * STRIDE);
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

    #[test]
    fn the_lowest_number_that_is_free_is_taken() {
        let numbers = Numbers::new();
        let taken: Vec<usize> = (0..=NUMBERS).map(|_| numbers.take()).collect();
        assert!(taken.iter().copied().eq((1..=NUMBERS).chain([NOBODY])));
        numbers.give_back(NUMBERS);
        numbers.give_back(65);
        assert_eq!([numbers.take(), numbers.take(), numbers.take()], [65, NUMBERS, NOBODY]);
    }

    #[test]
    fn a_set_says_what_is_in_it() {
        let set = Numbers::new();
        assert!(!set.has(1) && set.iter().count() == 0);
        for number in [1, 64, 65, NUMBERS] {
            set.add(number);
        }
        assert!(set.has(64) && !set.has(63) && set.has(NUMBERS));
        assert!(set.iter().eq([1, 64, 65, NUMBERS]));
        set.clear();
        set.add(7);
        assert!(set.iter().eq([7]));
    }
}

/// Run with `RUSTFLAGS="--cfg loom" cargo test --release --lib loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    #![expect(unsafe_code, reason = "writes cells that loom watches")]

    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    /// Numbers, and for each something that only its holder may touch: what it has in some arena.
    struct Model {
        numbers: Numbers,
        seats: [UnsafeCell<usize>; NUMBERS],
    }

    impl Model {
        /// A thread's life; loom objects if anyone else may be at the seat. Says which number it had.
        fn life(&self) -> usize {
            let number = self.numbers.take();
            if number != NOBODY {
                // SAFETY: loom checks that nobody else holds the cell.
                self.seats[number - 1].with_mut(|p| unsafe { *p += 1 });
                self.numbers.give_back(number);
            }
            number
        }
    }

    #[test]
    fn loom_a_number_has_one_holder_who_sees_what_those_before_did() {
        loom::model(|| {
            let model = Arc::new(Model { numbers: Numbers::new(), seats: Default::default() });
            let others = [0; 2].map(|_| {
                let other = Arc::clone(&model);
                loom::thread::spawn(move || other.life())
            });
            let mine = model.life();
            let others = others.map(|other| other.join().unwrap());
            let had = [mine, others[0], others[1]].iter().filter(|&&number| number != NOBODY).count();
            assert!(had >= NUMBERS);
            let seats = model.seats.iter().map(|seat| {
                // SAFETY: the threads have ended.
                seat.with(|p| unsafe { *p })
            });
            assert_eq!(seats.sum::<usize>(), had);
        });
    }
}
