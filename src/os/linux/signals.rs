//! Signals that end a process, heard by a thread before they do.
//!
//! Why a thread: what is done about them formats, allocates and writes files, none of which a handler may. The handler
//! leaves the number of the signal in a word and wakes the thread; when that is done, the action that was in force before
//! is put back and the signal sent again, so that what would have happened happens.
//!
//! Invariants: the handler makes one system call, keeps `errno`, and touches a static word alone; a signal that was ignored
//! stays ignored; all actions are changed by the one thread.

#![expect(unsafe_code, reason = "signal handlers")]

use core::ffi::{c_int, c_void};
use core::mem::zeroed;
use core::ptr::null_mut;

use super::Linux;
use super::hooks::start_thread;
use crate::os::Outcome;
use crate::sync::process::{AtomicPtr, Ordering};
use crate::sync::{Park, atomic::AtomicU32};

/// The number of SIGINT.
pub(crate) const INTERRUPT: i32 = libc::SIGINT;

/// Those that ask a process to end.
const HEARD: [c_int; 2] = [libc::SIGINT, libc::SIGTERM];

/// The signal that came, 0 before any has.
static CAME: AtomicU32 = AtomicU32::new(0);

/// What to do then: a `fn(i32)`.
static THEN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Calls `then` with the signal, once, on a thread of its own, when SIGINT or SIGTERM asks the process to end, before it
/// does. For one caller in the life of a process. Nothing happens at a signal that comes before the thread is ready.
pub(crate) fn at_signals(then: fn(i32)) -> Outcome {
    // Release: pairs with the acquire in `hear`.
    THEN.store(then as *mut c_void, Ordering::Release);
    start_thread(hear)
}

/// All that the handler does.
extern "C" fn came(signal: c_int) {
    // Relaxed: the number says everything. The first one counts.
    let _ = CAME.compare_exchange(0, signal.cast_unsigned(), Ordering::Relaxed, Ordering::Relaxed);
    Linux.wake_one(&CAME);
}

/// All that the thread does.
extern "C" fn hear(_: *mut c_void) -> *mut c_void {
    // SAFETY: all-zero is a valid `sigaction` and `sigset_t`; the calls read and write those that they are given (O5). The
    // handler is an item of this crate and keeps to what a handler may do.
    unsafe {
        let mut before: [libc::sigaction; HEARD.len()] = zeroed();
        for (&signal, before) in HEARD.iter().zip(&mut before) {
            if libc::sigaction(signal, core::ptr::null(), before) != 0 || before.sa_sigaction == libc::SIG_IGN
            {
                continue;
            }
            let mut ours: libc::sigaction = zeroed();
            ours.sa_sigaction = came as *const () as usize;
            ours.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &raw const ours, null_mut());
        }
        while CAME.load(Ordering::Relaxed) == 0 {
            Linux.wait(&CAME, 0);
        }
        let signal = CAME.load(Ordering::Relaxed).cast_signed();
        // Acquire: see `at_signals`.
        let then = THEN.load(Ordering::Acquire);
        if !then.is_null() {
            // SAFETY: `at_signals` stored a function of this type.
            let then: fn(i32) = core::mem::transmute(then);
            then(signal);
        }
        for (&signal, before) in HEARD.iter().zip(&before) {
            let mut now: libc::sigaction = zeroed();
            // Whoever has taken the signal over meanwhile keeps it.
            if libc::sigaction(signal, core::ptr::null(), &raw mut now) == 0
                && now.sa_sigaction == came as *const () as usize
            {
                libc::sigaction(signal, before, null_mut());
            }
        }
        let mut this: libc::sigset_t = zeroed();
        libc::sigemptyset(&raw mut this);
        libc::sigaddset(&raw mut this, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const this, null_mut());
        libc::kill(libc::getpid(), signal);
    }
    null_mut()
}
