//! A Linux global allocator for zero-knowledge provers.

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
