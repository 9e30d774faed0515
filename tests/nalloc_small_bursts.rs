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

#[test]
#[cfg(target_env = "gnu")]
fn what_the_environment_says_of_glibc_stands() {
    const TEST: &str = "what_the_environment_says_of_glibc_stands";
    let body = || {
        // The engine starts with the first large block, and glibc is told then.
        black_box(vec![2_u8; 1 << 20]);
        let mut blocks: Vec<Vec<u8>> = Vec::with_capacity(4096);
        let mut round = || {
            (0..4096).for_each(|_| blocks.push(vec![1; 32 << 10]));
            blocks.clear();
        };
        round();
        let before = faults();
        (0..4).for_each(|_| round());
        tell("faults", faults() - before);
    };
    // In its first heap, which is trimmed at its top; other threads have heaps of their own otherwise.
    let variables: [(&str, &[_]); 2] = [
        ("variables", &[("MALLOC_TRIM_THRESHOLD_", "1073741824"), ("MALLOC_ARENA_MAX", "1")]),
        (
            "tunables",
            &[("GLIBC_TUNABLES", "glibc.malloc.arena_max=1:glibc.malloc.trim_threshold=1073741824")],
        ),
    ];
    for (label, environment) in variables {
        let ended = alone(TEST, label, environment, body);
        if let Some(faults) = ended.map(|ended| ended.told("faults")) {
            assert!(faults < 4096, "{faults} faults, though the {label} keep 1 GiB");
        }
    }
}
