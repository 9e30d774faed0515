//! Runs the allocation patterns of provers under one global allocator after another, and shows who wins.
//!
//! What it is: two programs over one library. `zk-compare-child` installs one allocator for good and runs one
//! [pattern](patterns) in a process of its own; `zk-compare` builds it once per [peer](peers), starts it turn by turn,
//! and makes [tables](tables), a [record](record) and [plots](report) of what it reports. Why a program per
//! allocator: nothing of one allocator is then even present while another runs, and each is called as a user's
//! program would call it.
//!
//! Never here: `unsafe`, and numbers that are not measured.

pub mod arenas;
pub mod block;
pub mod build;
pub mod calls;
pub mod child;
pub mod compare;
pub mod patterns;
pub mod peers;
pub mod plots;
pub mod progress;
pub mod provers;
pub mod readme;
pub mod record;
pub mod replay;
pub mod report;
pub mod scale;
pub mod summary;
pub mod tables;
pub mod watch;
