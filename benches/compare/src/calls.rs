//! How many system calls about memory a warm round makes: a count, so one run is enough and noise does not matter.
//!
//! How: a child runs under `strace` with some warm rounds and then with more; the difference, over the rounds between, is
//! what a warm round makes, whatever start, end and the cold round cost.

use std::path::Path;
use std::process::{Command, Stdio};

use comfy_table::{CellAlignment, Table, presets};
use prove_harness::Error;

use crate::build::{Program, children};
use crate::compare::{Settings, child};
use crate::patterns::{self, Pattern};
use crate::peers::{self, Peer};
use crate::record::Calls;
use crate::scale::{MIB, Scale};

/// Warm rounds before memory has found its place, which are not counted, …
const FEW: u32 = 4;
/// … and those of the longer run.
const MORE: u32 = 12;

/// Counts for every pattern and allocator.
///
/// # Errors
/// When `strace` is missing or a child fails under it.
pub fn count(patterns: &[Pattern], peers: &[&'static Peer], settings: Settings) -> Result<Vec<Calls>, Error> {
    let children =
        children(&Program::child(settings.quick), peers, &mut |name| eprintln!("building {name}"))?;
    for line in &children.left_out {
        eprintln!("{line}");
    }
    let scale = Scale { quick: settings.quick, memory_bytes: 4 << 30 };
    let mut counted = Vec::new();
    for pattern in patterns {
        eprintln!("{}", pattern.name);
        let handed_out = pattern.prepare(scale).handed_out;
        for peer in peers {
            let Some(program) = children.of(peer) else { continue };
            let calls = |rounds| traced(program, pattern, peer, settings, rounds);
            #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
            let per_round = calls(MORE)?.saturating_sub(calls(FEW)?) as f64 / f64::from(MORE - FEW);
            counted.push(Calls {
                pattern: pattern.name.clone(),
                peer: peer.name.into(),
                handed_out_bytes: handed_out.map(|bytes| bytes as u64),
                per_round,
            });
        }
    }
    Ok(counted)
}

/// Lays counts out: calls a round under each allocator, and how much a round hands out where the pattern says so. Empty
/// where nothing was counted.
#[must_use]
pub fn table(counted: &[Calls]) -> String {
    let of = |pattern: &str| counted.iter().find(|calls| calls.pattern == pattern);
    let all = patterns::all();
    let patterns: Vec<&Calls> = all.iter().filter_map(|pattern| of(&pattern.name)).collect();
    let is_there = |peer: &&str| counted.iter().any(|calls| calls.peer == *peer);
    let peers: Vec<&str> = peers::ALL.iter().map(|peer| peer.name).filter(is_there).collect();
    if patterns.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    let head = ["pattern", "MiB handed out"].into_iter().chain(peers.iter().copied());
    table.load_style(presets::ASCII_MARKDOWN).set_header(head);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for of in patterns {
        let none = || "–".to_owned();
        let mut row = vec![of.pattern.clone()];
        row.push(of.handed_out_bytes.map_or_else(none, |bytes| (bytes / MIB as u64).to_string()));
        for peer in &peers {
            let calls = counted.iter().find(|calls| calls.pattern == of.pattern && calls.peer == *peer);
            row.push(calls.map_or_else(none, |calls| format!("{:.1}", calls.per_round)));
        }
        table.add_row(row);
    }
    format!("System calls about memory in a warm round:\n\n{table}\n")
}

/// Runs a child under `strace` and returns its calls about memory.
fn traced(
    program: &Path,
    pattern: &Pattern,
    peer: &Peer,
    settings: Settings,
    rounds: u32,
) -> Result<u64, Error> {
    let file = std::env::temp_dir().join(format!("zk-compare-calls-{}", std::process::id()));
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "--summary-only", "--trace=%memory", "--output"]).arg(&file).arg(program);
    let output = child(&mut command, pattern, peer, settings)
        .args(["--rounds", &rounds.to_string()])
        .stdin(Stdio::null())
        .output()
        .map_err(|cause| Error::doing("starting strace, which counts the system calls", cause))?;
    let summary = std::fs::read_to_string(&file);
    let _ = std::fs::remove_file(&file);
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = words.lines().last().unwrap_or("without a word");
        return Err(Error::new(format!("{} under {}: {}: {last}", pattern.name, peer.name, output.status)));
    }
    let summary = summary.map_err(|cause| Error::doing("reading what strace counted", cause))?;
    total(&summary).ok_or_else(|| Error::new("what strace counted has no total"))
}

/// Reads the number of calls from the last line of a summary, `100.00 0.000123 4 57 [errors] total`.
fn total(summary: &str) -> Option<u64> {
    let line = summary.lines().rfind(|line| line.trim_end().ends_with("total"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_row_and_an_allocator_a_column() {
        let calls = |pattern: &str, peer: &str, handed_out_bytes, per_round| Calls {
            pattern: pattern.into(),
            peer: peer.into(),
            handed_out_bytes,
            per_round,
        };
        // In the order of the lists, whatever was counted first.
        let (fill, pass) = ("fill/1M", "pass-on");
        let text = table(&[
            calls(pass, "nalloc", None, 9.0),
            calls(fill, "nalloc", Some(64 << 20), 0.0),
            calls(fill, "glibc", Some(64 << 20), 1.5),
        ]);
        let rows: Vec<Vec<&str>> =
            text.lines().skip(2).map(|line| line.split('|').map(str::trim).collect()).collect();
        assert_eq!(rows[0][1..5], ["pattern", "MiB handed out", "glibc", "nalloc"]);
        assert_eq!(rows[2][1..5], [fill, "64", "1.5", "0.0"]);
        assert_eq!(rows[3][1..5], [pass, "–", "–", "9.0"]);
        assert_eq!(table(&[]), "");
    }

    #[test]
    fn the_total_is_found_with_and_without_errors() {
        let head = "% time     seconds  usecs/call     calls    errors syscall\n";
        assert_eq!(
            total(&format!("{head}100.00    0.000123           4        57           total\n")),
            Some(57)
        );
        assert_eq!(
            total(&format!("{head}100.00    0.000123           4        57         3 total\n")),
            Some(57)
        );
        assert_eq!(total(""), None);
    }
}
