//! Proves a run of a loop in SP1's zkVM, under `System` and under `NAlloc`.
//!
//! What it is: the fifth comparison, of a zkVM that works in large vectors of a power of two. Why it is here: it was first run when
//! the allocator was nearly as it is, and it proves by sum-checks. Every proof is verified.
//! Never here: the recursion that makes one proof of many, and anything on a GPU.
//!
//! `cd provers/sp1 && RUSTFLAGS=-Ctarget-cpu=native cargo run --release` compares both; `--help` says what can be chosen. It must
//! be started from its own directory: `.cargo/config.toml` there says why.

use std::process::ExitCode;

use clap::Parser;
use prove_harness::{Dispatch, Error, Prover, Rows, Settings, finish, parse, prove_one};
use sp1_loop::{Loop, Proof};

#[global_allocator]
static GLOBAL: Dispatch = Dispatch;

/// Proves a run of a loop in SP1's zkVM under one allocator after another, verifies every proof, and compares them in one
/// table
#[derive(Parser, Debug)]
#[command(name = "prove-sp1", version)]
struct Cli {
    /// Instructions that are run, a power of two such as 2^18
    #[arg(long, default_value = "2^18")]
    rows: Rows,

    #[command(flatten)]
    settings: Settings,
}

/// A run that is proved again and again.
struct Run(Loop);

impl Prover for Run {
    type Proof = Proof;

    fn prove(&self) -> Result<Self::Proof, Error> {
        self.0.prove().map_err(|cause| Error::doing("proving", cause))
    }

    fn verify(&self, proof: &Self::Proof) -> Result<(), Error> {
        self.0.verify(proof).map_err(|cause| Error::doing("verifying", cause))
    }
}

fn main() -> ExitCode {
    let cli: Cli = parse();
    let (rows, settings) = (cli.rows, &cli.settings);
    let threads = settings.threads();
    finish(prove_one("sp1", rows, settings, |rows| {
        Run(Loop::new(rows.count(), threads).expect("threads can be started"))
    }))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::Cli;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
        assert!(Cli::try_parse_from(["prove-sp1", "--rows=2^6", "--allocator=system"]).is_ok());
    }
}
