//! The parent: a trace under one allocator after another.

use std::path::Path;
use std::process::{Command, Stdio};

use prove_harness::{Error, order, say};
use zk_nalloc_trace::summary::Summary;
use zk_nalloc_trace::{Story, Trace};

use super::{Replay, Replayed, rows};
use crate::build::{Program, children};
use crate::compare::{Settings, environment, foreign_settings};
use crate::peers::Peer;
use crate::progress::Progress;

/// Replays a trace under these allocators, gives what it took to `keep`, and prints a table on standard output.
///
/// # Errors
/// When the trace cannot be read, not as much was live in a replay as in the trace, `keep` fails, or standard output takes
/// no more.
pub fn compare(
    file: &Path,
    peers: &[&'static Peer],
    settings: Settings,
    keep: impl FnOnce(Vec<Replay>) -> Result<(), Error>,
) -> Result<(), Error> {
    let trace = Trace::read(file).map_err(|cause| Error::new(cause.to_string()))?;
    let story = Story::of(&trace);
    let summary = Summary::of(&trace, &story);
    let progress = Progress::new(u64::from(settings.turns) * peers.len() as u64);
    let programs =
        children(&Program::child(false), peers, &mut |name| progress.at(&format!("building {name}")))?;
    let mut failed = 0;
    let mut outcomes: Vec<(&Peer, Vec<Replayed>)> = peers.iter().map(|&peer| (peer, Vec::new())).collect();
    for turn in 0..settings.turns {
        for &peer in order(peers, turn) {
            progress.at(&format!("{}, turn {} of {}", peer.name, turn + 1, settings.turns));
            if let Some(program) = programs.of(peer) {
                match run(program, file, peer, settings) {
                    Ok(outcome) => {
                        let own = outcomes.iter_mut().find(|(other, _)| other.name == peer.name);
                        own.into_iter().for_each(|(_, all)| all.push(outcome.clone()));
                    }
                    Err(reason) => {
                        failed += 1;
                        progress.say(&format!("failed: {}: {reason}", peer.name));
                    }
                }
            }
            progress.step();
        }
    }
    programs.left_out.iter().for_each(|line| progress.say(line));
    progress.done();
    let name = rows::name_of(file);
    let mut replays = rows::of(&name, &outcomes);
    replays.push(rows::recorded(&name, &summary, story.peak_live));
    let table = rows::table(&replays);
    // Before anything is shown, so that nothing is lost when nobody reads; not what a mistake of the replay made.
    let all = || outcomes.iter().flat_map(|(peer, all)| all.iter().map(move |outcome| (peer, outcome)));
    let strays = all().find(|(_, o)| o.refused == 0 && o.peak_live_bytes != story.peak_live);
    let kept = if strays.is_none() { keep(replays) } else { Ok(()) };
    say(table)?;
    kept?;
    for caveat in summary.caveats(&story) {
        say(format_args!("note: {caveat}"))?;
    }
    if let Some((peer, other)) = strays {
        let (here, there) = (other.peak_live_bytes, story.peak_live);
        return Err(Error::new(format!(
            "{}: {here} bytes were live at most, {there} in the trace",
            peer.name
        )));
    }
    if all().all(|(_, outcome)| outcome.refused == 0) {
        say(format_args!(
            "peak live: {} bytes, in the trace and in every replay that ended",
            story.peak_live
        ))?;
    }
    if let Some((peer, other)) = all().find(|(_, outcome)| outcome.refused > 0) {
        say(format_args!("note: {} requests were refused under {}", other.refused, peer.name))?;
    }
    if failed > 0 {
        return Err(Error::new(format!("{failed} replays failed; the table is without them")));
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
