//! The prover comparisons, among all allocators: the same builds of the same provers as their own commands make, with
//! a rival put in.
//!
//! Why it is here and not in the provers: these build with one rival each, and only this program knows who there is.

use std::fs;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use prove_harness::machine::Machine;
use prove_harness::record::Record;
use prove_harness::{Choice, Contender, Error, Rows, Settings, Task, compare_all, table};

use crate::build::{Program, children};
use crate::compare::{environment, foreign_settings};
use crate::peers::{self, OURS, OURS_OVER, Peer, SMALL_SIDE, SMALL_SIDE_OVER};

/// What there is to prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Statement {
    /// The Keccak AIR of Plonky3
    Keccak,
    /// The Poseidon2 AIR of Plonky3
    Poseidon2,
    /// Plonky3's Keccak and Poseidon2 AIRs, from an eighth of the rows to all of them, in another order each round
    Mixed,
    /// Repeated squaring in plonky2
    Squaring,
    /// Cubes and sums in 32 columns, by winterfell
    Winterfell,
    /// The Keccak AIR in Plonky3's circle STARK
    Circle,
    /// The Keccak AIR in OpenVM's backend
    Openvm,
    /// A chain of multiplications in arkworks' Groth16
    Groth16,
    /// Chains of cubes and bytes, with lookups and copies, by halo2
    Halo2,
    /// Fibonacci numbers in Miden VM
    Miden,
    /// A chain of squares, folded by Nova
    Nova,
    /// A random system of constraints, by Spartan
    Spartan,
    /// A loop of so many instructions in SP1's zkVM
    Sp1,
    /// Sequences in Stwo's circle STARK
    Stwo,
    /// Fibonacci numbers in Triton VM
    Triton,
}

impl Statement {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn program(self) -> Program {
        let provers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../provers");
        match self {
            Self::Keccak | Self::Poseidon2 | Self::Mixed => {
                Program::named("prove-plonky3", provers.join("plonky3"))
            }
            Self::Squaring => Program::named("prove-plonky2", provers.join("plonky2")),
            Self::Winterfell | Self::Circle | Self::Openvm | Self::Groth16 | Self::Halo2 => {
                Program::named("prove-others", provers.join("others"))
            }
            Self::Miden | Self::Nova | Self::Spartan => {
                Program::named("prove-machines", provers.join("machines"))
            }
            Self::Sp1 => Program::named("prove-sp1", provers.join("sp1")),
            Self::Stwo => Program::named("prove-stwo", provers.join("stwo")),
            Self::Triton => Program::named("prove-triton", provers.join("triton")),
        }
    }

    fn task(self, rows: Rows) -> Task {
        let rows_argument = format!("--rows={rows}");
        match self {
            Self::Keccak | Self::Poseidon2 | Self::Mixed => {
                let name = self.name();
                Task {
                    statement: format!("{name} {rows}"),
                    arguments: vec![format!("--air={name}"), rows_argument],
                }
            }
            Self::Squaring | Self::Sp1 | Self::Stwo | Self::Triton => {
                Task { statement: format!("{} {rows}", self.name()), arguments: vec![rows_argument] }
            }
            Self::Winterfell
            | Self::Circle
            | Self::Openvm
            | Self::Groth16
            | Self::Halo2
            | Self::Miden
            | Self::Nova
            | Self::Spartan => {
                let name = self.name();
                Task {
                    statement: format!("{name} {rows}"),
                    arguments: vec![format!("--statement={name}"), rows_argument],
                }
            }
        }
    }
}

/// Proves `statement` for each number of rows under each of `peers`, and prints one table; with a rival that does not
/// build left out with a line.
///
/// # Errors
/// When a program cannot be kept, the record cannot be added to, or it cannot be written, and, once all is done, when one of them failed.
pub fn compare(
    statement: Statement,
    rows: &[Rows],
    peers: &[&'static Peer],
    settings: &Settings,
) -> Result<(), Error> {
    let before = settings.json.as_deref().map_or(Ok(None), Record::read_if_any)?;
    let refused = before.as_ref().and_then(|before| before.refuses(&Machine::here(), settings.threads()));
    if let (Some(why), Some(path)) = (refused, &settings.json) {
        return Err(Error::new(format!("{}: it cannot be added to: {why}", path.display())));
    }
    // Those would be inherited by all.
    if let Some(name) = foreign_settings().next() {
        let name = name.to_string_lossy();
        return Err(Error::new(format!("{name} is set and would change an allocator: unset it first")));
    }
    // Ours as it comes, and over another small side: its other forms are a matter of patterns.
    let is_compared = |peer: &&Peer| !peer.ours || [OURS, OURS_OVER].contains(&peer.name);
    let peers: Vec<&Peer> = peers.iter().copied().filter(is_compared).collect();
    let built: Vec<&Peer> = peers.iter().map(|peer| small_side(peer)).collect();
    let children = children(&statement.program(), &built, &mut |name| eprintln!("building {name}"))?;
    for line in &children.left_out {
        eprintln!("{line}");
    }
    let contender = |peer: &&Peer| {
        let program = children.of(small_side(peer)).map(Path::to_path_buf)?;
        Some(contender(peer, program, settings))
    };
    let contenders: Vec<Contender> = peers.iter().filter_map(contender).collect();
    let tasks: Vec<Task> = rows.iter().map(|rows| statement.task(*rows)).collect();
    let failed = compare_all(&tasks, &contenders, settings, before)?;
    failed.into_iter().next().map_or(Ok(()), Err)
}

/// Where a record keeps the proofs of a statement, in its folder.
#[must_use]
pub fn file_of(statement: Statement, folder: &Path) -> PathBuf {
    folder.join(format!("provers-{}.json", statement.name()))
}

/// Where a record keeps the proofs of each statement, whether it holds any or not.
#[must_use]
pub fn files(folder: &Path) -> Vec<PathBuf> {
    Statement::value_variants().iter().map(|statement| file_of(*statement, folder)).collect()
}

/// Lays out what a record holds of provers; nothing where it holds none.
///
/// # Errors
/// When a file cannot be read.
pub fn tables(folder: &Path) -> Result<String, Error> {
    let mut text = String::new();
    for statement in Statement::value_variants() {
        let file = file_of(*statement, folder);
        if !file.exists() {
            continue;
        }
        let doing =
            |cause: &dyn std::fmt::Display| Error::doing(format!("reading {}", file.display()), cause);
        let json = fs::read(&file).map_err(|cause| doing(&cause))?;
        let record: Record = serde_json::from_slice(&json).map_err(|cause| doing(&cause))?;
        let rounds = record.runs.iter().map(|run| run.rounds.len()).max().unwrap_or(1);
        let about = statement.to_possible_value().and_then(|value| value.get_help().map(ToString::to_string));
        text += &format!("\n### {}\n\n", about.unwrap_or_default());
        text += &format!("{}\n\n", table::render(&record.runs));
        text += &format!("{}\n", table::caption(&record, u32::try_from(rounds).unwrap_or(u32::MAX)));
    }
    Ok(text)
}

/// Whose build a peer needs: every one holds ours and the C library's beside its own.
fn small_side(peer: &Peer) -> &'static Peer {
    let base = match peer.name {
        OURS => SMALL_SIDE,
        OURS_OVER => SMALL_SIDE_OVER,
        name => name,
    };
    peers::by_name(base).unwrap_or(&peers::ALL[0])
}

fn contender(peer: &Peer, program: PathBuf, settings: &Settings) -> Contender {
    let (choice, name) = match (peer.name, peer.feature) {
        (OURS, _) => ("nalloc", Choice::NAlloc.title().into()),
        (OURS_OVER, _) => ("over", format!("{} over {SMALL_SIDE_OVER}", Choice::NAlloc.title())),
        (name, None) => ("system", name.into()),
        (name, Some(_)) => ("rival", name.into()),
    };
    Contender { name, program, choice: choice.into(), environment: environment(peer, settings.threads()) }
}
