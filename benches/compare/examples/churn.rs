//! Whose memory a thread writes: blocks of 64 KiB to 1 MiB, 64 a thread, replaced at random and filled.
//!
//! `RUSTFLAGS=-Ctarget-cpu=native cargo run --release -p zk-compare --example churn -- 4` prints what docs/EXPERIMENTS.md says of
//! free runs: seconds for 10,000 blocks a thread (least and median of seven), the part of the pages that their writer was the
//! last to write, where blocks came from, and the peak. With `--features jemalloc` or `mimalloc` the same of those.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Instant;

use prove_harness::usage::peak_resident_bytes;
use zk_compare::block::Random;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static GLOBAL: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[cfg(not(any(feature = "jemalloc", feature = "mimalloc")))]
#[global_allocator]
static GLOBAL: zk_nalloc::NAlloc = zk_nalloc::NAlloc::new();

const LIVE: usize = 64;
const BLOCKS: usize = 10_000;
const TURNS: usize = 7;
const PAGE: usize = 4096;

/// Replaces blocks of one thread, and shows each new one.
fn replace(thread: usize, mut show: impl FnMut(&[u8])) {
    let mut random = Random::new(thread as u64);
    let mut live: Vec<Vec<u8>> = vec![Vec::new(); LIVE];
    for _ in 0..BLOCKS {
        let nth = random.between(0, LIVE);
        live[nth] = Vec::new();
        let mut block = Vec::with_capacity(random.between(64 << 10, 1 << 20));
        block.resize(block.capacity(), 1);
        show(&block);
        live[nth] = block;
    }
}

/// Of 100 pages that were written, how many their writer had written last.
fn own_pages(threads: usize) -> usize {
    // The writer of each page, and how many pages were written again, and by whom.
    let last = Mutex::new((HashMap::<usize, usize>::new(), 0, 0));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let last = &last;
            scope.spawn(move || {
                replace(thread, |block| {
                    let (writers, again, own) = &mut *last.lock().expect("no thread panics");
                    for page in
                        block.as_ptr_range().start.addr() / PAGE..block.as_ptr_range().end.addr() / PAGE
                    {
                        if let Some(writer) = writers.insert(page, thread) {
                            *again += 1;
                            *own += usize::from(writer == thread);
                        }
                    }
                });
            });
        }
    });
    let (_, again, own) = last.into_inner().expect("no thread panics");
    100 * own / again.max(1)
}

fn main() {
    let threads = match std::env::args().nth(1).as_deref().map(str::parse) {
        None => 4,
        Some(Ok(threads @ 1..=1024)) => threads,
        Some(_) => return eprintln!("the one argument is how many threads there shall be, 1 to 1024"),
    };
    let mut seconds: Vec<f64> = (0..TURNS)
        .map(|_| {
            let begin = Instant::now();
            std::thread::scope(|scope| {
                (0..threads).for_each(|thread| {
                    scope.spawn(move || replace(thread, |block| _ = std::hint::black_box(block)));
                });
            });
            begin.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    println!(
        "{threads} threads: {:.3} s, median {:.3}; peak {} MiB",
        seconds[0],
        seconds[TURNS / 2],
        peak_resident_bytes().unwrap_or(0) >> 20
    );
    let stats = zk_nalloc::stats();
    let served = stats.hits() + stats.misses();
    let share = |blocks: u64| 100 * blocks / served.max(1);
    if served > 0 {
        println!(
            "of 100 blocks from the thread's shard {}, another's {}, the heap {}, the kernel {}",
            share(stats.stack_hits()),
            share(stats.stolen()),
            share(stats.run_hits() + stats.gathered()),
            share(stats.misses())
        );
    }
    println!("of 100 pages written again {} by their last writer", own_pages(threads));
}
