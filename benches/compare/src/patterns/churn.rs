//! Blocks of random size that replace each other, on one thread or on all.

use std::collections::VecDeque;

use rayon::current_num_threads;

use super::{Case, Pattern};
use crate::block::{Random, check_filled, filled};
use crate::scale::{KIB, MIB, Scale};

pub(super) fn list() -> Vec<Pattern> {
    let straddle = "1,000 live blocks of 1 to 80,000 bytes";
    vec![
        Pattern::new(
            "mid-churn",
            "64 live blocks of 64 KiB to 1 MiB on each thread, replaced at random",
            |scale| {
                churn(
                    scale,
                    Churn { live: 64, sizes: 64 * KIB..MIB, operations: 1000, threads: None, rounds: 8 },
                )
            },
        ),
        Pattern::new(
            "queue-all",
            "24 live blocks of 81 and 86 KiB on each thread, the oldest of which is replaced",
            queue_all,
        ),
        Pattern::new("straddle/one", format!("{straddle}, replaced at random on one thread"), |scale| {
            let sizes = 1..80_001;
            churn(scale, Churn { live: 1000, sizes, operations: 20_000, threads: Some(1), rounds: 12 })
        }),
        Pattern::new("straddle/all", format!("{straddle} on each thread, replaced at random"), |scale| {
            let sizes = 1..80_001;
            churn(scale, Churn { live: 1000, sizes, operations: 20_000, threads: None, rounds: 12 })
        }),
        Pattern::new(
            "straddle/burst",
            "4,096 blocks of 7, 25, 60 and 252 KiB, filled on one thread and freed together",
            burst,
        ),
    ]
}

/// A block of one of these lengths, and what it is filled with.
#[expect(clippy::cast_possible_truncation, reason = "any byte of the number will do")]
fn one_of(lengths: &[usize], random: &mut Random) -> (u8, Vec<u8>) {
    let word = random.next_word();
    let (value, length) = (word as u8, lengths[(word >> 32) as usize % lengths.len()]);
    (value, filled(length, value))
}

/// Blocks on both sides of the border, a quarter of the bytes on the small side: more than glibc keeps untold.
fn burst(scale: Scale) -> Case {
    const LENGTHS: [usize; 4] = [7 * KIB, 25 * KIB, 60 * KIB, 252 * KIB];
    let count = scale.count(4096);
    let mut round = 0;
    Case::new(scale.rounds(12), move |watch| {
        round += 1;
        watch.timed(|| {
            let mut random = Random::new(round);
            let blocks: Vec<_> = (0..count).map(|_| one_of(&LENGTHS, &mut random)).collect();
            blocks.iter().for_each(|(value, block)| check_filled(block, *value, scale));
            blocks.iter().map(|(_, block)| block.len()).sum()
        })
    })
}

/// All of it fits into caches, and a block that was freed is too short for half of the next ones.
fn queue_all(scale: Scale) -> Case {
    const LENGTHS: [usize; 2] = [81 * KIB, 86 * KIB];
    const LIVE: usize = 24;
    let mut round = 0;
    Case::new(scale.rounds(12), move |watch| {
        round += 1;
        watch.timed(|| {
            let lives = rayon::broadcast(|context| {
                let mut random = Random::new(round * 1000 + context.index() as u64);
                let mut blocks: VecDeque<_> = (0..LIVE).map(|_| one_of(&LENGTHS, &mut random)).collect();
                for _ in 0..scale.count(4000) {
                    let (value, oldest) = blocks.pop_front().expect("replaced each time");
                    check_filled(&oldest, value, scale);
                    drop(oldest);
                    blocks.push_back(one_of(&LENGTHS, &mut random));
                }
                LIVE * LENGTHS[1]
            });
            lives.into_iter().sum()
        })
    })
}

struct Churn {
    live: usize,
    sizes: std::ops::Range<usize>,
    operations: usize,
    /// `None`: all of the pool.
    threads: Option<usize>,
    rounds: u32,
}

fn churn(scale: Scale, churn: Churn) -> Case {
    let mut round = 0;
    Case::new(scale.rounds(churn.rounds), move |watch| {
        round += 1;
        let threads = churn.threads.unwrap_or_else(current_num_threads);
        watch.timed(|| {
            let lives = rayon::broadcast(|context| {
                if context.index() < threads {
                    one(scale, &churn, round * 1000 + context.index() as u64)
                } else {
                    0
                }
            });
            lives.into_iter().sum()
        })
    })
}

/// Replaces blocks at random and returns the most that was alive on this thread.
#[expect(clippy::cast_possible_truncation, reason = "any byte of the number will do")]
fn one(scale: Scale, churn: &Churn, seed: u64) -> usize {
    let mut random = Random::new(seed);
    let make = |random: &mut Random| {
        let value = random.next_word() as u8;
        (value, filled(random.between(churn.sizes.start, churn.sizes.end), value))
    };
    let mut blocks: Vec<(u8, Vec<u8>)> = (0..churn.live).map(|_| make(&mut random)).collect();
    let mut live: usize = blocks.iter().map(|(_, block)| block.len()).sum();
    let mut peak = live;
    for _ in 0..scale.count(churn.operations) {
        let place = random.between(0, churn.live);
        let (value, old) = std::mem::take(&mut blocks[place]);
        check_filled(&old, value, scale);
        live -= old.len();
        drop(old);
        blocks[place] = make(&mut random);
        live += blocks[place].1.len();
        peak = peak.max(live);
    }
    peak
}
