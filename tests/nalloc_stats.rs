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
fn lines_add_up_in_a_process_that_stands_still() {
    in_both_modes("lines_add_up_in_a_process_that_stands_still", || {
        load(&LIGHT, 200);
        let mut grows = Patterned::new(3, 100_000);
        for len in [1 << 20, 30 << 20, 200 << 20, 90_000, 250_000] {
            grows.resize(len);
        }
        let stats = stats();
        let (hits, misses) = (stats.hits(), stats.misses());
        let copied: u64 = stats
            .to_string()
            .lines()
            .find_map(|line| line.trim().strip_prefix("blocks resized by copying")?.trim().parse().ok())
            .unwrap();
        assert_eq!(hits + misses, stats.allocations() + copied, "{stats}");
        assert_eq!(stats.allocations() - stats.frees(), 1, "{stats}");
        let sizes = stats.sizes();
        let sum = |which: fn(&zk_nalloc::SizeStats) -> u64| sizes.lines().iter().map(which).sum::<u64>();
        assert_eq!(
            (sum(|s| s.requests), sum(|s| s.bytes)),
            (stats.allocations(), stats.allocated_bytes()),
            "{sizes}"
        );
        assert_eq!(sum(|s| s.misses), misses, "{sizes}");
        assert!(stats.allocated_bytes() > 1 << 30 && stats.faults_avoided() > 0, "{stats}");
        assert!(stats.busiest_shard() >= 1.0 && stats.shards_used() <= stats.shards());
        assert!(stats.peak_cached_bytes() > 20 << 20, "{stats}");
        let Some(footprint) = stats.footprint() else { return };
        assert!(footprint.resident_bytes >= stats.live_bytes(), "{stats}");
        assert!(footprint.mappings > 0 && footprint.mappings < footprint.mappings_of_process);
        assert!(
            footprint.huge_page_bytes <= footprint.resident_bytes
                && footprint.huge_page_bytes <= proc::huge_pages()
        );
        grows.check("a block that was resized");
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
            assert_eq!(stats().softened_bytes(), cached, "with what was offered before and not used since");
            if let Some(footprint) = stats().footprint() {
                let shows = footprint.lazy_free_bytes > 0 || footprint.resident_bytes < softened;
                assert!(shows, "what is offered shows until it is taken: {}", stats());
            }
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
