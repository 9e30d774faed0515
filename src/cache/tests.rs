//! The engine against a naive model, over the fake kernel and the real one.
//!
//! One type of operations (`ops`), one model (`model`), and what is drawn from them: sequences of one thread, stress
//! of several, failures injected at every call, zeroed memory after every kind of reuse, and limits.
//!
//! `ZK_NALLOC_TEST_TIMES=n` draws n times as much; unset, all of it takes about a minute where nothing is optimised.
//!
//! Models, operations and their drivers are here for the fuzzer and the stress binary too (`proof/`), which are not
//! built as tests.

#[cfg(test)]
mod ahead;
#[cfg(test)]
mod careful;
#[cfg(test)]
mod draw;
#[cfg(test)]
mod edges;
pub mod endless;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod keeper;
mod model;
mod ops;
mod pattern;
#[cfg(test)]
mod peaks;
#[cfg(test)]
mod sequences;
mod spell;
#[cfg(test)]
mod stories;
pub mod stress;
#[cfg(test)]
mod threads;
#[cfg(test)]
mod vmas;
#[cfg(test)]
mod zeroed;

use crate::os::fake::Fake;

/// How much of a load is done, of which `count` is the quick form.
#[cfg(test)]
fn times(count: u32) -> u32 {
    let times = std::env::var("ZK_NALLOC_TEST_TIMES").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    count.saturating_mul(times)
}

/// A quiet kernel with `space` bytes of addresses, which says of little RAM, so that the least is reserved.
#[cfg(test)]
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
