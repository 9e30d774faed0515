//! The parent: starts itself once per turn, statement and allocator, listens, and prints the table.
//!
//! Why it is here: allocators are compared in alternating order (A B B A …), so that a machine that warms up or
//! gets busier favours neither. The parent itself measures nothing and stays idle while a child proves.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::allocator::{Choice, VARIABLE};
use crate::cli::{Settings, say};
use crate::error::Error;
use crate::machine::Machine;
use crate::progress::Progress;
use crate::record::{End, Event, Record, Round, Run};
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

/// Proves every task under `System` and under `NAlloc`, `settings.turns` times in alternating order, and prints one
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
    let failed = compare_all(tasks, &Choice::COMPARED.map(contender), settings)?;
    failed.into_iter().next().map_or(Ok(()), Err)
}

/// Does as [`compare`] among any programs that were built from the same prover, and goes on where one of them fails:
/// returns the failures.
///
/// # Errors
/// When the record cannot be written.
pub fn compare_all(
    tasks: &[Task],
    contenders: &[Contender],
    settings: &Settings,
) -> Result<Vec<Error>, Error> {
    // Before the work, not after it: a record that cannot be written is better known now.
    // An older one is there until there is a new one.
    if let Some(path) = &settings.json {
        let opened = fs::File::options().create(true).append(true).open(path);
        opened.map_err(|cause| Error::doing(format!("creating {}", path.display()), cause))?;
    }
    if let Some(folder) = &settings.trace {
        fs::create_dir_all(folder)
            .map_err(|cause| Error::doing(format!("making {}", folder.display()), cause))?;
    }
    let machine = Machine::here();
    let processes = tasks.len() * contenders.len() * settings.turns as usize;
    let progress = Progress::new(processes as u64 * u64::from(settings.rounds), settings);
    let mut runs = Vec::with_capacity(processes);
    let mut failed = Vec::new();
    let mut traces = Vec::new();
    for task in tasks {
        for turn in 0..settings.turns {
            for contender in order(contenders, turn) {
                match run(task, contender, turn, settings, &progress) {
                    Ok(run) => {
                        // A file that could not be written was told of by the process itself.
                        traces
                            .extend(trace_of(task, contender, turn, settings).filter(|trace| trace.exists()));
                        runs.push(run);
                    }
                    Err(error) => {
                        progress.say(&format!("failed: {error}"));
                        failed.push(error);
                    }
                }
            }
        }
    }
    progress.done();
    let record = Record { machine, threads: settings.threads(), runs };
    // Neither is lost where the other cannot be written.
    let written = settings.json.as_ref().map_or(Ok(()), |path| {
        let text = serde_json::to_string_pretty(&record).map_err(std::io::Error::other);
        text.and_then(|text| fs::write(path, text)).map_err(|cause| Error::doing("writing the record", cause))
    });
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

/// The contenders in the order of this turn: A B, then B A, and so on.
fn order<T>(contenders: &[T], turn: u32) -> Vec<&T> {
    let mut order: Vec<&T> = contenders.iter().collect();
    if turn % 2 == 1 {
        order.reverse();
    }
    order
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
    use super::order;

    #[test]
    fn every_second_turn_runs_backwards() {
        assert_eq!([order(&["a", "b"], 0), order(&["a", "b"], 1)].concat(), [&"a", &"b", &"b", &"a"]);
        assert_eq!(order(&[1, 2], 2), order(&[1, 2], 0));
    }
}
