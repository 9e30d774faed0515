//! From single rounds to what a table says: pure functions.
//!
//! Why the best peer is chosen on one half of the turns and compared on the other: the minimum of many noisy peers is
//! lower than any of them deserves. Each half chooses once, and the geometric mean of both comparisons counts, so that no turn is
//! left out. With a single turn there is only one half, and it serves for both.

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

/// The fastest rounds of two halves of the turns that differ by no more than this, as a ratio, are believed.
pub const SETTLED_RATIO_MAX: f64 = 1.05;
/// Whoever takes at most this times the best peer's time may yet turn out to be the best.
pub const CONTENDER_RATIO_MAX: f64 = 1.25;

/// One pattern under one allocator, the turns together that every allocator had.
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
    /// Says whether the peer keeps its memory from round to round, or as much of it as `own` does.
    #[must_use]
    pub fn stays_as_warm_as(&self, own: &Self) -> bool {
        self.faults <= WARM_FAULTS_MAX.max(own.faults)
    }
}

/// Summarises the runs of a peer by its first `common` turns, which everybody had: the fastest round of more turns is faster, their
/// peak is higher, and neither is a matter of the allocator.
#[expect(clippy::cast_precision_loss, reason = "counts and bytes are far below 2^52")]
fn of_peer(peer: &str, all: &[&Run], common: u32) -> Summary {
    let runs: Vec<&Run> = all.iter().filter(|run| run.turn < common).copied().collect();
    let cold = runs.iter().filter_map(|run| Some(run.outcome.rounds.first()?.seconds / operations(run)));
    let warm = |value: fn(&Round) -> f64| median(warm(&runs).map(|(_, round)| value(round)));
    let highest = |value: fn(&Run) -> u64| runs.iter().map(|run| value(run)).max().unwrap_or(0) as f64;
    Summary {
        peer: peer.into(),
        cold: median(cold),
        min: fastest(&runs),
        median: median(warm_seconds(&runs)),
        faults: warm(|round| (round.minor_faults + round.major_faults) as f64),
        kernel: warm(|round| round.kernel_seconds),
        peak: highest(|run| run.outcome.peak_resident_bytes),
        address_space: highest(|run| run.outcome.peak_virtual_bytes),
        left: highest(|run| run.outcome.end_resident_bytes),
        live: highest(|run| run.outcome.rounds.iter().map(|round| round.live_bytes).max().unwrap_or(0)),
    }
}

/// What the times of a run are divided by. Runs of a pattern may differ: `load-fill/16G` goes by how much memory is to spare.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn operations(run: &Run) -> f64 {
    run.outcome.operations.map_or(1.0, |operations| operations as f64)
}

fn warm<'a>(runs: &'a [&Run]) -> impl Iterator<Item = (&'a Run, &'a Round)> {
    runs.iter().flat_map(|run| run.outcome.rounds.iter().skip(1).map(|round| (*run, round)))
}

/// The times of warm rounds, for one operation where operations count.
fn warm_seconds(runs: &[&Run]) -> impl Iterator<Item = f64> {
    warm(runs).map(|(run, round)| round.seconds / operations(run))
}

fn fastest(runs: &[&Run]) -> f64 {
    warm_seconds(runs).fold(f64::INFINITY, f64::min)
}

/// Summarises the runs of one pattern, in the order in which the allocators are listed.
#[must_use]
pub fn of_pattern(runs: &[Run]) -> Vec<Summary> {
    let of = |name: &str| runs.iter().filter(|run| run.peer == name).collect::<Vec<_>>();
    let mine: Vec<_> = peers::ALL
        .iter()
        .map(|peer| (peer.name, of(peer.name)))
        .filter(|(_, runs)| !runs.is_empty())
        .collect();
    let turns = |runs: &Vec<&Run>| runs.iter().map(|run| run.turn + 1).max();
    let common = mine.iter().filter_map(|(_, runs)| turns(runs)).min().unwrap_or(0);
    mine.iter().map(|(name, runs)| of_peer(name, runs, common)).collect()
}

/// How one of ours does beside the best peer.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The best peer, or the best one of each half of the turns.
    pub best: String,
    /// Our fastest warm round over its, on the turns that did not choose it, which are each half once.
    pub time: f64,
    /// Our median warm round over its, of the turns together that both had: shown beside the other, and not judged. On a
    /// machine with two speeds the fastest round is that of whoever met the better one more often.
    pub median: f64,
    /// Our peak, over what is allowed.
    pub memory: f64,
    /// The peer that stays warm in the least memory, or as warm as ours, if ours takes more.
    pub leaner: Option<String>,
    /// Whether each of both was about as fast in one half of the turns as in the other.
    pub agreed: bool,
}

impl Verdict {
    /// Says whether ours failed in all turns of a half: then it has no time.
    #[must_use]
    pub const fn failed(&self) -> bool {
        !self.time.is_finite()
    }

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

/// Says whether a peer is one of those that `ours` is compared with.
fn is_rival(ours: &str, judge: Judge, peer: &str) -> bool {
    match judge {
        Judge::Peers => peers::by_name(peer).is_some_and(|peer| !peer.ours),
        Judge::SmallSide if ours == OURS_OVER => peer == SMALL_SIDE_OVER,
        Judge::SmallSide => peer == SMALL_SIDE,
    }
}

/// The fastest warm round of a peer in one half of the turns. They take turns by two, one of which ran the allocators in their
/// order and one backwards: who runs after whom shows. Fewer than four make no such halves, and take turns one by one.
fn half(runs: &[Run], peer: &str, second: u32) -> f64 {
    let turns = runs.iter().map(|run| run.turn).max().map_or(1, |last| last + 1);
    let of = |turn: u32| if turns < 4 { turn % 2 } else { turn / 2 % 2 };
    let mine = |run: &&Run| run.peer == peer && (turns == 1 || of(run.turn) == second);
    fastest(&runs.iter().filter(mine).collect::<Vec<_>>())
}

/// Judges one of ours, or returns `None` where it or every peer is missing, or failed in half of the turns, unless that is ours: who
/// fails has lost.
#[must_use]
pub fn judge(ours: &str, judge: Judge, runs: &[Run]) -> Option<Verdict> {
    let summaries = of_pattern(runs);
    let own = summaries.iter().find(|summary| summary.peer == ours)?;
    let rivals: Vec<&Summary> =
        summaries.iter().filter(|summary| is_rival(ours, judge, &summary.peer)).collect();
    let halves = |peer: &str| [0, 1].map(|which| half(runs, peer, which));
    // Who failed in all turns of a half cannot be compared there, however fast it was in the other.
    let compared: Vec<(&Summary, [f64; 2])> = rivals
        .iter()
        .map(|rival| (*rival, halves(&rival.peer)))
        .filter(|(_, times)| times.iter().all(|time| time.is_finite()))
        .collect();
    let best_of = |which: usize| compared.iter().min_by(|(_, a), (_, b)| a[which].total_cmp(&b[which]));
    let best = [best_of(0)?, best_of(1)?];
    let leanest =
        rivals.iter().filter(|rival| rival.stays_as_warm_as(own)).min_by(|a, b| a.peak.total_cmp(&b.peak));
    // What a program has without any pattern differs by allocator, and is no matter of patterns.
    let leaner = leanest.filter(|rival| own.peak > rival.peak + MEMORY_SLACK_BYTES / 4.0);
    let times = halves(ours);
    // Both are beyond any that is lost where ours has no time.
    let median = |best: &Summary| {
        if times.iter().all(|time| time.is_finite()) { own.median / best.median } else { f64::INFINITY }
    };
    Some(Verdict {
        best: if best[0].0 == best[1].0 {
            best[0].0.peer.clone()
        } else {
            best.map(|(b, _)| b.peer.as_str()).join(", ")
        },
        time: mean_of_two(times[1] / best[0].1[1], times[0] / best[1].1[0]),
        median: mean_of_two(median(best[0].0), median(best[1].0)),
        memory: own.peak / MEMORY_RATIO_MAX.mul_add(own.live, MEMORY_SLACK_BYTES),
        leaner: leaner.map(|rival| rival.peer.clone()),
        agreed: is_settled(runs, ours) && best.iter().all(|(best, _)| is_settled(runs, &best.peer)),
    })
}

/// The geometric mean.
fn mean_of_two(a: f64, b: f64) -> f64 {
    (a * b).sqrt()
}

/// Says whether a peer was about as fast in one half of the turns as in the other.
fn is_settled(runs: &[Run], peer: &str) -> bool {
    let (first, second) = (half(runs, peer, 0), half(runs, peer, 1));
    // Who fails does not do better for more turns.
    first.max(second) <= SETTLED_RATIO_MAX * first.min(second) || !first.max(second).is_finite()
}

/// Returns the peers that want more turns: what is judged, and those that may be the best, if one of them was faster in
/// one half of the turns than in the other; else none.
///
/// Whether to go on depends on how much the halves differ, and not on who is ahead. It helps where a machine has two
/// speeds and some turns have met each; that all have met the same one does not show.
#[must_use]
pub fn unsettled(judge: Judge, runs: &[Run]) -> Vec<String> {
    let summaries = of_pattern(runs);
    let mut contenders: Vec<String> = Vec::new();
    for ours in judged(judge).iter().filter(|ours| summaries.iter().any(|summary| summary.peer == **ours)) {
        let all = summaries.iter().map(|summary| summary.peer.as_str());
        let rivals: Vec<&str> = all.filter(|peer| is_rival(ours, judge, peer)).collect();
        for second in [0, 1] {
            let best = rivals.iter().map(|peer| half(runs, peer, second)).fold(f64::INFINITY, f64::min);
            let near = rivals.iter().filter(|peer| half(runs, peer, second) <= CONTENDER_RATIO_MAX * best);
            contenders.extend(near.map(|peer| (*peer).to_owned()));
        }
        contenders.push((*ours).to_owned());
    }
    contenders.sort();
    contenders.dedup();
    if contenders.iter().all(|peer| is_settled(runs, peer)) { Vec::new() } else { contenders }
}

/// Returns the forms of ours that are judged.
#[must_use]
pub fn judged(pattern: Judge) -> &'static [&'static str] {
    match pattern {
        Judge::Peers => &[OURS],
        Judge::SmallSide => &[OURS, OURS_OVER],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Outcome;

    /// A run of one cold and one warm round, of so many milliseconds.
    fn run(peer: &str, turn: u32, warm: f64) -> Run {
        let round = |milliseconds: f64| Round { seconds: milliseconds / 1e3, ..Round::default() };
        let outcome = Outcome { rounds: vec![round(9.0 * warm), round(warm)], ..Outcome::default() };
        Run { pattern: "some".into(), peer: peer.into(), turn, outcome }
    }

    /// Runs of several peers, the warm rounds of each turn by turn.
    fn runs(of: &[(&str, &[f64])]) -> Vec<Run> {
        let turns = of
            .iter()
            .flat_map(|(peer, times)| (0..).zip(*times).map(move |(turn, time)| run(peer, turn, *time)));
        turns.collect()
    }

    #[test]
    fn the_best_is_chosen_on_half_of_the_turns_and_compared_on_the_other() {
        let runs = runs(&[
            (OURS, &[10.0, 11.0, 10.0]),
            // Lucky once, when it is chosen.
            ("glibc", &[8.0, 10.0, 10.0]),
            ("jemalloc", &[9.0, 9.0, 9.0]),
        ]);
        let verdict = judge(OURS, Judge::Peers, &runs).unwrap();
        // 11 over 10 and 10 over 9.
        assert_eq!((verdict.best.as_str(), (verdict.time * 1000.0).round()), ("glibc, jemalloc", 1106.0));
        assert_eq!((verdict.median * 1000.0).round(), 1054.0);
    }

    /// The turns that ran the allocators backwards were all in one half, and who runs after whom shows.
    #[test]
    fn each_half_has_turns_of_both_orders() {
        let runs = runs(&[
            (OURS, &[10.0, 10.0, 10.0, 10.0, 10.0]),
            ("glibc", &[20.0, 8.0, 20.0, 9.0, 20.0]),
            ("jemalloc", &[8.5; 5]),
        ]);
        let verdict = judge(OURS, Judge::Peers, &runs).unwrap();
        assert_eq!((verdict.best.as_str(), (verdict.time * 1000.0).round()), ("glibc, jemalloc", 1143.0));
    }

    #[test]
    fn who_fails_in_half_of_the_turns_is_not_beaten() {
        let mut runs = runs(&[(OURS, &[10.0, 11.0]), ("glibc", &[12.0, 12.0])]);
        assert!(judge(OURS, Judge::Peers, &runs).is_some());
        runs.retain(|run| run.peer == OURS || run.turn == 0);
        assert_eq!(judge(OURS, Judge::Peers, &runs), None);
    }

    /// Its row was left out without a word.
    #[test]
    fn ours_has_lost_where_it_fails() {
        let mut runs = runs(&[(OURS, &[10.0, 11.0]), ("glibc", &[12.0, 12.0])]);
        for failing in [1, 0] {
            for run in runs.iter_mut().filter(|run| run.peer == OURS && run.turn == failing) {
                *run = Run::failed("some", OURS, failing);
            }
            let verdict = judge(OURS, Judge::Peers, &runs).expect("it is judged");
            assert!(
                verdict.failed() && verdict.time_lost() && verdict.median > TIME_RATIO_MAX,
                "{verdict:?}"
            );
            assert_eq!(verdict.best, "glibc");
        }
        runs.retain(|run| run.peer != OURS);
        assert_eq!(judge(OURS, Judge::Peers, &runs), None, "it was not run");
    }

    /// The row had none where the fastest of one half had failed in the other.
    #[test]
    fn who_fails_in_half_of_the_turns_hides_nobody_else() {
        let mut runs = runs(&[(OURS, &[10.0, 10.0]), ("glibc", &[5.0, 5.0]), ("jemalloc", &[8.0, 8.0])]);
        runs.retain(|run| run.peer != "glibc" || run.turn == 0);
        runs.push(Run::failed("some", "glibc", 1));
        let verdict = judge(OURS, Judge::Peers, &runs).expect("there is one with both");
        assert_eq!((verdict.best.as_str(), (verdict.time * 100.0).round()), ("jemalloc", 125.0));
    }

    #[test]
    fn who_had_more_turns_is_no_faster_and_stands_no_higher_for_that() {
        let mut runs = runs(&[(OURS, &[10.0, 10.0, 8.0]), ("glibc", &[12.0, 12.0])]);
        for run in &mut runs {
            run.outcome.peak_resident_bytes = u64::from(run.turn + 1) << 20;
        }
        let summaries = of_pattern(&runs);
        let own = summaries.iter().find(|summary| summary.peer == OURS).unwrap();
        assert_eq!((own.peak, own.min, own.median), (f64::from(2 << 20), 10e-3, 10e-3));
    }

    /// Each process of `load-fill/16G` makes as many blocks as there is memory for, and had been compared by its whole rounds.
    #[test]
    fn who_does_more_in_a_round_is_no_slower_for_that() {
        let mut runs = runs(&[(OURS, &[20.0, 10.0, 20.0, 10.0]), ("glibc", &[11.0; 4])]);
        for run in &mut runs {
            let twice = run.peer == OURS && run.turn % 2 == 0;
            run.outcome.operations = Some(if twice { 2000 } else { 1000 });
        }
        let verdict = judge(OURS, Judge::Peers, &runs).unwrap();
        let rounded = |ratio: f64| (ratio * 1000.0).round();
        assert_eq!((rounded(verdict.time), rounded(verdict.median), verdict.agreed), (909.0, 909.0, true));
        let own = of_pattern(&runs).into_iter().find(|summary| summary.peer == OURS).unwrap();
        assert_eq!(
            [own.min, own.median, own.cold].map(|seconds| (1e6 * seconds).round()),
            [10.0, 10.0, 90.0]
        );
        assert_eq!(unsettled(Judge::Peers, &runs), [""; 0]);
    }

    /// jemalloc took 5 MiB for what ours took 517 for, in the same time, and was not named as neither stays warm there.
    #[test]
    fn who_faults_no_more_than_ours_may_be_leaner() {
        let mut runs = runs(&[(OURS, &[10.0, 10.0]), ("jemalloc", &[10.0, 10.0]), ("glibc", &[10.0, 10.0])]);
        for run in &mut runs {
            let (faults, mib) = match run.peer.as_str() {
                OURS => (256, 517),
                "jemalloc" => (240, 9),
                _ => (257, 5),
            };
            run.outcome.rounds.iter_mut().for_each(|round| round.minor_faults = faults);
            run.outcome.peak_resident_bytes = mib << 20;
        }
        let leaner = |runs: &[Run]| judge(OURS, Judge::Peers, runs).unwrap().leaner;
        assert_eq!(leaner(&runs).as_deref(), Some("jemalloc"));
        for run in runs.iter_mut().filter(|run| run.peer == OURS) {
            run.outcome.rounds.iter_mut().for_each(|round| round.minor_faults = 4);
        }
        assert_eq!(leaner(&runs), None, "ours stays warm and they do not");
    }

    #[test]
    fn who_may_be_the_best_goes_on_while_one_of_them_has_two_speeds() {
        let calm: &[f64] = &[10.0, 10.2, 10.1];
        let names = |of: &[(&str, &[f64])]| unsettled(Judge::Peers, &runs(of));
        assert_eq!(names(&[(OURS, calm), ("glibc", calm), ("jemalloc", &[30.0, 20.0, 30.0])]), [""; 0]);
        assert_eq!(
            names(&[
                (OURS, calm),
                ("glibc", &[10.0, 15.0, 15.0]),
                ("jemalloc", calm),
                ("mimalloc", &[30.0; 3])
            ]),
            ["glibc", "jemalloc", OURS]
        );
        // However far behind we are.
        assert_eq!(names(&[(OURS, &[40.0, 50.0, 40.0]), ("glibc", calm)]), ["glibc", OURS]);
        assert_eq!(names(&[(OURS, &[40.0, 40.0, 40.0]), ("glibc", calm)]), [""; 0]);
        // The best of one half is compared on the other, where somebody else is far ahead.
        assert_eq!(
            names(&[(OURS, calm), ("glibc", &[13.0, 10.0]), ("jemalloc", &[12.6; 3])]),
            ["glibc", "jemalloc", OURS]
        );
        let small =
            runs(&[(OURS, calm), (OURS_OVER, calm), (SMALL_SIDE, calm), (SMALL_SIDE_OVER, &[10.0, 15.0])]);
        assert_eq!(unsettled(Judge::SmallSide, &small).len(), 4);
        assert_eq!(names(&[("glibc", &[10.0, 15.0])]), [""; 0], "we are not there");
        assert_eq!(names(&[(OURS, &[10.0]), ("glibc", &[15.0])]), [""; 0], "there are no halves");
    }
}
