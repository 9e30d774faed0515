//! What a comparison leaves behind: the raw rows, and words about where they come from.
//!
//! Why it is here: no table and no plot is computed from anything but what a record holds, so whoever has the record
//! can make them again. A record is a folder: `rounds.csv`, a row per round of every process, `arenas.csv`, a row per turn
//! of the comparison of arenas, `calls.csv`, a row per count of system calls, `replays.csv`, a row per replay of a trace, and `machine.txt`, which says on what machine
//! and of what state of the project, and who had to be left out and why.

use std::fs;
use std::path::Path;

use prove_harness::Error;
use prove_harness::record::replace;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::arenas::Turn;
use crate::replay::Replay;

/// The name of a record, which is that of its folder.
#[must_use]
pub fn name_of(folder: &Path) -> String {
    folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// One round of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, Default)]
pub struct Round {
    /// 0 for the first round of a process, which is the cold one.
    pub round: u32,
    /// Wall time of the timed stretches.
    pub seconds: f64,
    /// Page faults that read nothing from a disk.
    pub minor_faults: u64,
    /// Page faults that did.
    pub major_faults: u64,
    /// Processor time in user mode, all threads together.
    pub user_seconds: f64,
    /// Processor time in the kernel, all threads together.
    pub kernel_seconds: f64,
    /// Bytes that the pattern had alive at once.
    pub live_bytes: u64,
}

/// What a child reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Default)]
pub struct Outcome {
    /// Its rounds in order.
    pub rounds: Vec<Round>,
    /// What a round's time is divided by, where that is of interest.
    pub operations: Option<u64>,
    /// Highest resident size of the process (`VmHWM`).
    pub peak_resident_bytes: u64,
    /// Highest size of its address space (`VmPeak`).
    pub peak_virtual_bytes: u64,
    /// Resident size when all was freed, after `release_cache` where there is one.
    pub end_resident_bytes: u64,
}

/// One process from start to end.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The name of its pattern.
    pub pattern: String,
    /// The name of its allocator.
    pub peer: String,
    /// In which turn, from 0.
    pub turn: u32,
    /// What it reported.
    pub outcome: Outcome,
}

impl Run {
    /// A process that failed, which has no rounds.
    #[must_use]
    pub fn failed(pattern: &str, peer: &str, turn: u32) -> Self {
        Self { pattern: pattern.into(), peer: peer.into(), turn, outcome: Outcome::default() }
    }

    /// Whether another is of the same pattern under the same allocator.
    fn is_like(&self, other: &Self) -> bool {
        other.pattern == self.pattern && other.peer == self.peer
    }
}

/// The line about a process that failed.
#[must_use]
pub fn failure(run: &Run, reason: &dyn std::fmt::Display) -> String {
    format!("failed: {} under {}, turn {}: {reason}", run.pattern, run.peer, run.turn + 1)
}

/// The process that such a line is about.
fn failed(line: &str) -> Option<Run> {
    let (pattern, rest) = line.strip_prefix("failed: ")?.split_once(" under ")?;
    let (peer, rest) = rest.split_once(", turn ")?;
    let (turn, _) = rest.split_once(':')?;
    Some(Run::failed(pattern, peer, turn.parse::<u32>().ok()?.checked_sub(1)?))
}

/// How many system calls about memory a pattern makes under an allocator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    /// The pattern.
    pub pattern: String,
    /// The allocator.
    pub peer: String,
    /// Bytes that a round hands out, where the pattern says so.
    pub handed_out_bytes: Option<u64>,
    /// Calls in a warm round, the mean of some.
    pub per_round: f64,
}

/// A row of the file: a round, with what is known of its process.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    pattern: String,
    peer: String,
    turn: u32,
    round: u32,
    nanoseconds: u64,
    minor_faults: u64,
    major_faults: u64,
    user_microseconds: u64,
    kernel_microseconds: u64,
    live_bytes: u64,
    operations: Option<u64>,
    peak_resident_bytes: u64,
    peak_virtual_bytes: u64,
    end_resident_bytes: u64,
}

/// A comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Where it ran and what was left out, a line each.
    pub about: Vec<String>,
    /// Every process.
    pub runs: Vec<Run>,
    /// Every turn of the comparison of arenas.
    pub arenas: Vec<Turn>,
    /// System calls, counted.
    pub calls: Vec<Calls>,
    /// Every replay of a trace, and of each trace what was recorded.
    pub replays: Vec<Replay>,
}

/// The file of a record that has a line for each round.
pub const ROUNDS: &str = "rounds.csv";
const MACHINE: &str = "machine.txt";
const ARENAS: &str = "arenas.csv";
const CALLS: &str = "calls.csv";
const REPLAYS: &str = "replays.csv";

impl Record {
    /// Writes the record into a folder, which is made where it is missing. A file that is there is replaced as a whole or
    /// not at all.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), Error> {
        let doing =
            |cause: &dyn std::fmt::Display| Error::doing(format!("writing {}", folder.display()), cause);
        fs::create_dir_all(folder).map_err(|cause| doing(&cause))?;
        let about = self.about.join("\n") + "\n";
        replace(&folder.join(MACHINE), about.as_bytes()).map_err(|cause| doing(&cause))?;
        let rounds = self.runs.iter().flat_map(|run| run.outcome.rounds.iter().map(|round| row(run, round)));
        replace(&folder.join(ROUNDS), &table(rounds).map_err(|cause| doing(&cause))?)
            .map_err(|cause| doing(&cause))?;
        write_if_any(&self.arenas, &folder.join(ARENAS)).map_err(|cause| doing(&cause))?;
        write_if_any(&self.calls, &folder.join(CALLS)).map_err(|cause| doing(&cause))?;
        write_if_any(&self.replays, &folder.join(REPLAYS)).map_err(|cause| doing(&cause))
    }

    /// The processes of a pattern, with those that failed: what they are known by is a line, as they have no rows.
    #[must_use]
    pub fn runs_of(&self, pattern: &str) -> Vec<Run> {
        let mut runs: Vec<Run> = self.runs.iter().filter(|run| run.pattern == pattern).cloned().collect();
        for failed in self.about.iter().filter_map(|line| failed(line)).filter(|run| run.pattern == pattern) {
            if !runs.iter().any(|run| run.is_like(&failed) && run.turn == failed.turn) {
                runs.push(failed);
            }
        }
        runs
    }

    /// Adds what was measured later: it takes the place of runs of the same patterns under the same allocators, of the same tables
    /// of arenas, of the same counts, and of replays of the same traces under the same allocators.
    #[must_use]
    pub fn joined(mut self, later: Self) -> Self {
        let again = |run: &Run| later.runs.iter().any(|other| run.is_like(other));
        self.about.retain(|line| !failed(line).is_some_and(|run| again(&run)));
        self.runs.retain(|run| !again(run));
        self.runs.extend(later.runs);
        self.arenas.retain(|turn| later.arenas.iter().all(|other| other.table != turn.table));
        self.arenas.extend(later.arenas);
        let same = |a: &Calls, b: &Calls| a.pattern == b.pattern && a.peer == b.peer;
        self.calls.retain(|calls| later.calls.iter().all(|other| !same(other, calls)));
        self.calls.extend(later.calls);
        let again =
            |replay: &Replay, other: &Replay| other.trace == replay.trace && other.peer == replay.peer;
        self.replays.retain(|replay| later.replays.iter().all(|other| !again(replay, other)));
        self.replays.extend(later.replays);
        for line in later.about {
            if !self.about.iter().any(|own| bare(own) == bare(&line)) {
                self.about.push(line);
            }
        }
        self
    }

    /// Says what tells that another record was made on another machine or in another way: the first line of the kinds that matter
    /// which this one has otherwise.
    #[must_use]
    pub fn differs_from<'a>(&'a self, about: &'a [String]) -> Option<&'a str> {
        const KINDS: [&str; 5] =
            ["processor: ", "processors in use: ", "memory: ", "huge pages: ", "compiled for: "];
        KINDS.into_iter().find_map(|kind| {
            let own = self.about.iter().find(|line| line.starts_with(kind))?;
            let is_other = |line: &&String| line.starts_with(kind) && bare(line) != bare(own);
            about.iter().find(is_other).map(String::as_str)
        })
    }

    /// Reads a record from its folder.
    ///
    /// # Errors
    /// When a file is missing or says something else.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let doing =
            |cause: &dyn std::fmt::Display| Error::doing(format!("reading {}", folder.display()), cause);
        let about = about(folder)?;
        let mut runs: Vec<Run> = Vec::new();
        let mut file = csv::Reader::from_path(folder.join(ROUNDS)).map_err(|cause| doing(&cause))?;
        for row in file.deserialize() {
            let row: Row = row.map_err(|cause| doing(&cause))?;
            let same = |run: &Run| run.pattern == row.pattern && run.peer == row.peer && run.turn == row.turn;
            let round = round(&row);
            match runs.last_mut().filter(|run| same(run)) {
                Some(run) => run.outcome.rounds.push(round),
                None => runs.push(run(row, round)),
            }
        }
        let arenas = read_if_any(&folder.join(ARENAS)).map_err(|cause| doing(&cause))?;
        let calls = read_if_any(&folder.join(CALLS)).map_err(|cause| doing(&cause))?;
        let replays = read_if_any(&folder.join(REPLAYS)).map_err(|cause| doing(&cause))?;
        Ok(Self { about, runs, arenas, calls, replays })
    }
}

/// Reads where a record comes from, a line each.
///
/// # Errors
/// When its folder does not say.
pub fn about(folder: &Path) -> Result<Vec<String>, Error> {
    let about = fs::read_to_string(folder.join(MACHINE));
    let about = about.map_err(|cause| Error::doing(format!("reading {}", folder.display()), cause))?;
    Ok(about.lines().map(String::from).collect())
}

/// A line about a machine without what somebody who knows more has added to it in brackets.
fn bare(line: &str) -> &str {
    line.split_once(" (").map_or(line, |(bare, _)| bare)
}

/// Writes rows into a file; none where there are none.
fn write_if_any<T: Serialize>(rows: &[T], path: &Path) -> Result<(), csv::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    Ok(replace(path, &table(rows)?)?)
}

/// Rows as they stand in a file.
fn table<T: Serialize>(rows: impl IntoIterator<Item = T>) -> Result<Vec<u8>, csv::Error> {
    let mut text = csv::Writer::from_writer(Vec::new());
    for row in rows {
        text.serialize(row)?;
    }
    text.into_inner().map_err(|cause| cause.into_error().into())
}

/// Reads the rows of a file; none where there is none.
fn read_if_any<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, csv::Error> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    csv::Reader::from_path(path)?.deserialize().collect()
}

fn row(run: &Run, round: &Round) -> Row {
    let outcome = &run.outcome;
    Row {
        pattern: run.pattern.clone(),
        peer: run.peer.clone(),
        turn: run.turn,
        round: round.round,
        nanoseconds: whole(1e9 * round.seconds),
        minor_faults: round.minor_faults,
        major_faults: round.major_faults,
        user_microseconds: whole(1e6 * round.user_seconds),
        kernel_microseconds: whole(1e6 * round.kernel_seconds),
        live_bytes: round.live_bytes,
        operations: outcome.operations,
        peak_resident_bytes: outcome.peak_resident_bytes,
        peak_virtual_bytes: outcome.peak_virtual_bytes,
        end_resident_bytes: outcome.end_resident_bytes,
    }
}

/// Rounds a time that is not negative to a whole number, which is shorter to write and all that clocks tell.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "years of nanoseconds fit")]
const fn whole(time: f64) -> u64 {
    time.round() as u64
}

#[expect(clippy::cast_precision_loss, reason = "times of rounds are far below 2^52 nanoseconds")]
const fn round(row: &Row) -> Round {
    Round {
        round: row.round,
        seconds: row.nanoseconds as f64 / 1e9,
        minor_faults: row.minor_faults,
        major_faults: row.major_faults,
        user_seconds: row.user_microseconds as f64 / 1e6,
        kernel_seconds: row.kernel_microseconds as f64 / 1e6,
        live_bytes: row.live_bytes,
    }
}

fn run(row: Row, round: Round) -> Run {
    let outcome = Outcome {
        rounds: vec![round],
        operations: row.operations,
        peak_resident_bytes: row.peak_resident_bytes,
        peak_virtual_bytes: row.peak_virtual_bytes,
        end_resident_bytes: row.end_resident_bytes,
    };
    Run { pattern: row.pattern, peer: row.peer, turn: row.turn, outcome }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let rounds = [0.5, 0.25].into_iter().zip(0..).map(|(seconds, round)| Round {
            round,
            seconds,
            minor_faults: 1,
            major_faults: 2,
            user_seconds: 0.125,
            kernel_seconds: 3.5,
            live_bytes: 4,
        });
        let outcome = Outcome {
            rounds: rounds.collect(),
            operations: None,
            peak_resident_bytes: 5,
            peak_virtual_bytes: 6,
            end_resident_bytes: 7,
        };
        let of = |peer: &str, turn| Run {
            pattern: "a/b".into(),
            peer: peer.into(),
            turn,
            outcome: outcome.clone(),
        };
        let turn = |table: &str| Turn {
            table: table.into(),
            row: "8 B".into(),
            unit: "ns".into(),
            reference: "x".into(),
            arena: "y".into(),
            turn: 0,
            time: 0.5,
            faults: 1,
        };
        let calls = |pattern: &str, handed_out_bytes| Calls {
            pattern: pattern.into(),
            peer: "x".into(),
            handed_out_bytes,
            per_round: 0.5,
        };
        let replay = |trace: &str, seconds| Replay {
            trace: trace.into(),
            peer: "x".into(),
            turn: 0,
            seconds,
            kernel_seconds: None,
            minor_faults: 1,
            peak_live_bytes: 2,
            peak_resident_bytes: 3,
            refused: 0,
        };
        let record = Record {
            about: vec!["here".into(), "there".into()],
            runs: vec![of("x", 0), of("y", 0), of("y", 1)],
            arenas: vec![turn("objects"), turn("graphs, large")],
            calls: vec![calls("a/b", Some(8)), calls("b", None)],
            replays: vec![replay("a", Some(0.5)), replay("b", None)],
        };
        let folder = std::env::temp_dir().join(format!("zk-compare-record-{}", std::process::id()));
        record.write(&folder).expect("can be written");
        let again = Record::read(&folder);
        fs::remove_dir_all(&folder).expect("was made");
        assert_eq!(again.expect("can be read"), record);
        let b = Run { pattern: "b".into(), ..of("x", 0) };
        let later =
            Record { about: vec!["there".into(), "too".into()], runs: vec![b.clone()], ..Record::default() };
        let later = Record { arenas: vec![turn("objects")], calls: vec![calls("b", Some(1))], ..later };
        let later = Record { replays: vec![replay("b", Some(1.0))], ..later };
        let both = record.clone().joined(later.clone());
        assert_eq!((both.runs.len(), both.about.len(), both.arenas.len()), (4, 3, 2));
        assert_eq!(both.calls, [calls("a/b", Some(8)), calls("b", Some(1))]);
        assert_eq!(both.replays, [replay("a", Some(0.5)), replay("b", Some(1.0))]);
        assert_eq!(both.clone().joined(later.clone()).runs.len(), 4, "measured anew");
        let one = Record { runs: vec![of("y", 7)], replays: vec![], ..Record::default() };
        let other = record.clone().joined(one);
        assert_eq!(other.runs, [of("x", 0), of("y", 7)], "the others of that pattern stay");
        assert!(Record::read(&folder).is_err());
    }

    #[test]
    fn who_failed_is_known_by_its_line_until_it_is_run_again() {
        let run = Run::failed("a/b", "x", 1);
        let line = failure(&run, &"signal: 11 (SIGSEGV) (core dumped)");
        assert_eq!(failed(&line), Some(run.clone()));
        let record = Record { about: vec!["memory: 8 MiB".into(), line], ..Record::default() };
        assert_eq!((record.runs_of("a/b"), record.runs_of("b")), (vec![run], vec![]));
        let again = Record { runs: vec![Run::failed("a/b", "x", 0)], ..Record::default() };
        assert_eq!(record.joined(again.clone()).runs_of("a/b"), again.runs);
    }

    #[test]
    fn what_a_record_says_more_of_the_same_machine_is_no_difference() {
        let about = |processor: &str| vec![format!("processor: {processor}"), "memory: 8 MiB".to_owned()];
        let record = |processor| Record { about: about(processor), ..Record::default() };
        assert_eq!(record("EPYC (Zen 4)").differs_from(&about("EPYC")), None);
        assert_eq!(record("EPYC").differs_from(&about("Xeon")), Some("processor: Xeon"));
        let both = record("EPYC (Zen 4)").joined(record("EPYC"));
        assert_eq!(both.about, about("EPYC (Zen 4)"));
    }
}
