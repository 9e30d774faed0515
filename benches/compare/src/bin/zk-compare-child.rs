//! Runs one pattern under the one allocator that this program was built with.
//!
//! Why one program per allocator: see the library's head. Here is nothing but the choice.

use std::process::ExitCode;

use zk_compare::child::{self, Hooks};

// More than one of the features is an error below: `GLOBAL` would be defined twice.

#[cfg(feature = "nalloc")]
#[global_allocator]
static GLOBAL: zk_nalloc::NAlloc = zk_nalloc::NAlloc::new();

#[cfg(feature = "nalloc-mimalloc")]
#[global_allocator]
static GLOBAL: zk_nalloc::NAlloc<mimalloc::MiMalloc> = zk_nalloc::NAlloc::with_small(mimalloc::MiMalloc);

#[cfg(feature = "jemalloc")]
#[global_allocator]
static GLOBAL: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[cfg(any(feature = "mimalloc", feature = "mimalloc2"))]
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[cfg(feature = "snmalloc")]
#[global_allocator]
static GLOBAL: snmalloc_rs::SnMalloc = snmalloc_rs::SnMalloc;

#[cfg(feature = "zk-alloc")]
#[global_allocator]
static GLOBAL: zk_alloc::ZkAllocator = zk_alloc::ZkAllocator;

fn main() -> ExitCode {
    let mut hooks = Hooks::default();
    if cfg!(any(feature = "nalloc", feature = "nalloc-mimalloc")) {
        hooks.at_end = Some(|| {
            zk_nalloc::release_cache();
        });
        hooks.stats = Some(|| zk_nalloc::stats().to_string());
    }
    #[cfg(feature = "zk-alloc")]
    {
        // Every round lies in a phase; nothing of a round outlives it.
        hooks.around_round = |round| zk_alloc::phase(round);
    }
    child::main(&hooks)
}
