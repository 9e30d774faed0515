//! One table per pattern, in Markdown, so that what a terminal shows is what a document holds.

use comfy_table::{CellAlignment, Table, presets};

use crate::patterns::Pattern;
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
        format!("{:.0}", summary.faults),
        format!("{:.1}", 1e3 * summary.kernel),
        mib(summary.peak),
        mib(summary.left),
        format!("{:.1}", summary.address_space / f64::from(1 << 30)),
        format!("{:.2}", summary.min / fastest),
    ]
}

/// Says in a sentence whether a row is won.
#[must_use]
pub fn sentence(ours: &str, verdict: &Verdict) -> String {
    let Verdict { best, time, median, memory, leaner, .. } = verdict;
    let outcome = outcome(verdict);
    let leaner = leaner.as_ref().map(|name| format!("; {name} stays warm in less")).unwrap_or_default();
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

/// Lays out who wins: a row per pattern, then the mean of all.
#[must_use]
pub fn overview(measured: &[Measured]) -> String {
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
    let (mut logarithms, mut medians) = (Vec::new(), Vec::new());
    for (pattern, runs) in measured {
        for ours in summary::judged(pattern.judge) {
            let summaries = summary::of_pattern(runs);
            let own = summaries.iter().find(|summary| summary.peer == *ours);
            let (Some(own), Some(verdict)) = (own, summary::judge(ours, pattern.judge, runs)) else {
                continue;
            };
            logarithms.push(verdict.time.ln());
            medians.push(verdict.median.ln());
            table.add_row([
                pattern.name.clone(),
                (*ours).into(),
                verdict.best.clone(),
                format!("{:.2}", verdict.time),
                format!("{:.2}", verdict.median),
                mib(own.peak),
                mib(own.live),
                format!("{:.2}", verdict.memory),
                outcome(&verdict),
            ]);
        }
    }
    if logarithms.is_empty() {
        return "Nothing of ours beside a peer was measured.\n".into();
    }
    let count = logarithms.len();
    #[expect(clippy::cast_precision_loss, reason = "some dozens of rows")]
    let mean = |of: &[f64]| (of.iter().sum::<f64>() / count as f64).exp();
    format!(
        "Time is ours over the best peer's, by the fastest rounds, and beside it by the medians, which are not judged; \
         memory is ours over what is allowed: {MEMORY_RATIO_MAX:.2} of what was \
         alive at once and {:.0} MiB. The best peer is chosen on one half of the turns and compared on the other. \
         Lost is a time above {TIME_RATIO_MAX:.2}, a memory above 1, or a peak above that of a peer that also stays \
         warm (at most {WARM_FAULTS_MAX:.0} faults a round). Turns differ where the fastest round of ours or of the \
         best peer is still more than {:.0} % faster in one half of the turns than in the other.\n\n{table}\n\nGeometric mean of the times: {:.2} \
         over {count} rows; of the medians: {:.2}.\n",
        MEMORY_SLACK_BYTES / f64::from(1 << 20),
        100.0 * (SETTLED_RATIO_MAX - 1.0),
        mean(&logarithms),
        mean(&medians),
    )
}

fn outcome(verdict: &Verdict) -> String {
    let outcome = match (verdict.time_lost(), verdict.memory_lost()) {
        (false, false) => "won",
        (true, false) => "**LOST** in time",
        (false, true) => "**LOST** in memory",
        (true, true) => "**LOST** in time and memory",
    };
    format!("{outcome}{}", if verdict.agreed { "" } else { " (turns differ)" })
}
