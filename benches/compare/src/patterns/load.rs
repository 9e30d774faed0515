//! How cost grows with work: more bytes alive, more threads than processors. Drawn as curves, which should be flat.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;

use super::{Case, Pattern, size};
use crate::block::{check_filled, filled};
use crate::scale::{GIB, MIB, Scale};
use crate::watch::Watch;

/// Bytes alive, from a block to what a large prover has.
const LIVE: [usize; 8] = [MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, GIB, 4 * GIB, 16 * GIB];
/// Threads, from one to more than most machines have processors.
const THREADS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// The kinds that are curves: the name up to the slash, and what the numbers behind it are.
pub const CURVES: [(&str, &str); 4] = [
    ("load-fill", "time to fill a MiB against bytes alive"),
    ("load-pair", "time for a pair of allocate and free against bytes alive"),
    ("threads-fill", "time to fill a MiB against threads"),
    ("threads-pair", "time for a pair of allocate and free against threads"),
];

pub(super) fn list() -> Vec<Pattern> {
    let mut list = Vec::new();
    for live in LIVE {
        let about = format!("{} in blocks of 1 MiB filled and then freed; time for a block", size(live));
        list.push(Pattern::new(format!("load-fill/{}", size(live)), about, move |scale| {
            load_fill(scale, live)
        }));
    }
    for live in LIVE {
        let about =
            format!("a pair of 1 MiB, untouched, beside {} of live blocks; time for a pair", size(live));
        list.push(Pattern::new(format!("load-pair/{}", size(live)), about, move |scale| {
            load_pair(scale, live)
        }));
    }
    for threads in THREADS {
        let about =
            format!("{threads} threads fill and free blocks of 1 MiB, 4 GiB together; time for a block");
        let name = format!("threads-fill/{threads}");
        list.push(Pattern::new(name, about, move |scale| threads_fill(scale, threads)));
    }
    for threads in THREADS {
        let about = format!("{threads} threads allocate and free 1 MiB, untouched; time for a pair");
        let name = format!("threads-pair/{threads}");
        list.push(Pattern::new(name, about, move |scale| threads_pair(scale, threads)));
    }
    list
}

/// Blocks of 1 MiB that make up `live`, or half of the memory to spare if that is less.
fn blocks(scale: Scale, live: usize) -> usize {
    scale.bytes(live).min(scale.memory_bytes / 2).div_ceil(MIB).max(1)
}

fn load_fill(scale: Scale, live: usize) -> Case {
    let count = blocks(scale, live);
    // As often as makes 512 MiB, so that a round of few blocks can be timed.
    let times = scale.count(512 / count.min(512));
    let mut value = 0_u8;
    Case::new(scale.rounds(6), move |watch| {
        watch.timed(|| {
            for _ in 0..times {
                value = value.wrapping_add(2);
                let blocks: Vec<Vec<u8>> = (0..count).map(|_| filled(MIB, value)).collect();
                for block in &blocks {
                    check_filled(block, value, scale);
                }
            }
        });
        count * MIB
    })
    .per((times * count) as u64)
}

fn load_pair(scale: Scale, live: usize) -> Case {
    let (count, pairs) = (blocks(scale, live), scale.count(50_000));
    Case::new(scale.rounds(6), move |watch| {
        // Live, but untouched: what counts here is how many blocks there are.
        let blocks: Vec<Vec<u8>> = (0..count).map(|_| black_box(Vec::with_capacity(MIB))).collect();
        watch.timed(|| pairs_of(pairs));
        drop(blocks);
        0
    })
    .per(pairs as u64)
}

fn pairs_of(count: usize) {
    for _ in 0..count {
        drop(black_box(Vec::<u8>::with_capacity(black_box(MIB))));
    }
}

/// Waits at a barrier once it goes.
struct Over<'a>(&'a Barrier);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.wait();
    }
}

/// Runs `work` on so many fresh threads and times from when all are there to when all are done.
fn together(watch: &mut Watch, threads: usize, work: impl Fn(usize) + Sync) {
    let (ready, done) = (Barrier::new(threads + 1), Barrier::new(threads + 1));
    thread::scope(|scope| {
        for index in 0..threads {
            let (ready, done, work) = (&ready, &done, &work);
            scope.spawn(move || {
                ready.wait();
                // Also where what it finds is not what it wrote: nobody shall wait for it for ever.
                let _over = Over(done);
                work(index);
            });
        }
        watch.timed(|| {
            ready.wait();
            done.wait();
        });
    });
}

fn threads_fill(scale: Scale, threads: usize) -> Case {
    let each = scale.count(4096).div_ceil(threads);
    Case::new(scale.rounds(6), move |watch| {
        together(watch, threads, |index| {
            for turn in 0..each {
                let value = (index + turn).to_le_bytes()[0];
                check_filled(&filled(MIB, value), value, scale);
            }
        });
        threads * MIB
    })
    .per((each * threads) as u64)
}

fn threads_pair(scale: Scale, threads: usize) -> Case {
    let each = scale.count(200_000).div_ceil(threads);
    Case::new(scale.rounds(6), move |watch| {
        together(watch, threads, |_| pairs_of(each));
        0
    })
    .per((each * threads) as u64)
}
