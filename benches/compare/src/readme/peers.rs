//! What provers take under ours beside allocators that keep their memory.
//!
//! Why one table: records are of several machines and days, and a reader wants the last of each kind, not each.

use std::path::{Path, PathBuf};

use comfy_table::Table;
use prove_harness::Error;
use prove_harness::record::Record;
use prove_harness::statistics::Summary;

use super::{Folders, mib, place, read, summaries, table};
use crate::peers::by_name;
use crate::{provers, record, summary};

/// Those that ours is compared with: each keeps its memory, as prover teams set it.
const KEEPERS: [&str; 5] =
    ["glibc-tuned", "jemalloc-plonky3", "jemalloc-openvm", "mimalloc-keep", "mimalloc2-keep"];

/// The records of provers under all allocators in a folder.
fn compared_records(folder: &Path) -> Result<Vec<Record>, Error> {
    let files = provers::files(folder).into_iter().filter(|file| file.exists());
    files.map(|file| read(&file, "")).collect()
}

/// Proofs of a statement under ours and under those that keep their memory.
struct Proofs {
    statement: String,
    threads: usize,
    /// Of ours, and of each of the others in their order.
    summaries: Vec<Summary>,
    /// The folder of the record, and its machine.
    from: (PathBuf, String),
}

/// Reads what was measured of provers under all allocators there.
fn proofs(folder: &Path) -> Result<Vec<Proofs>, Error> {
    let of = |record: Record| {
        let records = [record];
        let shown = ["NAlloc"].into_iter().chain(KEEPERS);
        let columns: Vec<_> = shown.map(|name| summaries(&records, name)).collect();
        let row = |row: usize| Proofs {
            statement: columns[0][row].0.to_owned(),
            threads: records[0].threads,
            summaries: columns.iter().map(|column| column[row].1).collect(),
            from: (folder.to_owned(), records[0].machine.to_string()),
        };
        (0..columns[0].len()).map(row).collect::<Vec<_>>()
    };
    Ok(compared_records(folder)?.into_iter().flat_map(of).collect())
}

/// Of each statement and number of threads the last of them, beside others of the same statement.
fn last_of_each(all: Vec<Proofs>) -> Vec<Proofs> {
    let mut last: Vec<Proofs> = Vec::new();
    let mut statements = Vec::new();
    for proofs in all {
        if !statements.contains(&proofs.statement) {
            statements.push(proofs.statement.clone());
        }
        last.retain(|before| (&before.statement, before.threads) != (&proofs.statement, proofs.threads));
        last.push(proofs);
    }
    let place = |proofs: &Proofs| statements.iter().position(|statement| *statement == proofs.statement);
    last.sort_by_key(|proofs| (place(proofs), proofs.threads));
    last
}

/// The rows of the table.
fn shown(from: &Folders) -> Result<Vec<Proofs>, Error> {
    let all: Vec<Vec<Proofs>> = from.of_patterns().into_iter().map(proofs).collect::<Result<_, _>>()?;
    let rows = last_of_each(all.into_iter().flatten().collect());
    if rows.is_empty() {
        return Err(Error::new("no prover was compared under all allocators"));
    }
    Ok(rows)
}

/// Says in how many rows ours is ahead, and where it is furthest behind.
///
/// # Errors
/// As [`peers`].
pub(super) fn in_words(from: &Folders) -> Result<String, Error> {
    let rows = shown(from)?;
    Ok(format!("{} {}", who_is_ahead(&rows), furthest_behind(&rows)))
}

/// Lays out what proofs took under ours and under those that keep their memory: of each statement and number of threads what the last
/// record has that the README shows.
///
/// # Errors
/// When a file cannot be read, or no record holds any.
pub(super) fn peers(from: &Folders) -> Result<String, Error> {
    let rows = shown(from)?;
    let meaning = |name: &&str| by_name(name).map(|peer| format!("`{name}`: {}", peer.about));
    let meanings: Vec<String> = KEEPERS.iter().filter_map(meaning).collect();
    let (marks, sources) = marked(&rows);
    let sources: Vec<String> = sources.iter().map(said_of).collect::<Result<_, _>>()?;
    Ok(format!(
        "{}\n\nMedian warm proof and highest peak. {} {}. Records: {}.",
        peers_table(&rows, &marks),
        who_is_ahead(&rows),
        meanings.join("; "),
        sources.join("; ")
    ))
}

/// A record, with as many threads.
type Source<'a> = (char, &'a Proofs);

/// Gives each row the letter of its record, and returns one row of each with its letter.
fn marked(rows: &[Proofs]) -> (Vec<char>, Vec<Source<'_>>) {
    let mut sources: Vec<Source> = Vec::new();
    let mut mark = |row| {
        let of = |row: &Proofs| (row.threads, row.from.clone());
        if let Some((mark, _)) = sources.iter().find(|(_, other)| of(other) == of(row)) {
            return *mark;
        }
        let mark = ('a'..='z').nth(sources.len()).unwrap_or('?');
        sources.push((mark, row));
        mark
    };
    (rows.iter().map(&mut mark).collect(), sources)
}

/// Says which record a letter stands for, of which machine, and what else that says of provers.
fn said_of((mark, row): &Source) -> Result<String, Error> {
    let Proofs { threads, from: (folder, machine), .. } = row;
    let about = record::about(folder)?;
    let more = about.iter().filter_map(|line| line.strip_prefix("provers: ")).map(|line| format!("; {line}"));
    Ok(format!("*{mark}*, on {threads} threads, {} ({machine}{})", place(folder), more.collect::<String>()))
}

/// The least of what the others took that were measured.
fn least_of_others(row: &Proofs, of: fn(&Summary) -> f64) -> f64 {
    let others = row.summaries[1..].iter().filter(|other| other.warm_seconds_median.is_finite());
    others.map(of).fold(f64::INFINITY, f64::min)
}

/// Names the row in which ours takes the most of the fastest one's time.
fn furthest_behind(rows: &[Proofs]) -> String {
    let behind = |row: &Proofs| {
        row.summaries[0].warm_seconds_median / least_of_others(row, |other| other.warm_seconds_median)
    };
    let last = rows.iter().max_by(|a, b| behind(a).total_cmp(&behind(b)));
    last.map_or_else(String::new, |row| {
        let (times, Proofs { statement, threads, .. }) = (behind(row), row);
        format!("It takes {times:.2} of the fastest one's time at worst ({statement} on {threads} threads).")
    })
}

/// Counts in how many rows ours is ahead of all others.
fn who_is_ahead(rows: &[Proofs]) -> String {
    let within = |of: fn(&Summary) -> f64, times: f64| {
        let is = |row: &&Proofs| least_of_others(row, of) * times >= of(&row.summaries[0]);
        rows.iter().filter(is).count()
    };
    let (seconds, peak) = (|row: &Summary| row.warm_seconds_median, |row: &Summary| row.peak_resident_bytes);
    format!(
        "Of {} rows NAlloc has the least peak in {}, the fastest median in {}, and is within {:.0} % of the fastest in {}.",
        rows.len(),
        within(peak, 1.0),
        within(seconds, 1.0),
        (summary::TIME_RATIO_MAX - 1.0) * 100.0,
        within(seconds, summary::TIME_RATIO_MAX)
    )
}

fn peers_table(rows: &[Proofs], marks: &[char]) -> Table {
    let head = ["proof", "threads", "record", "NAlloc"].into_iter().chain(KEEPERS).map(String::from);
    let mut table = table(head);
    for (Proofs { statement, threads, summaries, .. }, mark) in rows.iter().zip(marks) {
        let cell = |summary: &Summary| match summary.warm_seconds_median {
            seconds if seconds.is_finite() => {
                format!("{seconds:.3} s, {} MiB", mib(summary.peak_resident_bytes))
            }
            _ => "–".into(),
        };
        let names = [statement.clone(), threads.to_string(), mark.to_string()];
        table.add_row(names.into_iter().chain(summaries.iter().map(cell)));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proofs(statement: &str, threads: usize, seconds: [f64; 2], from: &str) -> Proofs {
        let summary = |seconds| Summary {
            warm_seconds_median: seconds,
            peak_resident_bytes: 2.0 - seconds,
            ..Summary::of(&[])
        };
        let from = (PathBuf::from(from), "a machine".into());
        Proofs { statement: statement.into(), threads, summaries: seconds.map(summary).to_vec(), from }
    }

    #[test]
    fn of_each_statement_and_number_of_threads_the_last_record_is_shown() {
        let all = vec![
            proofs("a", 4, [1.0, 1.0], "1"),
            proofs("b", 2, [1.0, 1.0], "1"),
            proofs("c", 2, [1.0, f64::NAN], "2"),
            proofs("b", 2, [1.0, 1.0], "2"),
            proofs("a", 2, [1.0, 1.0], "2"),
        ];
        let shown = last_of_each(all);
        let of = |row: &Proofs| (row.statement.clone(), row.threads, row.from.0.display().to_string());
        let is = [("a", 2, "2"), ("a", 4, "1"), ("b", 2, "2"), ("c", 2, "2")];
        assert_eq!(
            shown.iter().map(of).collect::<Vec<_>>(),
            is.map(|(name, threads, from)| (name.to_owned(), threads, from.to_owned()))
        );
    }

    /// Rows of six records stood in one table, and nobody could tell which was of which.
    #[test]
    fn each_row_names_its_record() {
        let rows = [("a", 2, "2"), ("a", 4, "1"), ("b", 2, "2")]
            .map(|(name, threads, from)| proofs(name, threads, [1.0; 2], from));
        let (marks, sources) = marked(&rows);
        assert_eq!(marks, ['a', 'b', 'a']);
        assert_eq!(
            sources.iter().map(|(mark, row)| (*mark, row.threads)).collect::<Vec<_>>(),
            [('a', 2), ('b', 4)]
        );
        let table = peers_table(&rows, &marks).to_string();
        let cells: Vec<&str> = table.lines().nth(3).expect("has rows").split('|').map(str::trim).collect();
        assert_eq!(cells[1..4], ["a", "4", "b"]);
        let there = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("record").join("2026-11-23");
        let row = proofs("a", 4, [1.0; 2], there.to_str().expect("is plain"));
        let said = said_of(&('b', &row)).expect("says where it comes from");
        assert!(said.starts_with("*b*, on 4 threads, `benches/record/2026-11-23` (a machine; those of Plonky3 transposed on one"), "{said}");
    }

    #[test]
    fn who_is_ahead_is_counted() {
        let rows = [[0.5, 0.4], [0.5, 0.49], [0.5, 0.6], [0.5, f64::NAN]];
        let said = who_is_ahead(&rows.map(|seconds| proofs("a", 2, seconds, "1")));
        assert!(
            said.contains("Of 4 rows NAlloc has the least peak in 3, the fastest median in 2,"),
            "{said}"
        );
        assert!(said.ends_with("within 5 % of the fastest in 3."), "{said}");
    }

    #[test]
    fn the_row_that_is_furthest_behind_is_named() {
        let rows = [("a", [0.5, 0.49]), ("b", [0.5, 0.4]), ("c", [0.5, 0.6]), ("d", [0.5, f64::NAN])];
        let said = furthest_behind(&rows.map(|(name, seconds)| proofs(name, 2, seconds, "1")));
        assert_eq!(said, "It takes 1.25 of the fastest one's time at worst (b on 2 threads).");
    }
}
