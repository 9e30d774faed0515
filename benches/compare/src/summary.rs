//! From single rounds to what a table says: pure functions.
//!
//! Why the best peer is chosen on one half of the turns and compared on the other: the minimum of many noisy peers is
//! lower than any of them deserves. With a single turn there is only one half, and it serves for both.

use prove_harness::statistics::median;

use crate::patterns::Judge;
use crate::peers::{self, OURS, OURS_OVER, SMALL_SIDE, SMALL_SIDE_OVER};
use crate::record::{Round, Run};

/// A peer that faults no more than this in a warm round stays warm.
pub const WARM_FAULTS_MAX: f64 = 100.0;
/// A time is lost when it is more than this times the best peer's.
pub const TIME_RATIO_MAX: f64 = 1.05;
/// Peak memory is lost when it is more than this times what was alive at once, …
pub const MEMORY_RATIO_MAX: f64 = 1.10;
/// … and this on top, for the program itself.
pub const MEMORY_SLACK_BYTES: f64 = 16.0 * 1024.0 * 1024.0;

/// One pattern under one allocator, all turns together.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The allocator.
    pub peer: String,
    /// Median over the turns of the first round, in seconds (for one operation, where operations count).
    pub cold: f64,
    /// The fastest warm round.
    pub min: f64,
    /// The median warm round.
    pub median: f64,
    /// Faults of the median warm round.
    pub faults: f64,
    /// Kernel time of the median warm round, in seconds.
    pub kernel: f64,
    /// Highest peak of any turn, in bytes.
    pub peak: f64,
    /// Highest size of the address space, in bytes.
    pub address_space: f64,
    /// Largest resident size at the end, in bytes.
    pub left: f64,
    /// What was alive at once, in bytes.
    pub live: f64,
}

impl Summary {
    /// Says whether the peer keeps its memory from round to round.
    #[must_use]
    pub fn stays_warm(&self) -> bool {
        self.faults <= WARM_FAULTS_MAX
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts and bytes are far below 2^52")]
fn of_peer(peer: &str, runs: &[&Run]) -> Summary {
    let operations = runs.iter().filter_map(|run| run.outcome.operations).next().unwrap_or(1) as f64;
    let cold =
        runs.iter().filter_map(|run| run.outcome.rounds.first()).map(|round| round.seconds / operations);
    let warm = |value: fn(&Round) -> f64| median(warm(runs).map(value));
    let highest = |value: fn(&Run) -> u64| runs.iter().map(|run| value(run)).max().unwrap_or(0) as f64;
    Summary {
        peer: peer.into(),
        cold: median(cold),
        min: fastest(runs) / operations,
        median: warm(|round| round.seconds) / operations,
        faults: warm(|round| (round.minor_faults + round.major_faults) as f64),
        kernel: warm(|round| round.kernel_seconds),
        peak: highest(|run| run.outcome.peak_resident_bytes),
        address_space: highest(|run| run.outcome.peak_virtual_bytes),
        left: highest(|run| run.outcome.end_resident_bytes),
        live: highest(|run| run.outcome.rounds.iter().map(|round| round.live_bytes).max().unwrap_or(0)),
    }
}

fn warm<'a>(runs: &'a [&Run]) -> impl Iterator<Item = &'a Round> {
    runs.iter().flat_map(|run| run.outcome.rounds.iter().skip(1))
}

fn fastest(runs: &[&Run]) -> f64 {
    warm(runs).map(|round| round.seconds).fold(f64::INFINITY, f64::min)
}

/// Summarises the runs of one pattern, in the order in which the allocators are listed.
#[must_use]
pub fn of_pattern(runs: &[Run]) -> Vec<Summary> {
    let of = |peer: &peers::Peer| {
        let mine: Vec<&Run> = runs.iter().filter(|run| run.peer == peer.name).collect();
        (!mine.is_empty()).then(|| of_peer(peer.name, &mine))
    };
    peers::ALL.iter().filter_map(of).collect()
}

/// How one of ours does beside the best peer.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The best peer.
    pub best: String,
    /// Our fastest warm round over its, on the turns that did not choose it.
    pub time: f64,
    /// Our peak, over what is allowed.
    pub memory: f64,
    /// The peer that stays warm in the least memory, if ours takes more.
    pub leaner: Option<String>,
}

impl Verdict {
    /// Says whether the time is lost.
    #[must_use]
    pub const fn time_lost(&self) -> bool {
        self.time > TIME_RATIO_MAX
    }

    /// Says whether the memory is lost.
    #[must_use]
    pub const fn memory_lost(&self) -> bool {
        self.memory > 1.0 || self.leaner.is_some()
    }
}

/// Judges one of ours, or returns `None` where it or every peer is missing.
#[must_use]
pub fn judge(ours: &str, judge: Judge, runs: &[Run]) -> Option<Verdict> {
    let summaries = of_pattern(runs);
    let own = summaries.iter().find(|summary| summary.peer == ours)?;
    let rivals = |summary: &&Summary| match judge {
        Judge::Peers => peers::by_name(&summary.peer).is_some_and(|peer| !peer.ours),
        Judge::SmallSide if ours == OURS_OVER => summary.peer == SMALL_SIDE_OVER,
        Judge::SmallSide => summary.peer == SMALL_SIDE,
    };
    let rivals: Vec<&Summary> = summaries.iter().filter(rivals).collect();
    let turns = runs.iter().map(|run| run.turn).max()? + 1;
    let half = |name: &str, odd: u32| {
        let mine = |run: &&Run| run.peer == name && (turns == 1 || run.turn % 2 == odd);
        fastest(&runs.iter().filter(mine).collect::<Vec<_>>())
    };
    let best = rivals.iter().min_by(|a, b| half(&a.peer, 0).total_cmp(&half(&b.peer, 0)))?;
    let leanest = rivals.iter().filter(|rival| rival.stays_warm()).min_by(|a, b| a.peak.total_cmp(&b.peak));
    // What a program has without any pattern differs by allocator, and is no matter of patterns.
    let leaner = leanest.filter(|rival| own.peak > rival.peak + MEMORY_SLACK_BYTES / 4.0);
    Some(Verdict {
        best: best.peer.clone(),
        time: half(ours, 1) / half(&best.peer, 1),
        memory: own.peak / MEMORY_RATIO_MAX.mul_add(own.live, MEMORY_SLACK_BYTES),
        leaner: leaner.map(|rival| rival.peer.clone()),
    })
}

/// Returns the forms of ours that are judged.
#[must_use]
pub fn judged(pattern: Judge) -> &'static [&'static str] {
    match pattern {
        Judge::Peers => &[OURS],
        Judge::SmallSide => &[OURS, OURS_OVER],
    }
}
