//! The parent: a trace under one allocator after another, and a table of what it took.

use std::path::Path;
use std::process::{Command, Stdio};

use comfy_table::{CellAlignment, Table, presets};
use prove_harness::{Error, say};
use zk_nalloc_trace::summary::Summary;
use zk_nalloc_trace::{Story, Trace};

use super::Replayed;
use crate::build::{Program, children};
use crate::compare::{Settings, environment, foreign_settings, order};
use crate::peers::Peer;
use crate::progress::Progress;

/// Replays a trace under these allocators and prints a table on standard output.
///
/// # Errors
/// When the trace cannot be read, not as much was live in a replay as in the trace, or standard output takes no more.
pub fn compare(file: &Path, peers: &[&'static Peer], settings: Settings) -> Result<(), Error> {
    let trace = Trace::read(file).map_err(|cause| Error::new(cause.to_string()))?;
    let story = Story::of(&trace);
    let summary = Summary::of(&trace, &story);
    let progress = Progress::new(u64::from(settings.turns) * peers.len() as u64);
    let programs = children(&Program::child(), peers, &mut |name| progress.at(&format!("building {name}")))?;
    let mut outcomes: Vec<(&Peer, Vec<Replayed>)> = peers.iter().map(|&peer| (peer, Vec::new())).collect();
    for turn in 0..settings.turns {
        for peer in order(peers, turn) {
            progress.at(&format!("{}, turn {} of {}", peer.name, turn + 1, settings.turns));
            if let Some(program) = programs.of(peer) {
                match run(program, file, peer, settings) {
                    Ok(outcome) => {
                        let own = outcomes.iter_mut().find(|(other, _)| other.name == peer.name);
                        own.into_iter().for_each(|(_, all)| all.push(outcome.clone()));
                    }
                    Err(reason) => progress.say(&format!("failed: {}: {reason}", peer.name)),
                }
            }
            progress.step();
        }
    }
    programs.left_out.iter().for_each(|line| progress.say(line));
    progress.done();
    say(table(&outcomes, &summary))?;
    for caveat in summary.caveats(&story) {
        say(format_args!("note: {caveat}"))?;
    }
    let all = || outcomes.iter().flat_map(|(peer, all)| all.iter().map(move |outcome| (peer, outcome)));
    if let Some((peer, other)) = all().find(|(_, o)| o.refused == 0 && o.peak_live_bytes != story.peak_live) {
        let (here, there) = (other.peak_live_bytes, story.peak_live);
        return Err(Error::new(format!(
            "{}: {here} bytes were live at most, {there} in the trace",
            peer.name
        )));
    }
    say(format_args!("peak live: {} bytes, in the trace and in every replay", story.peak_live))?;
    if let Some((peer, other)) = all().find(|(_, outcome)| outcome.refused > 0) {
        say(format_args!("note: {} requests were refused under {}", other.refused, peer.name))?;
    }
    Ok(())
}

fn run(program: &Path, file: &Path, peer: &Peer, settings: Settings) -> Result<Replayed, Error> {
    let mut command = Command::new(program);
    command.arg("--replay").arg(file).args(["--threads", &settings.threads.to_string()]);
    for name in foreign_settings() {
        command.env_remove(name);
    }
    let output = command
        .envs(environment(peer, settings.threads))
        .stdin(Stdio::null())
        .output()
        .map_err(|cause| Error::doing("it did not start", cause))?;
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        let last = complaints.lines().rfind(|line| !line.starts_with("note:")).unwrap_or("without a word");
        return Err(Error::new(format!("{}: {last}", output.status)));
    }
    serde_json::from_slice(&output.stdout).map_err(|cause| Error::doing("its report", cause))
}

fn table(outcomes: &[(&Peer, Vec<Replayed>)], recorded: &Summary) -> Table {
    let mut table = Table::new();
    let header = ["allocator", "s, min", "s, median", "kernel s", "faults", "peak MiB"];
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    let mib = |bytes: u64| format!("{}", bytes >> 20);
    for (peer, all) in outcomes.iter().filter(|(_, all)| !all.is_empty()) {
        let median = |which: fn(&Replayed) -> f64| {
            let mut values: Vec<f64> = all.iter().map(which).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or_default()
        };
        let least = all.iter().map(|outcome| outcome.seconds).fold(f64::INFINITY, f64::min);
        table.add_row([
            peer.name.to_owned(),
            format!("{least:.3}"),
            format!("{:.3}", median(|outcome| outcome.seconds)),
            format!("{:.3}", median(|outcome| outcome.kernel_seconds)),
            format!("{:.0}", median(|outcome| outcome.minor_faults as f64)),
            mib(all.iter().map(|outcome| outcome.peak_resident_bytes).max().unwrap_or_default()),
        ]);
    }
    table.add_row([
        "(as recorded)".to_owned(),
        "-".into(),
        "-".into(),
        "-".into(),
        recorded.faults.to_string(),
        mib(recorded.peak_anonymous),
    ]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
