//! Runs a prover under one global allocator after another and compares them in one table.
//!
//! What it is: all that the prover packages share. A binary installs [`Dispatch`], describes what it proves as a
//! [`Prover`], and hands over: without `--allocator` it is the parent, which starts itself once per statement,
//! allocator and turn ([`compare`]); with it, it is such a child ([`serve`]), which proves, verifies and reports
//! each proof as a line of JSON. Why it is here: what is measured and how must be the same for every prover.
//!
//! Never here: anything that knows a proof system.

pub mod allocator;
mod child;
mod cli;
mod error;
pub mod machine;
mod order;
mod parent;
mod progress;
pub mod record;
#[cfg(feature = "rival")]
mod rival;
mod statements;
pub mod statistics;
pub mod table;
pub mod usage;

pub use allocator::{Choice, Dispatch};
pub use child::{Prover, serve};
pub use cli::{Rows, Settings, finish, parse, say};
pub use error::Error;
pub use order::order;
pub use parent::{Contender, Task, compare, compare_all};
pub use statements::{Statements, prove_one};
