//! An arena in a forked child: what threads of the parent were doing does not stop it.

#![cfg(not(miri))]
#![expect(unsafe_code, reason = "sets an alarm in a child")]

#[path = "secret_support/fork.rs"]
mod fork;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fork::forked;
use zk_nalloc::Arena;

/// A thread that waited for the kernel to open more held a lock meanwhile, most likely while another one forked: for that the
/// kernel keeps everybody waiting. In the child nobody gave it back.
#[test]
fn a_child_goes_on_in_an_arena_that_others_were_opening() {
    const FORKS: usize = 100;
    // Where all that may be written counts as committed, little of it can be open.
    if std::fs::read_to_string("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.trim() == "2") {
        return eprintln!("skipped: a_child_goes_on_in_an_arena_that_others_were_opening: strict overcommit");
    }
    // Long enough that a fork takes a while.
    let ballast = vec![1_u8; 64 << 20];
    for _ in 0..FORKS {
        let arena = Arena::reserve(1 << 36).unwrap();
        let done = AtomicBool::new(false);
        let code = thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) && arena.remaining() > 8 << 30 {
                        arena.alloc_array::<u64>(64 << 10);
                    }
                });
            }
            thread::yield_now();
            let code = forked(|| {
                // SAFETY: asks for a signal that nobody handles.
                unsafe { libc::alarm(20) };
                // More than can be open.
                arena.alloc_array::<u64>((arena.remaining() - (1 << 30)) / 8);
                7
            });
            done.store(true, Ordering::Relaxed);
            code
        });
        assert_eq!(code, 7);
    }
    assert_eq!(ballast[77], 1);
}
