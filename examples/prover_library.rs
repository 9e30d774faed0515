//! A prover in a shared library, for a program in any language: what is Rust in it allocates with `NAlloc`, and the program
//! as before.
//!
//! `cargo build --release --example prover_library` makes `target/release/examples/libprover_library.so`, which has
//! `uint64_t prove(size_t rows)` and `size_t release(void)`.

#![expect(unsafe_code, reason = "names that C finds")]

use zk_nalloc::NAlloc;

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

/// Adds up a table of so many rows, made anew each time.
#[unsafe(no_mangle)]
pub extern "C" fn prove(rows: usize) -> u64 {
    let trace: Vec<u64> = (0..rows as u64).collect();
    let doubled: Vec<u64> = trace.iter().map(|row| 2 * row).collect();
    doubled.iter().sum()
}

/// Gives back what is kept for the next proof, and says how many bytes that were: before the library is unloaded, since
/// what it keeps stays with the process.
#[unsafe(no_mangle)]
pub extern "C" fn release() -> usize {
    zk_nalloc::release_cache()
}
