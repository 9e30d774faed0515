//! A Linux global allocator for zero-knowledge provers.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!(
    "zk-nalloc supports 64-bit Linux only: it is built on mremap, madvise and transparent huge pages"
);

mod arena;
mod config;
#[expect(dead_code, reason = "the layers that use it are on their way")]
mod error;
mod global;
#[expect(dead_code, unused_imports, reason = "the layers that use it are on their way")]
mod os;
mod secret;
mod stats;
#[cfg_attr(not(test), expect(dead_code, reason = "the layers that use it are on their way"))]
mod sync;

pub use arena::Arena;
pub use config::{Config, Moves, Thp};
pub use error::MapFailed;
pub use global::NAlloc;
pub use stats::{Stats, cached_bytes, release_cache, soften_cache, stats};
