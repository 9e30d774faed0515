//! What replays came to: the rows of a record, and the table of a trace.

use std::path::Path;

use comfy_table::{CellAlignment, Table, presets};
use serde::{Deserialize, Serialize};
use zk_nalloc_trace::summary::Summary;

use super::Replayed;
use crate::peers::Peer;

/// Who stands in a record for the process that was recorded.
const RECORDED: &str = "(as recorded)";

/// One process that replayed a trace, or the one that was recorded, of which no time is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Replay {
    /// The trace, by its file's name.
    pub trace: String,
    /// The name of its allocator.
    pub peer: String,
    /// In which turn, from 0.
    pub turn: u32,
    /// Wall time, in seconds.
    pub seconds: Option<f64>,
    /// Time in the kernel, all threads together, in seconds.
    pub kernel_seconds: Option<f64>,
    /// Page faults.
    pub minor_faults: u64,
    /// The most that was live, in bytes.
    pub peak_live_bytes: u64,
    /// Highest resident size; of the recorded process, of its anonymous memory.
    pub peak_resident_bytes: u64,
    /// Requests that were not served.
    pub refused: u64,
}

/// Returns the name by which a record knows a trace.
pub(super) fn name_of(file: &Path) -> String {
    file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns the rows of what was replayed, turn by turn.
pub(super) fn of(trace: &str, outcomes: &[(&Peer, Vec<Replayed>)]) -> Vec<Replay> {
    let row = |peer: &Peer, turn, outcome: &Replayed| Replay {
        trace: trace.into(),
        peer: peer.name.into(),
        turn,
        seconds: Some(outcome.seconds),
        kernel_seconds: Some(outcome.kernel_seconds),
        minor_faults: outcome.minor_faults,
        peak_live_bytes: outcome.peak_live_bytes,
        peak_resident_bytes: outcome.peak_resident_bytes,
        refused: outcome.refused,
    };
    let of = |(peer, all): &(&Peer, Vec<Replayed>)| -> Vec<Replay> {
        (0..).zip(all).map(|(turn, outcome)| row(peer, turn, outcome)).collect()
    };
    outcomes.iter().flat_map(of).collect()
}

/// Returns the row of the recorded process.
pub(super) fn recorded(trace: &str, summary: &Summary, peak_live: u64) -> Replay {
    Replay {
        trace: trace.into(),
        peer: RECORDED.into(),
        turn: 0,
        seconds: None,
        kernel_seconds: None,
        minor_faults: summary.faults,
        peak_live_bytes: peak_live,
        peak_resident_bytes: summary.peak_anonymous,
        refused: 0,
    }
}

/// Lays out the replays of one trace: a row for each allocator, in the order of the rows.
pub(super) fn table(rows: &[Replay]) -> Table {
    let mut table = Table::new();
    let header = ["allocator", "s, min", "s, median", "kernel s", "faults", "peak MiB"];
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    let mut peers: Vec<&str> = rows.iter().map(|row| row.peer.as_str()).collect();
    peers.dedup();
    for peer in peers {
        let own = || rows.iter().filter(|row| row.peer == peer);
        let seconds: Vec<f64> = own().filter_map(|row| row.seconds).collect();
        let kernel = own().filter_map(|row| row.kernel_seconds).collect();
        let faults = own().map(|row| row.minor_faults as f64).collect();
        let peak = own().map(|row| row.peak_resident_bytes).max().unwrap_or_default();
        let time = |time: Option<f64>| time.map_or_else(|| "–".into(), |seconds| format!("{seconds:.3}"));
        table.add_row([
            peer.to_owned(),
            time(seconds.iter().copied().reduce(f64::min)),
            time(median(seconds)),
            time(median(kernel)),
            format!("{:.0}", median(faults).unwrap_or_default()),
            (peak >> 20).to_string(),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Lays out what a record holds of replays: a table for each trace; nothing where it holds none.
#[must_use]
pub fn tables(rows: &[Replay]) -> String {
    let mut traces: Vec<&str> = rows.iter().map(|row| row.trace.as_str()).collect();
    traces.sort_unstable();
    traces.dedup();
    let mut text = String::new();
    for trace in traces {
        let own: Vec<Replay> = rows.iter().filter(|row| row.trace == trace).cloned().collect();
        let turns = own.iter().map(|row| row.turn + 1).max().unwrap_or_default();
        let live = own.first().map_or(0, |row| row.peak_live_bytes) >> 20;
        let name = trace.trim_end_matches(".gz").trim_end_matches(".trace");
        text += &format!(
            "\n### Replay of {name}\n\nThe blocks of `{trace}`, in {turns} turns; alive at once: {live} MiB. zk-alloc, which frees at \
             the end of a phase, has one phase here, so its row says nothing of it.\n\n{}\n",
            table(&own)
        );
    }
    text
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_a_table_and_an_allocator_a_row() {
        let row = |trace: &str, peer: &str, turn, seconds, minor_faults| Replay {
            trace: trace.into(),
            peer: peer.into(),
            turn,
            seconds,
            kernel_seconds: seconds.map(|time: f64| time / 2.0),
            minor_faults,
            peak_live_bytes: 5 << 20,
            peak_resident_bytes: u64::from(turn + 6) << 20,
            refused: 0,
        };
        let text = tables(&[
            row("b.trace.gz", "glibc", 0, Some(0.5), 9),
            row("a.trace", "glibc", 0, Some(2.0), 1),
            row("a.trace", "glibc", 1, Some(1.0), 3),
            row("a.trace", "glibc", 2, Some(4.0), 2),
            row("a.trace", RECORDED, 0, None, 7),
        ]);
        let (a, b) = (text.find("### Replay of a\n"), text.find("### Replay of b\n"));
        assert!(a.is_some() && a < b, "{text}");
        assert!(text.contains("The blocks of `a.trace`, in 3 turns; alive at once: 5 MiB."), "{text}");
        let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
        let rows: Vec<_> = text.lines().filter(|line| line.starts_with("| ")).map(cells).collect();
        assert_eq!(rows[1][1..7], ["glibc", "1.000", "2.000", "1.000", "2", "8"]);
        assert_eq!(rows[2][1..7], [RECORDED, "–", "–", "–", "7", "6"]);
        assert_eq!(tables(&[]), "");
    }
}
