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

/// Makes `write` with what a write may have the kernel send to its thread kept away: SIGPIPE where nobody reads, SIGXFSZ at a limit.
/// By default both end the process; the call fails without them too.
pub(crate) fn unsignalled<T>(write: impl FnOnce() -> T) -> T {
    // SAFETY: all-zero is a valid signal set, and each call gets sets that live here, of the length that is told. What is taken is what
    // came meanwhile: a signal that waited before stays waiting.
    unsafe {
        let (mut both, mut before, mut waiting) =
            (core::mem::zeroed::<libc::sigset_t>(), core::mem::zeroed(), core::mem::zeroed());
        libc::sigemptyset(&raw mut both);
        for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
            libc::sigaddset(&raw mut both, signal);
        }
        if libc::sigpending(&raw mut waiting) != 0
            || libc::pthread_sigmask(libc::SIG_BLOCK, &raw const both, &raw mut before) != 0
        {
            return write();
        }
        let done = write();
        for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
            if libc::sigismember(&raw const waiting, signal) == 1 {
                libc::sigdelset(&raw mut both, signal);
            }
        }
        // libc's wrapper is a cancellation point. The kernel's set has 8 bytes.
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let nobody = core::ptr::null_mut::<libc::siginfo_t>();
        while libc::syscall(libc::SYS_rt_sigtimedwait, &raw const both, nobody, &raw const none, 8) > 0 {}
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut());
        done
    }
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
