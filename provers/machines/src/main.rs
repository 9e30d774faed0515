//! Proves a program of a zkVM, a chain that is folded, and a system that is summed, under `System` and under `NAlloc`.
//!
//! What it is: the fourth comparison: a whole zkVM, from its processor to its proof (Miden VM), folding (Nova), and sum-checks
//! (Spartan). Why it is here: nobody looked at these while the allocator was built. Every proof is verified.
//!
//! `cd provers/machines && RUSTFLAGS=-Ctarget-cpu=native cargo run --release` compares both; `--help` says what can be
//! chosen.

mod miden;
mod nova;
mod spartan;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use prove_harness::{Dispatch, Statements, finish, parse, serve};

use nova::Folded;
use spartan::Sums;

#[global_allocator]
static GLOBAL: Dispatch = Dispatch;

/// Proves a statement of each of several proof systems under one allocator after another, verifies every proof, and
/// compares them in one table
#[derive(Parser, Debug)]
#[command(name = "prove-machines", version)]
struct Cli {
    #[command(flatten)]
    statements: Statements<Statement>,
}

/// What there is to prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Statement {
    /// Fibonacci numbers, about sixteen cycles each, by Miden VM
    Miden,
    /// Three steps of a chain of squares, folded by Nova over the Pasta curves, then proved
    Nova,
    /// A random system of constraints, by Spartan over Curve25519
    Spartan,
}

fn main() -> ExitCode {
    let cli: Cli = parse();
    finish(cli.statements.run(|statement, rows, choice, settings| match statement {
        Statement::Miden => serve(choice, settings, || miden::Fibonacci::new(rows)),
        Statement::Nova => serve(choice, settings, || Folded::new(rows)),
        Statement::Spartan => serve(choice, settings, || Sums::new(rows)),
    }))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
