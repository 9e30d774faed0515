//! Proves the Keccak and the Poseidon2 AIR of Plonky3 over KoalaBear, under `System` and under `NAlloc`.
//!
//! What it is: the main comparison of this project, on a prover whose time goes into large buffers that are freed
//! and asked for again. Why it is here: an allocator for provers is judged by proofs. Every proof is verified.
//!
//! `RUSTFLAGS=-Ctarget-cpu=native cargo run --release -p prove-plonky3` compares both; `--help` says what can be
//! chosen. Plonky3 picks its vector instructions when it is compiled: without that flag it computes several times as
//! long, which hides what allocation costs. Its two DFTs differ in memory far more than in arithmetic: the recursive
//! one, taken by default, makes fresh buffers of the size of the extended trace for each batch; the radix-2 one works
//! in place. Look at both before you conclude anything.

mod statements;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use p3_dft::Radix2DitParallel;
use p3_koala_bear::KoalaBear;
use p3_monty_31::dft::RecursiveDft;
use prove_harness::{Dispatch, Error, Rows, Settings, Task, compare, finish, parse, serve};

use statements::{keccak, mixed, poseidon2};

#[global_allocator]
static GLOBAL: Dispatch = Dispatch;

/// Proves Plonky3's Keccak and Poseidon2 AIRs over KoalaBear under one allocator after another, verifies every
/// proof, and compares them in one table
#[derive(Parser, Debug)]
#[command(name = "prove-plonky3", version)]
struct Cli {
    /// Rows of the trace, a power of two such as 2^15
    #[arg(long, default_value = "2^14")]
    rows: Rows,

    /// Prove this alone (may be given more than once) [default: keccak and poseidon2]
    #[arg(long, value_enum)]
    air: Vec<Air>,

    /// Transform by this (may be given more than once)
    #[arg(long, value_enum, default_value = "recursive")]
    dft: Vec<Dft>,

    #[command(flatten)]
    settings: Settings,
}

/// What there is to prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Air {
    /// Keccak-f permutations, 24 rows each
    Keccak,
    /// Poseidon2 permutations of width 16, 8 to a row
    Poseidon2,
    /// Both, each with all the rows, a half, a quarter and an eighth of them, in another order each time: a
    /// service that proves what it is sent
    Mixed,
}

/// By which discrete Fourier transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Dft {
    /// `RecursiveDft`: transposes, into buffers made anew for each batch
    Recursive,
    /// `Radix2DitParallel`: in place
    Radix2,
}

impl Cli {
    /// Every combination that was asked for, each once.
    fn statements(&self) -> Vec<(Air, Dft)> {
        let airs: &[Air] = if self.air.is_empty() { &[Air::Keccak, Air::Poseidon2] } else { &self.air };
        let mut statements = Vec::new();
        for pair in airs.iter().flat_map(|air| self.dft.iter().map(|dft| (*air, *dft))) {
            if !statements.contains(&pair) {
                statements.push(pair);
            }
        }
        statements
    }
}

/// Describes a statement for the table, and for the child that is to prove it.
fn task(air: Air, dft: Dft, rows: Rows) -> Task {
    let air = match air {
        Air::Keccak => "keccak",
        Air::Poseidon2 => "poseidon2",
        Air::Mixed => "mixed",
    };
    let dft = match dft {
        Dft::Recursive => "recursive",
        Dft::Radix2 => "radix2",
    };
    Task {
        statement: format!("{air} {rows} {dft}"),
        arguments: vec![format!("--air={air}"), format!("--dft={dft}"), format!("--rows={rows}")],
    }
}

fn main() -> ExitCode {
    let cli: Cli = parse();
    finish(run(&cli))
}

fn run(cli: &Cli) -> Result<(), Error> {
    let (rows, settings) = (cli.rows, &cli.settings);
    // Both transforms at the size of the extended trace: blow-up 2.
    let recursive = || RecursiveDft::<KoalaBear>::new(rows.count() << 1);
    let radix2 = Radix2DitParallel::<KoalaBear>::default;
    match (settings.allocator, cli.statements().as_slice()) {
        (Some(choice), [(Air::Keccak, Dft::Recursive)]) => {
            serve(choice, settings, || keccak(rows, recursive()))
        }
        (Some(choice), [(Air::Keccak, Dft::Radix2)]) => serve(choice, settings, || keccak(rows, radix2())),
        (Some(choice), [(Air::Poseidon2, Dft::Recursive)]) => {
            serve(choice, settings, || poseidon2(rows, recursive()))
        }
        (Some(choice), [(Air::Poseidon2, Dft::Radix2)]) => {
            serve(choice, settings, || poseidon2(rows, radix2()))
        }
        (Some(choice), [(Air::Mixed, Dft::Recursive)]) => {
            serve(choice, settings, || mixed(rows, &recursive()))
        }
        (Some(choice), [(Air::Mixed, Dft::Radix2)]) => serve(choice, settings, || mixed(rows, &radix2())),
        (Some(_), _) => {
            Err(Error::new("--allocator proves one statement: name it with one --air and one --dft"))
        }
        (None, statements) => {
            let tasks: Vec<Task> = statements.iter().map(|(air, dft)| task(*air, *dft, rows)).collect();
            compare(&tasks, settings)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser, ValueEnum};

    use super::{Air, Cli, Dft, task};

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_child_understands_what_its_parent_says() {
        let rows = "2^6".parse().expect("a power of two");
        for air in Air::value_variants() {
            for dft in Dft::value_variants() {
                let mut words = vec!["prove-plonky3".to_owned(), "--allocator=nalloc".to_owned()];
                words.extend(task(*air, *dft, rows).arguments);
                let cli = Cli::try_parse_from(words).expect("the child parses");
                assert_eq!((cli.statements(), cli.rows), (vec![(*air, *dft)], rows));
            }
        }
    }

    #[test]
    fn a_statement_asked_for_twice_is_proved_once() {
        let words = "prove-plonky3 --air keccak --dft radix2 --dft recursive --air keccak";
        let cli = Cli::try_parse_from(words.split(' ')).expect("parses");
        assert_eq!(cli.statements(), [(Air::Keccak, Dft::Radix2), (Air::Keccak, Dft::Recursive)]);
        let cli = Cli::try_parse_from(["prove-plonky3"]).expect("parses");
        assert_eq!(cli.statements(), [(Air::Keccak, Dft::Recursive), (Air::Poseidon2, Dft::Recursive)]);
    }
}
