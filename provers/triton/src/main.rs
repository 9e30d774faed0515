//! Proves Fibonacci numbers in Triton VM, under `System` and under `NAlloc`.
//!
//! What it is: the zkVM of Neptune, a STARK with hundreds of columns over a 64-bit field and its cubic extension. Why it is
//! here: nobody looked at it while the allocator was built, and it brings jemalloc along by default, which is turned off
//! here. Every proof is verified.
//!
//! `cd provers/triton && RUSTFLAGS=-Ctarget-cpu=native cargo run --release` compares both; `--help` says what can be
//! chosen. Its constraints are generated code, which takes long to compile.

mod fibonacci;

use std::process::ExitCode;

use clap::Parser;
use prove_harness::{Dispatch, Rows, Settings, finish, parse, prove_one};

use fibonacci::Fibonacci;

#[global_allocator]
static GLOBAL: Dispatch = Dispatch;

/// Proves Fibonacci numbers in Triton VM under one allocator after another, verifies every proof, and compares them in one
/// table
#[derive(Parser, Debug)]
#[command(name = "prove-triton", version)]
struct Cli {
    /// Rows of the padded trace, a power of two such as 2^16, from 2^9 on
    #[arg(long, default_value = "2^14")]
    rows: Rows,

    #[command(flatten)]
    settings: Settings,
}

fn main() -> ExitCode {
    let cli: Cli = parse();
    finish(prove_one("triton", cli.rows, &cli.settings, Fibonacci::of))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::Cli;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
        assert!(Cli::try_parse_from(["prove-triton", "--rows=2^9", "--allocator=system"]).is_ok());
    }
}
