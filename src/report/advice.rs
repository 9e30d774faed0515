//! What a user is to do about what was measured: pure, from numbers to sentences.
//!
//! Honest in both directions: that nothing is to be gained is advice too. A rule says what it saw, and what to do; a
//! table of cases tests each one, and those that must keep silent. Never here: measuring.

use crate::cache::kept_for_all;
use crate::stats::short;

/// What is known at the end of a process. Times in seconds, memory in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Time of all threads in user mode and in the kernel.
    pub(super) user: f64,
    pub(super) kernel: f64,
    /// What the kernel took of that, about, to zero long blocks for the threads that touch them: work that a thread of the
    /// program would have done, in more time.
    pub(super) zeroing: f64,
    /// What page faults took of that, about, but for those.
    pub(super) faulting: f64,
    /// Page faults, and how many of them first touched memory of ours, about.
    pub(super) faults: u64,
    pub(super) our_faults: u64,
    /// What a fault in a small page costs on this host.
    pub(super) fault_cost: f64,
    /// Faults that the C library's allocator would have taken for certain, and that were not taken here.
    pub(super) avoided: u64,
    /// What large requests asked for, and had at most.
    pub(super) allocated: u64,
    pub(super) live_max: u64,
    /// What was handed out untouched, and what was given back to the kernel.
    pub(super) fresh: u64,
    pub(super) purged: u64,
    pub(super) copied: u64,
    pub(super) refused: u64,
    pub(super) over_budget: u64,
    /// The ceiling in force, if there is one.
    pub(super) ceiling: Option<u64>,
    /// For each of which a ceiling sets something aside.
    pub(super) shards: usize,
    /// The most that the process had, and the tightest limit of memory.
    pub(super) resident_max: u64,
    pub(super) limit: Option<u64>,
    pub(super) huge: Huge,
    /// Whether pages could be moved, and whether the kernel's fault in moving them is why not.
    pub(super) moves: Moves,
}

/// Huge pages, as far as they concern us.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Huge {
    /// The host gives none.
    OffOnHost,
    /// We were told to ask for none.
    OffByUs,
    /// Of our resident memory, so much is in huge pages, as a share; nothing if it is too little to tell.
    Share(Option<f64>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Moves {
    Work,
    /// This kernel has a known bug in them.
    Unsafe,
    /// The kernel has none, or we were told to make none.
    None,
}

/// Under this, in bytes and seconds, nothing can be said.
const ENOUGH: (u64, f64) = (64 << 20, 0.2);

/// Shares of the time that are worth a sentence, and that are worth work.
const SOME: f64 = 0.02;
const MUCH: f64 = 0.05;

impl Seen {
    fn busy(&self) -> f64 {
        self.user + self.kernel
    }

    /// The kernel's time, but for zeros that somebody has to make.
    fn in_kernel(&self) -> f64 {
        (self.kernel - self.zeroing).max(0.0)
    }

    /// A share of the time of all threads.
    fn share(&self, seconds: f64) -> f64 {
        if self.busy() > 0.0 { seconds / self.busy() } else { 0.0 }
    }

    /// What the faults that did not happen would have cost, in seconds.
    pub(super) fn saved(&self) -> f64 {
        self.avoided as f64 * self.fault_cost
    }

    /// What the faults that did not happen would have been of the time then spent.
    fn saved_share(&self) -> f64 {
        let would = self.busy() + self.saved();
        if would > 0.0 { self.saved() / would } else { 0.0 }
    }

    /// What was live at most, as far as there ever was memory for it: a request may be for address space, mostly.
    fn touched_max(&self) -> u64 {
        self.live_max.min(self.resident_max)
    }

    /// Whether memory was given back, and then asked for again, in amounts that show.
    fn faults_again(&self) -> bool {
        self.fresh > self.live_max.saturating_mul(2) && self.purged > self.live_max / 2
    }

    /// Whether the tightest limit is near.
    fn is_near(&self) -> bool {
        self.limit.is_some_and(|limit| self.resident_max > limit / 8 * 7)
    }
}

/// What is to be done, the most important first: sentences without line ends. Never empty.
pub(super) fn advise(seen: &Seen) -> Vec<String> {
    if seen.allocated < ENOUGH.0 || seen.busy() < ENOUGH.1 {
        return vec!["Too little has happened to say anything: run a whole proof.".to_owned()];
    }
    let mut said = Vec::new();
    said.extend(verdict(seen));
    said.extend(refused(seen));
    said.extend(near(seen));
    said.extend(ceiling(seen));
    said.extend(huge(seen));
    said.extend(first_touch(seen));
    said.extend(others(seen));
    said.extend(moves(seen));
    said
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Whether the allocator matters for this program.
fn verdict(seen: &Seen) -> Option<String> {
    let (saved, faulting) = (seen.saved_share(), seen.share(seen.faulting));
    Some(if seen.faults_again() && seen.share(seen.in_kernel()) >= MUCH {
        format!(
            "{} of the time is the kernel's, and memory was given back and faulted in again; see below.",
            percent(seen.share(seen.in_kernel()))
        )
    } else if saved >= MUCH {
        format!(
            "The allocator matters here: under the C library's about {} page faults more would have taken {:.1} s at \
             least, {} of the time then spent.",
            seen.avoided,
            seen.saved(),
            percent(saved)
        )
    } else if faulting >= MUCH {
        format!("{} of the time still goes into page faults; see below.", percent(faulting))
    } else if seen.share(seen.in_kernel()) >= 2.0 * MUCH {
        format!(
            "{} of the time is the kernel's, of which page faults explain {} at least; with many threads at once they cost \
             more than was tried out here. perf top shows the rest.",
            percent(seen.share(seen.in_kernel())),
            percent(faulting)
        )
    } else if saved >= SOME {
        format!(
            "A little to gain: page faults that did not happen would have been {} of the time.",
            percent(saved)
        )
    } else {
        format!(
            "Compute-bound: {} of the time goes into page faults, and those avoided would have been {}. Expect parity with \
             other allocators, and watch memory alone.",
            percent(faulting),
            percent(saved)
        )
    })
}

fn refused(seen: &Seen) -> Option<String> {
    (seen.refused > 0).then(|| {
        format!(
            "The kernel refused {} large requests: raise the limit of memory or address space (ulimit -v, ulimit -d, \
             vm.overcommit_memory), or prove with less at once.",
            seen.refused
        )
    })
}

/// The limit of the container or host is near.
fn near(seen: &Seen) -> Option<String> {
    let limit = seen.limit.filter(|_| seen.is_near())?;
    let head =
        format!("Memory is nearly used up: {} at its highest, of {}.", size(seen.resident_max), size(limit));
    // What is live at its highest, and a tenth of the limit, stay free of the cache.
    let fits = limit.saturating_sub(limit / 10).saturating_sub(seen.live_max) >> 20 << 20;
    Some(match seen.ceiling {
        Some(ceiling) if ceiling > fits => {
            format!("{head} Lower the ceiling: ZK_NALLOC_CACHE_BYTES={}.", value(fits))
        }
        _ if seen.live_max > limit / 10 * 6 => format!(
            "{head} The program itself needs {}: raise the limit, or prove with fewer rows or threads; the cache gives way \
             by itself.",
            size(seen.live_max)
        ),
        _ => format!(
            "{head} Call release_cache() between stages that share nothing, or set ZK_NALLOC_CACHE_BYTES={}.",
            value(fits)
        ),
    })
}

/// What a ceiling keeps for all threads.
fn kept(ceiling: u64, shards: usize) -> u64 {
    kept_for_all(usize::try_from(ceiling).unwrap_or(usize::MAX), shards.max(1)) as u64
}

/// A ceiling that is too low, or a peak that was forgotten.
fn ceiling(seen: &Seen) -> Option<String> {
    const STEP: u64 = 64 << 20;
    const STEPS: usize = 256;
    if !seen.faults_again() || seen.is_near() {
        return None;
    }
    let again = seen.fresh.saturating_sub(seen.live_max);
    let keeps = |ceiling: u64| kept(ceiling, seen.shards) >= seen.touched_max();
    // In steps of 64 MiB, so that the number can be remembered. A longer share has a hot run beside it, so that more may keep less; what all
    // shards have together is fewer steps than that.
    let now = seen.ceiling.unwrap_or(0);
    let mut steps = (seen.touched_max().max(now) / STEP..).take(STEPS).map_while(|n| n.checked_mul(STEP));
    let enough = steps.find(|&n| n >= now && keeps(n))?;
    if seen.limit.is_some_and(|limit| enough > limit / 10 * 9) {
        return None;
    }
    match seen.ceiling {
        Some(ceiling) if !keeps(ceiling) => Some(format!(
            "Raise the ceiling from {} to {}: {} had to be faulted in again because it had been given back. \
             ZK_NALLOC_CACHE_BYTES={}, or unset it.",
            size(ceiling),
            size(enough),
            size(again),
            value(enough)
        )),
        Some(_) => None,
        None => Some(format!(
            "{} was given back and faulted in again: peaks are forgotten between rounds. Promise it: \
             ZK_NALLOC_CACHE_BYTES={}.",
            size(again),
            value(enough)
        )),
    }
}

fn huge(seen: &Seen) -> Option<String> {
    match seen.huge {
        Huge::OffOnHost => Some(
            "Huge pages are off on this host, and faults cost eight times as much: echo madvise | sudo tee \
             /sys/kernel/mm/transparent_hugepage/enabled."
                .to_owned(),
        ),
        Huge::OffByUs if seen.share(seen.faulting) >= SOME => {
            Some("Huge pages are turned off for the allocator: try without ZK_NALLOC_THP=never.".to_owned())
        }
        Huge::Share(Some(share)) if share < 0.5 => Some(format!(
            "Only {} of the allocator's memory is in huge pages: memory is fragmented (/proc/buddyinfo), or \
             /sys/kernel/mm/transparent_hugepage/defrag is never. Before a start: echo 1 | sudo tee \
             /proc/sys/vm/compact_memory.",
            percent(share)
        )),
        _ => None,
    }
}

/// What is left of page faults is memory that was touched for the first time.
fn first_touch(seen: &Seen) -> Option<String> {
    // Those of others are dear by their number alone.
    let theirs = seen.faults.saturating_sub(seen.our_faults) as f64 * seen.fault_cost;
    let is_first = seen.fresh <= seen.live_max + seen.live_max / 2 && theirs * 2.0 < seen.in_kernel();
    // Faults of many threads at once, and of hosts that find memory slowly, cost more than was tried out.
    let costs = seen.share(seen.faulting) >= MUCH || seen.share(seen.in_kernel()) >= 2.0 * MUCH;
    (is_first && costs).then(|| {
        format!(
            "The page faults left are first touches, {} in all: prefault({}) on a thread beside the loading of the proving \
             key takes them out of the first proof.",
            size(seen.fresh.min(seen.resident_max)),
            seen.touched_max().next_multiple_of(1 << 20)
        )
    })
}

/// Page faults of others.
fn others(seen: &Seen) -> Option<String> {
    let theirs = seen.faults.saturating_sub(seen.our_faults);
    let share = seen.share((theirs as f64 * seen.fault_cost).min(seen.in_kernel()));
    (theirs > seen.our_faults && share >= MUCH).then(|| {
        format!(
            "{theirs} page faults, about {} of the time, are not the large side's: small blocks, C libraries, stacks. Try \
             another small side (NAlloc::with_small).",
            percent(share)
        )
    })
}

fn moves(seen: &Seen) -> Option<String> {
    if seen.over_budget > 0 {
        return Some(format!(
            "Pages were not moved {} times because there were too many mappings already; release_cache() between stages \
             mends that.",
            seen.over_budget
        ));
    }
    (seen.moves == Moves::Unsafe && seen.copied > seen.allocated / 10).then(|| {
        format!(
            "{} had to be copied by growing blocks: kernels 6.16 to 6.18.8 cannot move pages safely. Update the kernel.",
            size(seen.copied)
        )
    })
}

/// Bytes for people.
pub(super) fn size(bytes: u64) -> String {
    const GIB: u64 = 1 << 30;
    match bytes {
        b if b >= 10 * GIB => format!("{:.1} GiB", b as f64 / GIB as f64),
        b if b >= 10 << 20 => format!("{} MiB", b >> 20),
        b => short(b >> 10 << 10),
    }
}

/// Bytes as the environment takes them.
fn value(bytes: u64) -> String {
    match bytes {
        0 => "0".to_owned(),
        b if b.is_multiple_of(1 << 30) => format!("{}G", b >> 30),
        b => format!("{}M", b >> 20),
    }
}

#[cfg(test)]
mod tests;
