//! A recorded process again: the same blocks, taken, resized and freed by as many threads in the same order, under any
//! allocator.
//!
//! Why it is here: the patterns are guesses at what provers do; a trace is what one did, and its replay takes as long as
//! the memory takes, not as the proof does. What is computed between two requests is left out, so the time of a replay
//! is what the allocator and the kernel take for its memory, no more.
//!
//! What is like the recorded process, and what is not: every request comes in the recorded order, so as much is live at
//! each step, to the byte. Each block is written to, a byte a page, as soon as it is taken: as much of it as is known to
//! have been touched, else all. What the process had in memory besides large blocks is touched in small pages as it was
//! seen to grow.

mod child;
mod parent;
mod rows;

pub use child::{Replayed, serve};
pub use parent::compare;
pub use rows::{Replay, tables};
