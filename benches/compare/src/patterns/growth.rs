//! Vectors whose length nobody knew, alone, on every thread, and as columns that are written row by row.

use std::hint::black_box;

use super::{Case, Pattern, size};
use crate::block::check_dense;
use crate::scale::{KIB, MIB, Scale};

/// What all columns of a table take together.
const TABLE: usize = 256 * MIB;

pub(super) fn list() -> Vec<Pattern> {
    let mut list = vec![
        Pattern::new("push/512M", "one vector grown by push to 512 MiB", push),
        Pattern::new("push-all", "a vector on each thread grown by push, 512 MiB together", push_all),
    ];
    for (name, bytes) in [("200K", 200 * KIB), ("3M", 3 * MIB), ("6M", 6 * MIB)] {
        let about =
            format!("vectors of {name} grown by push on each thread, one at a time, 256 MiB together");
        list.push(Pattern::new(format!("push-short/{name}"), about, move |scale| {
            push_short(scale, bytes, 1)
        }));
    }
    let about = "vectors of 3M grown by push on each thread, four of them alive, 256 MiB together";
    list.push(Pattern::new("push-four/3M", about, move |scale| push_short(scale, 3 * MIB, 4)));
    for columns in [8, 32, 64, 128, 256] {
        let shape = format!("{columns}x{}", size(TABLE / columns));
        let about = format!("{shape} columns in vectors of that capacity, written row by row");
        list.push(Pattern::new(format!("columns/{shape}"), about, move |scale| table(scale, columns, true)));
    }
    for columns in [8, 32, 128, 256] {
        let shape = format!("{columns}x{}", size(TABLE / columns));
        let about = format!("{shape} columns grown by push row by row");
        let name = format!("columns-grown/{shape}");
        list.push(Pattern::new(name, about, move |scale| table(scale, columns, false)));
    }
    list
}

/// A function of its own, as [`push_rows`].
#[inline(never)]
pub(super) fn grown(words: usize, seed: u64) -> Vec<u64> {
    let mut vector = Vec::new();
    for word in (seed..).take(words) {
        vector.push(black_box(word));
    }
    vector
}

fn push(scale: Scale) -> Case {
    let words = scale.bytes(512 * MIB) / 8;
    Case::new(scale.rounds(8), move |watch| {
        watch.timed(|| check_dense(&grown(words, 7), 7, scale));
        8 * words
    })
    .handing_out(8 * words)
}

fn push_all(scale: Scale) -> Case {
    let words = scale.per_thread(scale.bytes(512 * MIB) / 8);
    Case::new(scale.rounds(12), move |watch| {
        watch.timed(|| {
            rayon::broadcast(|context| {
                let seed = context.index() as u64;
                check_dense(&grown(words, seed), seed, scale);
            });
        });
        8 * words * rayon::current_num_threads()
    })
}

/// `alive` vectors are freed together.
fn push_short(scale: Scale, full: usize, alive: u64) -> Case {
    let words = scale.bytes(full) / 8;
    let vectors = scale.count(scale.per_thread(256 * MIB / full)) as u64;
    Case::new(scale.rounds(12), move |watch| {
        watch.timed(|| {
            rayon::broadcast(|_| {
                for first in (0..vectors).step_by(alive as usize) {
                    let some: Vec<_> = (first..first + alive).map(|seed| grown(words, seed)).collect();
                    for (vector, seed) in some.iter().zip(first..) {
                        check_dense(vector, seed, scale);
                    }
                }
            });
        });
        8 * words * alive as usize * rayon::current_num_threads()
    })
}

/// A function of its own, or what is inlined around it, which differs from allocator to allocator, moves its loop.
#[inline(never)]
fn push_rows(table: &mut [Vec<u64>], rows: usize) {
    for row in 0..rows as u64 {
        for (column, seed) in table.iter_mut().zip(0..) {
            column.push(row + seed);
        }
    }
}

fn table(scale: Scale, columns: usize, reserved: bool) -> Case {
    let rows = scale.bytes(TABLE) / columns / 8;
    Case::new(scale.rounds(6), move |watch| {
        watch.timed(|| {
            let room = if reserved { rows } else { 0 };
            let mut table: Vec<Vec<u64>> = (0..columns).map(|_| Vec::with_capacity(room)).collect();
            push_rows(&mut table, rows);
            for (column, seed) in table.iter().zip(0..) {
                check_dense(column, seed, scale);
            }
        });
        8 * rows * columns
    })
}
