//! A round after a reset neither faults nor asks the kernel for memory. Alone in its process: faults are counted.

#![cfg(not(any(miri, loom)))]

use zk_nalloc::Arena;

const BYTES: usize = 256 << 20;

/// Page faults of this process so far (proc_pid_stat(5), fields 10 and 12).
fn faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    let field = |n: usize| after_name.split_whitespace().nth(n - 3).unwrap().parse::<u64>().unwrap();
    field(10) + field(12)
}

fn fill(arena: &Arena) {
    while arena.remaining() >= 1 << 20 {
        arena.alloc_slice_fill_with(1 << 17, |i| i as u64);
    }
}

#[test]
fn a_round_after_a_reset_takes_no_fault() {
    let mut arena = Arena::with_capacity(BYTES).unwrap();
    fill(&arena);
    arena.reset();
    faults();
    let before = faults();
    fill(&arena);
    let taken = faults() - before;
    // Reading the count takes a few itself; one for each page would be 128 at the least.
    assert!(taken < 16, "{taken} faults");
    assert_eq!(arena.high_water(), BYTES);
}
