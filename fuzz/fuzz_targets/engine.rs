//! Any sequence of operations on the engine, over a fake kernel that may refuse: the books match the model, and so does
//! every word of content. `cargo +nightly fuzz run engine -- -max_len=2000 -len_control=0`
//!
//! Prints now and then how much was done, since a fuzzer counts inputs and what counts are operations.

#![no_main]

use std::sync::atomic::{AtomicU64, Ordering};

use libfuzzer_sys::fuzz_target;
use zk_nalloc_proof::proof::endless::from_bytes;

/// Inputs by how many operations they spell, in tens.
static INPUTS: [AtomicU64; 100] = [const { AtomicU64::new(0) }; 100];
static OPERATIONS: AtomicU64 = AtomicU64::new(0);

/// Inputs between two lines.
const EVERY: u64 = 1 << 16;

fuzz_target!(|bytes: &[u8]| {
    let done = from_bytes(bytes);
    INPUTS[(done.operations as usize / 10).min(99)].fetch_add(1, Ordering::Relaxed);
    let operations = OPERATIONS.fetch_add(done.operations, Ordering::Relaxed) + done.operations;
    let counts = INPUTS.each_ref().map(|count| count.load(Ordering::Relaxed));
    let inputs: u64 = counts.iter().sum();
    if inputs % EVERY == 0 {
        let mut seen = 0;
        let median = counts.iter().position(|count| {
            seen += count;
            seen * 2 >= inputs
        });
        eprintln!("engine: {operations} operations, {inputs} inputs, median over {}0", median.unwrap_or(0));
    }
});
