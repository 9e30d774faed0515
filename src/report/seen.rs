//! Gathering what is known of the process: the one place of the report that asks anybody.

use std::fs;

use super::advice::{Huge, Moves, Seen};
use crate::global::ENGINE;
use crate::os::{self, Facts, HugeMode, Linux, Os, Usage};
use crate::stats::{Footprint, Sizes, Stats};
use crate::{Phases, phases};

/// From this size on the C library's allocator maps each block and unmaps it, whatever it has learned: `M_MMAP_THRESHOLD` of
/// glibc rises to it at most, and no arena of its threads holds one. What is below may fault there, or not.
const SURE: usize = 32 << 20;

/// All that a page is made of.
pub(super) struct Report {
    pub(super) program: String,
    pub(super) process: u32,
    /// Since the process was started, in seconds.
    pub(super) wall: Option<f64>,
    pub(super) usage: Usage,
    pub(super) facts: Facts,
    pub(super) costs: [u64; 2],
    pub(super) footprint: Option<Footprint>,
    pub(super) stats: Stats,
    pub(super) sizes: Sizes,
    pub(super) phases: Phases,
    pub(super) seen: Seen,
}

/// Looks at everything.
pub(super) fn now() -> Report {
    // Before all else, which takes time and faults itself.
    let usage = Usage::now();
    let stats = crate::stats();
    let wall = wall();
    let (sizes, footprint) = (stats.sizes(), stats.footprint());
    let facts = Linux.facts();
    let costs = os::fault_costs();
    let seen = seen(&usage, &stats, &sizes, footprint, &facts, costs);
    let program = fs::read_to_string("/proc/self/comm").unwrap_or_default().trim().to_owned();
    let process = std::process::id();
    Report { program, process, wall, usage, facts, costs, footprint, stats, sizes, phases: phases(), seen }
}

/// Seconds since the process was started, to a hundredth.
fn wall() -> Option<f64> {
    between(&fs::read_to_string("/proc/self/stat").ok()?, os::since_boot()?)
}

/// Seconds from the start of the process of which `stat` tells, until `now`; `None` where these are of different clocks.
fn between(stat: &str, now: f64) -> Option<f64> {
    /// `USER_HZ`, in which the kernel tells times to programs, on every architecture that we compile for.
    const TICKS: f64 = 100.0;
    // The name in the second field may have blanks and parentheses in it.
    let started: f64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    Some(now - started / TICKS).filter(|&seconds| seconds >= 0.0)
}

fn seen(
    usage: &Usage,
    stats: &Stats,
    sizes: &Sizes,
    footprint: Option<Footprint>,
    facts: &Facts,
    costs: [u64; 2],
) -> Seen {
    let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
    let huge = huge(footprint, facts);
    let is_huge = matches!(huge, Huge::Share(Some(share)) if share >= 0.5);
    let faults = usage.minor + usage.major;
    // What was handed out untouched or faulted in ahead, in the pages that it was faulted in by, as far as there were so many faults.
    let unit = if is_huge { facts.huge_page.max(facts.page) } else { facts.page } as u64;
    let faulted_in = stats.fresh_bytes() + stats.prefaulted_bytes();
    let ours = (faulted_in / unit).min(faults);
    // Of these, zeros that all threads make are no faults too many.
    let zeros = (stats.zeroed_by_all_threads_bytes() / unit).min(ours);
    let [small, large] = costs;
    let cost = if is_huge { large } else { small };
    let faulting = (faults - ours) * small + (ours - zeros) * cost;
    let (kernel, faulting) = (seconds(usage.kernel), seconds(faulting));
    let zeroing = seconds(zeros * cost).min(kernel);
    let sure: u64 = sizes.lines().iter().filter(|line| line.from >= SURE).map(|line| line.bytes).sum();
    let host_unit =
        if facts.huge_mode == HugeMode::Always { facts.huge_page.max(facts.page) } else { facts.page };
    let (cost, host_unit) = (if host_unit == facts.page { small } else { large }, host_unit as u64);
    let room = Linux.room(0);
    Seen {
        user: seconds(usage.user),
        kernel,
        zeroing,
        faulting: faulting.min(kernel - zeroing),
        faults,
        our_faults: ours,
        fault_cost: seconds(cost),
        avoided: sure.saturating_sub(faulted_in) / host_unit,
        allocated: stats.allocated_bytes(),
        live_max: stats.peak_live_bytes() as u64,
        // What all threads have zeroed is faulted in each time because that is faster.
        fresh: stats.fresh_bytes() - stats.zeroed_by_all_threads_bytes(),
        purged: stats.purged_bytes(),
        copied: stats.copied_bytes(),
        refused: stats.refused(),
        over_budget: stats.over_budget(),
        ceiling: ENGINE.ceiling().map(|bytes| bytes as u64),
        shards: stats.shards(),
        resident_max: usage.resident_max,
        limit: room.map(|room| room.limit as u64),
        huge,
        moves: match (facts.moves, facts.moves_unsafely) {
            _ if stats.moved_bytes() > 0 || facts.moves => Moves::Work,
            (_, true) => Moves::Unsafe,
            _ => Moves::None,
        },
    }
}

fn huge(footprint: Option<Footprint>, facts: &Facts) -> Huge {
    /// Less than this, in bytes, lies at the edges of blocks.
    const ENOUGH: usize = 64 << 20;
    match facts.huge_mode {
        _ if os::huge() == os::Huge::Forbid => Huge::OffByUs,
        HugeMode::Never => Huge::OffOnHost,
        _ => Huge::Share(
            footprint
                .filter(|f| f.resident_bytes >= ENOUGH)
                .map(|f| f.huge_page_bytes as f64 / f.resident_bytes.max(1) as f64),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a container whose uptime is its own it was 0.
    #[test]
    fn a_time_that_is_negative_is_none() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 113 0 0 0 0 0 0 0 20 0 1 0 51234 2433024 256";
        assert_eq!(between(stat, 600.0), Some(600.0 - 512.34));
        assert_eq!(between(stat, 512.34), Some(0.0));
        assert_eq!(between(stat, 60.0), None);
        assert_eq!(between("7 (a", 60.0), None);
        assert!(wall().is_some());
    }
}
