//! How far apart columns should begin within a page: a row loop over many columns, for several steps of cache lines.
//!
//! `RUSTFLAGS=-Ctarget-cpu=native cargo run --release -p zk-compare --example colours` prints the table of docs/DESIGN.md:
//! least milliseconds of five passes that write all columns row by row, and of five that read them.

use std::hint::black_box;
use std::time::Instant;

use zk_nalloc::NAlloc;

// For its huge pages.
#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

const LINE: usize = 64;
const PAGE: usize = 4096;
const WORD: usize = 8;
const TABLE: usize = 256 << 20;

/// The offset of the `nth` column into a page, in lines, for a step of so many 32nds of a line.
const fn colour(nth: usize, step: usize) -> usize {
    (nth * step / 32) % (PAGE / LINE)
}

fn milliseconds(pass: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    pass();
    begin.elapsed().as_secs_f64() * 1e3
}

/// Cuts `memory` into columns of `len` bytes, a length and a page apart, each at its colour.
fn columns(mut memory: &mut [u64], count: usize, len: usize, step: usize) -> Vec<&mut [u64]> {
    let mut columns = Vec::with_capacity(count);
    for nth in 0..count {
        let (place, rest) = memory.split_at_mut((len + PAGE) / WORD);
        columns.push(&mut place[colour(nth, step) * LINE / WORD..][..len / WORD]);
        memory = rest;
    }
    columns
}

fn measure(memory: &mut [u64], count: usize, len: usize, step: usize) -> (f64, f64) {
    let mut columns = columns(memory, count, len, step);
    let (mut write, mut read) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..5 {
        write = write.min(milliseconds(|| {
            for row in 0..len / WORD {
                for (column, seed) in columns.iter_mut().zip(0..) {
                    column[row] = row as u64 ^ seed;
                }
            }
            black_box(&mut columns);
        }));
        read = read.min(milliseconds(|| {
            let mut hash = 0_u64;
            for row in 0..len / WORD {
                hash ^=
                    columns.iter().fold(hash, |sum, column| sum.wrapping_mul(3).wrapping_add(column[row]));
            }
            black_box(hash);
        }));
    }
    (write, read)
}

fn main() {
    let steps =
        [("1", 32), ("23", 23 * 32), ("14", 14 * 32), ("14 7/32", 455), ("8", 8 * 32), ("16", 16 * 32)];
    let mut memory = vec![1_u64; (TABLE + 258 * PAGE) / WORD];
    // A vector begins some lines into its page.
    let begin = memory.as_ptr().align_offset(PAGE);
    println!("| write / read, ms, with steps of | {} lines |", steps.map(|(name, _)| name).join(" | "));
    println!("|---{}|", "|--:".repeat(steps.len()));
    for count in [8, 24, 32, 64, 128, 256] {
        let len = TABLE / count / PAGE * PAGE;
        let row = steps.map(|(_, step)| {
            let (write, read) = measure(&mut memory[begin..], count, len, step);
            format!("{write:.1} / {read:.1}")
        });
        println!("| {count} columns of {} KiB | {} |", len >> 10, row.join(" | "));
    }
}
