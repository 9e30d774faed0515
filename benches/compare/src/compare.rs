//! The parent: every pattern under every allocator, turn by turn, each in a process of its own.
//!
//! All turns of a pattern follow each other, each in an [`order`] that favours nobody. The parent itself is idle while a child
//! works. Where halves of the turns do not agree, those that may be the best have more of them. A child that fails is a line in the
//! record, and a lost row where it is ours, and does not stop the others.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use prove_harness::machine::Machine;
use prove_harness::{Error, order};

use crate::build::{Program, children};
use crate::patterns::Pattern;
use crate::peers::{OURS, Peer, VARIABLES};
use crate::progress::Progress;
use crate::record::{self, Outcome, Record, Run};
use crate::{summary, tables};

/// How a comparison is run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Processes per pattern and allocator, at least.
    pub turns: u32,
    /// As many of those between which it is, while the halves of the turns differ; no fewer than `turns`.
    pub turns_at_most: u32,
    /// Threads of each.
    pub threads: usize,
    /// Small sizes.
    pub quick: bool,
    /// Print counters.
    pub stats: bool,
}

/// At most this times as many turns as were asked for, where nothing else is said.
pub const TURNS_TIMES: u32 = 3;

/// Runs `patterns` under `peers`, prints a table for each on standard output and returns everything measured. What there is
/// so far is given to `keep` after each pattern, so that a run that is interrupted loses one pattern; where that fails, it goes on.
///
/// # Errors
/// When the children cannot be kept; one that does not build or fails is left out with a line.
pub fn compare(
    patterns: &[Pattern],
    peers: &[&'static Peer],
    settings: Settings,
    keep: &dyn Fn(&Record) -> Result<(), Error>,
) -> Result<Record, Error> {
    let processes = patterns.len() * peers.len() * settings.turns as usize;
    let progress = Progress::new(processes as u64);
    let children = children(&Program::child(settings.quick), peers, &mut |name| {
        let line = format!("building {name}");
        progress.at(&line);
        progress.say(&line);
    })?;
    for line in &children.left_out {
        progress.say(line);
    }
    let mut record = Record { about: describe(settings), ..Record::default() };
    record.about.extend(children.left_out.iter().cloned());
    for pattern in patterns {
        let from = record.runs.len();
        let mut turn = 0;
        // All of them at first; then whoever has another turn.
        let mut on_turn = peers.to_vec();
        while !on_turn.is_empty() {
            for peer in order(&on_turn, turn) {
                progress.at(&format!("{}, {}, turn {}", pattern.name, peer.name, turn + 1));
                let Some(program) = children.of(peer) else {
                    progress.step();
                    continue;
                };
                match run(program, pattern, peer, settings) {
                    Ok(outcome) => record.runs.push(Run {
                        pattern: pattern.name.clone(),
                        peer: peer.name.into(),
                        turn,
                        outcome,
                    }),
                    Err(reason) => {
                        let failed = Run::failed(&pattern.name, peer.name, turn);
                        let line = record::failure(&failed, &reason);
                        record.runs.push(failed);
                        progress.say(&line);
                        record.about.push(line);
                    }
                }
                progress.step();
            }
            turn += 1;
            if turn >= settings.turns {
                on_turn = more_turns(pattern, peers, settings, turn, &record.runs[from..]);
                progress.add(on_turn.len() as u64);
            }
        }
        progress.print(&tables::of_pattern(pattern, &record.runs[from..]));
        if let Err(error) = keep(&record) {
            progress.say(&error.to_string());
        }
    }
    progress.done();
    Ok(record)
}

/// Who has another turn after so many, beyond those that were asked for.
fn more_turns(
    pattern: &Pattern,
    peers: &[&'static Peer],
    settings: Settings,
    turns: u32,
    runs: &[Run],
) -> Vec<&'static Peer> {
    if settings.quick || settings.turns < 2 || turns >= settings.turns_at_most {
        return Vec::new();
    }
    let names = summary::unsettled(pattern.judge, runs);
    peers.iter().copied().filter(|peer| names.iter().any(|name| name == peer.name)).collect()
}

/// Adds the arguments and the environment of a child to a command that ends in its program.
pub fn child<'a>(
    command: &'a mut Command,
    pattern: &Pattern,
    peer: &Peer,
    settings: Settings,
) -> &'a mut Command {
    command.args(["--pattern", &pattern.name, "--threads", &settings.threads.to_string()]);
    if settings.quick {
        command.arg("--quick");
    }
    if settings.stats {
        command.arg("--stats");
    }
    for name in foreign_settings() {
        command.env_remove(name);
    }
    command.envs(environment(peer, settings.threads))
}

/// The variables of this process that would change an allocator.
pub fn foreign_settings() -> impl Iterator<Item = OsString> {
    let names = std::env::vars_os().map(|(name, _)| name);
    names.filter(|name| VARIABLES.iter().any(|start| name.to_string_lossy().starts_with(start)))
}

/// The environment of a peer's process of so many threads.
#[must_use]
pub fn environment(peer: &Peer, threads: usize) -> Vec<(String, String)> {
    // Its slabs are per thread and of 8 GiB each unless told otherwise, and nothing in them is used again within a phase: together
    // about half of the memory.
    let (half, slabs) = (Machine::here().memory_mib / 2, threads as u64 + 4);
    let slab = (half + 512 * slabs) / (1024 * slabs);
    let slab = ("ZK_ALLOC_SLAB_GB".to_owned(), slab.clamp(1, 8).to_string());
    let own = peer.environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    std::iter::once(slab).chain(own).collect()
}

fn run(program: &Path, pattern: &Pattern, peer: &Peer, settings: Settings) -> Result<Outcome, Error> {
    let output = child(&mut Command::new(program), pattern, peer, settings)
        .stdin(Stdio::null())
        .output()
        .map_err(|cause| Error::doing("it did not start", cause))?;
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    if settings.stats {
        eprint!("{complaints}");
    }
    if !output.status.success() {
        let last = complaints.lines().rfind(|line| !line.starts_with("note:")).unwrap_or("without a word");
        return Err(Error::new(format!("{}: {last}", output.status)));
    }
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    serde_json::from_str(&report).map_err(|cause| Error::doing("its report", cause))
}

/// Says where and of what this is measured, a line each.
pub fn describe(settings: Settings) -> Vec<String> {
    let read =
        |path: &str| std::fs::read_to_string(path).map_or_else(|_| "unknown".into(), |s| s.trim().to_owned());
    let told = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output();
        let output = output.ok().filter(|output| output.status.success());
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let unknown = || "unknown".to_owned();
    let changed =
        told("git", &["status", "--porcelain", "--untracked-files=no"]).is_some_and(|s| !s.is_empty());
    let commit = told("git", &["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(unknown);
    let machine = Machine::here();
    vec![
        format!("processor: {}", machine.processor),
        format!("processors in use: {} of {}", settings.threads, machine.cpus),
        format!("memory: {} MiB", machine.memory_mib),
        format!("kernel: Linux {}", machine.kernel),
        format!("huge pages: {}", machine.huge_pages),
        format!("governor: {}", read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        format!("last-level cache: {}", read("/sys/devices/system/cpu/cpu0/cache/index3/size")),
        format!("compiler: {}", told("rustc", &["--version"]).unwrap_or_else(unknown)),
        format!("compiled for: {}", crate::build::vectors().unwrap_or(&machine.vectors)),
        format!("C library: {}", told("getconf", &["GNU_LIBC_VERSION"]).unwrap_or_else(unknown)),
        format!("commit: {commit}{}", if changed { ", with changes" } else { "" }),
        match settings {
            Settings { turns, quick: true, .. } => format!("turns: {turns}, quick"),
            Settings { turns, turns_at_most: most, .. } if turns < 2 || most <= turns => {
                format!("turns: {turns}")
            }
            Settings { turns, turns_at_most, .. } => format!(
                "turns: {turns}, and up to {turns_at_most} of {OURS} and of those near the best, while the fastest rounds of both \
                 halves of the turns differ by more than {:.0} %",
                (summary::SETTLED_RATIO_MAX - 1.0) * 100.0
            ),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patterns;
    use crate::peers::ALL;
    use crate::record::Round;

    #[test]
    fn more_turns_end_and_are_not_for_who_asked_for_few_or_quick_ones() {
        let pattern =
            patterns::all().into_iter().find(|pattern| pattern.name == "fill/1M").expect("is listed");
        let run = |peer: &str, turn| {
            let round = |round| Round { round, seconds: f64::from(turn + 1), ..Round::default() };
            let outcome = Outcome { rounds: vec![round(0), round(1)], ..Outcome::default() };
            Run { pattern: pattern.name.clone(), peer: peer.into(), turn, outcome }
        };
        let runs: Vec<Run> = (0..5).flat_map(|turn| [run("glibc", turn), run(OURS, turn)]).collect();
        let peers: Vec<_> = ALL.iter().collect();
        let more = |turns, turns_at_most, quick, after| {
            let settings = Settings { turns, turns_at_most, threads: 1, quick, stats: false };
            more_turns(&pattern, &peers, settings, after, &runs).len()
        };
        assert_eq!((more(5, 15, false, 5), more(5, 15, false, 14), more(5, 15, false, 15)), (2, 2, 0));
        assert_eq!((more(5, 15, true, 5), more(1, 3, false, 1), more(5, 5, false, 5)), (0, 0, 0));
    }
}
