//! Proves a program of a zkVM, a chain that is folded, and a system that is summed, under `System` and under `NAlloc`.
//!
//! What it is: the fourth comparison: a whole zkVM, from its processor to its proof (Miden VM), folding (Nova), and sum-checks
//! (Spartan). Why it is here: nobody looked at these while the allocator was built. Every proof is verified. Never here: zkVMs whose
//! compilation takes longer than all proofs (Triton VM, of which ten minutes were not enough).
//!
//! `cd provers/machines && RUSTFLAGS=-Ctarget-cpu=native cargo run --release` compares both; `--help` says what can be
//! chosen.

mod miden;
mod nova;
mod spartan;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use prove_harness::{Dispatch, Error, Rows, Settings, Task, compare, finish, parse, serve};

use nova::Folded;
use spartan::Sums;

#[global_allocator]
static GLOBAL: Dispatch = Dispatch;

/// Proves a statement of each of several proof systems under one allocator after another, verifies every proof, and
/// compares them in one table
#[derive(Parser, Debug)]
#[command(name = "prove-machines", version)]
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
    /// Fibonacci numbers, about sixteen cycles each, by Miden VM
    Miden,
    /// Three steps of a chain of squares, folded by Nova over the Pasta curves, then proved
    Nova,
    /// A random system of constraints, by Spartan over Curve25519
    Spartan,
}

impl Statement {
    fn task(self, rows: Rows) -> Task {
        let name = match self {
            Self::Miden => "miden",
            Self::Nova => "nova",
            Self::Spartan => "spartan",
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
        (Some(choice), [Statement::Miden]) => serve(choice, settings, || miden::Fibonacci::new(rows)),
        (Some(choice), [Statement::Nova]) => serve(choice, settings, || Folded::new(rows)),
        (Some(choice), [Statement::Spartan]) => serve(choice, settings, || Sums::new(rows)),
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
            let mut words = vec!["prove-machines".to_owned(), "--allocator=nalloc".to_owned()];
            words.extend(statement.task(rows).arguments);
            let cli = Cli::try_parse_from(words).expect("the child parses");
            assert_eq!((cli.statements(), cli.rows), (vec![*statement], rows));
        }
    }

    #[test]
    fn a_statement_asked_for_twice_is_proved_once() {
        let words = "prove-machines --statement miden --statement nova --statement miden";
        let cli = Cli::try_parse_from(words.split(' ')).expect("parses");
        assert_eq!(cli.statements(), [Statement::Miden, Statement::Nova]);
        let cli = Cli::try_parse_from(["prove-machines"]).expect("parses");
        assert_eq!(cli.statements(), Statement::value_variants());
    }
}
