//! A Linux global allocator for zero-knowledge provers.

#![cfg_attr(feature = "nightly", feature(allocator_api))]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!(
    "zk-nalloc supports 64-bit Linux only: it is built on mremap, madvise and transparent huge pages"
);

pub mod arena;
mod cache;
mod config;
mod error;
mod geometry;
mod global;
mod heap;
mod invariant;
mod limits;
mod misuse;
mod os;
pub mod secret;
mod stats;
mod sync;
mod zeroing;

pub use arena::{Arena, TypedArena};
pub use config::{Config, Moves, Thp};
pub use error::MapFailed;
pub use global::NAlloc;
pub use secret::{Secret, SecretBuf, SecretPool};
pub use stats::{Stats, cached_bytes, release_cache, soften_cache, stats};
