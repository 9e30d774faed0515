//! One table per pattern, in Markdown, so that what a terminal shows is what a document holds.

use comfy_table::{CellAlignment, Table, presets};

use crate::patterns::{Judge, Pattern};
use crate::peers;
use crate::record::Run;
use crate::report::Measured;
use crate::summary::{
    self, MEMORY_RATIO_MAX, MEMORY_SLACK_BYTES, SETTLED_RATIO_MAX, Summary, TIME_RATIO_MAX, Verdict,
    WARM_FAULTS_MAX,
};

/// Lays out who is compared, with what settings.
#[must_use]
pub fn of_peers() -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "allocator",
        "what it is",
        "crate",
        "set in its environment",
    ]);
    for peer in peers::ALL {
        let setting = peer.setting();
        let setting = if setting.is_empty() { setting } else { format!("`{setting}`") };
        table.add_row([peer.name.to_owned(), peer.about.to_owned(), peer.origin(), setting]);
    }
    format!("\n### Allocators\n\n{table}\n")
}

/// Lays out what was measured of one pattern: a row per allocator, then a line that says who won.
#[must_use]
pub fn of_pattern(pattern: &Pattern, runs: &[Run]) -> String {
    let summaries = summary::of_pattern(runs);
    let per_operation = runs.iter().any(|run| run.outcome.operations.is_some());
    let (unit, factor) = if per_operation { ("ns", 1e9) } else { ("ms", 1e3) };
    let head = [
        "allocator",
        "min",
        "median",
        "first",
        "faults",
        "kernel ms",
        "peak MiB",
        "left MiB",
        "space GiB",
        "min / best",
    ];
    let mut table = Table::new();
    let head = head.map(|title| match title {
        "min" | "median" | "first" => format!("{title} {unit}"),
        other => other.into(),
    });
    table.load_style(presets::ASCII_MARKDOWN).set_header(head);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let fastest = summaries.iter().map(|summary| summary.min).fold(f64::INFINITY, f64::min);
    for summary in &summaries {
        table.add_row(row(summary, factor, fastest));
    }
    let mut text = format!("### {}\n\n{}", pattern.name, capital(&pattern.about));
    if let Some(live) =
        summaries.iter().map(|summary| summary.live).reduce(f64::max).filter(|&live| live > 0.0)
    {
        text += &format!("; alive at once: {} MiB", mib(live));
    }
    text += &format!(".\n\n{table}\n");
    for ours in summary::judged(pattern.judge) {
        if let Some(verdict) = summary::judge(ours, pattern.judge, runs) {
            text += &format!("\n{}\n", sentence(ours, &verdict));
        }
    }
    text
}

fn row(summary: &Summary, factor: f64, fastest: f64) -> [String; 10] {
    [
        summary.peer.clone(),
        time(factor * summary.min),
        time(factor * summary.median),
        time(factor * summary.cold),
        number(summary.faults, 0),
        number(1e3 * summary.kernel, 1),
        mib(summary.peak),
        mib(summary.left),
        format!("{:.1}", summary.address_space / f64::from(1 << 30)),
        number(summary.min / fastest, 2),
    ]
}

/// A number with so many digits behind the point, or what stands for none: who failed has no times.
fn number(value: f64, digits: usize) -> String {
    if value.is_finite() { format!("{value:.digits$}") } else { "–".into() }
}

/// Says in a sentence whether a row is won.
#[must_use]
pub fn sentence(ours: &str, verdict: &Verdict) -> String {
    let Verdict { best, time, median, memory, .. } = verdict;
    let outcome = outcome(verdict);
    if verdict.failed() {
        return format!("{ours}: {outcome}.");
    }
    let leaner = leaner(verdict, "stays warm in less");
    format!(
        "{ours}: {outcome}: {time:.2} of the time of {best} (medians: {median:.2}), {memory:.2} of the memory \
         allowed{leaner}."
    )
}

fn mib(bytes: f64) -> String {
    format!("{:.0}", bytes / f64::from(1 << 20))
}

/// Writes a number with three digits that say something.
fn time(value: f64) -> String {
    match value {
        v if !v.is_finite() => "–".into(),
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 1.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// A pattern with one of ours that is judged by it: its name, what was measured of it, and the verdict.
type Judged<'a> = (&'a Pattern, &'static str, Summary, Verdict);

/// Everything that can be judged, in the order of the patterns.
fn judged<'a>(measured: &[Measured<'a>]) -> Vec<Judged<'a>> {
    let of = |(pattern, runs): &Measured<'a>| {
        let (pattern, summaries) = (*pattern, summary::of_pattern(runs));
        let one = |ours: &&'static str| {
            let own = summaries.iter().find(|summary| summary.peer == **ours)?.clone();
            Some((pattern, *ours, own, summary::judge(ours, pattern.judge, runs)?))
        };
        summary::judged(pattern.judge).iter().filter_map(one).collect::<Vec<_>>()
    };
    measured.iter().flat_map(of).collect()
}

/// What [`score`] gives.
pub const SCORE: [&str; 6] =
    ["rows", "won", "lost in time", "lost in memory alone", "slower by medians", "time, mean (medians)"];

/// Says how many rows are won and lost, and by how much, as cells of a table.
#[must_use]
pub fn score(measured: &[Measured]) -> [String; 6] {
    let judged = judged(measured);
    let [won, in_time, in_memory, by_medians] = counts(&judged).map(|count| count.to_string());
    let means = [mean_of(&judged, |verdict| verdict.time), mean_of(&judged, |verdict| verdict.median)];
    let means = format!("{:.2} ({:.2})", means[0], means[1]);
    [judged.len().to_string(), won, in_time, in_memory, by_medians, means]
}

/// How many rows are won, lost in time, lost in memory alone; and how many the medians would lose in time.
fn counts(judged: &[Judged]) -> [usize; 4] {
    let how_many = |is: fn(&Verdict) -> bool| judged.iter().filter(|(.., verdict)| is(verdict)).count();
    [
        how_many(|verdict| !verdict.time_lost() && !verdict.memory_lost()),
        how_many(Verdict::time_lost),
        how_many(|verdict| !verdict.time_lost() && verdict.memory_lost()),
        how_many(|verdict| verdict.median > summary::TIME_RATIO_MAX),
    ]
}

fn score_of(judged: &[Judged]) -> String {
    let [won, in_time, in_memory, by_medians] = counts(judged);
    format!(
        "Of {} rows, each against the best of all peers that ran it, {won} are won, {in_time} lost in time, and {in_memory} lost \
         in memory alone; by the medians {by_medians} would be lost in time. The best peer is chosen on each half of the turns and \
         compared on the other. The geometric mean of our times over that peer's is {:.2}, by the medians {:.2}{}.{}{}",
        judged.len(),
        mean_of(judged, |verdict| verdict.time),
        mean_of(judged, |verdict| verdict.median),
        without_pairs(judged),
        of_failures(judged),
        of_small_sides(judged),
    )
}

/// The geometric mean, of what did not fail.
fn mean_of(judged: &[Judged], of: fn(&Verdict) -> f64) -> f64 {
    geometric(judged.iter().filter(|(.., verdict)| !verdict.failed()).map(|(.., verdict)| of(verdict)))
}

#[expect(clippy::cast_precision_loss, reason = "some dozens of rows")]
fn geometric(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0_usize, 0.0), |(count, sum), value| (count + 1, sum + value.ln()));
    (sum / count as f64).exp()
}

/// Says how many rows have no part in the means, if there are any.
fn of_failures(judged: &[Judged]) -> String {
    match judged.iter().filter(|(.., verdict)| verdict.failed()).count() {
        0 => String::new(),
        rows => format!(" {rows} of those lost in time have none, as ours failed, and no part in the means."),
    }
}

/// Says what the means are without the many rows that time an allocation and its free alone, if there are any.
fn without_pairs(judged: &[Judged]) -> String {
    let others: Vec<Judged> =
        judged.iter().filter(|(pattern, ..)| !pattern.name.contains("pair")).cloned().collect();
    match judged.len() - others.len() {
        0 => String::new(),
        pairs => format!(
            "; without the {pairs} rows that allocate and free and touch nothing, {:.2} and {:.2}",
            mean_of(&others, |verdict| verdict.time),
            mean_of(&others, |verdict| verdict.median)
        ),
    }
}

/// Says which rows have fewer rivals, if there are any.
fn of_small_sides(judged: &[Judged]) -> String {
    match judged.iter().filter(|(pattern, ..)| pattern.judge == Judge::SmallSide).count() {
        0 => String::new(),
        rows => format!(
            " {rows} of the rows are one workload, small blocks alone, which are not ours: each is against the allocator that serves them there."
        ),
    }
}

/// Lays out how each allocator does over all patterns that it was run with: geometric means of its times and peaks over the least of
/// any allocator, and its worst time; the fastest first.
#[must_use]
pub fn together(measured: &[Measured]) -> String {
    let mut all: Vec<(String, Vec<[f64; 3]>)> = Vec::new();
    for (_, runs) in measured {
        let summaries = summary::of_pattern(runs);
        let values = |summary: &Summary| [summary.min, summary.median, summary.peak];
        let least = summaries
            .iter()
            .map(values)
            .fold([f64::INFINITY; 3], |a, b| std::array::from_fn(|i| a[i].min(b[i])));
        for summary in summaries.iter().filter(|summary| summary.min.is_finite()) {
            let own = values(summary);
            let ratios = std::array::from_fn(|i| own[i] / least[i]);
            match all.iter_mut().find(|(name, _)| *name == summary.peer) {
                Some((_, rows)) => rows.push(ratios),
                None => all.push((summary.peer.clone(), vec![ratios])),
            }
        }
    }
    let mean = |rows: &[[f64; 3]], i: usize| geometric(rows.iter().map(|row| row[i]));
    all.sort_by(|(_, a), (_, b)| mean(a, 0).total_cmp(&mean(b, 0)));
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "allocator",
        "time",
        "by medians",
        "its worst",
        "peak memory",
    ]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut some_lack = false;
    for (name, rows) in &all {
        let worst = rows.iter().map(|row| row[0]).fold(0.0, f64::max);
        let mut cells = [mean(rows, 0), mean(rows, 1), worst, mean(rows, 2)].map(|v| format!("{v:.2}"));
        if rows.len() < measured.len() {
            some_lack = true;
            cells[0] += &format!(" ({})", rows.len());
        }
        table.add_row([name.clone()].into_iter().chain(cells));
    }
    let lacking =
        if some_lack { "; in brackets of how many, where it ran fewer or failed in some" } else { "" };
    format!(
        "{table}\n\nOver {} workloads, as multiples of whichever allocator was best at each: geometric means of the times (fastest rounds, \
         medians), the worst of its times, and the geometric mean of the peaks{lacking}.",
        measured.len()
    )
}

/// Lays out who wins: a row per pattern, then the sum of all.
#[must_use]
pub fn overview(measured: &[Measured]) -> String {
    let judged = judged(measured);
    if judged.is_empty() {
        return "Nothing of ours beside a peer was measured.\n".into();
    }
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "pattern",
        "ours",
        "best peer",
        "time",
        "median",
        "peak MiB",
        "alive MiB",
        "memory",
        "outcome",
    ]);
    for column in table.column_iter_mut().skip(3).take(5) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for (pattern, ours, own, verdict) in &judged {
        table.add_row([
            pattern.name.clone(),
            (*ours).into(),
            verdict.best.clone(),
            number(verdict.time, 2),
            number(verdict.median, 2),
            mib(own.peak),
            mib(own.live),
            format!("{:.2}", verdict.memory),
            format!("{}{}", outcome(verdict), leaner(verdict, "has less")),
        ]);
    }
    format!(
        "{}\n\n- *time*: ours over the best peer's, by the fastest rounds; lost above {TIME_RATIO_MAX:.2}. The best peer is chosen \
         on one half of the turns and compared on the other, and the other way round: the geometric mean of both.\n- *median*: the same by the medians; shown, not judged.\n- \
         *memory*: our peak over what is allowed, {MEMORY_RATIO_MAX:.2} of what was alive at once and {:.0} MiB; lost above 1, or \
         where a peer that also stays warm (at most {WARM_FAULTS_MAX:.0} faults a round, or no more than ours) peaks lower by more than \
         {:.0} MiB, which is what programs differ by without any pattern: its name stands in the last column.\n- *turns differ*: the fastest round of ours or of the best peer is more than {:.0} % faster in one \
         half of the turns than in the other.\n\n{table}\n",
        score_of(&judged),
        MEMORY_SLACK_BYTES / f64::from(1 << 20),
        MEMORY_SLACK_BYTES / 4.0 / f64::from(1 << 20),
        100.0 * (SETTLED_RATIO_MAX - 1.0),
    )
}

/// Names the peer that stays warm in less memory, if there is one.
fn leaner(verdict: &Verdict, how: &str) -> String {
    verdict.leaner.as_ref().map(|name| format!("; {name} {how}")).unwrap_or_default()
}

fn outcome(verdict: &Verdict) -> String {
    if verdict.failed() {
        return "**LOST**: it failed".into();
    }
    let outcome = match (verdict.time_lost(), verdict.memory_lost()) {
        (false, false) => "won",
        (true, false) => "**LOST** in time",
        (false, true) => "**LOST** in memory",
        (true, true) => "**LOST** in time and memory",
    };
    format!("{outcome}{}", if verdict.agreed { "" } else { " (turns differ)" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patterns;
    use crate::record::{Outcome, Round};

    fn run(pattern: &Pattern, peer: &str, turn: u32, seconds: f64) -> Run {
        let round = |round| Round { round, seconds, ..Round::default() };
        let outcome =
            Outcome { rounds: vec![round(0), round(1)], peak_resident_bytes: 1 << 20, ..Outcome::default() };
        Run { outcome, ..Run::failed(&pattern.name, peer, turn) }
    }

    #[test]
    fn who_lacks_workloads_says_how_many_it_has() {
        let all = patterns::all();
        let both = |pattern| vec![run(pattern, peers::OURS, 0, 2.0), run(pattern, "glibc", 0, 1.0)];
        let failed = vec![Run::failed(&all[1].name, peers::OURS, 0), run(&all[1], "glibc", 0, 1.0)];
        let measured =
            [(&all[0], both(&all[0])), (&all[1], failed), (&all[2], vec![run(&all[2], "glibc", 0, 1.0)])];
        let text = together(&measured);
        let row = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(&format!("| {name} "))).expect("has a row");
            line.split('|').map(str::trim).nth(2).expect("has a time").to_owned()
        };
        assert_eq!((row(peers::OURS).as_str(), row("glibc").as_str()), ("2.00 (1)", "1.00"), "{text}");
        assert!(text.contains("Over 3 workloads") && text.contains("in brackets of how many"), "{text}");
        assert!(!together(&measured[..1]).contains("brackets"));
    }

    #[test]
    fn a_row_in_which_ours_failed_is_lost() {
        let all = patterns::all();
        let won = vec![run(&all[0], peers::OURS, 0, 1.0), run(&all[0], "glibc", 0, 1.0)];
        let failed = vec![Run::failed(&all[1].name, peers::OURS, 0), run(&all[1], "glibc", 0, 1.0)];
        let text = overview(&[(&all[0], won), (&all[1], failed.clone())]);
        assert!(
            text.starts_with(
                "Of 2 rows, each against the best of all peers that ran it, 1 are won, 1 lost in time,"
            ),
            "{text}"
        );
        assert!(
            text.contains("over that peer's is 1.00, by the medians 1.00. 1 of those lost in time have none"),
            "{text}"
        );
        assert!(text.contains("**LOST**: it failed"), "{text}");
        assert!(of_pattern(&all[1], &failed).ends_with("\nnalloc: **LOST**: it failed.\n"));
    }
}
