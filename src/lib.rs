//! A Linux global allocator for zero-knowledge provers.

#![cfg_attr(feature = "nightly", feature(allocator_api))]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!(
    "zk-nalloc supports 64-bit Linux only: it is built on mremap, madvise and transparent huge pages"
);

pub mod arena;
mod config;
mod error;
mod global;
mod os;
mod secret;
mod stats;
mod sync;

pub use arena::{Arena, TypedArena};
pub use error::MapFailed;
pub use global::NAlloc;
pub use stats::{Stats, cached_bytes, release_cache, soften_cache, stats};
