//! `errno`, and how the answer of a system call becomes ours.
//!
//! Why it is here: an allocator that changes `errno` breaks the C code that calls it between a failing call
//! and the look at its error. Invariant: whoever makes a system call holds a [`KeepErrno`] around it.

#![expect(unsafe_code, reason = "errno is reached through a pointer")]

use crate::error::Errno;
use crate::os::Outcome;

/// Puts `errno` back when dropped, so that no caller of the allocator sees it change.
pub(in crate::os) struct KeepErrno(i32);

impl KeepErrno {
    pub(in crate::os) fn new() -> Self {
        Self(errno())
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        // SAFETY: libc gives each thread a valid, writable errno (O1).
        unsafe { *libc::__errno_location() = self.0 }
    }
}

/// What the last failing call of this thread said.
pub(in crate::os) fn errno() -> i32 {
    // SAFETY: libc gives each thread a valid, readable errno (O1).
    unsafe { *libc::__errno_location() }
}

/// The outcome of a call that answers 0 or -1.
pub(in crate::os) fn outcome(ret: i32) -> Outcome {
    if ret == 0 { Ok(()) } else { Err(Errno(errno())) }
}

/// Locks memory as a user does (`mlock`), or unlocks it.
#[cfg(all(test, not(loom)))]
pub(crate) fn lock_pages(addr: usize, len: usize, locks: bool) -> Outcome {
    // SAFETY: both read and change no byte, and refuse a range that is not mapped (ENOMEM).
    outcome(unsafe { if locks { libc::mlock(ptr(addr), len) } else { libc::munlock(ptr(addr), len) } })
}

/// An address as the kernel's interfaces want it.
pub(super) fn ptr(addr: usize) -> *mut libc::c_void {
    core::ptr::with_exposed_provenance_mut(addr)
}
