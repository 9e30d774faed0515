//! Arenas beside arenas: the same command runs the package that has them, and keeps its turns in the same record.
//!
//! Why a program of its own: arenas are called by name and not through the global allocator, so one process holds all of
//! them, and takes turns between them within it.

use std::path::Path;
use std::process::{Command, Stdio};

use comfy_table::{CellAlignment, Table, presets};
use prove_harness::Error;
use prove_harness::statistics::median;
use serde::{Deserialize, Serialize};

use crate::build::{self, Program};
use crate::compare::{Settings, foreign_settings};
use crate::summary::TIME_RATIO_MAX;

/// A part of the comparison: what it is called on the command line, and what it does.
pub type Group = (&'static str, &'static str);

/// All parts, in the order of the tables.
pub const GROUPS: [Group; 8] = [
    ("arenas/objects", "values of 8 to 256 bytes, one after another"),
    ("arenas/arrays", "arrays of 1 KiB to 64 MiB, filled"),
    ("arenas/rounds", "256 MiB filled and reset, and the first time"),
    ("arenas/vectors", "vectors that grow inside an arena"),
    ("arenas/shared", "one arena for all threads, beside a lock"),
    ("arenas/build", "graphs of 10^2 to 10^7 nodes, made and dropped"),
    ("arenas/search-40", "depth-first search of such a graph, 40 bytes a node"),
    ("arenas/search-64", "the same, 64 bytes a node"),
];

/// One turn of one arena at one row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// What is done in this row and those around it.
    pub table: String,
    /// The size, or what else differs from row to row.
    pub row: String,
    /// The unit of the time.
    pub unit: String,
    /// The arena that the others are compared with.
    pub reference: String,
    /// Whose turn it is.
    pub arena: String,
    /// Which turn, from 0.
    pub turn: u32,
    /// How long it took.
    pub time: f64,
    /// Page faults meanwhile.
    pub faults: u64,
}

/// Runs `groups` one after another, prints their tables on standard output, and returns all turns, with a line for each
/// group that failed.
///
/// # Errors
/// When the program does not build.
pub fn compare(groups: &[Group], settings: Settings) -> Result<(Vec<Turn>, Vec<String>), Error> {
    let (mut turns, mut failed) = (Vec::new(), Vec::new());
    if groups.is_empty() {
        return Ok((turns, failed));
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("arenas");
    let program = Program::named("bench-arenas", folder);
    let program = build::built(&program, "").map_err(|cause| Error::doing("building bench-arenas", cause))?;
    for (name, _) in groups {
        eprintln!("{name}");
        match run(&program, name, settings.quick) {
            Ok(more) => {
                print!("{}", tables(&more));
                turns.extend(more);
            }
            Err(reason) => {
                let line = format!("failed: {name}: {reason}");
                eprintln!("{line}");
                failed.push(line);
            }
        }
    }
    Ok((turns, failed))
}

fn run(program: &Path, name: &str, quick: bool) -> Result<Vec<Turn>, Error> {
    let mut command = Command::new(program);
    command
        .arg("--raw")
        .arg(name.trim_start_matches("arenas/"))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    if quick {
        command.arg("--quick");
    }
    foreign_settings().for_each(|variable| _ = command.env_remove(variable));
    let output = command.output().map_err(|cause| Error::doing("it did not start", cause))?;
    if !output.status.success() {
        return Err(Error::new(output.status.to_string()));
    }
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let turns: Result<Vec<Turn>, _> = lines.lines().map(serde_json::from_str).collect();
    turns.map_err(|cause| Error::doing("reading its turns", cause))
}

/// Lays turns out: a table for each thing that is done, with the medians, and the ratio of ours to the reference.
#[must_use]
pub fn tables(turns: &[Turn]) -> String {
    let names = distinct(turns.iter().map(|turn| turn.table.as_str()));
    names
        .into_iter()
        .map(|name| table(&turns.iter().filter(|turn| turn.table == name).collect::<Vec<_>>()))
        .collect()
}

fn table(turns: &[&Turn]) -> String {
    let Some(first) = turns.first() else { return String::new() };
    let arenas = distinct(turns.iter().map(|turn| turn.arena.as_str()));
    let ours: Vec<&str> = arenas.iter().copied().filter(|arena| arena.starts_with("zk-nalloc")).collect();
    let of = |row: &str, arena: &str| -> Vec<&Turn> {
        turns.iter().copied().filter(|turn| turn.row == row && turn.arena == arena).collect()
    };
    let time = |row: &str, arena: &str| {
        let turns = of(row, arena);
        (!turns.is_empty()).then(|| median(turns.iter().map(|turn| turn.time)))
    };
    let mut table = Table::new();
    let mut head = vec![first.unit.clone()];
    head.extend(arenas.iter().map(|arena| (*arena).to_owned()));
    head.extend(ours.iter().map(|arena| format!("{arena} / {}", first.reference)));
    head.extend(ours.iter().take(1).map(|arena| format!("faults of {arena}")));
    table.load_style(presets::ASCII_MARKDOWN).set_header(head);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for row in distinct(turns.iter().map(|turn| turn.row.as_str())) {
        let mut cells = vec![row.to_owned()];
        cells.extend(arenas.iter().map(|arena| time(row, arena).map_or_else(|| "–".into(), digits)));
        let reference = time(row, &first.reference);
        cells.extend(ours.iter().map(|arena| {
            time(row, arena)
                .zip(reference)
                .map_or_else(|| "–".into(), |(time, reference)| ratio(time / reference))
        }));
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let faults = |arena: &&str| median(of(row, arena).iter().map(|turn| turn.faults as f64));
        cells.extend(ours.iter().take(1).map(|arena| format!("{:.0}", faults(arena))));
        table.add_row(cells);
    }
    let turns = turns.iter().map(|turn| turn.turn).max().unwrap_or(0) + 1;
    format!(
        "\n### Arenas: {}\n\nMedians of up to {turns} turns, in {}.\n\n{table}\n",
        first.table, first.unit
    )
}

/// A ratio, marked where it says that we lost.
fn ratio(ratio: f64) -> String {
    if ratio > TIME_RATIO_MAX { format!("**{ratio:.2}**") } else { format!("{ratio:.2}") }
}

/// Writes a number with three digits that say something.
fn digits(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// Every name once, in the order in which they come.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(row: &str, arena: &str, turn: u32, time: f64) -> Turn {
        let [table, unit, reference] = ["objects", "ns", "bumpalo"].map(String::from);
        Turn { table, row: row.into(), unit, reference, arena: arena.into(), turn, time, faults: 3 }
    }

    #[test]
    fn a_table_has_the_medians_and_marks_what_is_lost() {
        let times = [
            ("8 B", "zk-nalloc", 0.5),
            ("8 B", "bumpalo", 1.0),
            ("9 B", "zk-nalloc", 2.2),
            ("9 B", "bumpalo", 2.0),
        ];
        let turns: Vec<Turn> = (0..3)
            .flat_map(|i| times.map(|(row, arena, time)| turn(row, arena, i, time * f64::from(i + 1))))
            .chain([turn("10 B", "bumpalo", 0, 4.0)])
            .collect();
        let text = tables(&turns);
        assert!(text.contains("### Arenas: objects") && text.contains("up to 3 turns"), "{text}");
        let row = |name: &str| {
            let line = text.lines().find(|line| line.contains(name)).expect("a row");
            line.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(row("| 8 B"), "8 B 1.00 2.00 0.50 3");
        assert_eq!(row("| 9 B"), "9 B 4.40 4.00 **1.10** 3");
        assert!(row("| 10 B").starts_with("10 B – 4.00 –"));
    }
}
