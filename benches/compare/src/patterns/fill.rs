//! One block after another: filled, zeroed and filled, zeroed and hardly touched, reserved and half used.

use std::hint::black_box;

use rayon::prelude::*;

use super::{Case, Pattern, size};
use crate::block::{add_dense, check_dense, check_filled, filled, zeroed};
use crate::scale::{GIB, KIB, MIB, Scale};

const SIZES: [usize; 5] = [MIB, 8 * MIB, 64 * MIB, 512 * MIB, 2 * GIB];
/// What a round moves in all, unless a single block is larger.
const VOLUME: usize = 512 * MIB;

pub(super) fn list() -> Vec<Pattern> {
    let mut list = Vec::new();
    for bytes in SIZES {
        let about = format!("allocate {}, write all of it, free it; one block at a time", size(bytes));
        list.push(Pattern::new(format!("fill/{}", size(bytes)), about, move |scale| fill(scale, bytes)));
    }
    for bytes in SIZES {
        let about = format!("a zeroed block of {}, every word added to by one thread", size(bytes));
        list.push(Pattern::new(format!("dense/{}", size(bytes)), about, move |scale| dense(scale, bytes)));
    }
    for bytes in SIZES {
        let about = format!("a zeroed block of {}, every word added to by all threads", size(bytes));
        let name = format!("dense-shared/{}", size(bytes));
        list.push(Pattern::new(name, about, move |scale| dense_shared(scale, bytes)));
    }
    for (count, bytes) in [(16, 6 * MIB), (16, 64 * MIB), (4, 512 * MIB)] {
        let about = format!("{count} zeroed blocks of {} at once, 16 words of each added to", size(bytes));
        let touched = move |scale: Scale| scale.bytes(bytes) / 16;
        let name = format!("sparse/{}", size(bytes));
        list.push(Pattern::new(name, about, move |scale| sparse(scale, count, bytes, touched(scale))));
    }
    let about = "16 zeroed blocks of 64M at once, one word in 64 KiB added to";
    list.push(Pattern::new("strided/64M", about, |scale| sparse(scale, 16, 64 * MIB, 64 * KIB)));
    let about = "filled, zeroed and dense, zeroed and sparse in turn, at 2, 16 and 96 MiB";
    list.push(Pattern::new("mixed", about, mixed));
    let about = "8 vectors with room for 64 MiB each, half of which is used";
    list.push(Pattern::new("half-used", about, |scale| half_used(scale, 8, 64 * MIB)));
    let about = "100 vectors with room for 8 MiB each, half of which is used";
    list.push(Pattern::new("half-used/100x8M", about, |scale| half_used(scale, 100, 8 * MIB)));
    list
}

fn blocks(scale: Scale, bytes: usize) -> usize {
    scale.count((VOLUME / bytes).max(1))
}

fn rounds(scale: Scale, bytes: usize) -> u32 {
    scale.rounds(if bytes > VOLUME { 5 } else { 12 })
}

fn fill(scale: Scale, full: usize) -> Case {
    let (bytes, blocks) = (scale.bytes(full), blocks(scale, full));
    let mut value = 0_u8;
    Case::new(rounds(scale, full), move |watch| {
        watch.timed(|| {
            for _ in 0..blocks {
                value = value.wrapping_add(2);
                check_filled(&filled(bytes, value), value, scale);
            }
        });
        bytes
    })
    .handing_out(blocks * bytes)
}

fn dense(scale: Scale, full: usize) -> Case {
    let (bytes, blocks) = (scale.bytes(full), blocks(scale, full));
    Case::new(rounds(scale, full), move |watch| {
        watch.timed(|| {
            for seed in 0..blocks as u64 {
                let mut block = zeroed(bytes);
                add_dense(&mut block, seed);
                check_dense(&block, seed, scale);
            }
        });
        bytes
    })
    .handing_out(blocks * bytes)
}

fn dense_shared(scale: Scale, full: usize) -> Case {
    let (bytes, blocks) = (scale.bytes(full), blocks(scale, full));
    let part = scale.per_thread(bytes / 8);
    Case::new(rounds(scale, full), move |watch| {
        watch.timed(|| {
            for seed in 0..blocks as u64 {
                let mut block = zeroed(bytes);
                block.par_chunks_mut(part).enumerate().for_each(|(i, words)| {
                    add_dense(words, seed + (i * part) as u64);
                });
                check_dense(&block, seed, scale);
            }
        });
        bytes
    })
    .handing_out(blocks * bytes)
}

/// Adds to one word in `step` bytes.
pub(super) fn touch_sparse(block: &mut [u64], step: usize, seed: u64) {
    for word in block.iter_mut().step_by(step / 8) {
        *word = word.wrapping_add(seed | 1);
    }
    black_box(block);
}

/// Checks what was touched, and in a quick run also that all the rest is zero.
pub(super) fn check_sparse(block: &[u64], step: usize, seed: u64, scale: Scale) {
    let step = step / 8;
    for (i, &word) in block.iter().enumerate().step_by(if scale.quick { 1 } else { step }) {
        let wanted = if i % step == 0 { seed | 1 } else { 0 };
        assert_eq!(word, wanted, "word {i} of a zeroed block of {} words", block.len());
    }
}

fn sparse(scale: Scale, count: usize, full: usize, step: usize) -> Case {
    let bytes = scale.bytes(full);
    Case::new(scale.rounds(30), move |watch| {
        watch.timed(|| {
            let mut blocks: Vec<Vec<u64>> = (0..count).map(|_| zeroed(bytes)).collect();
            for (block, seed) in blocks.iter_mut().zip(0..) {
                touch_sparse(block, step, seed);
            }
            for (block, seed) in blocks.iter().zip(0..) {
                check_sparse(block, step, seed, scale);
            }
        });
        count * bytes
    })
}

fn mixed(scale: Scale) -> Case {
    let sizes = [2, 16, 96].map(|mib| scale.bytes(mib * MIB));
    Case::new(scale.rounds(12), move |watch| {
        watch.timed(|| {
            for (turn, &bytes) in (0_u8..).zip(sizes.iter().cycle().take(9)) {
                check_filled(&filled(bytes, turn), turn, scale);
                let mut block = zeroed(bytes);
                add_dense(&mut block, u64::from(turn));
                check_dense(&block, u64::from(turn), scale);
                drop(block);
                let mut block = zeroed(bytes);
                touch_sparse(&mut block, bytes / 16, u64::from(turn));
                check_sparse(&block, bytes / 16, u64::from(turn), scale);
            }
        });
        sizes[2]
    })
}

fn half_used(scale: Scale, count: usize, full: usize) -> Case {
    let words = scale.bytes(full) / 8;
    Case::new(scale.rounds(12), move |watch| {
        watch.timed(|| {
            let mut vectors: Vec<Vec<u64>> = (0..count).map(|_| Vec::with_capacity(words)).collect();
            for (vector, seed) in vectors.iter_mut().zip(1..) {
                vector.extend((seed..).take(words / 2));
                black_box(&mut *vector);
            }
            for (vector, seed) in vectors.iter().zip(1..) {
                check_dense(vector, seed, scale);
            }
        });
        count * words / 2 * 8
    })
}
