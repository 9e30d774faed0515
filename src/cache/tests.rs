//! The engine against a naive model, over the fake kernel and the real one.
//!
//! One type of operations (`ops`), one model (`model`), and what is drawn from them: sequences of one thread, stress
//! of several, failures injected at every call, zeroed memory after every kind of reuse, and limits.
//!
//! `ZK_NALLOC_TEST_TIMES=n` draws n times as much; unset, all of it takes about a minute where nothing is optimised.
//!
//! Models, operations and their drivers are here for the fuzzer and the stress binary too (`proof/`), which are not
//! built as tests.

#[cfg(all(test, not(loom)))]
mod ahead;
#[cfg(all(test, not(loom)))]
mod apart;
#[cfg(all(test, not(loom)))]
mod beside;
#[cfg(all(test, not(loom)))]
mod bursts;
#[cfg(all(test, not(loom)))]
mod careful;
#[cfg(all(test, not(loom)))]
mod depth;
#[cfg(all(test, not(loom)))]
mod draw;
#[cfg(all(test, not(loom)))]
mod edges;
#[cfg(not(all(test, loom)))]
pub mod endless;
#[cfg(all(test, not(loom)))]
mod ends;
#[cfg(all(test, not(loom)))]
mod failures;
#[cfg(all(test, not(loom)))]
mod forks;
#[cfg(all(test, not(loom)))]
mod forks_beside;
#[cfg(all(test, not(loom)))]
mod fragments;
#[cfg(all(test, not(loom)))]
mod habits;
#[cfg(all(test, not(loom)))]
mod held;
#[cfg(all(test, not(loom)))]
mod homes;
#[cfg(all(test, not(loom)))]
mod keeper;
#[cfg(all(test, not(loom)))]
mod looks;
#[cfg(all(test, loom))]
mod loom_orders;
#[cfg(all(test, not(loom)))]
mod middling;
mod model;
#[cfg(all(test, not(loom)))]
mod more;
#[cfg(all(test, not(loom)))]
mod moves;
#[cfg(all(test, not(loom)))]
mod offered;
mod ops;
#[cfg(all(test, not(loom)))]
mod parallel;
mod pattern;
#[cfg(all(test, not(loom)))]
mod peaks;
#[cfg(all(test, not(loom)))]
mod room;
#[cfg(all(test, not(loom)))]
mod runs;
#[cfg(all(test, not(loom)))]
mod sequences;
#[cfg(all(test, not(loom)))]
mod spares;
mod spell;
#[cfg(all(test, not(loom)))]
mod stays;
#[cfg(all(test, not(loom)))]
mod stories;
#[cfg(not(all(test, loom)))]
pub mod stress;
#[cfg(all(test, not(loom)))]
mod threads;
#[cfg(all(test, not(loom)))]
mod vmas;
#[cfg(all(test, not(loom)))]
mod zeroed;

use crate::os::fake::Fake;

/// How much of a load is done, of which `count` is the quick form.
#[cfg(all(test, not(loom)))]
fn times(count: u32) -> u32 {
    let times = std::env::var("ZK_NALLOC_TEST_TIMES").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    count.saturating_mul(times)
}

/// A quiet kernel with `space` bytes of addresses, which says of little RAM, so that the least is reserved.
#[cfg(all(test, not(loom)))]
fn fake(space: usize) -> Fake {
    with_little_ram(Fake::new(space))
}

/// The same with the content of its memory kept in short, at the `nth` of some fixed places.
fn fake_in_short(space: usize, nth: u64) -> Fake {
    /// Where no sanitizer has its shadow, and a table of the second level begins.
    const FIRST: usize = 1 << 45;
    with_little_ram(Fake::in_short(space, FIRST + (nth as usize % 1024) * (16 << 30)))
}

fn with_little_ram(os: Fake) -> Fake {
    os.set_facts(|facts| facts.ram = 1 << 20);
    os
}
