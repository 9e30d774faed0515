//! Threads that live briefly, and blocks that are freed by others: nothing is stranded with a thread that has ended.
//!
//! A process of its own, because what is cached is counted for the whole process.

#[expect(dead_code, reason = "no test uses all that the tests share")]
mod support;

use std::sync::mpsc;
use std::thread;

use support::pattern::{Numbers, Patterned};
use support::{count, in_both_modes, proc, times};
use zk_nalloc::NAlloc;

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

/// Threads at a time.
const AT_ONCE: usize = 4;

/// Twenty times as many, in both modes, are a hundred thousand threads.
const ROUNDS: usize = 650;

/// What a thread has at most, in bytes: two blocks of up to 2 MiB each, and the ones that lie in the channel.
const LIVE_MAX: usize = AT_ONCE * 4 * (2 << 20);

#[test]
fn short_threads_strand_nothing() {
    in_both_modes("short_threads_strand_nothing", || {
        let mut numbers = Numbers::new(1);
        let before = proc::resident();
        for round in 0..ROUNDS * times() {
            let (sender, receiver) = mpsc::sync_channel::<Patterned>(AT_ONCE);
            thread::scope(|scope| {
                for _ in 0..AT_ONCE {
                    let (seed, sender) = (numbers.next(), sender.clone());
                    scope.spawn(move || {
                        let mut numbers = Numbers::new(seed);
                        let own = Patterned::new(1, numbers.length(64 << 10, 2 << 20));
                        sender.send(Patterned::new(seed, numbers.length(64 << 10, 2 << 20))).unwrap();
                        own.check("a block of a short thread");
                    });
                }
                receiver
                    .iter()
                    .take(AT_ONCE)
                    .for_each(|block| block.check("a block of a thread that may have ended"));
            });
            let stats = zk_nalloc::stats();
            assert!(stats.cached_bytes() <= LIVE_MAX, "round {round}: {} bytes", stats.cached_bytes());
        }
        count("short threads", ROUNDS * times() * AT_ONCE);
        let grown = proc::resident().saturating_sub(before);
        assert!(grown <= 2 * LIVE_MAX, "{} MiB more are resident", grown >> 20);
        zk_nalloc::release_cache();
        assert_eq!(zk_nalloc::cached_bytes(), 0);
    });
}

#[test]
fn one_thread_takes_and_another_frees() {
    in_both_modes("one_thread_takes_and_another_frees", || {
        let live = zk_nalloc::stats().live_bytes();
        let (sender, receiver) = mpsc::sync_channel::<Patterned>(8);
        thread::scope(|scope| {
            scope.spawn(move || {
                for block in receiver {
                    block.check("a block of another thread");
                }
            });
            let mut numbers = Numbers::new(5);
            for seed in 0..600 {
                sender.send(Patterned::new(seed, numbers.length(64 << 10, 8 << 20))).unwrap();
            }
            drop(sender);
        });
        let stats = zk_nalloc::stats();
        assert_eq!(stats.live_bytes(), live);
        // Ten blocks at most were live at once.
        assert!(stats.cached_bytes() <= 96 << 20, "{} bytes are cached", stats.cached_bytes());
    });
}
