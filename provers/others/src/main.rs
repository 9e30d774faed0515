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
use prove_harness::{Dispatch, Error, Rows, Settings, Task, compare, finish, parse, serve};

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
    /// Rows of the trace or constraints of the circuit, a power of two such as 2^16
    #[arg(long, default_value = "2^14")]
    rows: Rows,

    /// Prove this alone (may be given more than once) [default: all]
    #[arg(long, value_enum)]
    statement: Vec<Statement>,

    #[command(flatten)]
    settings: Settings,
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

impl Statement {
    fn task(self, rows: Rows) -> Task {
        let name = match self {
            Self::Winterfell => "winterfell",
            Self::Circle => "circle",
            Self::Openvm => "openvm",
            Self::Groth16 => "groth16",
            Self::Halo2 => "halo2",
        };
        Task {
            statement: format!("{name} {rows}"),
            arguments: vec![format!("--statement={name}"), format!("--rows={rows}")],
        }
    }
}

impl Cli {
    /// Every statement that was asked for, each once.
    fn statements(&self) -> Vec<Statement> {
        if self.statement.is_empty() {
            return Statement::value_variants().to_vec();
        }
        let mut statements = Vec::new();
        for statement in &self.statement {
            if !statements.contains(statement) {
                statements.push(*statement);
            }
        }
        statements
    }
}

fn main() -> ExitCode {
    let cli: Cli = parse();
    finish(run(&cli))
}

fn run(cli: &Cli) -> Result<(), Error> {
    let (rows, settings) = (cli.rows, &cli.settings);
    match (settings.allocator, cli.statements().as_slice()) {
        (Some(choice), [Statement::Winterfell]) => serve(choice, settings, || Work::new(rows)),
        (Some(choice), [Statement::Circle]) => serve(choice, settings, || Circle::new(rows)),
        (Some(choice), [Statement::Openvm]) => serve(choice, settings, || Stacked::new(rows)),
        (Some(choice), [Statement::Groth16]) => serve(choice, settings, || Chain::new(rows)),
        (Some(choice), [Statement::Halo2]) => serve(choice, settings, || Plonkish::new(rows)),
        (Some(_), _) => Err(Error::new("--allocator proves one statement: name it with one --statement")),
        (None, statements) => {
            let tasks: Vec<Task> = statements.iter().map(|statement| statement.task(rows)).collect();
            compare(&tasks, settings)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser, ValueEnum};

    use super::{Cli, Statement};

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_child_understands_what_its_parent_says() {
        let rows = "2^6".parse().expect("a power of two");
        for statement in Statement::value_variants() {
            let mut words = vec!["prove-others".to_owned(), "--allocator=nalloc".to_owned()];
            words.extend(statement.task(rows).arguments);
            let cli = Cli::try_parse_from(words).expect("the child parses");
            assert_eq!((cli.statements(), cli.rows), (vec![*statement], rows));
        }
    }

    #[test]
    fn a_statement_asked_for_twice_is_proved_once() {
        let words = "prove-others --statement circle --statement groth16 --statement circle";
        let cli = Cli::try_parse_from(words.split(' ')).expect("parses");
        assert_eq!(cli.statements(), [Statement::Circle, Statement::Groth16]);
        let cli = Cli::try_parse_from(["prove-others"]).expect("parses");
        assert_eq!(cli.statements(), Statement::value_variants());
    }
}
