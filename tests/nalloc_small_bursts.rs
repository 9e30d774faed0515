//! Bursts of small blocks fault no more than they would without us: the system's allocator, which no longer sees large
//! blocks freed, is told what it would learn from them.
//!
//! Processes of their own, one with each allocator, because faults are counted per process.

#![expect(unsafe_code, reason = "asks the kernel")]

#[path = "support/choice.rs"]
mod choice;
#[expect(dead_code, reason = "no test uses all that the tests share")]
mod support;

use std::hint::black_box;

use choice::{Choice, SYSTEM};
use support::{alone, tell};

#[global_allocator]
static GLOBAL: Choice = Choice::new();

fn faults() -> u64 {
    // SAFETY: all zeros is a valid rusage.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: the structure is ours.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) }, 0);
    usage.ru_minflt.cast_unsigned()
}

/// A round of a prover's small side, with a large block from whose free the system's allocator learns, where it sees it,
/// to keep twice as much: it is at its best.
fn round(blocks: &mut Vec<Vec<u8>>) {
    for _ in 0..640 {
        blocks.push(vec![1; 32 << 10]);
    }
    black_box(vec![2_u8; 24 << 20]);
    blocks.clear();
}

#[test]
fn bursts_of_small_blocks_fault_no_more_than_without_us() {
    const TEST: &str = "bursts_of_small_blocks_fault_no_more_than_without_us";
    let body = || {
        let mut blocks = Vec::with_capacity(640);
        (0..4).for_each(|_| round(&mut blocks));
        let before = faults();
        (0..20).for_each(|_| round(&mut blocks));
        tell("faults", faults() - before);
    };
    let ours = alone(TEST, "ours", &[], body);
    let system = alone(TEST, "system", SYSTEM, body);
    if let (Some(ours), Some(system)) = (ours, system) {
        let (ours, system) = (ours.told("faults"), system.told("faults"));
        assert!(ours <= system + 64, "{ours} faults, {system} without us");
    }
}

#[cfg(target_env = "gnu")]
mod glibc {
    //! More than glibc keeps untold: in its first heap, which it trims at its top.

    use std::hint::black_box;

    use super::support::{alone, proc, tell};

    /// Threads but the first have heaps of their own otherwise.
    const ONE_HEAP: (&str, &str) = ("MALLOC_ARENA_MAX", "1");

    /// 128 MiB of small blocks, twice what glibc's own tuning comes to.
    const BLOCK: usize = 5000;
    const BLOCKS: usize = (128 << 20) / BLOCK;

    /// Starts the engine, with the first large block: glibc is told then.
    fn start() {
        black_box(vec![2_u8; 1 << 20]);
    }

    /// Makes them and frees them.
    fn burst() {
        let blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|_| vec![1; BLOCK]).collect();
        black_box(&blocks);
    }

    /// What is in memory after a burst, and after 256 MiB of large blocks on top of that, in bytes.
    fn before_and_with_large_blocks() -> (usize, usize) {
        start();
        burst();
        let before = proc::resident();
        let large: Vec<Vec<u8>> = (0..8).map(|_| vec![3; 32 << 20]).collect();
        black_box(&large);
        (before, proc::resident())
    }

    #[test]
    fn bursts_that_glibc_would_give_back_stay() {
        const TEST: &str = "glibc::bursts_that_glibc_would_give_back_stay";
        let ended = alone(TEST, "ours", &[ONE_HEAP], || {
            start();
            burst();
            let before = super::faults();
            (0..4).for_each(|_| burst());
            tell("faults", super::faults() - before);
        });
        if let Some(faults) = ended.map(|ended| ended.told("faults")) {
            assert!(faults < 4096, "{faults} faults");
        }
    }

    /// A burst without a large block, not even for the list of its blocks: 32 MiB for each of `lists`.
    fn burst_of_small_blocks(lists: usize) {
        let lists: [Vec<Box<[u8; BLOCK]>>; 4] = core::array::from_fn(|i| {
            let mut list = Vec::with_capacity(BLOCKS / 4);
            list.extend((0..if i < lists { BLOCKS / 4 } else { 0 }).map(|_| Box::new([1; BLOCK])));
            list
        });
        black_box(&lists);
    }

    #[test]
    fn bursts_that_glibc_would_give_back_stay_where_no_block_is_large() {
        const TEST: &str = "glibc::bursts_that_glibc_would_give_back_stay_where_no_block_is_large";
        let ended = alone(TEST, "ours", &[ONE_HEAP], || {
            burst_of_small_blocks(1);
            let before = super::faults();
            (0..4).for_each(|_| burst_of_small_blocks(1));
            tell("faults", super::faults() - before);
            let stats = zk_nalloc::stats();
            assert_eq!(stats.hits() + stats.misses(), 0, "a block was large");
            let kept = proc::resident();
            zk_nalloc::release_cache();
            let left = proc::resident();
            assert!(left < 16 << 20, "{} MiB of {}", left >> 20, kept >> 20);
            // More than glibc's own tuning comes to goes back: nobody would ask for it.
            burst_of_small_blocks(4);
            let kept = proc::resident();
            assert!(kept < 80 << 20, "{} MiB are kept", kept >> 20);
        });
        if let Some(faults) = ended.map(|ended| ended.told("faults")) {
            assert!(faults < 1024, "{faults} faults");
        }
        let little = ("MALLOC_TRIM_THRESHOLD_", "131072");
        alone(TEST, "variable, little", &[ONE_HEAP, little], || {
            burst_of_small_blocks(1);
            let kept = proc::resident();
            assert!(kept < 24 << 20, "{} MiB are kept", kept >> 20);
        });
    }

    /// Bursts of a thread's that fill two of the heaps that glibc has for it, of 64 MiB each, with large blocks between them, which
    /// tell the limits: faults after the fifth, and the MiB in memory at the end. `None` but in the parent.
    fn bursts_of_a_thread(label: &str, environment: &[(&str, &str)]) -> Option<(u64, u64)> {
        const TEST: &str = "glibc::bursts_that_fill_more_than_one_heap_of_a_thread_stay";
        let round = || {
            burst();
            (0..8).for_each(|_| _ = black_box(vec![2_u8; 16 << 20]));
        };
        let ended = alone(TEST, label, environment, || {
            start();
            let thread = std::thread::spawn(move || {
                (0..5).for_each(|_| round());
                let before = super::faults();
                (0..4).for_each(|_| round());
                (super::faults() - before, proc::resident() >> 20)
            });
            let (faults, kept) = thread.join().unwrap();
            tell("faults", faults);
            tell("kept", kept as u64);
        });
        ended.map(|ended| (ended.told("faults"), ended.told("kept")))
    }

    #[test]
    fn bursts_that_fill_more_than_one_heap_of_a_thread_stay() {
        if let Some((faults, kept)) = bursts_of_a_thread("ours", &[]) {
            assert!(faults < 4096, "{faults} faults");
            assert!(kept > 120, "{kept} MiB are kept");
        }
        // What the environment says stands: all but one go.
        if let Some((_, kept)) = bursts_of_a_thread("variable", &[("MALLOC_TOP_PAD_", "131072")]) {
            assert!(kept < 120, "{kept} MiB are kept");
        }
    }

    #[test]
    fn what_small_blocks_leave_makes_room_for_large_ones() {
        const TEST: &str = "glibc::what_small_blocks_leave_makes_room_for_large_ones";
        alone(TEST, "ours", &[ONE_HEAP], || {
            let (before, with) = before_and_with_large_blocks();
            assert!(before >= 120 << 20, "{} MiB: nothing was kept", before >> 20);
            assert!(with < 320 << 20, "{} MiB for 256", with >> 20);
        });
    }

    #[test]
    fn whoever_releases_the_cache_gets_back_what_glibc_keeps() {
        const TEST: &str = "glibc::whoever_releases_the_cache_gets_back_what_glibc_keeps";
        // With a ceiling it keeps less.
        for (label, environment) in
            [("all", &[ONE_HEAP][..]), ("some", &[ONE_HEAP, ("ZK_NALLOC_CACHE_BYTES", "1G")])]
        {
            alone(TEST, label, environment, || {
                start();
                burst();
                let before = proc::resident();
                zk_nalloc::release_cache();
                let left = proc::resident();
                assert!(left < 32 << 20, "{} MiB of {}", left >> 20, before >> 20);
            });
        }
    }

    #[test]
    fn what_the_environment_says_of_glibc_stands() {
        const TEST: &str = "glibc::what_the_environment_says_of_glibc_stands";
        let threshold = [
            ("variable, little", ("MALLOC_TRIM_THRESHOLD_", "131072"), 0..64_usize),
            ("tunable, little", ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=131072"), 0..64),
            ("tunable, much", ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=1073741824"), 120..200),
        ];
        for (label, variable, expected) in threshold {
            alone(TEST, label, &[ONE_HEAP, variable], || {
                let (before, with) = before_and_with_large_blocks();
                assert!(expected.contains(&(before >> 20)), "{} MiB", before >> 20);
                // Nor is it asked for any: what is kept is kept.
                assert!(
                    with + (8 << 20) >= before + (256 << 20),
                    "{} MiB, then {}",
                    before >> 20,
                    with >> 20
                );
            });
        }
    }
}
