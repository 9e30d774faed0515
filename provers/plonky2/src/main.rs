//! Proves a repeated-squaring circuit of plonky2, under `System` and under `NAlloc`.
//!
//! What it is: the second comparison of this project, on a prover that mostly computes. Why it is here: where little
//! time goes into memory there is little to gain, and the point is to see that nothing is lost, least of all memory.
//! Every proof is verified.
//!
//! `cd provers/plonky2 && cargo run --release` compares both; `--help` says what can be chosen. It must be started
//! from its own directory: `.cargo/config.toml` there lets the stable compiler accept the nightly feature that
//! plonky2 asks for.

mod squaring;

use std::process::ExitCode;

use clap::Parser;
use prove_harness::{Dispatch, Rows, Settings, finish, parse, prove_one};

use squaring::Squaring;

#[global_allocator]
static GLOBAL: Dispatch = Dispatch;

/// Proves a repeated-squaring circuit of plonky2 under one allocator after another, verifies every proof, and
/// compares them in one table
#[derive(Parser, Debug)]
#[command(name = "prove-plonky2", version)]
struct Cli {
    /// Rows of the circuit, a power of two such as 2^14
    #[arg(long, default_value = "2^13")]
    rows: Rows,

    #[command(flatten)]
    settings: Settings,
}

fn main() -> ExitCode {
    let cli: Cli = parse();
    finish(prove_one("squaring", cli.rows, &cli.settings, Squaring::build))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::Cli;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
        assert!(Cli::try_parse_from(["prove-plonky2", "--rows=2^6", "--allocator=system"]).is_ok());
    }
}
