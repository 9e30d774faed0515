//! Scratch memory for a whole phase: one allocation is a few instructions, the end some nanoseconds, and the compiler
//! proves that nothing outlives it.
//!
//! - [`Arena`] hands out memory of all types, to one thread fast and to many safely.
//! - [`Worker`] is one thread's part of an arena that many threads use.
//! - [`Checkpoint`] and [`Scope`] take back what was allocated in between, on exit and on unwind.
//! - [`TypedArena`] holds values of one type, in order, and drops them.
//!
//! None of them needs the global allocator of this crate to be installed; their memory is mapped from the kernel.
//!
//! # No destructors
//!
//! An [`Arena`] runs none: types that need [`Drop`] are refused at compile time by every method that takes or makes
//! a value. Put them into a [`TypedArena`], which drops them, into a `Box<T, &Arena>` (feature
//! `allocator-api2`), or into [`ManuallyDrop`](core::mem::ManuallyDrop) where forgetting them is meant.
//!
//! # From a phase allocator with an unsafe reset
//!
//! ```
//! # use zk_nalloc::Arena;
//! let mut arena = Arena::with_capacity(1 << 20)?; // `let mut`
//! for round in 0..3 {
//!     let trace = arena.alloc_slice_fill_with(1000, |i| i * round);
//!     assert_eq!(trace[2], 2 * round);
//!     arena.reset(); // no `unsafe`: `trace` cannot be used from here on
//! }
//! # Ok::<(), zk_nalloc::MapFailed>(())
//! ```
//!
//! What fails to compile is a use after the reset, which is what the `unsafe` stood for.
//!
//! Invariants R1 to R14 are in docs/SAFETY.md; the design and its measurements in docs/ARENA.md.

#[cfg(any(feature = "allocator-api2", feature = "nightly"))]
mod allocator;
mod api;
mod exhausted;
mod handle;
mod mapping;
mod number;
mod parts;
mod place;
mod raw;
mod refill;
mod scope;
mod seats;
mod shared;
mod spare;
mod typed;
mod typed_raw;
mod window;
mod worker;
mod zeroable;

pub use exhausted::Exhausted;
pub use handle::Arena;
pub use scope::{Checkpoint, Scope};
pub use typed::TypedArena;
pub use worker::Worker;
pub use zeroable::Zeroable;
