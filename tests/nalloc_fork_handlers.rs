//! Handlers of a fork that were registered before the allocator's, and allocate: in a child they run before its own.
//!
//! A binary of its own, because what is registered stays registered.

#![expect(unsafe_code, reason = "registers a handler before anything else, and forks")]

#[path = "secret_support/fork.rs"]
mod fork;
#[expect(dead_code, reason = "no test uses all that the tests share")]
mod support;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use fork::forked;
use support::load::{Load, load};
use support::{count, in_both_modes, times};
use zk_nalloc::NAlloc;

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

const CHURN: Load = Load { threads: 1, most: 4 << 20, budget: 12 << 20 };

/// How often a handler has run in this process and those that it comes from, and gone on to its end.
static ENDED: AtomicU32 = AtomicU32::new(0);

/// Takes, resizes and frees large blocks, of which some were there before the fork.
extern "C" fn in_child() {
    // SAFETY: asks for a signal that nobody handles, so that a child that waits for ever ends.
    unsafe { libc::alarm(60) };
    let mut blocks: Vec<Vec<u8>> =
        [64 << 10, 200_000, 1 << 20, 3 << 20, 40 << 20].map(|len| vec![1; len]).into();
    blocks.iter_mut().for_each(|block| block.resize(block.len() * 3 / 2, 2));
    black_box(vec![0_u8; 6 << 20]);
    drop(blocks);
    ENDED.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn register() {
    // SAFETY: the handler lives as long as the process, and does not unwind out of its frame.
    assert_eq!(unsafe { libc::pthread_atfork(None, None, Some(in_child)) }, 0);
}

/// Called before the allocator's own constructor, of which the section ends in 100.
#[used]
#[unsafe(link_section = ".init_array.00090")]
static REGISTER: extern "C" fn() = register;

#[test]
fn a_handler_that_runs_in_a_child_before_ours_may_allocate() {
    in_both_modes("a_handler_that_runs_in_a_child_before_ours_may_allocate", || {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        load(&CHURN, 20);
                    }
                });
            }
            let codes: Vec<i32> = (0..40 * times())
                .map(|_| {
                    let before = ENDED.load(Ordering::Relaxed);
                    let went_on = move || {
                        let ended = ENDED.load(Ordering::Relaxed) == before + 1;
                        u8::from(!ended || black_box(vec![3_u8; 9 << 20])[77] != 3)
                    };
                    forked(went_on)
                })
                .collect();
            stop.store(true, Ordering::Relaxed);
            assert!(codes.iter().all(|&code| code == 0), "{codes:?}");
        });
        count("forks with a handler before ours", 40 * times());
    });
}
