//! The parent: starts itself once per turn, statement and allocator, listens, and prints the table.
//!
//! Why it is here: allocators are compared in alternating order ([`order`]), so that a machine that warms up or
//! gets busier favours neither. The parent itself measures nothing and stays idle while a child proves.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::allocator::{Choice, VARIABLE};
use crate::cli::{Settings, say};
use crate::error::Error;
use crate::machine::Machine;
use crate::order::order;
use crate::progress::Progress;
use crate::record::{End, Event, Record, Round, Run, probe};
use crate::table;

/// One statement to compare allocators on.
#[derive(Clone, Debug)]
pub struct Task {
    /// What is proved, in a few words, for the table.
    pub statement: String,
    /// The arguments that make a child prove just this.
    pub arguments: Vec<String>,
}

/// One side of a comparison: a program with an allocator in it.
#[derive(Clone, Debug)]
pub struct Contender {
    /// Its name in tables and records.
    pub name: String,
    /// A build of the prover that holds the allocator.
    pub program: PathBuf,
    /// What to choose in it: the name of a [`Choice`], of which this build may know fewer.
    pub choice: String,
    /// What else is set in its environment.
    pub environment: Vec<(String, String)>,
}

/// Proves every task under `System` and under `NAlloc`, in turns of alternating order, and prints one
/// table on standard output; shows progress on standard error.
///
/// # Errors
/// When a child cannot be started or fails, or the record cannot be written.
pub fn compare(tasks: &[Task], settings: &Settings) -> Result<(), Error> {
    let program = std::env::current_exe().map_err(|cause| Error::doing("finding this program", cause))?;
    let contender = |choice: Choice| Contender {
        name: choice.title().into(),
        program: program.clone(),
        choice: choice.name().into(),
        environment: Vec::new(),
    };
    let failed = compare_all(tasks, &Choice::COMPARED.map(contender), settings, None)?;
    failed.into_iter().next().map_or(Ok(()), Err)
}

/// Does as [`compare`] among any programs that were built from the same prover, and goes on where one of them fails:
/// returns the failures. What there is so far is written after each turn, beside what was there `before`, so that who interrupts
/// loses one turn.
///
/// # Errors
/// When the record cannot be written.
pub fn compare_all(
    tasks: &[Task],
    contenders: &[Contender],
    settings: &Settings,
    before: Option<Record>,
) -> Result<Vec<Error>, Error> {
    // Before the work, not after it: a record that cannot be written is better known now.
    if let Some(path) = &settings.json {
        probe(path).map_err(|cause| Error::doing(format!("creating {}", path.display()), cause))?;
    }
    if let Some(folder) = &settings.trace {
        fs::create_dir_all(folder)
            .map_err(|cause| Error::doing(format!("making {}", folder.display()), cause))?;
    }
    let machine = Machine::here();
    let turns = settings.turns(contenders.len());
    let processes = tasks.len() * contenders.len() * turns as usize;
    let progress = Progress::new(processes as u64 * u64::from(settings.rounds), turns);
    let mut record = Record { machine, threads: settings.threads(), runs: Vec::with_capacity(processes) };
    let keep = |record: &Record| match &settings.json {
        Some(path) if !record.runs.is_empty() => match before.clone() {
            Some(before) => before.joined(record.clone()).write(path),
            None => record.write(path),
        },
        _ => Ok(()),
    };
    let mut written = Ok(());
    let mut failed = Vec::new();
    let mut traces = Vec::new();
    for task in tasks {
        for turn in 0..turns {
            for contender in order(contenders, turn) {
                match run(task, contender, turn, settings, &progress) {
                    Ok(run) => {
                        // A file that could not be written was told of by the process itself.
                        traces
                            .extend(trace_of(task, contender, turn, settings).filter(|trace| trace.exists()));
                        record.runs.push(run);
                    }
                    Err(error) => {
                        progress.say(&format!("failed: {error}"));
                        failed.push(error);
                    }
                }
            }
            // What cannot be written now may be later, and the table can be shown.
            written = keep(&record);
            if let Err(error) = &written {
                progress.say(&error.to_string());
            }
        }
    }
    progress.done();
    say(table::render(&record.runs))?;
    say(table::caption(&record, settings.rounds))?;
    written?;
    for trace in traces {
        let name = quoted(&trace.display().to_string());
        say(format_args!("for a picture: cargo run --release -p zk-nalloc-trace -- picture {name}"))?;
    }
    Ok(failed)
}

/// A name as a shell takes it.
fn quoted(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if name.chars().all(is_plain) { name.to_owned() } else { format!("'{}'", name.replace('\'', r"'\''")) }
}

fn run(
    task: &Task,
    contender: &Contender,
    turn: u32,
    settings: &Settings,
    progress: &Progress,
) -> Result<Run, Error> {
    progress.starts(&task.statement, &contender.name, turn);
    let mut child = start(task, contender, turn, settings)?;
    let heard = listen(&mut child, progress);
    if heard.is_err() {
        // A child that talks nonsense must not outlive us; one that has already ended refuses, which is as well.
        let _ = child.kill();
    }
    let what = || format!("{} under {}", task.statement, contender.name);
    let status = child.wait().map_err(|cause| Error::doing(what(), cause))?;
    if !status.success() {
        return Err(Error::doing(what(), format!("the proving process ended with {status}")));
    }
    let (rounds, end) = heard.map_err(|cause| Error::doing(what(), cause))?;
    let run = Run { statement: task.statement.clone(), allocator: contender.name.clone(), turn, rounds, end };
    progress.ends(&run);
    Ok(run)
}

/// Where a process of `NAlloc` records what it does, if it is to.
fn trace_of(task: &Task, contender: &Contender, turn: u32, settings: &Settings) -> Option<PathBuf> {
    let folder = settings.trace.as_ref().filter(|_| contender.choice == Choice::NAlloc.name())?;
    let statement = task.statement.replace(' ', "-").replace('^', "");
    Some(folder.join(format!("{statement}-{turn}.trace")))
}

fn start(task: &Task, contender: &Contender, turn: u32, settings: &Settings) -> Result<Child, Error> {
    let mut command = Command::new(&contender.program);
    command
        .args(&task.arguments)
        .args(["--allocator", &contender.choice])
        .args(["--rounds", &settings.rounds.to_string()])
        .args(["--threads", &settings.threads().to_string()]);
    if settings.stats {
        command.arg("--stats");
    }
    if settings.prefault > 0 {
        command.args(["--prefault", &settings.prefault.to_string()]);
    }
    if settings.report {
        command.env("ZK_NALLOC_REPORT", "1");
    }
    if let Some(trace) = trace_of(task, contender, turn, settings) {
        command.env("ZK_NALLOC_TRACE", trace);
    }
    command
        .env(VARIABLE, &contender.choice)
        .envs(contender.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|cause| Error::doing("starting a prover", cause))
}

/// Reads a child's lines to their end.
fn listen(child: &mut Child, progress: &Progress) -> Result<(Vec<Round>, End), Error> {
    let stdout =
        child.stdout.take().ok_or_else(|| Error::new("the proving process has no standard output"))?;
    let mut rounds = Vec::new();
    for line in BufReader::new(stdout).lines() {
        let line = line.map_err(|cause| Error::doing("listening", cause))?;
        match serde_json::from_str(&line).map_err(|cause| Error::doing(format!("reading {line:?}"), cause))? {
            Event::Proof(round) => {
                progress.proof(&round);
                rounds.push(round);
            }
            Event::End(end) => return Ok((rounds, end)),
        }
    }
    Err(Error::new("the proving process ended too early"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use clap::Parser;

    use super::{Contender, Record, Settings, Task, compare_all};

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        settings: Settings,
    }

    /// A folder of its own for a test.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("prove-harness-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("can be made");
        folder
    }

    /// Runs a script in the place of a prover so many times, with a record, and returns how many of them failed.
    fn compared(script: &str, turns: &str, json: &Path, before: Option<Record>) -> usize {
        let words = ["prove", "--turns", turns, "--threads", "1", "--json", json.to_str().expect("is plain")];
        let settings = Cli::try_parse_from(words).expect("parses").settings;
        let arguments = ["-c", script].map(String::from).to_vec();
        let task = Task { statement: "counting".into(), arguments };
        let contender = Contender {
            name: "some".into(),
            program: "/bin/sh".into(),
            choice: "system".into(),
            environment: Vec::new(),
        };
        compare_all(&[task], &[contender], &settings, before).expect("can be written").len()
    }

    /// What was proved in hours was lost with whoever interrupted it, as all was written at the end.
    #[test]
    fn what_was_proved_is_kept_after_each_turn_beside_what_was_there() {
        let folder = folder("turns");
        let (json, seen) = (folder.join("it.json"), folder.join("seen.json"));
        let end = r#"{"event":"end","peak_resident_bytes":1,"hit_rate":null}"#;
        // What the process of the second turn sees stays.
        let script = format!("cat {} > {} 2>/dev/null; echo '{end}'", json.display(), seen.display());
        let other = crate::statistics::tests::run("other", 0, &[1.0, 1.0], 1);
        let before = Record { machine: crate::machine::Machine::here(), threads: 1, runs: vec![other] };
        assert_eq!(compared(&script, "2", &json, Some(before)), 0);
        let read = |path: &Path| {
            let record = Record::read_if_any(path).expect("is a record").expect("is there");
            record.runs.iter().map(|run| (run.allocator.clone(), run.turn)).collect::<Vec<_>>()
        };
        let (kept, all) = (read(&seen), read(&json));
        fs::remove_dir_all(&folder).expect("was made");
        assert_eq!(kept, [("other".into(), 0), ("some".into(), 0)]);
        assert_eq!(all, [("other".into(), 0), ("some".into(), 0), ("some".into(), 1)]);
    }

    /// An empty file was left, which is no record.
    #[test]
    fn who_fails_leaves_no_file() {
        let folder = folder("none");
        assert_eq!(compared("exit 1", "1", &folder.join("it.json"), None), 1);
        let left = fs::read_dir(&folder).expect("is there").count();
        fs::remove_dir_all(&folder).expect("was made");
        assert_eq!(left, 0);
    }
}
