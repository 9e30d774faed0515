//! What the engine has counted, for people and programs.

mod footprint;
#[cfg(feature = "serde")]
mod json;
mod sizes;
mod table;

pub use footprint::Footprint;
pub use sizes::{SizeStats, Sizes};
pub(crate) use sizes::{name as size_name, short};

use crate::cache::Snapshot;
use crate::global::ENGINE;

/// What the allocator has done so far, and holds now.
///
/// Each number is exact where no other thread allocates meanwhile, but for [`faults_avoided`](Self::faults_avoided) and what is said to be
/// seen now and then. A number is the sum of what is counted in several places, read one after the other: where threads allocate, it is off
/// by what happened in between. [`Display`](core::fmt::Display) is a table; `docs/STATS.md` explains its lines.
///
/// The counters are those of the call to [`stats`]. What the kernel knows of our memory (`/proc/self/smaps`) is read when the table is
/// printed or the value serialized, and takes about a millisecond for each GiB in small pages; [`footprint`](Self::footprint),
/// [`sizes`](Self::sizes) and [`huge_page_bytes`](Self::huge_page_bytes) read the present too.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    snapshot: Snapshot,
    resident: Option<usize>,
}

impl Stats {
    /// Large requests served entirely from memory that was held, from a stack, a run, or moved together; and blocks resized by
    /// copying that found theirs so.
    #[must_use]
    pub const fn hits(&self) -> u64 {
        let s = &self.snapshot;
        s.stack_hits + s.stolen + s.runs + s.gathered
    }

    /// Large requests, and blocks resized by copying, that needed memory which was not resident.
    #[must_use]
    pub const fn misses(&self) -> u64 {
        self.snapshot.misses
    }

    /// The share of hits among hits and misses, in 0..=1; 0 before the first request.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        let all = self.hits() + self.misses();
        if all == 0 { 0.0 } else { self.hits() as f64 / all as f64 }
    }

    /// Large requests served from what the thread's shard has at hand: its hot run, stacks and free runs.
    #[must_use]
    pub const fn stack_hits(&self) -> u64 {
        self.snapshot.stack_hits
    }

    /// Large requests served from a stack or free run of another shard, and blocks resized by copying that found theirs so.
    #[must_use]
    pub const fn stolen(&self) -> u64 {
        self.snapshot.stolen
    }

    /// Large requests served from a free run of the page heap, and blocks resized by copying that found theirs so.
    #[must_use]
    pub const fn run_hits(&self) -> u64 {
        self.snapshot.runs
    }

    /// Large requests, and blocks resized by copying, served from several free runs: their pages were moved together, or lay side by
    /// side.
    #[must_use]
    pub const fn gathered(&self) -> u64 {
        self.snapshot.gathered
    }

    /// Bytes that large requests have in use, as they were asked for.
    #[must_use]
    pub const fn live_bytes(&self) -> usize {
        self.snapshot.live as usize
    }

    /// The most of [`Stats::live_bytes`] that was seen. It is looked at when memory is faulted in, when a block
    /// grows by 2 MiB or more, and once every 64 MiB allocated through a shard, so a short peak between may be higher.
    #[must_use]
    pub const fn peak_live_bytes(&self) -> usize {
        self.snapshot.live_peak as usize
    }

    /// Bytes held free that are, or may be, resident.
    #[must_use]
    pub const fn cached_bytes(&self) -> usize {
        self.snapshot.stacked + self.snapshot.books.dirty + self.snapshot.books.soft
    }

    /// The most that was seen cached in the page heap, in bytes: without what shards hold in stacks and runs. It is looked at where
    /// memory comes back to the page heap.
    #[must_use]
    pub const fn peak_cached_bytes(&self) -> usize {
        self.snapshot.cached_peak as usize
    }

    /// Of the cached bytes, those offered to the kernel by [`soften_cache`].
    #[must_use]
    pub const fn softened_bytes(&self) -> usize {
        self.snapshot.books.soft
    }

    /// Large requests for which the kernel had no memory.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.snapshot.refused
    }

    /// Large requests served so far.
    #[must_use]
    pub const fn allocations(&self) -> u64 {
        self.snapshot.allocations
    }

    /// Bytes that those asked for.
    #[must_use]
    pub const fn allocated_bytes(&self) -> u64 {
        self.snapshot.allocated
    }

    /// Large blocks freed so far.
    #[must_use]
    pub const fn frees(&self) -> u64 {
        self.snapshot.frees
    }

    /// Of the misses, zeroed blocks in small pages: their kind is barely touched.
    #[must_use]
    pub const fn thin(&self) -> u64 {
        self.snapshot.thin
    }

    /// Bytes handed out untouched, or given untouched to a block that grew, which the kernel faults in as far as they are touched.
    #[must_use]
    pub const fn fresh_bytes(&self) -> u64 {
        self.snapshot.fresh + self.snapshot.fresh_beside + self.snapshot.left_to_threads
    }

    /// Bytes of [`fresh_bytes`](Self::fresh_bytes) that were given back as a zeroed block was handed out, so that the threads
    /// which touch it have them zeroed: long blocks that many threads touch.
    #[must_use]
    pub const fn zeroed_by_all_threads_bytes(&self) -> u64 {
        self.snapshot.left_to_threads
    }

    /// Bytes faulted in by [`prefault`](crate::prefault()).
    #[must_use]
    pub const fn prefaulted_bytes(&self) -> u64 {
        self.snapshot.ahead
    }

    /// How many page faults did not happen, about: what large requests asked for, less what was handed out untouched
    /// or faulted in by [`prefault`](crate::prefault()), in the pages in which an allocator that gives every freed block back, and no advice, would have faulted it. Those are
    /// huge pages where the host gives them to all, else the kernel's own. An upper bound, since blocks may
    /// be touched in part.
    #[must_use]
    pub const fn faults_avoided(&self) -> u64 {
        let s = &self.snapshot;
        match s.fault_unit {
            0 => 0,
            unit => s.allocated.saturating_sub(s.fresh + s.left_to_threads + s.ahead) / unit as u64,
        }
    }

    /// Bytes of zeroed requests that were zeroed by writing them.
    #[must_use]
    pub const fn zeroed_by_writing_bytes(&self) -> u64 {
        self.snapshot.zeroed_here
    }

    /// Bytes of zeroed requests that were handed out untouched: the kernel zeroes what of them is touched.
    #[must_use]
    pub const fn zeroed_by_kernel_bytes(&self) -> u64 {
        self.snapshot.zeroed_by_kernel
    }

    /// Of those, bytes seen untouched when their blocks were freed: zeroed by nobody. Seen of blocks of 4 MiB and more, not all of
    /// them, and estimated of those in small pages.
    #[must_use]
    pub const fn zeroed_by_nobody_bytes(&self) -> u64 {
        self.snapshot.zeroed_not
    }

    /// Bytes whose pages were moved to where they were needed.
    #[must_use]
    pub const fn moved_bytes(&self) -> u64 {
        self.snapshot.books.moved
    }

    /// Of those, bytes moved from free runs under a block that none of them could have held; the others were moved with
    /// growing blocks.
    #[must_use]
    pub const fn gathered_bytes(&self) -> u64 {
        self.snapshot.books.gathered
    }

    /// Bytes by which blocks grew where they lay.
    #[must_use]
    pub const fn grown_in_place_bytes(&self) -> u64 {
        self.snapshot.grown_in_place_bytes
    }

    /// Bytes given back to the kernel so far.
    #[must_use]
    pub const fn purged_bytes(&self) -> u64 {
        self.snapshot.books.purged
    }

    /// Bytes that growing blocks had to have copied.
    #[must_use]
    pub const fn copied_bytes(&self) -> u64 {
        self.snapshot.copied
    }

    /// How often something was done in a slower way because the kernel refused a move, address space or memory, or because
    /// there were too many mappings already.
    #[must_use]
    pub const fn fall_backs(&self) -> u64 {
        let b = &self.snapshot.books;
        b.refused_moves + b.refused_growth + b.over_budget
    }

    /// How often nothing was moved because there were too many mappings.
    pub(crate) const fn over_budget(&self) -> u64 {
        self.snapshot.books.over_budget
    }

    /// How many shards there are: two to four for each processor, 512 at most. A shard is the free memory that one thread, or a few that
    /// share it, has at hand.
    #[must_use]
    pub const fn shards(&self) -> usize {
        self.snapshot.shards
    }

    /// How many shards have served requests.
    #[must_use]
    pub const fn shards_used(&self) -> usize {
        self.snapshot.shards_used
    }

    /// What the busiest shard has served, in shares of what it would have if all that are used were even: 1 is even.
    #[must_use]
    pub fn busiest_shard(&self) -> f64 {
        let s = &self.snapshot;
        if s.allocations == 0 { 0.0 } else { s.busiest as f64 * s.shards_used as f64 / s.allocations as f64 }
    }

    /// Resident memory of the whole process in bytes, of which ours is a part; `None` where it cannot be read.
    #[must_use]
    pub const fn resident_bytes(&self) -> Option<usize> {
        self.resident
    }

    /// Bytes of huge pages that the whole process has now; `None` where the kernel does not tell.
    ///
    /// Read when it is asked for (`/proc/self/smaps_rollup`), which takes about a millisecond for a gigabyte in small
    /// pages.
    #[must_use]
    pub fn huge_page_bytes(&self) -> Option<usize> {
        crate::os::huge_page_bytes()
    }

    /// What the kernel says of the allocator's own memory now, live and free; `None` where it does not tell.
    ///
    /// Read when it is asked for (`/proc/self/smaps`), which takes as long as [`Stats::huge_page_bytes`], or longer where a process has
    /// many mappings.
    #[must_use]
    pub fn footprint(&self) -> Option<Footprint> {
        footprint::read()
    }

    /// The requests so far by size: read when it is asked for, in microseconds.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        sizes::read()
    }
}

/// Reads the counters of this process's allocator. Microseconds; blocks nobody for longer than an allocation
/// does. All of them are zero before the first large request, and where no [`NAlloc`](crate::NAlloc) is installed;
/// [`Stats::resident_bytes`] is of the whole process in any case.
///
/// ```
/// let before = zk_nalloc::stats();
/// drop(vec![1_u64; 1 << 20]); // a proof
/// let after = zk_nalloc::stats();
/// println!("{} requests faulted memory in", after.misses() - before.misses());
/// println!("{after}"); // all counters, as a table
/// ```
#[must_use]
pub fn stats() -> Stats {
    Stats { snapshot: ENGINE.snapshot(), resident: crate::os::InUse::Resident.bytes() }
}

/// Bytes that are held free and are, or may be, resident.
#[must_use]
pub fn cached_bytes() -> usize {
    ENGINE.cached_bytes()
}

/// Offers all cached memory to the kernel (`MADV_FREE`), which takes it when it runs short: warm until then,
/// and usable all the time. Returns the number of bytes offered: 0 before the first large request, where the kernel has no such
/// offer, and where [`checked`](crate::Config::checked) is on.
///
/// For a process that falls idle beside others. May be called at any time, on any thread; it takes about as long as the kernel needs to
/// mark what is cached.
///
/// ```
/// let offered = zk_nalloc::soften_cache();
/// println!("{offered} bytes offered");
/// ```
pub fn soften_cache() -> usize {
    ENGINE.soften()
}

/// Gives all cached memory of all threads back to the kernel, and the address space that is wholly free. Returns the number of
/// bytes given back: 0 before the first large request. The next round faults its memory in anew. glibc gives back what it was told to
/// keep ([`Config::tune_glibc`](crate::Config::tune_glibc)), which is not counted.
///
/// For the time between unrelated jobs. May be called at any time, on any thread. While glibc looks for what it can give back
/// (`malloc_trim`), threads that want some of the same heap wait: 75 ms where a gigabyte of small blocks is free.
///
/// ```
/// drop(vec![1_u8; 8 << 20]);
/// let released = zk_nalloc::release_cache();
/// println!("{released} bytes given back");
/// ```
pub fn release_cache() -> usize {
    ENGINE.release()
}

#[cfg(test)]
mod tests;
