//! The engine against a naive model, over the fake kernel and the real one.
//!
//! One type of operations (`ops`), one model (`model`), and what is drawn from them: sequences of one thread, stress
//! of several, failures injected at every call, zeroed memory after every kind of reuse, and limits.
//!
//! `ZK_NALLOC_TEST_TIMES=n` draws n times as much; unset, all of it takes about a minute where nothing is optimised.

mod ahead;
mod careful;
mod edges;
mod failures;
mod keeper;
mod model;
mod ops;
mod pattern;
mod peaks;
mod sequences;
mod stories;
mod threads;
mod vmas;
mod zeroed;

use crate::os::fake::Fake;

/// How much of a load is done, of which `count` is the quick form.
fn times(count: u32) -> u32 {
    let times = std::env::var("ZK_NALLOC_TEST_TIMES").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    count.saturating_mul(times)
}

/// A quiet kernel with `space` bytes of addresses, which says of little RAM, so that the least is reserved.
fn fake(space: usize) -> Fake {
    let os = Fake::new(space);
    os.set_facts(|facts| facts.ram = 1 << 20);
    os
}
