//! Telling whether this process is a fork of the one that made something.
//!
//! Why it is here: `MADV_WIPEONFORK` zeroes secrets and their canaries in a child, memory locks are not
//! inherited, and a lock that another thread held stays held for ever; whoever keeps such things must know
//! that it woke up in a child. The kernel itself tells: one page that it zeroes in every child. Reading it is
//! an atomic load; a process identifier would be a system call, and is reused.
//!
//! Invariants: [`mark`] gives one value for the whole life of a process, and a different one than any
//! that it had inherited when it was forked. Never here: registering handlers (`pthread_atfork` is not told of `clone`).

#![expect(unsafe_code, reason = "maps the page and reads it")]

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::linux::sys::KeepErrno;

/// The page, once mapped; or [`NOT_WIPED`] where this kernel does not wipe.
static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());
/// What [`PAGE`] points to where no page is wiped. Its content is never used.
static NOT_WIPED: AtomicU64 = AtomicU64::new(0);
/// The next mark. Ordinary memory: a child counts on from where its parent stood.
static NEXT: AtomicU64 = AtomicU64::new(1);
/// Set in marks made of a process identifier, so that they never equal a counted one.
const BY_PROCESS: u64 = 1 << 63;

/// The mark of this process.
pub(crate) fn mark() -> u64 {
    // Acquire: pairs with the release in `map_slow`; the page was mapped before its address was published.
    let mut page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        page = map_slow();
    }
    if core::ptr::eq(page, &NOT_WIPED) {
        // SAFETY: getpid reads and writes no memory.
        return BY_PROCESS | u64::from(unsafe { libc::getpid() }.cast_unsigned());
    }
    // SAFETY: a page published in `PAGE` stays mapped for the life of the process, and of its children (X10).
    let page = unsafe { &*page };
    // Relaxed, here and below: the value stands for itself; nothing else is read on the strength of it.
    match page.load(Ordering::Relaxed) {
        0 => {
            let fresh = NEXT.fetch_add(1, Ordering::Relaxed);
            page.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed)
                .map_or_else(|m| m, |_| fresh)
        }
        mark => mark,
    }
}

#[cold]
fn map_slow() -> *mut AtomicU64 {
    let _keep = KeepErrno::new();
    let len = super::private::page_size();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: maps a fresh page wherever the kernel likes; nothing else is touched.
    let p = unsafe { libc::mmap(null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    let mut page: *mut AtomicU64 = (&raw const NOT_WIPED).cast_mut();
    if p != libc::MAP_FAILED {
        // SAFETY: the page is mapped, and ours; the advice changes what a child sees alone.
        if unsafe { super::private::hears_advice(p) && libc::madvise(p, len, libc::MADV_WIPEONFORK) == 0 } {
            page = p.cast();
        } else {
            // SAFETY: nobody else knows of the page.
            unsafe { libc::munmap(p, len) };
        }
    }
    // Release: see `mark`. Acquire: a page that another thread published is used instead of ours.
    match PAGE.compare_exchange(null_mut(), page, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => page,
        Err(theirs) => {
            if !core::ptr::eq(page, &NOT_WIPED) {
                // SAFETY: our page was not published, so nobody else knows of it.
                unsafe { libc::munmap(page.cast(), len) };
            }
            theirs
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn one_mark_for_all_threads_of_a_process() {
        let here = super::mark();
        assert_ne!(here, 0);
        let there: Vec<u64> = std::thread::scope(|s| {
            let threads: Vec<_> = (0..8).map(|_| s.spawn(super::mark)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(there.iter().all(|&m| m == here));
    }
}
