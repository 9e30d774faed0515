//! What the engine has counted, for people and programs.

use core::fmt;

use crate::cache::Snapshot;
use crate::global::ENGINE;

/// What the allocator has done so far, and holds now.
///
/// Each number is exact; two of them were read one after the other, so in a process whose threads allocate
/// meanwhile sums are off by what happened in between.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    snapshot: Snapshot,
    resident: Option<usize>,
}

impl Stats {
    /// Large requests served entirely from memory that was held: from a stack, a run, or moved together.
    #[must_use]
    pub const fn hits(&self) -> u64 {
        let s = &self.snapshot;
        s.stack_hits + s.stolen + s.runs + s.gathered
    }

    /// Large requests that needed memory which was not resident.
    #[must_use]
    pub const fn misses(&self) -> u64 {
        self.snapshot.misses
    }

    /// The share of large requests that were hits, in 0..=1; 0 before the first request.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        let all = self.hits() + self.misses();
        if all == 0 { 0.0 } else { self.hits() as f64 / all as f64 }
    }

    /// Large requests served from a stack of the thread's shard.
    #[must_use]
    pub const fn stack_hits(&self) -> u64 {
        self.snapshot.stack_hits
    }

    /// Large requests served from a stack of another shard.
    #[must_use]
    pub const fn stolen(&self) -> u64 {
        self.snapshot.stolen
    }

    /// Large requests served from a free run of the page heap.
    #[must_use]
    pub const fn run_hits(&self) -> u64 {
        self.snapshot.runs
    }

    /// Large requests whose pages were moved together from several runs.
    #[must_use]
    pub const fn gathered(&self) -> u64 {
        self.snapshot.gathered
    }

    /// Bytes that large requests have in use, as they were asked for.
    #[must_use]
    pub const fn live_bytes(&self) -> usize {
        self.snapshot.live as usize
    }

    /// The most of [`Stats::live_bytes`] that was seen. It is looked at when memory is faulted in and once
    /// every 64 MiB allocated, so a short peak between may be higher.
    #[must_use]
    pub const fn peak_live_bytes(&self) -> usize {
        self.snapshot.live_peak as usize
    }

    /// Bytes held free that are, or may be, resident.
    #[must_use]
    pub const fn cached_bytes(&self) -> usize {
        self.snapshot.stacked + self.snapshot.books.dirty + self.snapshot.books.soft
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

    /// Large requests served so far. Each is a hit or a miss, but for what threads do while the counters are read.
    #[must_use]
    pub const fn allocations(&self) -> u64 {
        self.snapshot.allocations
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

    /// Bytes of huge pages that the whole process has now; `None` where the kernel does not tell.
    ///
    /// Read when it is asked for (`/proc/self/smaps_rollup`), which takes about a millisecond for a gigabyte in small
    /// pages.
    #[must_use]
    pub fn huge_page_bytes(&self) -> Option<usize> {
        crate::os::huge_page_bytes()
    }

    /// Bytes whose pages were moved to where they were needed.
    #[must_use]
    pub const fn moved_bytes(&self) -> u64 {
        self.snapshot.books.moved
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

    /// Resident memory of the whole process in bytes, of which ours is a part; `None` where it cannot be read.
    #[must_use]
    pub const fn resident_bytes(&self) -> Option<usize> {
        self.resident
    }
}

/// A line of the table.
fn line(f: &mut fmt::Formatter<'_>, name: &str, value: fmt::Arguments<'_>) -> fmt::Result {
    writeln!(f, "  {name:<34}{value:>16}", value = value.to_string())
}

const fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = &self.snapshot;
        writeln!(f, "large requests")?;
        line(f, "from this thread's stack", format_args!("{}", s.stack_hits))?;
        line(f, "from another shard's stack", format_args!("{}", s.stolen))?;
        line(f, "from a free run", format_args!("{}", s.runs))?;
        line(f, "moved together", format_args!("{}", s.gathered))?;
        line(f, "= hits", format_args!("{}", self.hits()))?;
        line(f, "misses (fresh pages)", format_args!("{}", s.misses))?;
        line(f, "of which in small pages", format_args!("{}", s.thin))?;
        line(f, "hit rate", format_args!("{:.2} %", self.hit_rate() * 100.0))?;
        line(f, "refused by the kernel", format_args!("{}", s.refused))?;
        line(f, "blocks freed", format_args!("{}", s.frees))?;
        line(f, "shards", format_args!("{}", s.shards))?;
        writeln!(f, "memory now (MiB)")?;
        line(f, "live, as requested", format_args!("{:.1}", mib(s.live)))?;
        line(f, "live, at its highest seen", format_args!("{:.1}", mib(s.live_peak)))?;
        line(f, "cached in stacks", format_args!("{:.1}", mib(s.stacked as u64)))?;
        line(f, "cached in runs", format_args!("{:.1}", mib(s.books.dirty as u64)))?;
        line(f, "offered to the kernel", format_args!("{:.1}", mib(s.books.soft as u64)))?;
        line(f, "= cached", format_args!("{:.1}", mib(self.cached_bytes() as u64)))?;
        match self.resident {
            Some(bytes) => line(f, "resident, the whole process", format_args!("{:.1}", mib(bytes as u64)))?,
            None => line(f, "resident, the whole process", format_args!("unknown"))?,
        }
        match self.huge_page_bytes() {
            Some(bytes) => line(f, "of which in huge pages", format_args!("{:.1}", mib(bytes as u64)))?,
            None => line(f, "of which in huge pages", format_args!("unknown"))?,
        }
        writeln!(f, "work so far (MiB; times)")?;
        line(f, "faulted in by the kernel, at most", format_args!("{:.1}", mib(s.fresh)))?;
        line(f, "faulted in ahead of need", format_args!("{:.1}", mib(s.ahead)))?;
        line(f, "moved", format_args!("{:.1}", mib(s.books.moved)))?;
        line(f, "zeroed by writing", format_args!("{:.1}", mib(s.zeroed_here)))?;
        line(f, "zeroed by the kernel, at most", format_args!("{:.1}", mib(s.zeroed_by_kernel)))?;
        line(f, "purged", format_args!("{:.1}", mib(s.books.purged)))?;
        line(f, "softened", format_args!("{:.1}", mib(s.books.softened)))?;
        line(f, "copied by growing blocks", format_args!("{:.1}", mib(s.copied)))?;
        line(f, "blocks grown in place", format_args!("{}", s.grown_in_place))?;
        line(f, "blocks grown by moving", format_args!("{}", s.grown_by_moving))?;
        line(f, "moves refused", format_args!("{}", s.books.refused_moves))?;
        write!(f, "  {:<34}{:>16}", "growth of our range refused", s.books.refused_growth)
    }
}

/// Reads the counters of this process's allocator. Microseconds; blocks nobody for longer than an allocation
/// does. All zero before the first large request.
pub fn stats() -> Stats {
    Stats { snapshot: ENGINE.snapshot(), resident: crate::os::InUse::Resident.bytes() }
}

/// Bytes that are held free and are, or may be, resident.
pub fn cached_bytes() -> usize {
    ENGINE.cached_bytes()
}

/// Offers all cached memory to the kernel (`MADV_FREE`), which takes it when it runs short: warm until then,
/// and usable all the time. Gives the bytes offered; 0 where the kernel has no such offer.
///
/// For a process that falls idle beside others.
pub fn soften_cache() -> usize {
    ENGINE.soften()
}

/// Gives all cached memory of all threads back to the kernel, and the address space that is wholly free. Gives the
/// bytes. The next round faults its memory in anew.
///
/// For the time between unrelated jobs.
pub fn release_cache() -> usize {
    ENGINE.release()
}
