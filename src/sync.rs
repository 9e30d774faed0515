//! Atomics and the one lock of the crate, behind a facade so that loom can stand in for them.
//!
//! [`Lock`] spins for a moment, then sleeps on a futex through [`Park`], which the os layer implements. It is
//! `const`, four bytes beside its data, never allocates, is not re-entrant, and is released when its guard is
//! dropped. It does not poison: nothing in this crate unwinds.
//!
//! In tests under `--cfg loom` atomics and cells are loom's, which cannot be `const` ([`constant`]); what is `static` is
//! left out of that build, see [`process`] for the rest.

/// A function that is `const`, but where loom stands in for what it makes: its atomics cannot be.
macro_rules! constant {
    ($(#[$meta:meta])* $vis:vis const fn $($rest:tt)*) => {
        #[cfg(not(all(test, loom)))]
        $(#[$meta])*
        $vis const fn $($rest)*
        #[cfg(all(test, loom))]
        $(#[$meta])*
        $vis fn $($rest)*
    };
}

pub(crate) use constant;

mod lock;
mod numbers;

pub(crate) use lock::{Guard, Latch, Lock, Nap};
pub(crate) use numbers::{NOBODY, Numbers};

#[cfg(not(all(test, loom)))]
pub(crate) use core::{hint::spin_loop, sync::atomic};
#[cfg(all(test, loom))]
pub(crate) use loom::{hint::spin_loop, sync::atomic};

/// Atomics of the process rather than of a value under test: never loom's, so that they can be `static`.
pub(crate) mod process {
    pub(crate) use core::sync::atomic::{
        AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
    };
}

/// So many counters.
#[cfg(not(all(test, loom)))]
pub(crate) const fn counters<const N: usize>() -> [atomic::AtomicU64; N] {
    [const { atomic::AtomicU64::new(0) }; N]
}

#[cfg(all(test, loom))]
pub(crate) fn counters<const N: usize>() -> [atomic::AtomicU64; N] {
    core::array::from_fn(|_| atomic::AtomicU64::new(0))
}

use atomic::AtomicU32;

/// Putting a thread to sleep until a word changes, and waking it.
///
/// The contract, as a futex has it: looking at the word and falling asleep are one step as far as `wake_one` is
/// concerned. So whoever changes the word and then wakes is heard by everyone who slept before the change.
pub(crate) trait Park {
    /// Sleeps while `*word == expected`; may wake for no reason.
    fn wait(&self, word: &AtomicU32, expected: u32);
    /// Wakes one thread that sleeps on `word`, if there is one.
    fn wake_one(&self, word: &AtomicU32);
    /// Sleeps for about 50 microseconds.
    fn nap(&self);
}
