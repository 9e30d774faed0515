//! From single proofs to the numbers of the table: pure functions, no input or output.
//!
//! Why it is here: times are noisy, so the table shows minimum and median of the warm proofs of all turns together
//! and what each made the kernel do; a mean would carry every disturbance of the machine along.

use crate::record::{Round, Run};

/// One statement under one allocator, all turns together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Median over the turns of a process's first proof.
    pub cold_seconds: f64,
    /// Fastest warm proof ([`warm_from`]).
    pub warm_seconds_min: f64,
    /// Median warm proof.
    pub warm_seconds_median: f64,
    /// Page faults of the median warm proof, from memory and from disk together.
    pub warm_faults: f64,
    /// Kernel time of the median warm proof, all threads together.
    pub warm_kernel_seconds: f64,
    /// Share of the kernel in the time that all threads spend, of the median warm proof.
    pub warm_kernel_share: f64,
    /// Highest peak of any turn: memory is a promise to be kept every time.
    pub peak_resident_bytes: f64,
    /// Median over the turns, where the allocator counts hits.
    pub hit_rate: Option<f64>,
}

impl Summary {
    /// Combines runs of one statement under one allocator.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "faults and bytes are far below 2^52")]
    pub fn of(runs: &[&Run]) -> Self {
        let cold = runs.iter().filter_map(|run| run.rounds.first()).map(|round| round.seconds);
        let warm = || runs.iter().flat_map(|run| run.rounds.iter().skip(warm_from(run.rounds.len())));
        let faults = |round: &Round| (round.minor_faults + round.major_faults) as f64;
        let hits: Vec<f64> = runs.iter().filter_map(|run| run.end.hit_rate).collect();
        Self {
            cold_seconds: median(cold),
            warm_seconds_min: warm().map(|round| round.seconds).fold(f64::INFINITY, f64::min),
            warm_seconds_median: median(warm().map(|round| round.seconds)),
            warm_faults: median(warm().map(faults)),
            warm_kernel_seconds: median(warm().map(|round| round.kernel_seconds)),
            warm_kernel_share: median(
                warm().map(|round| round.kernel_seconds / (round.kernel_seconds + round.user_seconds)),
            ),
            peak_resident_bytes: runs.iter().map(|run| run.end.peak_resident_bytes).max().unwrap_or(0) as f64,
            hit_rate: (!hits.is_empty()).then(|| median(hits.into_iter())),
        }
    }
}

/// The first warm proof of so many: the third where that leaves two, else the second. Allocators that keep their memory still fault
/// in it in the second, a thousand times where the next two do not once (glibc tuned, Keccak), as not all that was freed fits then.
#[must_use]
pub const fn warm_from(rounds: usize) -> usize {
    if rounds >= 4 { 2 } else { 1 }
}

/// Says of which kinds so many proofs of a process are.
#[must_use]
pub fn kinds(rounds: usize) -> String {
    match warm_from(rounds) {
        1 => format!("1 cold and {} warm", rounds.saturating_sub(1)),
        from => format!("1 cold, {} between and {} warm", from - 1, rounds - from),
    }
}

/// Returns the median, between the middle two for an even count; not a number for none.
#[must_use]
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// Returns `ours / theirs`, or nothing where that says nothing: no baseline, or no numbers.
#[must_use]
pub fn ratio(ours: f64, theirs: f64) -> Option<f64> {
    (ours.is_finite() && theirs.is_finite() && theirs > 0.0).then(|| ours / theirs)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Summary, kinds, median, ratio};
    use crate::record::{End, Round, Run};

    /// A run of proofs that took `seconds`, the cold one first, each with as many faults as its number in the row.
    pub(crate) fn run(allocator: &str, turn: u32, seconds: &[f64], peak_mib: u64) -> Run {
        let round = |(round, seconds): (u32, &f64)| Round {
            round,
            seconds: *seconds,
            minor_faults: 1_000 * u64::from(round),
            major_faults: 0,
            user_seconds: 4.0 * seconds,
            kernel_seconds: seconds / 2.0,
            verify_seconds: 0.01,
        };
        let hit_rate = (allocator == "NAlloc").then_some(0.5 + f64::from(turn) / 10.0);
        Run {
            statement: "counting".into(),
            allocator: allocator.into(),
            turn,
            rounds: (0..).zip(seconds).map(round).collect(),
            end: End { peak_resident_bytes: peak_mib << 20, hit_rate },
        }
    }

    #[test]
    fn the_median_of_none_is_no_number() {
        assert!(median([].into_iter()).is_nan());
        assert_eq!(median([3.0].into_iter()), 3.0);
        assert_eq!(median([9.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 9.0].into_iter()), 3.0);
    }

    #[test]
    fn a_ratio_needs_a_baseline() {
        assert_eq!(ratio(1.0, 2.0), Some(0.5));
        assert_eq!(ratio(1.0, 0.0), None);
        assert_eq!(ratio(f64::NAN, 1.0), None);
        assert_eq!(ratio(1.0, f64::INFINITY), None);
    }

    /// A second proof is slower where what the first has freed does not fit yet.
    #[test]
    fn the_second_proof_is_warm_only_where_few_follow() {
        let of = |seconds: &[f64]| Summary::of(&[&run("NAlloc", 0, seconds, 1)]);
        let four = of(&[9.0, 1.0, 3.0, 5.0]);
        assert_eq!((four.warm_seconds_min, four.warm_seconds_median, four.warm_faults), (3.0, 4.0, 2_500.0));
        let three = of(&[9.0, 1.0, 3.0]);
        assert_eq!((three.warm_seconds_min, three.warm_seconds_median), (1.0, 2.0));
        assert_eq!(kinds(4), "1 cold, 1 between and 2 warm");
        assert_eq!((kinds(3).as_str(), kinds(1).as_str()), ("1 cold and 2 warm", "1 cold and 0 warm"));
    }

    #[test]
    fn turns_are_combined_and_the_cold_proof_is_kept_apart() {
        let (a, b) = (run("NAlloc", 0, &[9.0, 2.0, 4.0], 100), run("NAlloc", 1, &[7.0, 1.0, 3.0], 300));
        let summary = Summary::of(&[&a, &b]);
        assert_eq!(summary.cold_seconds, 8.0);
        assert_eq!(summary.warm_seconds_min, 1.0);
        assert_eq!(summary.warm_seconds_median, 2.5);
        assert_eq!(summary.warm_faults, 1_500.0);
        assert_eq!(summary.warm_kernel_seconds, 1.25);
        assert!((summary.warm_kernel_share - 1.0 / 9.0).abs() < 1e-12, "{}", summary.warm_kernel_share);
        assert_eq!(summary.peak_resident_bytes, f64::from(300 << 20));
        assert_eq!(summary.hit_rate, Some(0.55));
        assert_eq!(Summary::of(&[&run("System", 0, &[1.0, 1.0], 1)]).hit_rate, None);
    }
}
