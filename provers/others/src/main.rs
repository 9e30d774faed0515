//! Proves statements of provers that this project was not developed with, under `System` and under `NAlloc`.
//!
//! What it is: the third comparison, on provers that nobody looked at while the allocator was built: a STARK over
//! columns in vectors of their own (winterfell), one over the circle group (Plonky3), the backend of a zkVM, which commits to
//! multilinear polynomials (OpenVM), a SNARK that is made of multi-exponentiations (Groth16, arkworks), and one over a table
//! of gates, lookups and copies (halo2). Why it is here: an allocator that is good at the provers it was built with may be good at those alone. Every proof is verified.
//!
//! `cd provers/others && RUSTFLAGS=-Ctarget-cpu=native cargo run --release` compares both; `--help` says what can be
//! chosen.

mod circle;
mod groth16;
mod halo2;
mod openvm;
mod winter;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use prove_harness::{Dispatch, Statements, finish, parse, serve};

use circle::Circle;
use groth16::Chain;
use halo2::Plonkish;
use openvm::Stacked;
use winter::Work;

#[global_allocator]
static GLOBAL: Dispatch = Dispatch;

/// Proves a statement of each of several proof systems under one allocator after another, verifies every proof, and
/// compares them in one table
#[derive(Parser, Debug)]
#[command(name = "prove-others", version)]
struct Cli {
    #[command(flatten)]
    statements: Statements<Statement>,
}

/// What there is to prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Statement {
    /// 32 columns of cubes and sums over a 64-bit field, blow-up 8, by winterfell
    Winterfell,
    /// Keccak-f permutations, 24 rows each, by Plonky3's circle STARK over Mersenne-31
    Circle,
    /// Keccak-f permutations, 24 rows each, by OpenVM's backend over BabyBear
    Openvm,
    /// A chain of multiplications, by arkworks' Groth16 over BN254
    Groth16,
    /// Four chains of cubes and bytes, with lookups and copies, by halo2 over the Pasta curves
    Halo2,
}

fn main() -> ExitCode {
    let cli: Cli = parse();
    finish(cli.statements.run(|statement, rows, choice, settings| match statement {
        Statement::Winterfell => serve(choice, settings, || Work::new(rows)),
        Statement::Circle => serve(choice, settings, || Circle::new(rows)),
        Statement::Openvm => serve(choice, settings, || Stacked::new(rows)),
        Statement::Groth16 => serve(choice, settings, || Chain::new(rows)),
        Statement::Halo2 => serve(choice, settings, || Plonkish::new(rows)),
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
