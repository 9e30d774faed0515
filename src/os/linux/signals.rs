//! Signals that end a process, heard by a thread before they do.
//!
//! Why a thread: what is done about them formats, allocates and writes files, none of which a handler may. The handler
//! leaves the number of the signal in a word and wakes the thread; when that is done, the action that was in force before
//! is put back and the signal sent again, so that what would have happened happens.
//!
//! Invariants: the handler keeps `errno`, touches static words alone, and makes none but calls that a handler may make; a signal
//! that was ignored stays ignored; a signal that nobody will do anything about has the action that was in force before: in a
//! forked child, which has the handler and not the thread, and where that thread has been at it for long.

#![expect(unsafe_code, reason = "signal handlers")]

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::{MaybeUninit, zeroed};
use core::ptr::null_mut;

use super::Linux;
use super::hooks::start_thread;
use super::sys::KeepErrno;
use crate::os::{Os, Outcome, fork};
use crate::sync::process::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use crate::sync::{Park, atomic::AtomicU32};

/// The number of SIGINT.
pub(crate) const INTERRUPT: i32 = libc::SIGINT;

/// Those that ask a process to end.
const HEARD: [c_int; 2] = [libc::SIGINT, libc::SIGTERM];

/// Nanoseconds that a signal's report may take before the next signal does what it did without us: one that goes into a pipe
/// which nobody reads takes for ever.
const PATIENCE: u64 = 1_000_000_000;

/// The signals that came, a bit each.
static CAME: AtomicU32 = AtomicU32::new(0);

/// When the first one came, by the clock of `Os`.
static CAME_AT: AtomicU64 = AtomicU64::new(u64::MAX);

/// The process that has the thread, as [`fork::mark`] has it.
static PROCESS: AtomicU64 = AtomicU64::new(0);

/// What was in force before.
struct Before {
    action: UnsafeCell<MaybeUninit<libc::sigaction>>,
    /// Whether it is there.
    is_known: AtomicBool,
}

// SAFETY: written once, by the thread of this module, before `is_known` says so; read after that alone.
unsafe impl Sync for Before {}

/// For each of [`HEARD`].
static BEFORE: [Before; HEARD.len()] =
    [const { Before { action: UnsafeCell::new(MaybeUninit::uninit()), is_known: AtomicBool::new(false) } };
        HEARD.len()];

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
    let _keep = KeepErrno::new();
    // Whoever has taken the signal over keeps it, and may pass it on to what it found.
    if !is_ours(signal) {
        return;
    }
    // Relaxed, all: each number says everything by itself.
    let is_heard = PROCESS.load(Ordering::Relaxed) == fork::mark();
    let is_first = is_heard && CAME.fetch_or(1 << signal, Ordering::Relaxed) == 0;
    if is_first {
        CAME_AT.store(Linux.now(), Ordering::Relaxed);
        Linux.wake_one(&CAME);
    } else if !is_heard || Linux.now().saturating_sub(CAME_AT.load(Ordering::Relaxed)) > PATIENCE {
        put_back(signal);
        // SAFETY: a signal to ourselves, which waits while this one is handled.
        unsafe { libc::kill(libc::getpid(), signal) };
    }
}

/// Whether a signal comes to us. What a handler may do.
fn is_ours(signal: c_int) -> bool {
    // SAFETY: all-zero is a valid `sigaction`, and is all that the call writes (O5).
    let (answer, now) = unsafe {
        let mut now: libc::sigaction = zeroed();
        (libc::sigaction(signal, core::ptr::null(), &raw mut now), now)
    };
    answer == 0 && now.sa_sigaction == came as *const () as usize
}

/// Has a signal come to us, unless it is ignored.
fn take_over(signal: c_int, before: &Before) {
    // SAFETY: all-zero is a valid `sigaction`; the calls read and write those that they are given (O5). The handler is an item of
    // this crate and keeps to what a handler may do. The action is written by this thread alone, before anybody reads it.
    unsafe {
        let mut old: libc::sigaction = zeroed();
        let mut ours: libc::sigaction = zeroed();
        ours.sa_sigaction = came as *const () as usize;
        // On the thread's own stack for signals, if it has one: Go's threads run on stacks of a few KiB, and demand it.
        ours.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        if libc::sigaction(signal, core::ptr::null(), &raw mut old) != 0 || old.sa_sigaction == libc::SIG_IGN
        {
            return;
        }
        // What was in force is what this call replaces: it may have been set since the last one.
        if libc::sigaction(signal, &raw const ours, &raw mut old) != 0 {
            return;
        }
        if old.sa_sigaction == libc::SIG_IGN {
            libc::sigaction(signal, &raw const old, null_mut());
            return;
        }
        (*before.action.get()).write(old);
    }
    // Release: pairs with the acquire in `put_back`.
    before.is_known.store(true, Ordering::Release);
}

/// Puts back what was in force for a signal, if it still comes to us: whoever has taken it over meanwhile keeps it. Nothing
/// but what a handler may do.
fn put_back(signal: c_int) {
    let before = HEARD.iter().zip(&BEFORE).find(|&(&heard, _)| heard == signal);
    // Acquire: pairs with the release in `take_over`.
    let known = before.filter(|(_, before)| before.is_known.load(Ordering::Acquire));
    if is_ours(signal) {
        // SAFETY: as in `take_over`; an action that is known was written. Until it is, the default, which is all zeros, is the best
        // guess.
        unsafe {
            let old = known.map_or(zeroed(), |(_, before)| (*before.action.get()).assume_init());
            libc::sigaction(signal, &raw const old, null_mut());
        }
    }
}

/// All that the thread does.
extern "C" fn hear(_: *mut c_void) -> *mut c_void {
    // Relaxed: the handler is there after it.
    PROCESS.store(fork::mark(), Ordering::Relaxed);
    HEARD.iter().zip(&BEFORE).for_each(|(&signal, before)| take_over(signal, before));
    while CAME.load(Ordering::Relaxed) == 0 {
        Linux.wait(&CAME, 0);
    }
    let first = CAME.load(Ordering::Relaxed).trailing_zeros().cast_signed();
    // Acquire: see `at_signals`.
    let then = THEN.load(Ordering::Acquire);
    if !then.is_null() {
        // SAFETY: `at_signals` stored a function of this type.
        let then: fn(i32) = unsafe { core::mem::transmute(then) };
        then(first);
    }
    HEARD.into_iter().for_each(put_back);
    // Others may have come meanwhile, and what the first one did without us need not be the end.
    let came = CAME.load(Ordering::Relaxed);
    // SAFETY: all-zero is a valid `sigset_t`; the calls read and write the one that they are given (O5).
    unsafe {
        let mut these: libc::sigset_t = zeroed();
        libc::sigemptyset(&raw mut these);
        for signal in HEARD.into_iter().filter(|signal| came >> signal & 1 == 1) {
            libc::sigaddset(&raw mut these, signal);
            libc::kill(libc::getpid(), signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const these, null_mut());
    }
    null_mut()
}
