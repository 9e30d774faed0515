//! What provers do to an allocator, one small function each.
//!
//! What it is: the list of [`Pattern`]s. Why they look as they do: each is plain safe code over `Vec`, as a prover
//! would write it, over whatever global allocator the process has; one call of a [`Case`]'s round begins and ends
//! with nothing of it alive, so an allocator that is reset between rounds can be compared too.
//!
//! Invariants: a round checks what it wrote and panics if memory did not keep it; a round says how many bytes it had
//! alive at once, as it asked for them.
//!
//! To add one: a function in the file of its kind that returns a [`Case`], and a line in that file's `list`.

mod churn;
mod field;
mod fill;
mod growth;
mod habits;
mod load;
mod random;
mod shape;
mod small;
mod threads;
mod transform;

pub use load::CURVES;
pub use transform::transposed;

use crate::scale::Scale;
use crate::watch::Watch;

/// A round: does the pattern once and returns the bytes that were alive at once.
pub type Round = Box<dyn FnMut(&mut Watch) -> usize>;

/// A pattern made ready.
pub struct Case {
    /// Warm rounds to run; one cold round comes before them.
    pub rounds: u32,
    /// What is counted in a round where the time for one of them is what is of interest.
    pub operations: Option<u64>,
    /// Bytes that a round asks for in all, where that is counted.
    pub handed_out: Option<usize>,
    /// The work.
    pub round: Round,
}

impl Case {
    /// Makes a case whose time is that of a whole round.
    pub fn new(rounds: u32, round: impl FnMut(&mut Watch) -> usize + 'static) -> Self {
        Self { rounds, operations: None, handed_out: None, round: Box::new(round) }
    }

    /// Says how many bytes a round asks for in all.
    #[must_use]
    pub const fn handing_out(mut self, bytes: usize) -> Self {
        self.handed_out = Some(bytes);
        self
    }

    /// Makes the time that of one of `operations` operations.
    #[must_use]
    pub const fn per(mut self, operations: u64) -> Self {
        self.operations = Some(operations);
        self
    }
}

/// Against whom a pattern is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judge {
    /// The best of all peers.
    Peers,
    /// The allocator that serves the small side: there, keeping up with it is all there is to do.
    SmallSide,
}

/// One thing that provers do.
pub struct Pattern {
    /// Its name: the kind, a slash, the size.
    pub name: String,
    /// One line for the head of its table.
    pub about: String,
    /// Against whom it is judged.
    pub judge: Judge,
    prepare: Box<dyn Fn(Scale) -> Case>,
}

impl Pattern {
    fn new(
        name: impl Into<String>,
        about: impl Into<String>,
        prepare: impl Fn(Scale) -> Case + 'static,
    ) -> Self {
        Self { name: name.into(), about: about.into(), judge: Judge::Peers, prepare: Box::new(prepare) }
    }

    fn judged_by(mut self, judge: Judge) -> Self {
        self.judge = judge;
        self
    }

    /// Makes the pattern ready; what this allocates lives as long as the case.
    #[must_use]
    pub fn prepare(&self, scale: Scale) -> Case {
        (self.prepare)(scale)
    }
}

/// Every pattern, in the order of the tables.
#[must_use]
pub fn all() -> Vec<Pattern> {
    let lists = [
        fill::list(),
        growth::list(),
        shape::list(),
        churn::list(),
        threads::list(),
        transform::list(),
        small::list(),
        load::list(),
        habits::list(),
        random::list(),
    ];
    lists.into_iter().flatten().collect()
}

/// Finds a pattern by its name: one of [`all`], or a workload of any number.
#[must_use]
pub fn named(name: &str) -> Option<Pattern> {
    all().into_iter().find(|pattern| pattern.name == name).or_else(|| random::named(name))
}

/// Writes a size as people say it.
fn size(bytes: usize) -> String {
    match bytes {
        b if b % (1 << 30) == 0 => format!("{}G", b >> 30),
        b if b % (1 << 20) == 0 => format!("{}M", b >> 20),
        b => format!("{}K", b >> 10),
    }
}
