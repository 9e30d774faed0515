//! A Linux global allocator for zero-knowledge provers: freed memory stays resident and serves the next large request,
//! whatever its size.
//!
//! ```
//! use zk_nalloc::NAlloc;
//!
//! #[global_allocator]
//! static GLOBAL: NAlloc = NAlloc::new();
//! # fn main() {}
//! ```
//!
//! Install it in a binary, not in a library: a program has one global allocator, and whoever builds the program chooses.
//! The README says when to expect a speedup, and when not.
//!
//! # Four roles
//!
//! - **The global allocator.** [`NAlloc`] routes each request by its [`Layout`](std::alloc::Layout) alone: under 64 KiB
//!   to the small side, a type parameter; the rest to resident memory that all sizes share. [`Config`] tunes it,
//!   [`stats`] shows what it did, [`soften_cache`] and [`release_cache`] give memory up.
//! - **Measuring and warming.** [`phase_named`], [`Phase`] and [`phases`] measure stages, without [`NAlloc`] too;
//!   [`prefault`](prefault()) faults memory in ahead of need; [`report`](report()) says what to change.
//! - **Scratch memory for a phase.** [`Arena`] and [`TypedArena`], see [`arena`].
//! - **Memory for secrets.** [`SecretBuf`], [`Secret`] and [`SecretPool`], see [`secret`].
//!
//! Arenas and secrets need no allocator installed; they map memory of their own, and [`MapFailed`] is what that can
//! end in.
//!
//! # Features
//!
//! None is needed, none is on by default.
//!
//! - `allocator-api2`: `&Arena` as an `Allocator` of that crate, so that `Vec<T, &Arena>` and hashbrown's maps work on
//!   a stable compiler.
//! - `nightly`: the same for the unstable trait of the standard library.
//! - `serde`: `Serialize` for [`Stats`], [`Sizes`], [`SizeStats`], [`Footprint`] and [`PhaseReport`].
//! - `subtle`, `zeroize`: the traits of these crates for the secret types.
//!
//! # Environment variables
//!
//! Read once, at the first large request: `ZK_NALLOC_WIPE_ON_FREE` and `ZK_NALLOC_CHECKED` at the first free or resize of a small block
//! if that comes first, `ZK_NALLOC_THP` likewise when an arena first asks for huge pages. They win over [`Config`]. An invalid value is
//! reported in one line on standard error, and what the code says applies, or the default; so is the first other name that begins
//! with `ZK_NALLOC_` (`ZK_NALLOC_TEST_` is for tests). Programs with raised privileges
//! (`AT_SECURE`: set-user-ID, capabilities of the file, but not ambient ones) read none, and do not say so.
//!
//! | variable | values | what it decides |
//! |---|---|---|
//! | `ZK_NALLOC_CACHE_BYTES` | bytes, or with K, M or G behind | how much free memory may stay: [`Config::cache_bytes`] |
//! | `ZK_NALLOC_THP` | `auto`, `always`, `never` | huge pages, in arenas too: [`Config::thp`] |
//! | `ZK_NALLOC_MOVES` | `auto`, `never` | whether pages are moved: [`Config::moves`] |
//! | `ZK_NALLOC_BACKGROUND` | `1`, `0` | a thread that gives memory up while the process is silent: [`Config::background`] |
//! | `ZK_NALLOC_CHECKED` | `1`, `0` | whether misuse is looked for: [`Config::checked`] |
//! | `ZK_NALLOC_WIPE_ON_FREE` | `1`, `0` | whether freed blocks are overwritten: [`Config::wipe_on_free`] |
//! | `ZK_NALLOC_REPORT` | `1`, `0`, or a path with a slash or a dot in it, in which `%p` is the process's number | a page about memory at the end: [`report`] |
//! | `ZK_NALLOC_REPORT_SIGNALS` | `1`, `0` | that page, where it is asked for, at SIGINT and SIGTERM too |
//! | `ZK_NALLOC_TRACE` | a path (`0` and `1` are names too), in which `%p` is the process's number | the file that large requests are recorded in |
//!
//! None of them changes what a program computes; `ZK_NALLOC_CHECKED` ends one that misuses memory.
//!
//! # What the caller owes
//!
//! Memory that was locked, protected, registered for DMA or advised otherwise must be put back as it was before it is
//! freed or resized: `realloc` may move its pages, and gives away the end of a block that shrinks.

#![cfg_attr(feature = "nightly", feature(allocator_api))]
#![cfg_attr(
    all(test, loom),
    expect(dead_code, unused_imports, reason = "loom's build has models alone, and nothing that is static")
)]
#![cfg_attr(
    all(zk_nalloc_proof, not(test)),
    expect(dead_code, reason = "the drivers use a part of what the tests do")
)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!(
    "zk-nalloc supports 64-bit Linux only: it is built on mremap, madvise and transparent huge pages"
);

// Loom explores the locks, the arena, and the engine as a value over the fake kernel. What is `static` is left out.
pub mod arena;
mod cache;
mod config;
mod error;
mod geometry;
#[cfg(not(all(test, loom)))]
mod global;
#[cfg(all(test, loom))]
#[path = "global/large.rs"]
mod global;
mod heap;
mod invariant;
mod limits;
mod misuse;
mod os;
#[cfg(not(all(test, loom)))]
mod phases;
#[cfg(not(all(test, loom)))]
mod prefault;
#[cfg(not(all(test, loom)))]
mod report;
pub mod secret;
#[cfg(not(all(test, loom)))]
mod stats;
mod sync;
mod trace;
mod zeroing;

pub use arena::{Arena, TypedArena};
pub use config::{Config, Moves, Thp};
pub use error::MapFailed;
#[cfg(not(all(test, loom)))]
pub use global::NAlloc;
#[cfg(not(all(test, loom)))]
pub use phases::{
    Phase, PhaseGuard, PhaseReport, Phases, Trim, begin_phase, begin_phase_named, end_phase, phase,
    phase_named, phases,
};
#[cfg(not(all(test, loom)))]
pub use prefault::{prefault, prefault_with};
#[cfg(not(all(test, loom)))]
pub use report::report;
pub use secret::{Secret, SecretBuf, SecretPool};
#[cfg(not(all(test, loom)))]
pub use stats::{Footprint, SizeStats, Sizes, Stats, cached_bytes, release_cache, soften_cache, stats};

/// What drives the engine from outside of tests: a fuzzer and a stress binary. Not part of the published crate.
#[cfg(any(zk_nalloc_proof, all(test, not(loom))))]
pub mod proof {
    pub use crate::cache::tests::{endless, stress};
}

/// The code blocks of the README, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Those of the page about arenas, …
#[cfg(doctest)]
#[doc = include_str!("../docs/ARENA.md")]
struct Arenas;

/// … and about phases.
#[cfg(doctest)]
#[doc = include_str!("../docs/PHASES.md")]
struct OfPhases;
