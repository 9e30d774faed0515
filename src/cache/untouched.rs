//! Which blocks were handed out untouched or zeroed, or have a rank, so that what was touched of them can be told when they
//! are freed.
//!
//! There is no header and no record of blocks; this table remembers the last few hundred large ones that held
//! memory which nobody had touched yet, or zeros, or have a rank. Forgetting one costs speed, and calls resident what is
//! not.

use crate::heap::{Overstated, Span};
use crate::zeroing::{Faults, Kind};

/// Slots.
const SLOTS: usize = 512;

/// A block is remembered in one of so many, to which its address hashes. With one alone, two long blocks whose addresses
/// collide, once in 512, forgot what was untouched of one of them, and it was booked as resident for ever.
const WAYS: usize = 4;

const SETS: usize = SLOTS / WAYS;

/// What is known of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Noted {
    /// Bytes that are expected to stay untouched.
    pub(super) credit: usize,
    /// Whether it was handed out reading as zero, all of it.
    pub(super) zeroed: bool,
    /// Whether huge pages of it were untouched.
    pub(super) fresh: bool,
    /// How far from its start it was resident already, in bytes, and whether it was all along.
    pub(super) warm: usize,
    pub(super) warm_whole: bool,
    /// What it is expected to be used like. Its rank is its own until it is forgotten.
    pub(super) kind: Kind,
    /// How often the heap's highest level had been raised when it was taken, where it was fresh.
    pub(super) since: u64,
    /// How long it was when it was taken, in bytes: what is learned of it is said of blocks that are asked for as long.
    pub(super) len: usize,
    /// How long it was before it grew to that, in bytes; 0 if it was taken as long. What is learned then is said of blocks that grow
    /// to as much.
    pub(super) from: usize,
    /// Page faults so far when it was handed out, where it matters who touches it.
    pub(super) faults: Option<Faults>,
}

impl Noted {
    pub(super) const NOTHING: Self = Self {
        credit: 0,
        zeroed: false,
        fresh: false,
        warm: 0,
        warm_whole: false,
        kind: Kind::of(0),
        since: 0,
        len: 0,
        from: 0,
        faults: None,
    };

    /// What was wrong about the level of what is handed out if so many bytes of it are untouched.
    pub(super) const fn overstated(&self, untouched: usize) -> Overstated {
        Overstated { bytes: untouched.saturating_sub(self.credit), since: self.since }
    }

    /// The part of a block, which may have grown since, that it was taken as.
    pub(super) fn taken(&self, block: Span) -> Span {
        Span::new(block.start, self.len.min(block.len))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    start: usize,
    noted: Noted,
}

const EMPTY: Slot = Slot { start: 0, noted: Noted::NOTHING };

#[derive(Debug)]
pub(super) struct Untouched {
    sets: [[Slot; WAYS]; SETS],
    credit: usize,
}

impl Untouched {
    pub(super) const fn new() -> Self {
        Self { sets: [[EMPTY; WAYS]; SETS], credit: 0 }
    }

    /// Forgets everything, in place: whoever forks may have no stack for another table.
    pub(super) fn clear(&mut self) {
        self.sets.as_flattened_mut().fill(EMPTY);
        self.credit = 0;
    }

    /// The slots of a block, by Fibonacci hashing of the granule's number.
    fn set(&mut self, start: usize) -> &mut [Slot; WAYS] {
        let hash = (start >> 12).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (usize::BITS - SETS.ilog2());
        &mut self.sets[hash % SETS]
    }

    /// Remembers the block at `start`; where there is no place for it, in place of the one with the least credit. Gives what
    /// was noted in its place, of another block or of an earlier one.
    #[must_use]
    pub(super) fn remember(&mut self, start: usize, noted: Noted) -> Noted {
        let set = self.set(start);
        let known = set.iter().position(|slot| slot.start == start);
        let place = known.or_else(|| set.iter().position(|slot| slot.start == 0));
        let place = place.or_else(|| (0..WAYS).min_by_key(|&way| set[way].noted.credit)).unwrap_or(0);
        let before = core::mem::replace(&mut set[place], Slot { start, noted });
        self.credit = self.credit.saturating_sub(before.noted.credit) + noted.credit;
        before.noted
    }

    /// What is known of the block at `start`, if anything.
    pub(super) fn of(&mut self, start: usize) -> Option<Noted> {
        self.set(start).iter().find(|slot| slot.start == start).map(|slot| slot.noted)
    }

    /// Forgets the block at `start`, and tells what was known of it, if anything. Its credit counts until it is
    /// [settled](Self::settle): the block is still handed out.
    pub(super) fn forget(&mut self, start: usize) -> Option<Noted> {
        let slot = self.set(start).iter_mut().find(|slot| slot.start == start)?;
        Some(core::mem::replace(slot, EMPTY).noted)
    }

    /// Has the credit of what was forgotten count no longer.
    pub(super) fn settle(&mut self, noted: &Noted) {
        // Not there any more in a child that was forked in between.
        self.credit = self.credit.saturating_sub(noted.credit);
    }

    /// Bytes handed out that are expected to stay untouched.
    pub(super) const fn credit(&self) -> usize {
        self.credit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_the_sum_of_what_is_remembered() {
        let mut table = Untouched::new();
        for i in 1..=10_000_usize {
            let _ = table.remember(i * 4096, Noted { credit: i, ..Noted::NOTHING });
        }
        assert_eq!(table.credit(), table.sets.iter().flatten().map(|s| s.noted.credit).sum::<usize>());
        let remembered: Vec<Noted> = (1..=10_000_usize).filter_map(|i| table.forget(i * 4096)).collect();
        assert!(remembered.len() > SLOTS / 2 && remembered.len() <= SLOTS);
        // While blocks are looked at before they are given back, they are still handed out: a peak noted meanwhile had their
        // untouched bytes in it.
        assert_eq!(table.credit(), remembered.iter().map(|noted| noted.credit).sum::<usize>());
        remembered.iter().for_each(|noted| table.settle(noted));
        assert_eq!(table.credit(), 0);
        assert_eq!(table.forget(4096), None);
    }

    #[test]
    fn few_blocks_are_all_remembered_wherever_they_lie() {
        // Four whose addresses collide, and what has no credit goes before what has.
        let mut table = Untouched::new();
        let first = 328 << 20;
        let set = table.set(first).as_ptr();
        let addresses = (0..).map(|i| first + (i << 20));
        let colliding: Vec<usize> =
            addresses.filter(|&start| table.set(start).as_ptr() == set).take(5).collect();
        for (i, &start) in colliding.iter().enumerate() {
            let before = table.remember(start, Noted { credit: 10 - i, ..Noted::NOTHING });
            assert_eq!(before.credit, if i < WAYS { 0 } else { 7 });
        }
        let known: Vec<Noted> = colliding.iter().filter_map(|&s| table.forget(s)).collect();
        assert_eq!(known.iter().map(|noted| noted.credit).collect::<Vec<_>>(), [10, 9, 8, 6]);
        known.iter().for_each(|noted| table.settle(noted));
        assert_eq!(table.credit(), 0);
    }
}
