//! How far apart columns should begin within a page, and how many pages, and in which direction: a row loop over many columns,
//! for several steps of cache lines and of pages.
//!
//! `RUSTFLAGS=-Ctarget-cpu=native cargo run --release -p zk-compare --example colours` prints the tables of docs/EXPERIMENTS.md:
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

/// The offset of the `nth` column into a page, in lines, for a step of so many 128ths of a line.
const fn colour(nth: usize, step: usize) -> usize {
    (nth * step / 128) % (PAGE / LINE)
}

fn milliseconds(pass: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    pass();
    begin.elapsed().as_secs_f64() * 1e3
}

/// The step of the allocator, in 128ths of a line.
const OURS: usize = 4551;

/// The one of blocks without a class where Intel's first-level cache has twelve ways.
const ON_INTEL: usize = 3277;

/// How columns lie: the step of their colours in 128ths of a line, the pages between them, and whether each lies before the
/// last one.
#[derive(Clone, Copy)]
struct Shape {
    step: usize,
    pages: usize,
    down: bool,
}

/// Cuts `memory` into columns of `len` bytes, each at its colour.
fn columns(mut memory: &mut [u64], count: usize, len: usize, shape: Shape) -> Vec<&mut [u64]> {
    let mut columns = Vec::with_capacity(count);
    for nth in 0..count {
        let (place, rest) = memory.split_at_mut((len + shape.pages * PAGE) / WORD);
        columns.push(&mut place[colour(nth, shape.step) * LINE / WORD..][..len / WORD]);
        memory = rest;
    }
    if shape.down {
        columns.reverse();
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
    let up = |name, step, pages| (name, Shape { step, pages, down: false });
    let down = |name, step, pages| (name, Shape { step, pages, down: true });
    let steps = [
        up("1", 128, 1),
        up("23", 23 * 128, 1),
        up("14 7/32", 455 * 4, 1),
        up("35 71/128", OURS, 1),
        up("25 77/128", ON_INTEL, 1),
        up("8", 8 * 128, 1),
        up("16 lines", 16 * 128, 1),
    ];
    let pages = [
        up("1 up", OURS, 1),
        up("3 up", OURS, 3),
        up("7 up", OURS, 7),
        down("1 down", OURS, 1),
        down("3 down", OURS, 3),
        down("7 pages down", OURS, 7),
    ];
    let mut memory = vec![1_u64; (TABLE + 258 * PAGE) / WORD];
    // A vector begins some lines into its page.
    let begin = memory.as_ptr().align_offset(PAGE);
    let memory = &mut memory[begin..];
    table(memory, "with steps of", &steps, &[8, 24, 32, 64, 96, 128, 256]);
    println!();
    table(memory, "a length apart and", &pages, &[2, 4, 6, 8, 12, 16, 24, 32]);
}
