//! The child: one pattern, one allocator, one cold round and some warm ones, and a line of JSON at the end.
//!
//! Invariant: everything is measured and kept in plain arrays made before the first round, so that reporting does
//! not allocate between rounds.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use prove_harness::usage::peak_resident_bytes;
use prove_harness::{Error, finish, parse};

use crate::record::{Outcome, Round};
use crate::scale::{GIB, Scale};
use crate::watch::Watch;
use crate::{patterns, replay};

/// What an allocator wants done around the rounds.
#[derive(Clone, Copy, Debug)]
pub struct Hooks {
    /// Runs a round.
    pub around_round: fn(&mut dyn FnMut()),
    /// Gives free memory back when all rounds are over, where the allocator can.
    pub at_end: Option<fn()>,
    /// Describes the state of the allocator.
    pub stats: Option<fn() -> String>,
}

impl Default for Hooks {
    fn default() -> Self {
        Self { around_round: |round| round(), at_end: None, stats: None }
    }
}

/// No further warm round starts after this much time in them: who is ten times slower than the best need not be known
/// as well, and would take most of the time.
const BUDGET_SECONDS: f64 = 0.6;
/// Warm rounds that are run even so, …
const ROUNDS_MIN: u32 = 3;
/// … unless a single one takes this.
const SLOW_SECONDS: f64 = 1.0;

#[derive(Parser, Debug)]
struct Arguments {
    #[arg(long, required_unless_present = "replay")]
    pattern: Option<String>,
    /// Replay this trace instead
    #[arg(long, conflicts_with = "pattern")]
    replay: Option<PathBuf>,
    #[arg(long)]
    threads: usize,
    #[arg(long)]
    quick: bool,
    /// Warm rounds in place of the pattern's own number
    #[arg(long)]
    rounds: Option<u32>,
    /// Print the allocator's own counters on standard error
    #[arg(long)]
    stats: bool,
}

/// Does what the command line says and prints an [`Outcome`] on standard output.
#[must_use]
pub fn main(hooks: &Hooks) -> ExitCode {
    finish(run(&parse::<Arguments>(), hooks))
}

fn run(arguments: &Arguments, hooks: &Hooks) -> Result<(), Error> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(arguments.threads)
        .build_global()
        .map_err(|cause| Error::doing("starting the worker threads", cause))?;
    if let Some(file) = &arguments.replay {
        return replay::serve(file, hooks);
    }
    let pattern = arguments.pattern.as_deref().and_then(patterns::named);
    let pattern = pattern.ok_or_else(|| Error::new(format!("no pattern {:?}", arguments.pattern)))?;
    // What others use is not ours to fill. Where the kernel does not tell, be modest.
    let memory = bytes_in("/proc/meminfo", "MemAvailable:").and_then(|bytes| usize::try_from(bytes).ok());
    let scale = Scale { quick: arguments.quick, memory_bytes: memory.unwrap_or(4 * GIB) };
    let mut case = pattern.prepare(scale);
    let warm = arguments.rounds.unwrap_or(case.rounds);
    let mut rounds = Vec::with_capacity(warm as usize + 1);
    let mut spent = 0.0;
    for number in 0..=warm {
        let enough = number > ROUNDS_MIN && spent > BUDGET_SECONDS || number > 1 && spent > SLOW_SECONDS;
        if enough && arguments.rounds.is_none() {
            break;
        }
        let mut watch = Watch::default();
        let mut live = 0;
        (hooks.around_round)(&mut || live = (case.round)(&mut watch));
        if number > 0 {
            spent += watch.seconds;
        }
        rounds.push(Round {
            round: number,
            seconds: watch.seconds,
            minor_faults: watch.usage.minor_faults,
            major_faults: watch.usage.major_faults,
            user_seconds: watch.usage.user_seconds,
            kernel_seconds: watch.usage.kernel_seconds,
            live_bytes: live as u64,
        });
    }
    let peak = peak_resident_bytes().ok_or_else(|| Error::new("no VmHWM in /proc/self/status"))?;
    let operations = case.operations;
    drop(case);
    if let Some(stats) = hooks.stats.filter(|_| arguments.stats) {
        eprintln!("{}", stats());
    }
    if let Some(at_end) = hooks.at_end {
        at_end();
    }
    let outcome = Outcome {
        rounds,
        operations,
        peak_resident_bytes: peak,
        peak_virtual_bytes: status_bytes("VmPeak:").unwrap_or(0),
        end_resident_bytes: status_bytes("VmRSS:").unwrap_or(0),
    };
    let line = serde_json::to_string(&outcome).map_err(|cause| Error::doing("writing the result", cause))?;
    println!("{line}");
    Ok(())
}

/// Reads a size from the status of this process.
fn status_bytes(field: &str) -> Option<u64> {
    bytes_in("/proc/self/status", field)
}

/// Reads the field of a file of `/proc` that counts in kB.
fn bytes_in(path: &str, field: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
