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
use support::{alone, proc, tell};

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

/// With one heap, which glibc trims at its top; threads but the first have heaps of their own otherwise.
const ONE_HEAP: (&str, &str) = ("MALLOC_ARENA_MAX", "1");

/// 128 MiB of small blocks, twice what glibc keeps by itself at most.
const BLOCK: usize = 5000;
const BLOCKS: usize = (128 << 20) / BLOCK;

/// Makes and frees them.
fn burst(blocks: &mut Vec<Vec<u8>>) {
    (0..BLOCKS).for_each(|_| blocks.push(vec![1; BLOCK]));
    blocks.clear();
}

/// How often four bursts fault after a first one, once the engine has started.
fn faults_of_bursts() -> u64 {
    // It starts with the first large block, and glibc is told then.
    black_box(vec![2_u8; 1 << 20]);
    let mut blocks = Vec::with_capacity(BLOCKS);
    burst(&mut blocks);
    let before = faults();
    (0..4).for_each(|_| burst(&mut blocks));
    faults() - before
}

/// Whether what 128 MiB of small blocks left free was given back for 256 MiB of large ones.
fn makes_room() -> bool {
    black_box(vec![2_u8; 1 << 20]);
    let mut blocks = Vec::with_capacity(BLOCKS);
    burst(&mut blocks);
    let before = proc::resident();
    assert!(before >= 120 << 20, "{} MiB: nothing was kept", before >> 20);
    let large: Vec<Vec<u8>> = (0..8).map(|_| vec![3; 32 << 20]).collect();
    black_box(&large);
    proc::resident() < 320 << 20
}

#[test]
#[cfg(target_env = "gnu")]
fn bursts_that_glibc_would_give_back_stay() {
    const TEST: &str = "bursts_that_glibc_would_give_back_stay";
    // A thread but the first has heaps of 64 MiB, which glibc gives back one by one.
    let of_a_thread = || std::thread::spawn(faults_of_bursts).join().unwrap();
    for (label, environment, bursts) in [
        ("first heap", &[ONE_HEAP][..], faults_of_bursts as fn() -> u64),
        ("heaps of a thread", &[], of_a_thread),
    ] {
        let ended = alone(TEST, label, environment, || tell("faults", bursts()));
        if let Some(faults) = ended.map(|ended| ended.told("faults")) {
            assert!(faults < 4096, "{faults} faults in the {label}");
        }
    }
}

#[test]
#[cfg(target_env = "gnu")]
fn what_small_blocks_leave_makes_room_for_large_ones() {
    const TEST: &str = "what_small_blocks_leave_makes_room_for_large_ones";
    alone(TEST, "first heap", &[ONE_HEAP], || {
        assert!(makes_room(), "{} MiB for 256", proc::resident() >> 20);
        burst(&mut Vec::with_capacity(BLOCKS));
        let before = proc::resident();
        zk_nalloc::release_cache();
        assert!(proc::resident() < 64 << 20, "{} MiB of {}", proc::resident() >> 20, before >> 20);
    });
}

#[test]
#[cfg(target_env = "gnu")]
fn what_the_environment_says_of_glibc_stands() {
    const TEST: &str = "what_the_environment_says_of_glibc_stands";
    let little = [
        ("variable, little", [ONE_HEAP, ("MALLOC_TRIM_THRESHOLD_", "131072")]),
        ("tunable, little", [ONE_HEAP, ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=131072")]),
    ];
    for (label, environment) in little {
        let ended = alone(TEST, label, &environment, || tell("faults", faults_of_bursts()));
        if let Some(faults) = ended.map(|ended| ended.told("faults")) {
            assert!(faults > 4 * 16384, "{faults} faults, though the {label}, is kept");
        }
    }
    let much = [ONE_HEAP, ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=1073741824")];
    alone(TEST, "tunable, much", &much, || assert!(!makes_room(), "1 GiB may stay"));
}
