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
use crate::patterns::Pattern;
use crate::peers::Peer;
use crate::scale::{MIB, Scale};

/// Warm rounds before memory has found its place, which are not counted, …
const FEW: u32 = 4;
/// … and those of the longer run.
const MORE: u32 = 12;

/// Counts for every pattern and allocator, and prints one table: calls a round, and MiB handed out for each where the
/// pattern says how much that is.
///
/// # Errors
/// When `strace` is missing or a child fails under it.
pub fn count(patterns: &[Pattern], peers: &[&'static Peer], settings: Settings) -> Result<(), Error> {
    let children = children(&Program::child(), peers, &mut |name| eprintln!("building {name}"))?;
    for line in &children.left_out {
        eprintln!("{line}");
    }
    let mut table = Table::new();
    let mut head = vec!["pattern".to_owned(), "MiB handed out".to_owned()];
    head.extend(peers.iter().map(|peer| peer.name.to_owned()));
    table.load_style(presets::ASCII_MARKDOWN).set_header(head);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let scale = Scale { quick: settings.quick, memory_bytes: 4 << 30 };
    for pattern in patterns {
        eprintln!("{}", pattern.name);
        let handed_out = pattern.prepare(scale).handed_out;
        let mut row = vec![pattern.name.clone()];
        row.push(handed_out.map_or_else(|| "–".into(), |bytes| format!("{}", bytes / MIB)));
        for peer in peers {
            let Some(program) = children.of(peer) else {
                row.push("–".into());
                continue;
            };
            let calls = |rounds| traced(program, pattern, peer, settings, rounds);
            #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
            let per_round = calls(MORE)?.saturating_sub(calls(FEW)?) as f64 / f64::from(MORE - FEW);
            row.push(format!("{per_round:.1}"));
        }
        table.add_row(row);
    }
    println!("System calls about memory in a warm round:\n\n{table}");
    Ok(())
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
    Ok(total(&summary))
}

/// Reads the number of calls from the last line of a summary, `100.00 0.000123 4 57 [errors] total`.
fn total(summary: &str) -> u64 {
    let line = summary.lines().rfind(|line| line.trim_end().ends_with("total"));
    line.and_then(|line| line.split_whitespace().nth(3)?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::total;

    #[test]
    fn the_total_is_found_with_and_without_errors() {
        let head = "% time     seconds  usecs/call     calls    errors syscall\n";
        assert_eq!(total(&format!("{head}100.00    0.000123           4        57           total\n")), 57);
        assert_eq!(total(&format!("{head}100.00    0.000123           4        57         3 total\n")), 57);
        assert_eq!(total(""), 0);
    }
}
