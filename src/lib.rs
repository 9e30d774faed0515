//! A Linux global allocator for zero-knowledge provers, and memory for what else they need.
//!
//! Three parts, each usable without the others:
//!
//! - [`NAlloc`], installed with `#[global_allocator]` in a prover *binary*: large blocks stay resident, and freed memory of
//!   any size serves the next block of any other size. [`Config`] sets it up, [`stats`] tells whether it helps,
//!   [`soften_cache`] and [`release_cache`] give memory back.
//! - [`Arena`] and [`TypedArena`]: scratch memory for a phase, which ends all at once ([`arena`]).
//! - [`SecretBuf`], [`Secret`] and [`SecretPool`]: memory for private inputs ([`secret`]).
//!
//! ```
//! use zk_nalloc::NAlloc;
//!
//! #[global_allocator]
//! static GLOBAL: NAlloc = NAlloc::new();
//!
//! let column = vec![1_u64; 1 << 20];
//! assert!(zk_nalloc::stats().live_bytes() >= 8 << 20);
//! # drop(column);
//! ```
//!
//! # Environment
//!
//! `ZK_NALLOC_CACHE_BYTES`, `ZK_NALLOC_THP`, `ZK_NALLOC_MOVES`, `ZK_NALLOC_BACKGROUND`, `ZK_NALLOC_CHECKED` and
//! `ZK_NALLOC_WIPE_ON_FREE` win over [`Config`], whose methods say what they mean. A value that cannot be read is reported
//! in one line on standard error and counts as unset.
//!
//! # Features
//!
//! None is on by default. `allocator-api2`: its `Allocator` for `&Arena`. `nightly`: the unstable trait of that name.
//! `subtle`, `zeroize`: their traits for the secret types.

#![cfg_attr(feature = "nightly", feature(allocator_api))]
#![cfg_attr(
    all(test, loom),
    expect(dead_code, unused_imports, reason = "the engine is left out of loom's build")
)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!(
    "zk-nalloc supports 64-bit Linux only: it is built on mremap, madvise and transparent huge pages"
);

// Loom explores what stands on `sync` alone: the locks and the arena. The engine is statics and real memory.
pub mod arena;
#[cfg(not(all(test, loom)))]
mod cache;
mod config;
mod error;
#[cfg(not(all(test, loom)))]
mod geometry;
#[cfg(not(all(test, loom)))]
mod global;
#[cfg(not(all(test, loom)))]
mod heap;
mod invariant;
#[cfg(not(all(test, loom)))]
mod limits;
#[cfg(not(all(test, loom)))]
mod misuse;
mod os;
pub mod secret;
#[cfg(not(all(test, loom)))]
mod stats;
mod sync;
#[cfg(not(all(test, loom)))]
mod zeroing;

pub use arena::{Arena, TypedArena};
pub use config::{Config, Moves, Thp};
pub use error::MapFailed;
#[cfg(not(all(test, loom)))]
pub use global::NAlloc;
pub use secret::{Secret, SecretBuf, SecretPool};
#[cfg(not(all(test, loom)))]
pub use stats::{Stats, cached_bytes, release_cache, soften_cache, stats};

/// Has the examples of the README compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
