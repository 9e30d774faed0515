//! What the cache counts outside its shards, and the sum of it all.

use super::Cache;
use super::counters::{BySize, Counts, SIZES, Worked};
use crate::heap::Books;
use crate::os::Os;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Counters of the slow paths, where an atomic addition does not show.
pub(super) struct Tally {
    pub(super) stolen: AtomicU64,
    pub(super) runs: AtomicU64,
    pub(super) gathered: AtomicU64,
    pub(super) misses: AtomicU64,
    /// Of those, served in small pages.
    pub(super) thin: AtomicU64,
    pub(super) fresh: AtomicU64,
    /// The same of what blocks grew by where they lay or by moving, and of what was moved together but for its ends.
    pub(super) fresh_beside: AtomicU64,
    /// Bytes that were given back as they were handed out, for whoever touches them to have zeroed.
    pub(super) left_to_threads: AtomicU64,
    /// Bytes faulted in ahead of need.
    pub(super) ahead: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) grown_by_moving: AtomicU64,
    /// What was served, freed and requested while a fork held the shards. The last wraps, as theirs does.
    pub(super) allocations_in_fork: AtomicU64,
    pub(super) frees_in_fork: AtomicU64,
    pub(super) live_in_fork: AtomicU64,
    /// Of what was handed out untouched to read as zero, so many bytes were seen untouched when they came back.
    pub(super) zeroed_not: AtomicU64,
    /// The most that was free and resident in runs.
    pub(super) cached_peak: AtomicU64,
    pub(super) allocated_in_fork: AtomicU64,
    pub(super) live_peak: AtomicU64,
    /// Misses, by the size of their blocks.
    pub(super) missed_by_size: [AtomicU64; SIZES],
}

impl Tally {
    crate::sync::constant! {
        pub(super) const fn new() -> Self {
            Self {
                stolen: AtomicU64::new(0),
                runs: AtomicU64::new(0),
                gathered: AtomicU64::new(0),
                misses: AtomicU64::new(0),
                thin: AtomicU64::new(0),
                fresh: AtomicU64::new(0),
                fresh_beside: AtomicU64::new(0),
                left_to_threads: AtomicU64::new(0),
                ahead: AtomicU64::new(0),
                refused: AtomicU64::new(0),
                grown_by_moving: AtomicU64::new(0),
                allocations_in_fork: AtomicU64::new(0),
                frees_in_fork: AtomicU64::new(0),
                live_in_fork: AtomicU64::new(0),
                zeroed_not: AtomicU64::new(0),
                cached_peak: AtomicU64::new(0),
                allocated_in_fork: AtomicU64::new(0),
                live_peak: AtomicU64::new(0),
                missed_by_size: crate::sync::counters(),
            }
        }
    }
}

/// What was counted of the requests of a size that were not served from a stack.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OfSize {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    pub(crate) misses: u64,
}

/// Adds to a counter that several threads write.
pub(super) fn add(counter: &AtomicU64, by: u64) {
    // Relaxed: each counter stands for itself.
    counter.fetch_add(by, Ordering::Relaxed);
}

/// All counters at about one time: each is the sum of what shards count, and off by what other threads did while they were read one after
/// the other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) allocations: u64,
    pub(crate) frees: u64,
    pub(crate) stack_hits: u64,
    pub(crate) stolen: u64,
    pub(crate) runs: u64,
    pub(crate) gathered: u64,
    pub(crate) misses: u64,
    pub(crate) thin: u64,
    pub(crate) fresh: u64,
    pub(crate) fresh_beside: u64,
    pub(crate) left_to_threads: u64,
    pub(crate) ahead: u64,
    pub(crate) refused: u64,
    pub(crate) grown_in_place: u64,
    pub(crate) grown_by_moving: u64,
    pub(crate) grown_by_copying: u64,
    pub(crate) copied: u64,
    pub(crate) zeroed_here: u64,
    pub(crate) zeroed_by_kernel: u64,
    pub(crate) grown_in_place_bytes: u64,
    pub(crate) zeroed_not: u64,
    pub(crate) cached_peak: u64,
    /// Bytes that large requests have asked for so far.
    pub(crate) allocated: u64,
    pub(crate) live: u64,
    pub(crate) live_peak: u64,
    pub(crate) stacked: usize,
    pub(crate) shards: usize,
    /// Shards that have served requests, and how many the busiest one has.
    pub(crate) shards_used: usize,
    pub(crate) busiest: u64,
    /// Bytes of a page that an allocator which gives everything back would fault in at a time, or 0 before the start.
    pub(crate) fault_unit: usize,
    pub(crate) books: Books,
}

impl<O: Os> Cache<O> {
    /// Bytes in the stacks of all shards.
    pub(crate) fn stacked(&self) -> usize {
        self.counted().iter().map(|s| s.counts.stacked.load(Ordering::Relaxed)).sum()
    }

    /// Of the cached bytes, those that are faulted in anew when they are handed out: a child shares them with its parent.
    pub(crate) fn inherited_bytes(&self) -> usize {
        self.see_child_only();
        self.heap.level().inherited
    }

    /// Bytes that are held free and are, or may be, resident.
    pub(crate) fn cached_bytes(&self) -> usize {
        self.see_child_only();
        let books = self.heap.books().plus(self.thin.books());
        self.stacked() + books.dirty + books.soft
    }

    /// Adds to what this thread's shard counts of its threads' work. While a thread forks it is not counted.
    #[inline]
    pub(super) fn add_here(&self, which: fn(&Worked) -> &AtomicU64, by: usize) {
        // An atomic addition of nothing would cost as much.
        if by > 0
            && let Some(shard) = self.shard_slow()
        {
            add(which(&shard.counts.worked), by as u64);
        }
    }

    /// Bytes requested and not yet freed.
    pub(crate) fn live(&self) -> u64 {
        // Each shard's figure wraps: blocks are freed through other shards than they were taken from.
        let sum = self.counted().iter().fold(self.tally.live_in_fork.load(Ordering::Relaxed), |sum, s| {
            sum.wrapping_add(s.counts.live.load(Ordering::Relaxed))
        });
        // Read one after another while threads pass blocks on, the sum can come out a little below nothing.
        if sum > i64::MAX as u64 { 0 } else { sum }
    }

    /// What was requested and missed, by size: a line for each, those with nothing in them too.
    pub(crate) fn by_size(&self) -> [OfSize; SIZES] {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        core::array::from_fn(|line| {
            let sum = |which: fn(&BySize) -> &AtomicU64| {
                self.counted().iter().map(|s| get(which(&s.counts.by_size[line]))).sum()
            };
            OfSize {
                requests: sum(|s| &s.requests),
                bytes: sum(|s| &s.bytes),
                misses: get(&self.tally.missed_by_size[line]),
            }
        })
    }

    /// Allocations and frees so far, at about one time.
    pub(super) fn activity(&self) -> u64 {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.counted().iter().fold(0, |sum: u64, s| {
            let counts = &s.counts;
            sum.wrapping_add(get(&counts.stack_hits))
                .wrapping_add(get(&counts.slow_allocations))
                .wrapping_add(get(&counts.frees))
        })
    }

    /// Whether `address` lies in memory of ours.
    pub(crate) fn holds(&self, address: usize) -> bool {
        self.heap.holds(address) || self.thin.holds(address)
    }

    /// Reads all counters.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.see_child_only();
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let sum =
            |which: fn(&Counts) -> &AtomicU64| self.counted().iter().map(|s| get(which(&s.counts))).sum();
        let worked = |which: fn(&Worked) -> &AtomicU64| {
            self.counted().iter().map(|s| get(which(&s.counts.worked))).sum()
        };
        let served = || {
            let of = |s: &super::Shard| get(&s.counts.stack_hits) + get(&s.counts.slow_allocations);
            self.counted().iter().map(of)
        };
        let live = self.live();
        let (stack_hits, slow): (u64, u64) = (sum(|c| &c.stack_hits), sum(|c| &c.slow_allocations));
        Snapshot {
            allocations: stack_hits + slow + get(&self.tally.allocations_in_fork),
            frees: sum(|c| &c.frees) + get(&self.tally.frees_in_fork),
            stack_hits,
            stolen: get(&self.tally.stolen),
            runs: get(&self.tally.runs),
            gathered: get(&self.tally.gathered),
            misses: get(&self.tally.misses),
            thin: get(&self.tally.thin),
            fresh: get(&self.tally.fresh),
            fresh_beside: get(&self.tally.fresh_beside),
            left_to_threads: get(&self.tally.left_to_threads),
            ahead: get(&self.tally.ahead),
            refused: get(&self.tally.refused),
            grown_in_place: worked(|w| &w.grown_in_place),
            grown_by_moving: get(&self.tally.grown_by_moving),
            grown_by_copying: worked(|w| &w.grown_by_copying),
            copied: worked(|w| &w.copied),
            zeroed_here: worked(|w| &w.zeroed_here),
            zeroed_by_kernel: worked(|w| &w.zeroed_by_kernel),
            grown_in_place_bytes: worked(|w| &w.grown_in_place_bytes),
            zeroed_not: get(&self.tally.zeroed_not),
            cached_peak: get(&self.tally.cached_peak),
            allocated: sum(|c| &c.allocated) + get(&self.tally.allocated_in_fork),
            live,
            live_peak: get(&self.tally.live_peak).max(live),
            stacked: self.stacked(),
            shards: self.counted().len(),
            shards_used: served().filter(|&n| n > 0).count(),
            busiest: served().max().unwrap_or(0),
            fault_unit: self.fault_unit.load(Ordering::Relaxed),
            books: self.heap.books().plus(self.thin.books()),
        }
    }
}
