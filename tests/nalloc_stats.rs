//! Counters, softening and releasing, from any thread at any time.
//!
//! Processes of their own, because the counters are those of the whole process.

#[expect(dead_code, reason = "no test uses all that the tests share")]
mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use support::load::{LIGHT, load};
use support::pattern::Patterned;
use support::{in_both_modes, proc, skip};
use zk_nalloc::{NAlloc, cached_bytes, release_cache, soften_cache, stats};

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

#[test]
fn before_the_first_large_request_all_is_zero() {
    support::alone("before_the_first_large_request_all_is_zero", "child", &[], || {
        let stats = stats();
        assert_eq!((stats.hits(), stats.misses(), stats.live_bytes()), (0, 0, 0));
        assert_eq!((cached_bytes(), soften_cache(), release_cache()), (0, 0, 0));
        assert!(!stats.to_string().is_empty());
    });
}

#[test]
fn any_thread_may_ask_at_any_time() {
    in_both_modes("any_thread_may_ask_at_any_time", || {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let asks: [fn(); 4] = [
                || drop(stats().to_string()),
                || _ = cached_bytes(),
                || _ = soften_cache(),
                || _ = release_cache(),
            ];
            for ask in asks {
                let done = &done;
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        ask();
                        thread::yield_now();
                    }
                });
            }
            let loaded = scope.spawn(|| load(&LIGHT, 150));
            let whole = loaded.join();
            done.store(true, Ordering::Relaxed);
            whole.unwrap();
        });
        let live = stats().live_bytes();
        assert_eq!(live, 0, "{live} bytes are live of none");
    });
}

#[test]
fn release_gives_everything_back() {
    in_both_modes("release_gives_everything_back", || {
        drop(Patterned::new(1, 1 << 20));
        release_cache();
        let (resident, mappings) = (proc::resident(), proc::mappings());
        for round in 0..3 {
            load(&LIGHT, 60);
            drop((Patterned::new(1, 100 << 20), Patterned::new(2, 100 << 20)));
            assert!(cached_bytes() > 100 << 20, "round {round}: {} bytes are cached", cached_bytes());
            let cached = cached_bytes();
            assert_eq!(release_cache(), cached, "round {round}");
            assert_eq!((cached_bytes(), stats().softened_bytes()), (0, 0));
            assert_eq!(release_cache(), 0, "there is nothing left");
            let left = proc::resident().saturating_sub(resident);
            assert!(left < 24 << 20, "round {round}: {} MiB stay resident", left >> 20);
            let more = proc::mappings().saturating_sub(mappings);
            assert!(more <= 40, "round {round}: {more} mappings more");
        }
    });
}

#[test]
fn softened_memory_stays_usable() {
    const TEST: &str = "softened_memory_stays_usable";
    in_both_modes(TEST, || {
        let live = Patterned::new(9, 30 << 20);
        for round in 0..3 {
            drop((Patterned::new(1, 100 << 20), Patterned::new(2, 300_000), Patterned::new(3, 3 << 20)));
            let cached = cached_bytes();
            let softened = soften_cache();
            if softened == 0 {
                return skip(TEST, "this kernel has no MADV_FREE");
            }
            assert!(softened > 90 << 20 && softened <= cached, "{softened} of {cached} bytes");
            assert_eq!(stats().softened_bytes(), softened);
            assert_eq!(cached_bytes(), cached, "what is softened is held");
            let blocks = [Patterned::new(round, 60 << 20), Patterned::from_zeroed(round, 30 << 20)];
            blocks.iter().chain([&live]).for_each(|block| block.check("a block beside softened memory"));
        }
        soften_cache();
        release_cache();
        assert_eq!(cached_bytes(), 0);
        live.check("what is live is not given back");
    });
}
