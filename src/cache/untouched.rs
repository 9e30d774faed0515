//! Which blocks were handed out untouched, so that what was not touched of them is known when they are freed.
//!
//! There is no header and no record of blocks; this table remembers the last few hundred large ones that held
//! memory which nobody had touched yet. Forgetting one costs speed alone.

/// Slots. A block is remembered in the one that its address hashes to.
const SLOTS: usize = 512;

/// Blocks shorter than this are not worth a look: a huge page or two.
pub(super) const WORTH_A_LOOK: usize = 4 << 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    start: usize,
    credit: usize,
}

#[derive(Debug)]
pub(super) struct Untouched {
    slots: [Slot; SLOTS],
    credit: usize,
}

impl Untouched {
    pub(super) const fn new() -> Self {
        Self { slots: [Slot { start: 0, credit: 0 }; SLOTS], credit: 0 }
    }

    /// Fibonacci hashing of the granule's number.
    const fn slot(start: usize) -> usize {
        ((start >> 12).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - SLOTS.ilog2())) % SLOTS
    }

    /// Remembers the block at `start`, of which `credit` bytes are expected to stay untouched.
    pub(super) fn remember(&mut self, start: usize, credit: usize) {
        let slot = &mut self.slots[Self::slot(start)];
        self.credit = self.credit - slot.credit + credit;
        *slot = Slot { start, credit };
    }

    /// Forgets the block at `start`; whether it was remembered.
    pub(super) fn forget(&mut self, start: usize) -> bool {
        let slot = &mut self.slots[Self::slot(start)];
        if slot.start != start {
            return false;
        }
        self.credit -= slot.credit;
        *slot = Slot::default();
        true
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
            table.remember(i * 4096, i);
        }
        assert_eq!(table.credit(), table.slots.iter().map(|s| s.credit).sum::<usize>());
        let remembered = (1..=10_000_usize).filter(|i| table.forget(i * 4096)).count();
        assert!(remembered > SLOTS / 2 && remembered <= SLOTS);
        assert_eq!(table.credit(), 0);
        assert!(!table.forget(4096));
    }
}
