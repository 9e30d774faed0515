//! Threads over the real kernel, checked against the model: `stress [SECONDS [THREADS [SEED]]]`.
//!
//! Prints what was done, and ends with a panic where the engine and the model differ. Built by a sanitizer as well.

use std::time::{Duration, Instant};

use zk_nalloc_proof::proof::stress;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let seconds = arguments.next().unwrap_or(60);
    let cores = std::thread::available_parallelism().map_or(4, |n| n.get() as u64);
    let threads = arguments.next().unwrap_or(cores);
    let seed = arguments.next().unwrap_or(0);
    let mut last = Instant::now();
    let done = stress::run(threads as usize, Duration::from_secs(seconds), seed, |done| {
        if last.elapsed() > Duration::from_secs(10) {
            last = Instant::now();
            eprintln!("{done:?}");
        }
    });
    println!(
        "stress: {} operations by {} threads, {} blocks passed on, {} audits, seed {seed}",
        done.operations, done.threads, done.passed, done.audits
    );
}
