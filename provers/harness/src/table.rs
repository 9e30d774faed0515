//! The one table that a comparison ends with.
//!
//! Why it is here: its layout is Markdown, so what a terminal shows can be put into a document as it is.

use comfy_table::{CellAlignment, Table, presets};

use crate::record::{Record, Run};
use crate::statistics::{Summary, kinds, ratio};

const HEADER: [&str; 9] = [
    "statement",
    "allocator",
    "cold s",
    "warm s, min",
    "warm s, median",
    "faults",
    "kernel s",
    "peak MiB",
    "hit rate",
];

/// What a cell says where there is nothing to say.
const NONE: &str = "–";

/// A process whose warm proofs fault no more than this keeps its memory: a prover starts threads and grows its small
/// side, which is a few dozen faults, and one that gives memory back has a hundred thousand.
const WARM_FAULTS_MAX: f64 = 1_500.0;

/// Lays the runs out: for each statement a row per allocator, then the ratio of the last one to the first, or where
/// there are more than two, to the fastest and to the leanest of the others that stay warm.
#[must_use]
pub fn render(runs: &[Run]) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(HEADER);
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for statement in seen(runs.iter().map(|run| run.statement.as_str())) {
        let runs: Vec<&Run> = runs.iter().filter(|run| run.statement == statement).collect();
        let of = |name: &'_ str| {
            let mine: Vec<&Run> = runs.iter().filter(|run| run.allocator == name).copied().collect();
            (name.to_owned(), Summary::of(&mine))
        };
        let summaries: Vec<(String, Summary)> =
            seen(runs.iter().map(|run| run.allocator.as_str())).into_iter().map(of).collect();
        for (name, summary) in &summaries {
            table.add_row(row(statement, name, summary));
        }
        if let Some((last, others)) = summaries.split_last() {
            // Ours over another small side is not whom ours is compared with.
            let others: Vec<_> = others.iter().filter(|other| !other.0.starts_with(&last.0)).collect();
            for base in bases(&others) {
                table.add_row(ratios(statement, last, base));
            }
        }
    }
    table.to_string()
}

/// Whom the last allocator is compared with: the only other one, or the fastest and the leanest that stays warm.
fn bases<'a>(others: &[&'a (String, Summary)]) -> Vec<&'a (String, Summary)> {
    if others.len() < 2 {
        return others.to_vec();
    }
    let least = |value: fn(&Summary) -> f64, among: &dyn Fn(&Summary) -> bool| {
        let among = others.iter().copied().filter(|(_, summary)| among(summary));
        among.min_by(|(_, a), (_, b)| value(a).total_cmp(&value(b)))
    };
    let fastest = least(|summary| summary.warm_seconds_median, &|_| true);
    let leanest =
        least(|summary| summary.peak_resident_bytes, &|summary| summary.warm_faults <= WARM_FAULTS_MAX);
    let leanest = leanest.filter(|leanest| fastest.is_none_or(|fastest| fastest.0 != leanest.0));
    fastest.into_iter().chain(leanest).collect()
}

/// Says what the columns are and where they were measured.
#[must_use]
pub fn caption(record: &Record, rounds: u32) -> String {
    let Record { machine, threads, runs } = record;
    let turns = runs.iter().map(|run| run.turn + 1).max().unwrap_or(0);
    let proofs: usize = runs.iter().map(|run| run.rounds.len()).sum();
    let turns = if turns == 1 { "1 turn".into() } else { format!("{turns} turns") };
    format!(
        "{proofs} proofs, each verified, on {threads} threads: {turns} of {} per statement and allocator.\n\
         Faults and kernel time are of the median warm proof, the peak is the highest of any turn, the hit rate counts\n\
         the cold proof too. {machine}.",
        kinds(rounds as usize)
    )
}

/// The names in the order in which they first ran.
fn seen<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen: Vec<&str> = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

fn row(statement: &str, allocator: &str, summary: &Summary) -> [String; 9] {
    [
        statement.into(),
        allocator.into(),
        format!("{:.3}", summary.cold_seconds),
        format!("{:.3}", summary.warm_seconds_min),
        format!("{:.3}", summary.warm_seconds_median),
        format!("{:.0}", summary.warm_faults),
        format!("{:.3}", summary.warm_kernel_seconds),
        format!("{:.0}", summary.peak_resident_bytes / f64::from(1 << 20)),
        summary.hit_rate.map_or_else(|| NONE.into(), |rate| format!("{:.1} %", 100.0 * rate)),
    ]
}

fn ratios(
    statement: &str,
    (rival, ours): &(String, Summary),
    (base, theirs): &(String, Summary),
) -> [String; 9] {
    let cell = |value: fn(&Summary) -> f64| {
        ratio(value(ours), value(theirs)).map_or_else(|| NONE.into(), |ratio| format!("{ratio:.2}"))
    };
    [
        statement.into(),
        format!("{rival} / {base}"),
        cell(|summary| summary.cold_seconds),
        cell(|summary| summary.warm_seconds_min),
        cell(|summary| summary.warm_seconds_median),
        cell(|summary| summary.warm_faults),
        cell(|summary| summary.warm_kernel_seconds),
        cell(|summary| summary.peak_resident_bytes),
        NONE.into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::{caption, render};
    use crate::machine::Machine;
    use crate::record::Record;
    use crate::statistics::tests::run;

    fn cells(line: &str) -> Vec<&str> {
        line.trim_matches('|').split('|').map(str::trim).collect()
    }

    #[test]
    fn a_statement_has_a_row_per_allocator_and_their_ratio() {
        let runs = [run("System", 0, &[4.0, 2.0, 2.0], 1_000), run("NAlloc", 0, &[3.0, 1.0, 1.0], 1_100)];
        let table = render(&runs);
        let rows: Vec<Vec<&str>> = table.lines().skip(2).map(cells).collect();
        let row = |line: &'static str| cells(line);
        assert_eq!(
            rows,
            [
                row("counting | System | 4.000 | 2.000 | 2.000 | 1500 | 1.000 | 1000 | –"),
                row("counting | NAlloc | 3.000 | 1.000 | 1.000 | 1500 | 0.500 | 1100 | 50.0 %"),
                row("counting | NAlloc / System | 0.75 | 0.50 | 0.50 | 1.00 | 0.50 | 1.10 | –"),
            ]
        );
    }

    #[test]
    fn many_are_compared_with_the_fastest_and_the_leanest() {
        let runs = [
            run("System", 0, &[4.0, 3.0, 3.0], 900),
            run("fast", 0, &[4.0, 1.0, 1.0], 2_000),
            run("lean", 0, &[4.0, 2.0, 2.0], 800),
            run("NAlloc over lean", 0, &[1.0, 0.5, 0.5], 700),
            run("NAlloc", 0, &[3.0, 1.0, 1.0], 1_000),
        ];
        let table = render(&runs);
        let rows: Vec<Vec<&str>> = table.lines().skip(7).map(cells).collect();
        assert_eq!(
            rows,
            [
                cells("counting | NAlloc / fast | 0.75 | 1.00 | 1.00 | 1.00 | 1.00 | 0.50 | –"),
                cells("counting | NAlloc / lean | 0.75 | 0.50 | 0.50 | 1.00 | 0.50 | 1.25 | –"),
            ]
        );
    }

    #[test]
    fn one_allocator_alone_has_no_ratio() {
        let table = render(&[run("NAlloc", 0, &[3.0, 1.0], 9)]);
        assert_eq!(table.lines().count(), 3, "{table}");
    }

    #[test]
    fn a_record_survives_its_file_and_the_caption_counts_it() {
        let runs = vec![run("System", 0, &[4.0, 2.0], 5), run("System", 1, &[4.0, 2.0], 5)];
        let record = Record { machine: Machine::here(), threads: 3, runs };
        let text = serde_json::to_string(&record).expect("records are plain data");
        assert_eq!(serde_json::from_str::<Record>(&text).expect("and come back"), record);
        let caption = caption(&record, 2);
        assert!(
            caption.starts_with("4 proofs, each verified, on 3 threads: 2 turns of 1 cold and 1 warm"),
            "{caption}"
        );
    }
}
