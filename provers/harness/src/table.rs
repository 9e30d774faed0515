//! The one table that a comparison ends with.
//!
//! Why it is here: its layout is Markdown, so what a terminal shows can be put into a document as it is.

use comfy_table::{CellAlignment, Table, presets};

use crate::allocator::Choice;
use crate::record::{Record, Run};
use crate::statistics::{Summary, ratio};

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

/// Lays the runs out: for each statement a row per allocator, then a row of ratios for each rival of the baseline.
#[must_use]
pub fn render(runs: &[Run]) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(HEADER);
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for statement in statements(runs) {
        let of = |choice| {
            let mine = |run: &&Run| run.statement == statement && run.allocator == choice;
            let mine: Vec<&Run> = runs.iter().filter(mine).collect();
            (!mine.is_empty()).then(|| (choice, Summary::of(&mine)))
        };
        let summaries: Vec<(Choice, Summary)> = Choice::ALL.into_iter().filter_map(of).collect();
        for (choice, summary) in &summaries {
            table.add_row(row(statement, choice.title(), summary));
        }
        if let Some((baseline, rivals)) = summaries.split_first() {
            for rival in rivals {
                table.add_row(ratios(statement, rival, baseline));
            }
        }
    }
    table.to_string()
}

/// Says what the columns are and where they were measured.
#[must_use]
pub fn caption(record: &Record, rounds: u32) -> String {
    let Record { machine, threads, runs } = record;
    let turns = runs.iter().map(|run| run.turn + 1).max().unwrap_or(0);
    let proofs: usize = runs.iter().map(|run| run.rounds.len()).sum();
    let turns = if turns == 1 { "1 turn".into() } else { format!("{turns} turns") };
    format!(
        "{proofs} proofs, each verified, on {threads} threads: {turns} of 1 cold and {} warm per statement and allocator.\n\
         Faults and kernel time are of the median warm proof, the peak is the highest of any turn, the hit rate counts\n\
         the cold proof too. {machine}.",
        rounds - 1
    )
}

/// The statements in the order in which they first ran.
fn statements(runs: &[Run]) -> Vec<&str> {
    let mut seen: Vec<&str> = Vec::new();
    for run in runs {
        if !seen.contains(&run.statement.as_str()) {
            seen.push(&run.statement);
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
    (rival, ours): &(Choice, Summary),
    (base, theirs): &(Choice, Summary),
) -> [String; 9] {
    let cell = |value: fn(&Summary) -> f64| {
        ratio(value(ours), value(theirs)).map_or_else(|| NONE.into(), |ratio| format!("{ratio:.2}"))
    };
    [
        statement.into(),
        format!("{} / {}", rival.title(), base.title()),
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
    use crate::allocator::Choice;
    use crate::machine::Machine;
    use crate::record::Record;
    use crate::statistics::tests::run;

    fn cells(line: &str) -> Vec<&str> {
        line.trim_matches('|').split('|').map(str::trim).collect()
    }

    #[test]
    fn a_statement_has_a_row_per_allocator_and_their_ratio() {
        let runs = [
            run(Choice::System, 0, &[4.0, 2.0, 2.0], 1_000),
            run(Choice::NAlloc, 0, &[3.0, 1.0, 1.0], 1_100),
        ];
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
    fn one_allocator_alone_has_no_ratio() {
        let table = render(&[run(Choice::NAlloc, 0, &[3.0, 1.0], 9)]);
        assert_eq!(table.lines().count(), 3, "{table}");
    }

    #[test]
    fn a_record_survives_its_file_and_the_caption_counts_it() {
        let runs = vec![run(Choice::System, 0, &[4.0, 2.0], 5), run(Choice::System, 1, &[4.0, 2.0], 5)];
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
