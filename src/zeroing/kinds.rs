//! Which blocks are taken to be used alike: those of about one length that came to the same place among the blocks of that
//! length in use at once.
//!
//! Why it is here: a trace with room for its extension is as long as the extension, and so is the scratch of the transform
//! between them. One of the three is touched up to its half, and by length alone nobody can tell which. But a program takes
//! them in the same order in each round, most of them while it has the earlier ones in its hands: the first of a length is
//! the trace each time. So each block takes the lowest rank that is free among those of its length, and what it was touched
//! like is remembered for that rank. Where threads take them in any order, ranks say nothing, and learn nothing that all
//! blocks of the length together do not.

use super::lessons::LENGTHS;
use crate::sync::process::{AtomicU8, Ordering::Relaxed};

/// Blocks from so many bytes on have ranks: to note one costs a lock that all threads share, and faults or a
/// `memset` of what nobody wants cost less the shorter they are.
pub(super) const RANKED_MIN: usize = 32 << 20;

/// Ranks of each length: bits of a byte.
pub(super) const RANKS: usize = u8::BITS as usize;

/// The first length that has ranks.
pub(super) const FIRST_RANKED: usize = length_of(RANKED_MIN);

/// Lengths that have ranks.
pub(super) const RANKED: usize = LENGTHS - FIRST_RANKED;

/// Which blocks of about one length there are: its number, by quarters of a power of two.
const fn length_of(len: usize) -> usize {
    let len = if len < 4 { 4 } else { len };
    let log = len.ilog2() as usize;
    let length = log * 4 + (len >> (log - 2) & 3);
    if length < LENGTHS { length } else { LENGTHS - 1 }
}

/// What a block is expected to be used like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kind {
    length: u8,
    /// Its rank, from 1; 0: none.
    rank: u8,
}

impl Kind {
    /// Blocks of `len` bytes without a rank.
    pub(crate) const fn of(len: usize) -> Self {
        Self { length: length_of(len) as u8, rank: 0 }
    }

    /// Whether blocks of `len` bytes may have a rank.
    pub(crate) const fn has_ranks(len: usize) -> bool {
        len >= RANKED_MIN
    }

    /// Whether it has a rank.
    pub(crate) const fn is_ranked(self) -> bool {
        self.rank > 0
    }

    /// The number of its length.
    pub(super) const fn length(self) -> usize {
        self.length as usize
    }

    /// The number of its length among those that have ranks, and of its rank, if it has one.
    pub(super) fn place(self) -> Option<(usize, usize)> {
        let rank = usize::from(self.rank).checked_sub(1)?;
        Some((self.length().checked_sub(FIRST_RANKED)?, rank))
    }
}

/// Which ranks of each length are taken. Relaxed, all: hints, each an atomic by itself, that nothing is read behind. One that
/// is lost or given twice costs what a wrong guess costs.
#[derive(Debug)]
pub(super) struct Ranks {
    taken: [AtomicU8; RANKED],
}

#[expect(clippy::declare_interior_mutable_const, reason = "the initial value of an array's elements")]
const NONE: AtomicU8 = AtomicU8::new(0);

impl Ranks {
    pub(super) const fn new() -> Self {
        Self { taken: [NONE; RANKED] }
    }

    /// Takes the lowest free rank for a block of `len` bytes, if its length has any.
    pub(super) fn take(&self, len: usize) -> Kind {
        let kind = Kind::of(len);
        if !Kind::has_ranks(len) {
            return kind;
        }
        let taken = &self.taken[kind.length() - FIRST_RANKED];
        let mut before = taken.load(Relaxed);
        while before != u8::MAX {
            let free = before.trailing_ones() as u8;
            match taken.compare_exchange_weak(before, before | 1 << free, Relaxed, Relaxed) {
                Ok(_) => return Kind { rank: free + 1, ..kind },
                Err(now) => before = now,
            }
        }
        kind
    }

    /// Makes a rank free.
    pub(super) fn leave(&self, kind: Kind) {
        if let Some((length, rank)) = kind.place() {
            self.taken[length].fetch_and(!(1 << rank), Relaxed);
        }
    }

    /// Makes all ranks free.
    pub(super) fn clear(&self) {
        self.taken.iter().for_each(|taken| taken.store(0, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn the_lowest_free_rank_is_taken() {
        let ranks = Ranks::new();
        let taken: Vec<Kind> = (0..RANKS).map(|_| ranks.take(40 * MIB)).collect();
        assert_eq!(
            taken.iter().map(|kind| usize::from(kind.rank)).collect::<Vec<_>>(),
            (1..=RANKS).collect::<Vec<_>>()
        );
        assert!(!ranks.take(40 * MIB).is_ranked(), "there are no more");
        assert_eq!(ranks.take(80 * MIB).rank, 1, "of another length");
        ranks.leave(taken[5]);
        ranks.leave(taken[2]);
        assert_eq!([ranks.take(40 * MIB), ranks.take(40 * MIB)], [taken[2], taken[5]]);
        // Leaving none makes none free.
        ranks.leave(Kind::of(40 * MIB));
        assert!(!ranks.take(40 * MIB).is_ranked());
        ranks.clear();
        assert_eq!(ranks.take(40 * MIB), taken[0]);
    }

    #[test]
    fn lengths_from_some_on_have_ranks() {
        let ranks = Ranks::new();
        for len in [0, 1, 4, RANKED_MIN - 1] {
            assert_eq!(ranks.take(len), Kind::of(len));
        }
        for len in [RANKED_MIN, 1 << 47, usize::MAX] {
            assert!(ranks.take(len).is_ranked());
        }
    }
}
