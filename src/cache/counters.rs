//! What a shard counts, of itself and of what its threads do.
//!
//! Invariants: but for [`Worked`] and what a new thread notes, a counter is written under the shard's lock alone (C1), so plain stores
//! suffice, and read by anybody. Never here: what is counted for all shards together (`count`).

use crate::geometry::SizeClass;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// What is counted in a shard.
#[derive(Default)]
pub(super) struct Counts {
    /// Allocations served otherwise.
    pub(super) slow_allocations: AtomicU64,
    pub(super) frees: AtomicU64,
    /// Allocations served from this shard's stacks.
    pub(super) stack_hits: AtomicU64,
    /// Bytes that requests served through this shard have asked for so far.
    pub(super) allocated: AtomicU64,
    /// Bytes requested and not yet freed, as far as this shard knows: the sum over shards is what is live.
    pub(super) live: AtomicU64,
    /// What of that was left by threads that had ended when one began that was given this shard for itself, and was not freed since: mostly
    /// others free it. Written by that thread without the lock, as is the next, and under it by others.
    left: AtomicU64,
    /// Whether such a thread has yet to ask for its first block.
    taken_over: AtomicBool,
    /// Bytes in the stacks, free in the hot run, and in the free runs.
    pub(super) stacked: AtomicUsize,
    /// Bytes in the free runs.
    pub(super) in_runs: AtomicUsize,
    /// The requests that its stacks did not serve, by size.
    pub(super) by_size: [BySize; SIZES],
    /// Which stacks are not empty, a bit a class.
    pub(super) filled: [AtomicU64; SizeClass::COUNT.div_ceil(64)],
    pub(super) worked: Worked,
}

/// What this shard's threads did with blocks, beside taking and freeing them. Written by [`Cache::add_here`] alone, without the
/// lock: in one place for all, threads that zero short blocks would wait for each other.
///
/// [`Cache::add_here`]: super::Cache::add_here
#[derive(Default)]
pub(super) struct Worked {
    pub(super) zeroed_here: AtomicU64,
    pub(super) zeroed_by_kernel: AtomicU64,
    pub(super) grown_in_place: AtomicU64,
    pub(super) grown_in_place_bytes: AtomicU64,
    pub(super) grown_by_copying: AtomicU64,
    pub(super) copied: AtomicU64,
}

/// Sizes that are told apart: under 64 KiB, doublings from there up to 16 GiB, and all above.
pub(crate) const SIZES: usize = 20;

/// The number of a size's line.
pub(crate) const fn size_line(bytes: usize) -> usize {
    let line = (bytes | 1).ilog2().saturating_sub(15) as usize;
    if line < SIZES { line } else { SIZES - 1 }
}

/// What is counted of the requests of a size.
#[derive(Default)]
pub(super) struct BySize {
    pub(super) requests: AtomicU64,
    pub(super) bytes: AtomicU64,
}

/// Adds under the shard's lock, where nobody else writes: no locked instruction.
#[inline]
pub(super) fn bump(counter: &AtomicU64, by: u64) {
    // Relaxed: readers take each counter by itself.
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

impl Counts {
    /// Counts a free of a request of so many bytes; 0 where the request lives on in another block. Under the lock.
    #[inline]
    pub(super) fn note_freed(&self, requested: usize) {
        bump(&self.frees, u64::from(requested > 0));
        bump(&self.live, (requested as u64).wrapping_neg());
    }

    /// The same of a free by a thread that uses another shard. Where threads before this one's left something, that is taken for theirs: whoever
    /// has ended does not free what it took.
    pub(super) fn note_freed_by_another(&self, requested: usize) {
        self.note_freed(requested);
        // Relaxed, all: a hint. Where the shard is given to a thread just now, what that writes stands: it would be another's count for good.
        let left = self.left.load(Ordering::Relaxed);
        if left as i64 > 0 {
            let less = left.saturating_sub(requested as u64);
            let _ = self.left.compare_exchange(left, less, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn set_filled(&self, class: SizeClass, filled: bool) {
        let word = &self.filled[class.index() / 64];
        let bit = 1_u64 << (class.index() % 64);
        // Relaxed: exact under the lock; without it a hint, to thieves, who look again under the lock.
        let before = word.load(Ordering::Relaxed);
        word.store(if filled { before | bit } else { before & !bit }, Ordering::Relaxed);
    }

    /// The first class from the `from`th on whose stack holds something; to be asked under the lock.
    pub(super) fn filled_from(&self, from: usize) -> Option<SizeClass> {
        let mut word = from / 64;
        // Relaxed: written under the lock.
        let mut bits = self.filled.get(word)?.load(Ordering::Relaxed) & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = self.filled.get(word)?.load(Ordering::Relaxed);
        }
        Some(SizeClass::nth(word * 64 + bits.trailing_zeros() as usize))
    }

    /// Whether the stack of a class probably holds something.
    #[inline]
    pub(super) fn is_filled(&self, class: SizeClass) -> bool {
        // Relaxed: as in `set_filled`.
        self.filled[class.index() / 64].load(Ordering::Relaxed) >> (class.index() % 64) & 1 == 1
    }

    /// As [`Counts::balance`]; 0 where more was freed through this shard than was taken. Under the lock it stands still, else it is an
    /// estimate.
    pub(super) fn in_use(&self) -> usize {
        usize::try_from(self.balance()).unwrap_or(0)
    }

    /// Bytes requested through this shard less those freed through it, since the thread began that it was given to last, if that
    /// is known.
    #[inline]
    pub(super) fn balance(&self) -> i64 {
        // Relaxed, both: as said.
        self.live.load(Ordering::Relaxed).wrapping_sub(self.left.load(Ordering::Relaxed)) as i64
    }

    /// Has no more in use than all shards together, and no less than nothing: long blocks count where they are freed, so that of
    /// threads that pass them on some would have ever more in use, and others ever less than nothing.
    pub(super) fn bound_in_use(&self, live: u64) {
        let balance = self.balance();
        let bounded = balance.clamp(0, i64::try_from(live).unwrap_or(i64::MAX));
        if bounded != balance {
            // Relaxed, both: hints, which what is counted meanwhile may put off.
            let left = self.live.load(Ordering::Relaxed).wrapping_sub(bounded.cast_unsigned());
            self.left.store(left, Ordering::Relaxed);
        }
    }

    /// Notes that a thread was given this shard for itself.
    pub(super) fn note_taken_over(&self) {
        // Relaxed, both: hints.
        self.left.store(self.live.load(Ordering::Relaxed), Ordering::Relaxed);
        self.taken_over.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn is_taken_over(&self) -> bool {
        // Relaxed: a hint.
        self.taken_over.load(Ordering::Relaxed)
    }

    /// Whether that was so until now.
    pub(super) fn forget_taken_over(&self) -> bool {
        // Relaxed: a hint. Mostly it is not, and the line need not be owned.
        self.is_taken_over() && self.taken_over.swap(false, Ordering::Relaxed)
    }
}
