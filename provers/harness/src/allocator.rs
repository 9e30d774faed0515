//! One global allocator that stands for any of several, chosen once per process.
//!
//! What it is: [`Dispatch`], which a prover's binary installs, and [`Choice`], which names what can stand behind it.
//! Why it is here: both sides of a comparison must run the same machine code, so there is one binary, and each
//! process of it picks its allocator from the environment variable [`VARIABLE`] when the first block is asked for.
//! The price is one relaxed load and one predictable branch per call, the same for every choice.
//!
//! Invariant D1: `CHOSEN` leaves `UNDECIDED` at most once and never changes again. So a block always goes back
//! to the allocator it came from. Never here: anything that allocates, locks or panics.
//!
//! To add a rival: a feature and a line in `rival.rs`. A build holds one of them at most, because versions of one C
//! library cannot be linked together; `zk-compare provers` makes the builds.

#![expect(unsafe_code, reason = "implements GlobalAlloc and reads the environment without allocating")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU8, Ordering};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use zk_nalloc::NAlloc;

/// The environment variable that names the allocator of a process; unset or unknown means `system`.
pub const VARIABLE: &str = "PROVE_ALLOCATOR";
const VARIABLE_C: &CStr = c"PROVE_ALLOCATOR";

/// Code of "nobody has asked yet"; every [`Choice`] has another.
const UNDECIDED: u8 = 0;

static CHOSEN: AtomicU8 = AtomicU8::new(UNDECIDED);
static NALLOC: NAlloc = NAlloc::new();
#[cfg(feature = "rival")]
static RIVAL: crate::rival::Rival = crate::rival::RIVAL;
#[cfg(feature = "rival")]
static OVER: NAlloc<crate::rival::Rival> = NAlloc::with_small(crate::rival::RIVAL);

/// What can stand behind [`Dispatch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Choice {
    /// The allocator of the C library, as `std` uses it.
    System = 1,
    /// `zk_nalloc::NAlloc::new()`.
    #[value(name = "nalloc")]
    NAlloc = 2,
    /// The one allocator that a feature of this package puts in.
    #[cfg(feature = "rival")]
    Rival = 3,
    /// `NAlloc` with that one as its small side.
    #[cfg(feature = "rival")]
    Over = 4,
}

impl Choice {
    /// Those that every build has, the baseline first: what a prover compares by itself.
    pub const COMPARED: [Self; 2] = [Self::System, Self::NAlloc];

    /// Returns the name on the command line and in [`VARIABLE`].
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::NAlloc => "nalloc",
            #[cfg(feature = "rival")]
            Self::Rival => "rival",
            #[cfg(feature = "rival")]
            Self::Over => "over",
        }
    }

    /// Returns the name of the type, for tables.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::System => "System",
            Self::NAlloc => "NAlloc",
            #[cfg(feature = "rival")]
            Self::Rival => "rival",
            #[cfg(feature = "rival")]
            Self::Over => "NAlloc over rival",
        }
    }

    /// Returns whether large blocks come from `NAlloc`.
    #[must_use]
    pub const fn is_ours(self) -> bool {
        match self {
            Self::System => false,
            Self::NAlloc => true,
            #[cfg(feature = "rival")]
            Self::Rival => false,
            #[cfg(feature = "rival")]
            Self::Over => true,
        }
    }

    /// Returns the allocator that serves this process, and settles it if nothing was allocated yet.
    #[must_use]
    #[inline]
    pub fn of_this_process() -> Self {
        Self::from_code(CHOSEN.load(Ordering::Relaxed)).unwrap_or_else(choose_slow)
    }

    const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::System),
            2 => Some(Self::NAlloc),
            #[cfg(feature = "rival")]
            3 => Some(Self::Rival),
            #[cfg(feature = "rival")]
            4 => Some(Self::Over),
            _ => None,
        }
    }

    /// Finds a choice by its [`name`](Self::name).
    fn from_name(name: &[u8]) -> Option<Self> {
        Self::value_variants().iter().copied().find(|choice| choice.name().as_bytes() == name)
    }
}

/// Settles the choice of this process. Whoever comes first decides for all.
#[cold]
fn choose_slow() -> Choice {
    // SAFETY: `getenv` reads the environment, which nothing may change meanwhile. The first allocation of a Rust
    // program comes at the latest when `main` reads its arguments, before it starts a thread, and neither this
    // library nor a prover ever changes its own environment. The string found is NUL-terminated and used only here.
    let wanted = unsafe {
        let value = libc::getenv(VARIABLE_C.as_ptr());
        if value.is_null() { None } else { Choice::from_name(CStr::from_ptr(value).to_bytes()) }
    };
    let wanted = wanted.unwrap_or(Choice::System);
    // Relaxed: the byte guards no other memory. The exchange upholds D1 should two threads get here at once.
    match CHOSEN.compare_exchange(UNDECIDED, wanted as u8, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => wanted,
        Err(settled) => Choice::from_code(settled).unwrap_or(Choice::System),
    }
}

/// Calls one method of `GlobalAlloc` on the allocator chosen.
macro_rules! forward {
    ($method:ident($($argument:expr),*)) => {
        match Choice::of_this_process() {
            Choice::System => System.$method($($argument),*),
            Choice::NAlloc => NALLOC.$method($($argument),*),
            #[cfg(feature = "rival")]
            Choice::Rival => RIVAL.$method($($argument),*),
            #[cfg(feature = "rival")]
            Choice::Over => OVER.$method($($argument),*),
        }
    };
}

/// The global allocator of every prover binary: passes each call on to the [`Choice`] of the process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dispatch;

// SAFETY: every method passes its arguments on unchanged to one allocator, which by D1 is the same for the life of
// the process: blocks come from, grow in and go back to the same one, and its promises become ours. The choice
// itself neither allocates nor unwinds.
unsafe impl GlobalAlloc for Dispatch {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises that `layout` is not of size zero.
        unsafe { forward!(alloc(layout)) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`.
        unsafe { forward!(alloc_zeroed(layout)) }
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller promises that `ptr` came from us with `layout`, so by D1 from the same allocator.
        unsafe { forward!(dealloc(ptr, layout)) }
    }

    #[inline]
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as for `dealloc`; the caller promises that `new_size` is a valid size for the alignment.
        unsafe { forward!(realloc(ptr, layout, new_size)) }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::{Choice, UNDECIDED, VARIABLE, VARIABLE_C};

    #[test]
    fn every_choice_is_found_by_its_name_and_code() {
        for choice in Choice::value_variants().iter().copied() {
            assert_eq!(Choice::from_name(choice.name().as_bytes()), Some(choice));
            assert_eq!(Choice::from_code(choice as u8), Some(choice));
        }
        assert_eq!(Choice::from_name(b"nosuch"), None);
        assert_eq!(Choice::from_code(UNDECIDED), None);
    }

    #[test]
    fn the_variable_has_one_name() {
        assert_eq!(VARIABLE_C.to_bytes(), VARIABLE.as_bytes());
    }
}
