//! Whether blocks that grow are touched beyond what they were, by what they grow to.
//!
//! Why it is here: a `Vec` that is full asks for twice as much, and some vectors get an element or two then, and no more:
//! polynomials that a few blinding factors are added to. Half of each lay on resident memory, which others had to fault in.
//! Most vectors fill some part of what they grow to, and what they find missing is faulted in; so that is believed only where
//! some in a row were touched hardly further than before.

use crate::os::CHUNK;
use crate::sync::process::{AtomicU8, Ordering::Relaxed};

/// Up to this part of its new length, as a divisor, a block counts as touched hardly further than before. Of those that end
/// anywhere between the half and the whole, a quarter are.
const HARDLY: usize = 8;

/// So many in a row have to be: the first time, and at most. It is twice as many after each one that was not.
const NEEDED_MIN: u8 = 4;
const NEEDED_MAX: u8 = 64;

/// What is known of one length. Relaxed, all: hints, each an atomic by itself, that nothing is read behind; a lost update costs
/// nothing that the next block does not mend.
#[derive(Debug)]
pub(super) struct Grown {
    /// How many in a row were touched hardly further.
    row: AtomicU8,
    /// How many have to be.
    needed: AtomicU8,
}

/// How far a block reaches that grew from `from` bytes to `len` and was touched hardly further.
pub(super) fn hardly_beyond(from: usize, len: usize) -> usize {
    from.saturating_add((len / HARDLY).max(CHUNK)).min(len)
}

impl Grown {
    #[expect(clippy::declare_interior_mutable_const, reason = "the initial value of an array's elements")]
    pub(super) const NEW: Self = Self { row: AtomicU8::new(0), needed: AtomicU8::new(NEEDED_MIN) };

    /// Whether the next one is expected to be touched hardly further than before.
    pub(super) fn stays(&self) -> bool {
        self.row.load(Relaxed) >= self.needed.load(Relaxed)
    }

    /// Learns whether one was touched hardly further than before.
    pub(super) fn learn(&self, stayed: bool) {
        let row = self.row.load(Relaxed);
        if stayed {
            self.row.store((row + 1).min(NEEDED_MAX), Relaxed);
        } else {
            self.row.store(0, Relaxed);
            self.needed.store((2 * self.needed.load(Relaxed)).min(NEEDED_MAX), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_in_a_row_have_to_stay_and_more_after_each_that_did_not() {
        let grown = Grown::NEW;
        for needed in [4, 8, 16, 32, 64, 64] {
            for nth in 0..needed {
                assert!(!grown.stays(), "{nth} of {needed}");
                grown.learn(true);
            }
            (0..1000).for_each(|_| grown.learn(true));
            assert!(grown.stays());
            grown.learn(false);
        }
        (0..1000).for_each(|nth| grown.learn(nth % 60 > 0));
        assert!(!grown.stays(), "one of sixty");
    }

    #[test]
    fn hardly_is_an_eighth_or_a_huge_page() {
        assert_eq!(hardly_beyond(4 * CHUNK, 8 * CHUNK), 5 * CHUNK);
        assert_eq!(hardly_beyond(32 * CHUNK, 64 * CHUNK), 40 * CHUNK);
        assert_eq!(hardly_beyond(63 * CHUNK, 64 * CHUNK), 64 * CHUNK);
    }
}
