//! Buffers for secrets: private inputs, witnesses, keys.
//!
//! A zero-knowledge proof hides the witness from whoever reads the proof. It does nothing for the witness in
//! the prover's memory, which reaches a swap device, a core dump, a forked child, whoever reads past the end
//! of a neighbouring buffer, or the next owner of the page. [`SecretBuf`] stops these, and its
//! [`status`](SecretBuf::status) says plainly which of them this host would not let it stop.
//!
//! # What is stopped, and what is not
//!
//! | the secret would be found in | stopped by | unless |
//! |---|---|---|
//! | swap | [`Measure::MemoryLock`] | `RLIMIT_MEMLOCK` is too small; the machine hibernates |
//! | a core dump | [`Measure::NoDump`] | whoever writes it reads `/proc/pid/mem` instead |
//! | a forked child | [`Measure::WipeOnFork`] | it shares memory: by `vfork`, `clone(CLONE_VM)`, or `memfd_secret` |
//! | an overrun from, or into, the secret's pages | [`Measure::GuardPages`], [`Measure::Canary`] | it jumps over a page; reads of the slack are not seen |
//! | freed memory | [`Measure::Wipe`] | the process ends without dropping (the kernel zeroes the page then) |
//! | a stray read while it is not used | [`Measure::Sealed`], on request | it happens during a scope |
//! | the kernel's own map of memory | [`Measure::MemfdSecret`], on request | it is turned off there (`secretmem.enable`) or not supported; the kernel copies it on purpose, as `write(2)` does |
//! | what equal pages tell (KSM), copies of huge pages | [`Measure::NoMerging`], [`Measure::NoHugePages`] | |
//! | what is printed, cloned or compared by accident | no `Clone`, `Display`, `Deref`; constant-time `==` | it is asked for by name |
//!
//! Not stopped, by this or by any library in the process: root, `ptrace`, `/proc/pid/mem`; code that runs in
//! this process and means harm; copies that the program itself makes (a `Vec` of parsed inputs, registers and
//! stack of the code that computes on the secret, buffered readers); suspending or hibernating a machine,
//! snapshots of a virtual one; side channels of the computation; cold memory that is read while it is in use.
//!
//! The memory never comes from an allocator, nor goes back to one: installing [`NAlloc`](crate::NAlloc) or
//! not makes no difference here.
//!
//! # Choosing
//!
//! - A witness of many pages: [`SecretBuf`], or [`Secret<[T]>`](Secret) to fill it as words.
//! - Thousands of keys: a [`SecretPool`].
//! - A refusal must stop the program: [`Policy::Strict`].
//! - A long-lived key, used now and then: [`Protection::sealed`].

mod buf;
mod chunk;
mod equal;
mod frame;
mod make;
mod plain;
mod pool;
mod protection;
mod region;
mod status;
#[cfg(any(feature = "zeroize", feature = "subtle"))]
mod traits;
mod typed;

#[cfg(test)]
mod tests;

pub use buf::SecretBuf;
pub use plain::{Contents, PlainData};
pub use pool::SecretPool;
pub use protection::{Measure, Policy, Protection};
pub use status::{Refusal, State, Status};
pub use typed::Secret;
