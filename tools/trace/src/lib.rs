//! What `ZK_NALLOC_TRACE` recorded, read and put in order.
//!
//! What it is: [`Trace`], a file as it is; [`Story`], what it says of blocks, phases and the process; and what is made of
//! them: a page ([`picture`]), tables ([`summary`]), and the steps that a replay takes. Why it is here: the recorder in
//! the crate writes as little as it can, in an allocation path; everything that takes thought is done here, later. The
//! format is described in `docs/TRACE.md`.
//!
//! Invariant: no file, however broken, makes this panic or take memory beyond a multiple of its length.

mod classes;
mod error;
mod file;
pub mod picture;
mod story;
pub mod summary;
pub mod units;

pub use classes::{Class, Stage};
pub use error::Error;
pub use file::{Event, Header, Outcome, Trace, What, pack, see_apart};
pub use story::{Block, Deed, Phase, Sample, Step, Story, Touched};
