//! Who owns an arena's own window: a number for each thread, never used twice.
//!
//! Why it is here: `&Arena` allocates from any thread, yet a single thread must not pay for an atomic exchange. So
//! the first thread that allocates becomes the owner and bumps a window of its own; all others find a number
//! that is not theirs and take the shared way. Reading the number is one load relative to the thread pointer.
//!
//! Invariant (docs/SAFETY.md): R7, no two threads ever have the same number, and none has [`NOBODY`] or [`NEW`].
//! Never here: anything that allocates or has a destructor; it works in destructors of thread-locals too.

use core::cell::Cell;
// Not the facade: a number for the life of the process has no place in a model of one execution.
use core::sync::atomic::{AtomicU64, Ordering};

/// What an arena has that no thread has claimed.
pub(super) const NOBODY: u64 = u64::MAX;

/// What a thread has that has not asked for its number; no arena ever has it.
const NEW: u64 = 0;

thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(NEW) };
}

/// This thread's number, or one that no arena has.
#[inline(always)]
pub(super) fn current() -> u64 {
    NUMBER.get()
}

/// This thread's number.
pub(super) fn assigned() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(NEW);
    let mut number = current();
    if number == NEW {
        // Relaxed: only uniqueness matters. 2^64 threads do not fit the life of a process.
        number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        NUMBER.set(number);
    }
    number
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn threads_have_numbers_of_their_own() {
        let mine = assigned();
        assert_eq!((mine, current()), (assigned(), mine));
        let others: Vec<u64> = (0..4).map(|_| std::thread::spawn(assigned).join().unwrap()).collect();
        assert!(others.iter().all(|&other| other != mine && other != NEW && other != NOBODY));
    }
}
