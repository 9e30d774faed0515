//! A set of small numbers, shared without a lock: who takes a number that is not in it, or gives one back.
//!
//! Why it is here: threads that come and go shall use few places again and again, the lowest that nobody has. Invariant
//! (docs/SAFETY.md): R7, a number that was taken is nobody else's until it is given back. Never here: what the numbers are of.

use super::atomic::{AtomicU64, Ordering};
use super::counters;

/// What is taken where there is none left; no number of the set.
pub(crate) const NOBODY: usize = 0;

/// A set of numbers from 1 to 64 for each word.
#[derive(Debug)]
pub(crate) struct Numbers<const WORDS: usize>([AtomicU64; WORDS]);

/// The word and the bit of a number.
fn bit(number: usize) -> (usize, u64) {
    ((number - 1) / 64, 1 << ((number - 1) % 64))
}

impl<const WORDS: usize> Numbers<WORDS> {
    constant! {
        pub(crate) const fn new() -> Self {
            Self(counters())
        }
    }

    /// Takes the lowest number up to `most` that is not in the set into it; [`NOBODY`] where there is none.
    pub(crate) fn take(&self, most: usize) -> usize {
        for (word, first) in self.0.iter().zip((1..=most).step_by(64)) {
            let some = most + 1 - first;
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
    pub(crate) fn give_back(&self, number: usize) {
        let (word, bit) = bit(number);
        // Release: see `take`.
        self.0[word].fetch_and(!bit, Ordering::Release);
    }

    // What follows is for sets of which a number is taken in by its holder alone, or by who holds the whole exclusively.

    /// Whether the set has `number`.
    #[inline]
    pub(crate) fn has(&self, number: usize) -> bool {
        let (word, bit) = bit(number);
        // Relaxed: of the number asked about, only its holder has changed anything.
        self.0[word].load(Ordering::Relaxed) & bit != 0
    }

    /// Takes `number` into the set.
    pub(crate) fn add(&self, number: usize) {
        let (word, bit) = bit(number);
        // Relaxed: it hands nothing on.
        self.0[word].fetch_or(bit, Ordering::Relaxed);
    }

    /// Empties the set, which the caller holds exclusively.
    pub(crate) fn clear(&self) {
        for word in &self.0 {
            // Relaxed: whoever uses it next got it from the caller.
            word.store(0, Ordering::Relaxed);
        }
    }

    /// The numbers in the set; out of date by those that are just being taken in.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const WORDS: usize = 3;
    const MOST: usize = 64 * WORDS;

    #[test]
    fn the_lowest_number_that_is_free_is_taken() {
        let numbers = Numbers::<WORDS>::new();
        let taken: Vec<usize> = (0..=MOST).map(|_| numbers.take(MOST)).collect();
        assert!(taken.iter().copied().eq((1..=MOST).chain([NOBODY])));
        numbers.give_back(MOST);
        numbers.give_back(65);
        assert_eq!([numbers.take(MOST), numbers.take(MOST), numbers.take(MOST)], [65, MOST, NOBODY]);
    }

    #[test]
    fn a_set_says_what_is_in_it() {
        let set = Numbers::<WORDS>::new();
        assert!(!set.has(1) && set.iter().count() == 0);
        for number in [1, 64, 65, MOST] {
            set.add(number);
        }
        assert!(set.has(64) && !set.has(63) && set.has(MOST));
        assert!(set.iter().eq([1, 64, 65, MOST]));
        set.clear();
        set.add(7);
        assert!(set.iter().eq([7]));
    }
}

/// Run with `RUSTFLAGS="--cfg loom" cargo test -p zk-nalloc --release --lib loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    #![expect(unsafe_code, reason = "writes cells that loom watches")]

    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    const NUMBERS: usize = 2;

    /// Numbers, and for each something that only its holder may touch: its place, wherever that is.
    struct Model {
        numbers: Numbers<1>,
        seats: [UnsafeCell<usize>; NUMBERS],
    }

    impl Model {
        /// A thread's life; loom objects if anyone else may be at the seat. Says which number it had.
        fn life(&self) -> usize {
            let number = self.numbers.take(NUMBERS);
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
