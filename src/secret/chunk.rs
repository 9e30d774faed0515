//! A chunk of a pool: one guarded region cut into slots, and a bit for each.
//!
//! Invariants (X6): a bit is set by exactly one claim and cleared by its owner alone; the bits lie outside of
//! the pages that they describe. Claiming and giving back never wait for anyone.

use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use super::region::Region;

/// A region cut into slots of one size.
pub(super) struct Chunk {
    region: Region,
    slots: usize,
    /// A set bit is a slot that is taken, or none.
    taken: Box<[AtomicU64]>,
    /// How many slots are free; may lag behind the bits, and saves looking at them.
    free: AtomicUsize,
    /// The next older chunk of the class.
    next: AtomicPtr<Chunk>,
}

impl Chunk {
    /// Cuts `region` into slots of `stride` bytes; the first one is taken already.
    pub(super) fn new(region: Region, stride: usize) -> Self {
        let slots = region.len() / stride;
        let taken = (0..slots.div_ceil(64)).map(|word| {
            let here = (slots - word * 64).min(64);
            // Bits behind the last slot count as taken; so does slot 0.
            let beyond = if here == 64 { 0 } else { u64::MAX << here };
            AtomicU64::new(beyond | u64::from(word == 0))
        });
        let taken = taken.collect();
        Self { region, slots, taken, free: AtomicUsize::new(slots - 1), next: AtomicPtr::default() }
    }

    pub(super) const fn region(&self) -> &Region {
        &self.region
    }

    /// Claims a free slot, if there is one and this process made the chunk.
    pub(super) fn take(&self) -> Option<usize> {
        // Relaxed: a hint.
        if self.free.load(Ordering::Relaxed) == 0 || self.region.is_inherited() {
            return None;
        }
        for (n, word) in self.taken.iter().enumerate() {
            // Relaxed: the operation below is what claims.
            let mut seen = word.load(Ordering::Relaxed);
            while seen != u64::MAX {
                let bit = seen.trailing_ones();
                // Acquire: pairs with the release in `give`, so that the last owner's wiping is over.
                seen = word.fetch_or(1 << bit, Ordering::Acquire);
                if seen & (1 << bit) == 0 {
                    self.free.fetch_sub(1, Ordering::Relaxed);
                    return Some(n * 64 + bit as usize);
                }
            }
        }
        None
    }

    /// Gives back a slot that the caller owns and has wiped.
    pub(super) fn give(&self, slot: usize) {
        // Before the bit: whoever claims the slot counts it down after this, so the count stays above zero.
        self.free.fetch_add(1, Ordering::Relaxed);
        // Release: the next owner sees the slot wiped.
        self.taken[slot / 64].fetch_and(!(1 << (slot % 64)), Ordering::Release);
    }

    /// How many slots are taken.
    pub(super) fn live(&self) -> usize {
        // Relaxed: a count of the past.
        self.slots.saturating_sub(self.free.load(Ordering::Relaxed))
    }

    pub(super) fn next(&self) -> *mut Self {
        // Relaxed: whoever sees the chunk saw it published with this value.
        self.next.load(Ordering::Relaxed)
    }

    /// Before the chunk is published.
    pub(super) fn set_next(&self, next: *mut Self) {
        self.next.store(next, Ordering::Relaxed);
    }
}
