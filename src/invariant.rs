//! What happens when an invariant is found broken: one line on standard error, then the end of the process.
//!
//! An allocator that goes on after that would hand one block to two owners; a panic could unwind through
//! `alloc`, which is undefined behaviour, and would allocate.

/// Ends the process, saying which invariant of `docs/SAFETY.md` was broken.
#[cold]
#[cfg(not(any(test, zk_nalloc_proof)))]
pub(crate) fn broken(what: &str) -> ! {
    crate::os::die(&["zk-nalloc: invariant broken, aborting: ", what])
}

/// Under test the end of the process is a panic, so that a test can expect it.
#[cold]
#[cfg(any(test, zk_nalloc_proof))]
pub(crate) fn broken(what: &str) -> ! {
    panic!("invariant broken: {what}")
}
