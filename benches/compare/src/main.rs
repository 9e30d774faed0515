//! The comparison: every pattern under every allocator, one table per pattern.
//!
//! `cargo run --release -p zk-compare`

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use prove_harness::{Error, finish, parse};
use zk_compare::compare::{self, Settings};
use zk_compare::{patterns, peers};

/// Runs every allocation pattern under every allocator, each in a process of its own.
#[derive(Parser, Debug)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Task>,
    #[command(flatten)]
    run: Run,
}

#[derive(Subcommand, Debug)]
enum Task {
    /// List the patterns and the allocators
    List,
}

#[derive(Args, Debug)]
struct Run {
    /// Only patterns whose name contains one of these
    #[arg(long, value_delimiter = ',')]
    pattern: Vec<String>,
    /// Only these allocators
    #[arg(long, value_delimiter = ',', value_parser = peers::ALL.map(|peer| peer.name))]
    allocator: Vec<String>,
    /// Processes per pattern and allocator; every second turn runs the allocators backwards
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    turns: u32,
    /// Threads of each process [default: the processors it may use]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4096))]
    threads: Option<u16>,
    /// Small sizes, and every byte checked: shows that all is right, not how fast it is
    #[arg(long)]
    quick: bool,
    /// Show the counters of this project's allocator at the end of each of its processes
    #[arg(long)]
    stats: bool,
    /// List the patterns and the allocators
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let arguments: Arguments = parse();
    finish(match arguments.command {
        Some(Task::List) => list(),
        None if arguments.run.list => list(),
        None => run(&arguments.run),
    })
}

fn list() -> Result<(), Error> {
    println!("patterns:");
    for pattern in patterns::all() {
        println!("  {:24} {}", pattern.name, pattern.about);
    }
    println!("allocators:");
    for peer in peers::ALL {
        println!("  {:24} {}", peer.name, peer.about);
    }
    Ok(())
}

fn run(options: &Run) -> Result<(), Error> {
    let wanted =
        |name: &str| options.pattern.is_empty() || options.pattern.iter().any(|part| name.contains(part));
    let mut patterns = patterns::all();
    patterns.retain(|pattern| wanted(&pattern.name));
    if patterns.is_empty() {
        return Err(Error::new("no pattern has such a name; --list shows them"));
    }
    let chosen = |name: &str| options.allocator.is_empty() || options.allocator.iter().any(|n| n == name);
    let peers: Vec<_> = peers::ALL.iter().filter(|peer| chosen(peer.name)).collect();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = options.threads.map_or(cpus, usize::from);
    let settings = Settings { turns: options.turns, threads, quick: options.quick, stats: options.stats };
    let record = compare::compare(&patterns, &peers, settings)?;
    if options.quick && record.about.iter().any(|line| line.starts_with("failed")) {
        return Err(Error::new("a pattern failed"));
    }
    Ok(())
}
