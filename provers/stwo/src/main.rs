//! Proves sequences in Stwo's circle STARK, under `System` and under `NAlloc`.
//!
//! What it is: the prover of Starknet, with columns of 32-bit numbers, a Merkle tree over all of them, and vector
//! instructions on all threads. Why it is here: it makes every column, and every column's extension, anew for each
//! proof. Every proof is verified.
//!
//! `cd provers/stwo && RUSTFLAGS=-Ctarget-cpu=native cargo run --release` compares both; `--help` says what can be
//! chosen. It must be started from its own directory: `.cargo/config.toml` there lets the stable compiler accept the
//! nightly features that Stwo asks for.

mod sequences;

use std::process::ExitCode;

use clap::Parser;
use prove_harness::{Dispatch, Rows, Settings, finish, parse, prove_one};

use sequences::Sequences;

#[global_allocator]
static GLOBAL: Dispatch = Dispatch;

/// Proves sequences in Stwo under one allocator after another, verifies every proof, and compares them in one table
#[derive(Parser, Debug)]
#[command(name = "prove-stwo", version)]
struct Cli {
    /// Sequences, each a row of the trace, a power of two such as 2^18
    #[arg(long, default_value = "2^16")]
    rows: Rows,

    #[command(flatten)]
    settings: Settings,
}

fn main() -> ExitCode {
    let cli: Cli = parse();
    finish(prove_one("stwo", cli.rows, &cli.settings, Sequences::of))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::Cli;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
        assert!(Cli::try_parse_from(["prove-stwo", "--rows=2^6", "--allocator=system"]).is_ok());
    }
}
