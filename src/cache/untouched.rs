//! Which blocks were handed out untouched or zeroed, so that what was touched of them can be told when they are freed.
//!
//! There is no header and no record of blocks; this table remembers the last few hundred large ones that held
//! memory which nobody had touched yet, or zeros. Forgetting one costs speed alone.

/// Slots. A block is remembered in the one that its address hashes to.
const SLOTS: usize = 512;

/// Blocks shorter than this are not worth a look: a huge page or two.
pub(super) const WORTH_A_LOOK: usize = 4 << 20;

/// What is known of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Noted {
    /// Bytes that are expected to stay untouched.
    pub(super) credit: usize,
    /// Whether it was handed out reading as zero, all of it.
    pub(super) zeroed: bool,
    /// Whether huge pages of it were untouched.
    pub(super) fresh: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    start: usize,
    noted: Noted,
}

#[derive(Debug)]
pub(super) struct Untouched {
    slots: [Slot; SLOTS],
    credit: usize,
}

impl Untouched {
    pub(super) const fn new() -> Self {
        const EMPTY: Slot = Slot { start: 0, noted: Noted { credit: 0, zeroed: false, fresh: false } };
        Self { slots: [EMPTY; SLOTS], credit: 0 }
    }

    /// Fibonacci hashing of the granule's number.
    const fn slot(start: usize) -> usize {
        ((start >> 12).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - SLOTS.ilog2())) % SLOTS
    }

    /// Remembers the block at `start`.
    pub(super) fn remember(&mut self, start: usize, noted: Noted) {
        let slot = &mut self.slots[Self::slot(start)];
        self.credit = self.credit - slot.noted.credit + noted.credit;
        *slot = Slot { start, noted };
    }

    /// Forgets the block at `start`, and tells what was known of it, if anything.
    pub(super) fn forget(&mut self, start: usize) -> Option<Noted> {
        let slot = &mut self.slots[Self::slot(start)];
        if slot.start != start {
            return None;
        }
        let noted = slot.noted;
        self.credit -= noted.credit;
        *slot = Slot::default();
        Some(noted)
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
            table.remember(i * 4096, Noted { credit: i, ..Noted::default() });
        }
        assert_eq!(table.credit(), table.slots.iter().map(|s| s.noted.credit).sum::<usize>());
        let remembered = (1..=10_000_usize).filter(|i| table.forget(i * 4096).is_some()).count();
        assert!(remembered > SLOTS / 2 && remembered <= SLOTS);
        assert_eq!(table.credit(), 0);
        assert_eq!(table.forget(4096), None);
    }
}
