//! How far apart columns should begin within a page, and how many pages: a row loop over many columns, for several steps of
//! cache lines and of pages.
//!
//! `RUSTFLAGS=-Ctarget-cpu=native cargo run --release -p zk-compare --example colours` prints the tables of docs/DESIGN.md:
//! least milliseconds of five passes that write all columns row by row, and of five that read them, all shapes turn by turn.

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

/// The step of the allocator, in 32nds of a line.
const OURS: usize = 455;

/// How columns lie: the step of their colours in 32nds of a line, and the pages between them.
#[derive(Clone, Copy)]
struct Shape {
    step: usize,
    pages: usize,
}

/// Cuts `memory` into columns of `len` bytes, each at its colour.
fn columns(mut memory: &mut [u64], count: usize, len: usize, shape: Shape) -> Vec<&mut [u64]> {
    let mut columns = Vec::with_capacity(count);
    for nth in 0..count {
        let (place, rest) = memory.split_at_mut((len + shape.pages * PAGE) / WORD);
        columns.push(&mut place[colour(nth, shape.step) * LINE / WORD..][..len / WORD]);
        memory = rest;
    }
    columns
}

/// Milliseconds of a pass that writes, and of one that reads.
fn measure(memory: &mut [u64], count: usize, len: usize, shape: Shape) -> (f64, f64) {
    let mut columns = columns(memory, count, len, shape);
    let write = milliseconds(|| {
        for row in 0..len / WORD {
            for (column, seed) in columns.iter_mut().zip(0..) {
                column[row] = row as u64 ^ seed;
            }
        }
        black_box(&mut columns);
    });
    let read = milliseconds(|| {
        let mut hash = 0_u64;
        for row in 0..len / WORD {
            hash ^= columns.iter().fold(hash, |sum, column| sum.wrapping_mul(3).wrapping_add(column[row]));
        }
        black_box(hash);
    });
    (write, read)
}

/// Prints a row for each count of columns and a column for each of some shapes.
fn table(memory: &mut [u64], head: &str, shapes: &[(&str, Shape)], counts: &[usize]) {
    let names: Vec<&str> = shapes.iter().map(|&(name, _)| name).collect();
    println!("| write / read, ms, {head} | {} |", names.join(" | "));
    println!("|---{}|", "|--:".repeat(shapes.len()));
    for &count in counts {
        let len = TABLE / count / PAGE * PAGE;
        let mut best = vec![(f64::INFINITY, f64::INFINITY); shapes.len()];
        for _ in 0..5 {
            for (best, &(_, shape)) in best.iter_mut().zip(shapes) {
                let (write, read) = measure(memory, count, len, shape);
                *best = (best.0.min(write), best.1.min(read));
            }
        }
        let row: Vec<String> = best.iter().map(|(write, read)| format!("{write:.1} / {read:.1}")).collect();
        println!("| {count} columns of {} KiB | {} |", len >> 10, row.join(" | "));
    }
}

fn main() {
    let steps = [
        ("1", 32),
        ("23", 23 * 32),
        ("14", 14 * 32),
        ("14 7/32", OURS),
        ("8", 8 * 32),
        ("16 lines", 16 * 32),
    ];
    let steps = steps.map(|(name, step)| (name, Shape { step, pages: 1 }));
    let pages = [("1", 1), ("2", 2), ("3", 3), ("4", 4), ("7 pages", 7)];
    let pages = pages.map(|(name, pages)| (name, Shape { step: OURS, pages }));
    let mut memory = vec![1_u64; (TABLE + 258 * PAGE) / WORD];
    // A vector begins some lines into its page.
    let begin = memory.as_ptr().align_offset(PAGE);
    let memory = &mut memory[begin..];
    table(memory, "with steps of", &steps, &[8, 24, 32, 64, 128, 256]);
    println!();
    table(memory, "a length apart and", &pages, &[2, 4, 6, 8, 12, 16, 24, 32]);
}
