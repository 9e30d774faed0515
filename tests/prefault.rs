//! Memory faulted in ahead of need.
//!
//! Processes of their own, because what is cached is the whole process's.

#[path = "support/container.rs"]
mod container;
#[path = "secret_support/fork.rs"]
mod fork;
#[expect(dead_code, reason = "no test uses all that the tests share")]
mod support;

use std::panic;
use std::thread;

use container::Container;
use support::pattern::Patterned;
use support::{alone, in_both_modes, proc, skip};
use zk_nalloc::{NAlloc, Phase, cached_bytes, prefault, prefault_with, release_cache, stats};

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

const MIB: usize = 1 << 20;

/// A round like a prover's, with 190 MiB live at most, each byte written and checked.
fn round() {
    let sizes = [40, 3, 25, 1, 60, 2, 9, 50];
    let blocks: Vec<Patterned> =
        (0..).zip(sizes).map(|(seed, size)| Patterned::new(seed, size * MIB)).collect();
    blocks.iter().for_each(|block| block.check("a block of the round"));
}

#[test]
fn after_it_requests_of_any_size_fault_nothing_in() {
    in_both_modes("after_it_requests_of_any_size_fault_nothing_in", || {
        // In the first call of all: nothing was allocated before.
        let done = prefault(256 * MIB);
        assert!((256 * MIB..260 * MIB).contains(&done), "{done}");
        assert!(cached_bytes() >= 256 * MIB && proc::resident() >= 256 * MIB);
        let before = stats();
        for _ in 0..20 {
            round();
        }
        let after = stats();
        assert_eq!(after.misses() - before.misses(), 0, "{after}");
        // What is there counts.
        assert_eq!(prefault(128 * MIB), 0);
    });
}

/// What its parent had cached was taken for its own, and faulted in at the first request.
#[test]
fn a_child_has_nothing_ahead_of_what_its_parent_had() {
    alone("a_child_has_nothing_ahead_of_what_its_parent_had", "child", &[], || {
        drop(Patterned::new(1, 256 * MIB));
        let code = fork::forked(|| {
            let done = prefault(128 * MIB);
            let before = stats();
            Patterned::new(2, 100 * MIB).check("a block of the child");
            u8::from(done < 128 * MIB || stats().misses() > before.misses())
        });
        assert_eq!(code, 0);
    });
}

#[test]
fn the_last_needs_of_a_phase_are_faulted_in() {
    alone("the_last_needs_of_a_phase_are_faulted_in", "child", &[], || {
        let phase = Phase::named("round");
        assert_eq!(phase.prefault(), 0, "nothing is known of it");
        phase.run(round);
        assert_eq!(phase.prefault(), 0, "it is warm");
        release_cache();
        let done = phase.prefault();
        assert!((180 * MIB..230 * MIB).contains(&done), "{done}");
        let before = stats();
        phase.run(round);
        assert_eq!(stats().misses() - before.misses(), 0, "{}", stats());
    });
}

#[test]
fn a_ceiling_bounds_it() {
    alone("a_ceiling_bounds_it", "child", &[("ZK_NALLOC_CACHE_BYTES", "64M")], || {
        assert!(prefault(1 << 30) <= 64 * MIB);
        assert!(cached_bytes() <= 64 * MIB && proc::resident() < 120 * MIB);
        round();
    });
}

#[test]
fn a_container_bounds_it() {
    const TEST: &str = "a_container_bounds_it";
    let container = match Container::new("prefault", 256 * MIB) {
        Ok(container) => container,
        Err(why) => return skip(TEST, &format!("no cgroup with a limit of memory can be made: {why}")),
    };
    alone(TEST, "child", &[], || {
        container.join();
        let done = prefault(4 << 30);
        assert!(done > 0 && done < 256 * MIB, "{done}");
        drop(vec![1_u8; 32 * MIB]);
    });
}

#[test]
fn progress_is_told_and_its_panic_harms_nothing() {
    alone("progress_is_told_and_its_panic_harms_nothing", "child", &[], || {
        let mut seen = Vec::new();
        let done = prefault_with(200 * MIB, |done, of| seen.push((done, of)));
        assert_eq!(seen.last(), Some(&(done, done)));
        assert!(seen.iter().all(|&(d, of)| d <= of && of == done));
        release_cache();
        let thrown = panic::catch_unwind(|| {
            prefault_with(200 * MIB, |_, _| panic::resume_unwind(Box::new("enough")));
        });
        assert!(thrown.is_err());
        assert!(cached_bytes() < 200 * MIB, "what was not finished went back");
        round();
    });
}

#[test]
fn several_threads_may_ask_at_once_and_beside_a_load() {
    in_both_modes("several_threads_may_ask_at_once_and_beside_a_load", || {
        thread::scope(|scope| {
            for i in 1..4 {
                scope.spawn(move || {
                    for _ in 0..4 {
                        prefault(i * 40 * MIB);
                    }
                });
                scope.spawn(round);
            }
        });
        round();
        assert_eq!(stats().live_bytes(), 0);
    });
}
