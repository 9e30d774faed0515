//! What a run leaves behind: the lines a child sends to its parent, and the file a user may keep.
//!
//! Why it is here: parent and child are the same program in two processes, so the words between them are types
//! shared by both, one JSON object per line of the child's standard output. The raw rows in a record are these
//! same types, so nothing shown in the table is computed from anything but what the record holds.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::machine::Machine;

/// One line of a child's standard output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// A proof was made and verified.
    Proof(Round),
    /// All rounds are done; the last line.
    End(End),
}

/// One proof, made and verified.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// 0 for the first proof of a process, which is the cold one.
    pub round: u32,
    /// Wall time of the proof with its trace or witness, without its verification.
    pub seconds: f64,
    /// Page faults during that time that read nothing from a disk.
    pub minor_faults: u64,
    /// Page faults during that time that did.
    pub major_faults: u64,
    /// Processor time in user mode, all threads together.
    pub user_seconds: f64,
    /// Processor time in the kernel, all threads together.
    pub kernel_seconds: f64,
    /// Wall time of the verification.
    pub verify_seconds: f64,
}

/// What is known only when a process is through.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Highest resident size of the process (`VmHWM`).
    pub peak_resident_bytes: u64,
    /// Share of large requests served from memory already held, cold proof included; only for `NAlloc`.
    pub hit_rate: Option<f64>,
}

/// One process from start to end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What was proved, in words.
    pub statement: String,
    /// Under which allocator, by its name in tables.
    pub allocator: String,
    /// In which turn, from 0.
    pub turn: u32,
    /// Its proofs in order.
    pub rounds: Vec<Round>,
    /// Its end.
    pub end: End,
}

/// Everything measured by one command, with the machine it was measured on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Where it ran.
    pub machine: Machine,
    /// Worker threads of each prover.
    pub threads: usize,
    /// The processes in the order in which they ran.
    pub runs: Vec<Run>,
}

impl Record {
    /// Reads what a file holds; nothing where there is none, or an empty one.
    ///
    /// # Errors
    /// When it cannot be read, or is no record.
    pub fn read_if_any(path: &Path) -> Result<Option<Self>, Error> {
        let doing =
            |cause: &dyn std::fmt::Display| Error::doing(format!("reading {}", path.display()), cause);
        match fs::read_to_string(path) {
            Ok(text) if text.is_empty() => Ok(None),
            Ok(text) => serde_json::from_str(&text).map(Some).map_err(|cause| doing(&cause)),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(doing(&cause)),
        }
    }

    /// Says why proofs of so many threads on `machine` cannot be added, if they cannot: all that a record holds is of one.
    #[must_use]
    pub fn refuses(&self, machine: &Machine, threads: usize) -> Option<String> {
        let threads =
            (threads != self.threads).then(|| format!("threads: {threads} here, {} there", self.threads));
        threads.or_else(|| machine.differs_from(&self.machine))
    }

    /// Adds what was measured later, on the same machine ([`Record::refuses`]): it takes the place of runs of the same statements under the same allocators.
    #[must_use]
    pub fn joined(mut self, later: Self) -> Self {
        let again =
            |run: &Run, other: &Run| run.statement == other.statement && run.allocator == other.allocator;
        self.runs.retain(|run| later.runs.iter().all(|other| !again(run, other)));
        self.runs.extend(later.runs);
        self
    }

    /// Writes the record into a file, which is replaced as a whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self).map_err(io::Error::other);
        let written = text.and_then(|text| replace(path, text.as_bytes()));
        written.map_err(|cause| Error::doing(format!("writing {}", path.display()), cause))
    }
}

/// Puts a file in the place of the one of that name, which stays what it was until the new one is whole.
///
/// # Errors
/// When it cannot be written.
pub fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = beside(path);
    fs::write(&new, text)?;
    fs::rename(new, path)
}

/// Sees to it that a file can be replaced, and leaves nothing.
///
/// # Errors
/// When it cannot.
pub(crate) fn probe(path: &Path) -> io::Result<()> {
    let new = beside(path);
    fs::write(&new, [])?;
    fs::remove_file(new)
}

fn beside(path: &Path) -> PathBuf {
    path.with_extension("new")
}

#[cfg(test)]
mod tests {
    use super::{Machine, Record};

    /// Runs of another machine, or of other threads, were joined and called by the name of the last.
    #[test]
    fn proofs_of_another_machine_or_of_other_threads_are_not_added() {
        let record = Record { machine: Machine::here(), threads: 2, runs: Vec::new() };
        let here = Machine::here();
        assert_eq!(record.refuses(&here, 2), None);
        assert_eq!(record.refuses(&here, 1).as_deref(), Some("threads: 1 here, 2 there"));
        let other = Machine { memory_mib: 1, ..here };
        assert!(record.refuses(&other, 2).is_some_and(|line| line.starts_with("MiB of memory: 1 here")));
    }
}
