//! Where in a cache line a long block should begin: a matrix transposed and back, for several such places.
//!
//! `RUSTFLAGS=-Ctarget-cpu=native cargo run --release -p zk-compare --example transposes` prints the table of
//! docs/EXPERIMENTS.md: least milliseconds of seven, there and back, on all threads.

use std::hint::black_box;
use std::time::Instant;

use zk_compare::patterns::transposed;
use zk_nalloc::NAlloc;

// For its huge pages.
#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

/// Bytes into a line, of both buffers.
const PLACES: [usize; 5] = [0, 8, 16, 32, 48];
const PAGE: usize = 4096;
const WORD: usize = 4;

fn milliseconds(pass: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    pass();
    begin.elapsed().as_secs_f64() * 1e3
}

/// The part of `memory` that begins so many bytes into a page.
fn from_place(memory: &mut [u32], place: usize, len: usize) -> &mut [u32] {
    let begin = memory.as_ptr().align_offset(PAGE);
    &mut memory[begin + place / WORD..][..len]
}

fn main() {
    println!("| there / back, ms, from byte | {} |", PLACES.map(|place| place.to_string()).join(" | "));
    println!("|---{}|", "|--:".repeat(PLACES.len()));
    for (width, height) in [(1312, 1 << 15), (2633, 1 << 15), (1312, 1 << 16), (128, 1 << 19)] {
        let len = width * height;
        let (mut one, mut other) = (vec![1; len + 2 * PAGE / WORD], vec![2; len + 2 * PAGE / WORD]);
        let mut least = [(f64::INFINITY, f64::INFINITY); PLACES.len()];
        // Place by place within a turn, so that drift hits all alike.
        for _ in 0..7 {
            for (place, least) in PLACES.into_iter().zip(&mut least) {
                let table = from_place(&mut one, place, len);
                let columns = from_place(&mut other, place, len);
                least.0 = least.0.min(milliseconds(|| transposed(table, columns, width, height)));
                least.1 = least.1.min(milliseconds(|| transposed(columns, table, height, width)));
                black_box((table, columns));
            }
        }
        let cells = least.map(|(there, back)| format!("{there:.1} / {back:.1}"));
        println!("| {width} columns of 2^{} | {} |", height.ilog2(), cells.join(" | "));
    }
}
