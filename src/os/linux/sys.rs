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
    let _keep = KeepErrno::new();
    let _held = Held::new();
    write()
}

/// Signals that this thread does not get until this is dropped, nor then.
struct Held {
    /// What the thread had blocked before.
    before: libc::sigset_t,
    /// What is taken away at the end: not what waited already.
    ours: libc::sigset_t,
}

impl Held {
    const SIGNALS: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

    fn new() -> Option<Self> {
        // SAFETY: all-zero is a valid signal set, and each call reads or writes one of those that live here and are whole (O5).
        unsafe {
            let mut waiting = core::mem::zeroed();
            let mut held = Self { before: core::mem::zeroed(), ours: core::mem::zeroed() };
            libc::sigemptyset(&raw mut held.ours);
            for signal in Self::SIGNALS {
                libc::sigaddset(&raw mut held.ours, signal);
            }
            if libc::sigpending(&raw mut waiting) != 0
                || libc::pthread_sigmask(libc::SIG_BLOCK, &raw const held.ours, &raw mut held.before) != 0
            {
                return None;
            }
            for signal in Self::SIGNALS {
                if libc::sigismember(&raw const waiting, signal) == 1 {
                    libc::sigdelset(&raw mut held.ours, signal);
                }
            }
            Some(held)
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let nobody = core::ptr::null_mut::<libc::siginfo_t>();
        // libc's wrapper is a cancellation point. The kernel's set has 8 bytes.
        // SAFETY: the kernel reads 8 bytes of a set that has more, and the time; where there is no place for it, it writes nothing (O5).
        let take = || unsafe {
            libc::syscall(libc::SYS_rt_sigtimedwait, &raw const self.ours, nobody, &raw const none, 8)
        };
        while take() > 0 {}
        // SAFETY: reads the set that `new` had written, and writes none.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, core::ptr::null_mut()) };
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
