//! Memory faulted in ahead of need before the first large request, where only very long ones are large.

use zk_nalloc::{Config, NAlloc, prefault};

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::with_config(Config::new().large_from(300 << 20));

/// The engine was started by requests of ever longer blocks, the longest of 256 MiB; it did not start.
#[test]
fn it_is_done_wherever_the_large_side_begins() {
    assert!(prefault(64 << 20) >= 64 << 20);
}
