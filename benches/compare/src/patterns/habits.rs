//! What an allocator that goes by what blocks of a length did before gets wrong: lengths that are used in two ways, what is cut
//! or resized before it is freed, what comes back after a long time, vectors that do not begin at nothing.

use std::hint::black_box;

use super::fill::{check_sparse, touch_sparse};
use super::{Case, Pattern};
use crate::block::{add_dense, check_dense, check_filled, filled, zeroed};
use crate::scale::{KIB, MIB, Scale};

pub(super) fn list() -> Vec<Pattern> {
    vec![
        Pattern::new(
            "zeros/in-turn",
            "8 MiB of zeros, 16 words of it added to, and 8 MiB, all of it, in turn",
            |scale| in_turn(scale, 2),
        ),
        Pattern::new(
            "zeros/one-of-four",
            "8 MiB of zeros at a time, all of it added to in one of four, else 16 words",
            |scale| in_turn(scale, 4),
        ),
        Pattern::new(
            "zeros/resized",
            "32 MiB of zeros, all added to, resized to 64 MiB, that too; one at a time",
            resized,
        ),
        Pattern::new(
            "cut/1M",
            "room for up to 1 MiB, five eighths used, cut to that and freed; one at a time",
            cut,
        ),
        Pattern::new("cut/512M", "512 MiB of room, 64 MiB used, cut to that; two are kept", cut_long),
        Pattern::new("begun/one", "vectors with room for 640 KiB grown to 5 MiB, one at a time", |scale| {
            begun(scale, 1)
        }),
        Pattern::new("begun/four", "vectors with room for 640 KiB grown to 5 MiB, four alive", |scale| {
            begun(scale, 4)
        }),
        Pattern::new(
            "begun/mixed",
            "vectors grown by push, one of three to 3 MiB, the others to 100 KiB",
            begun_mixed,
        ),
        Pattern::new(
            "checkered",
            "512 MiB of 3 MiB blocks, every second one freed, then two of 96 MiB",
            checkered,
        ),
        Pattern::new(
            "comes-back",
            "2 GiB of 32 MiB blocks, filled, then 128 GiB of room that nobody uses, 64 MiB at a time",
            comes_back,
        ),
    ]
}

/// Of so many blocks, one is written as a whole.
fn in_turn(scale: Scale, of: usize) -> Case {
    let (bytes, blocks) = (scale.bytes(8 * MIB), scale.count(64));
    Case::new(scale.rounds(20), move |watch| {
        watch.timed(|| {
            for seed in 0..blocks as u64 {
                let mut block = zeroed(bytes);
                if seed as usize % of == of - 1 {
                    add_dense(&mut block, seed);
                    check_dense(&block, seed, scale);
                } else {
                    touch_sparse(&mut block, bytes / 16, seed);
                    check_sparse(&block, bytes / 16, seed, scale);
                }
            }
        });
        bytes
    })
}

fn resized(scale: Scale) -> Case {
    let words = scale.bytes(32 * MIB) / 8;
    Case::new(scale.rounds(12), move |watch| {
        watch.timed(|| {
            for seed in 0..8 {
                let mut block = zeroed(8 * words);
                add_dense(&mut block, seed);
                block.resize(2 * words, 0);
                add_dense(&mut block[words..], seed + words as u64);
                check_dense(&block, seed, scale);
            }
        });
        16 * words
    })
}

/// Writes as many words into a vector that has room for so many.
fn used(room: usize, words: usize, seed: u64) -> Vec<u64> {
    let mut vector = black_box(Vec::with_capacity(room));
    vector.extend((seed..).take(words));
    vector
}

fn cut(scale: Scale) -> Case {
    let blocks = scale.count(512);
    let (least, most) = (scale.bytes(128 * KIB) / 8, scale.bytes(MIB) / 8 + 1);
    Case::new(scale.rounds(20), move |watch| {
        watch.timed(|| {
            for seed in 0..blocks as u64 {
                let room = least + seed as usize * 7919 % (most - least);
                let mut vector = used(room, room / 8 * 5, seed);
                vector.shrink_to_fit();
                check_dense(black_box(&vector), seed, scale);
            }
        });
        8 * most
    })
}

fn cut_long(scale: Scale) -> Case {
    let words = scale.bytes(512 * MIB) / 8;
    Case::new(scale.rounds(12), move |watch| {
        watch.timed(|| {
            let mut kept = Vec::new();
            for seed in 0..6 {
                let mut vector = used(words, words / 8, seed);
                vector.shrink_to_fit();
                kept.push((seed, vector));
                if kept.len() > 2 {
                    let (seed, vector) = kept.remove(0);
                    check_dense(&vector, seed, scale);
                }
            }
            kept.iter().for_each(|(seed, vector)| check_dense(vector, *seed, scale));
        });
        8 * (words + words / 8 * 2)
    })
}

/// Adds rows to a vector that has room for an eighth of what it comes to.
fn begun(scale: Scale, alive: usize) -> Case {
    let words = scale.bytes(5 * MIB) / 8;
    let turns = scale.count(64) / alive.min(scale.count(64));
    Case::new(scale.rounds(12), move |watch| {
        watch.timed(|| {
            for turn in 0..turns {
                let mut some: Vec<Vec<u64>> =
                    (0..alive).map(|_| black_box(Vec::with_capacity(words / 8))).collect();
                let mut row = [0; 512];
                let mut written = 0;
                while written < words {
                    let more = row.len().min(words - written);
                    for (vector, nth) in some.iter_mut().zip(0..) {
                        let first = (turn * alive + nth + written) as u64;
                        row.iter_mut().zip(first..).for_each(|(word, value)| *word = value);
                        vector.extend_from_slice(&row[..more]);
                    }
                    written += more;
                }
                for (vector, nth) in some.iter().zip(0..) {
                    check_dense(vector, (turn * alive + nth) as u64, scale);
                }
            }
        });
        8 * words * alive
    })
}

fn begun_mixed(scale: Scale) -> Case {
    let (long, short) = (scale.bytes(3 * MIB) / 8, scale.bytes(100 * KIB) / 8);
    let vectors = scale.count(192) as u64;
    Case::new(scale.rounds(12), move |watch| {
        watch.timed(|| {
            for first in (0..vectors).step_by(6) {
                let words = |seed: u64| if seed.is_multiple_of(3) { long } else { short };
                let some: Vec<_> =
                    (first..first + 6).map(|seed| super::growth::grown(words(seed), seed)).collect();
                for (vector, seed) in some.iter().zip(first..) {
                    check_dense(vector, seed, scale);
                }
            }
        });
        8 * (2 * long + 4 * short)
    })
}

fn checkered(scale: Scale) -> Case {
    let (bytes, long) = (scale.bytes(3 * MIB), scale.bytes(96 * MIB));
    let blocks = scale.count(512 / 3);
    Case::new(scale.rounds(8), move |watch| {
        watch.timed(|| {
            let all: Vec<Vec<u8>> = (0..blocks).map(|_| filled(bytes, 1)).collect();
            let kept: Vec<Vec<u8>> = all.into_iter().step_by(2).collect();
            let two = [3, 5].map(|value| filled(long, value));
            two.iter().zip([3, 5]).for_each(|(block, value)| check_filled(block, value, scale));
            kept.iter().for_each(|block| check_filled(block, 1, scale));
        });
        (blocks * bytes).max(blocks.div_ceil(2) * bytes + 2 * long)
    })
}

fn comes_back(scale: Scale) -> Case {
    let bytes = scale.bytes(32 * MIB);
    let (blocks, rooms) = (scale.count(64), scale.count(2 << 10));
    Case::new(scale.rounds(16), move |watch| {
        watch.timed(|| {
            let all: Vec<Vec<u8>> = (0..blocks).map(|_| filled(bytes, 1)).collect();
            all.iter().for_each(|block| check_filled(block, 1, scale));
        });
        for _ in 0..rooms {
            black_box(Vec::<u8>::with_capacity(2 * bytes));
        }
        blocks * bytes
    })
}
