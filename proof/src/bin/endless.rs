//! Sequences over the fake kernel in its short form, checked against the model, on every core:
//! `endless OPERATIONS [THREADS [SEED]]`, as `endless 1e9`.
//!
//! Prints what was done. A sequence that fails is shrunk and printed as operations.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use zk_nalloc_proof::proof::endless::{Done, from_seed, shortest_from_seed};

/// Operations in a sequence: short ones begin anew often, and long ones grow old.
const LENGTHS: [usize; 4] = [500, 4_000, 4_000, 60_000];

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<f64>().expect("a number"));
    let wanted = arguments.next().unwrap_or(1e6) as u64;
    let cores = std::thread::available_parallelism().map_or(4, |n| n.get() as u64);
    let threads = arguments.next().map_or(cores, |n| n as u64);
    let first = arguments.next().map_or(0, |n| n as u64);
    let (next, total) = (AtomicU64::new(first), Mutex::new(Done::default()));
    let (began, sum) = (Instant::now(), || total.lock().expect("nobody panicked here"));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while sum().operations < wanted {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let length = LENGTHS[seed as usize % LENGTHS.len()];
                    let done = std::panic::catch_unwind(|| from_seed(seed, length)).unwrap_or_else(|_| {
                        eprintln!(
                            "the sequence of seed {seed}, of about {length} operations; the shortest of it:"
                        );
                        eprintln!("{}", shortest_from_seed(seed, length));
                        std::process::exit(1);
                    });
                    let mut total = sum();
                    *total = total.plus(done);
                }
            });
        }
    });
    let (done, seconds) = (*sum(), began.elapsed().as_secs_f64());
    println!(
        "endless: {} operations in {} sequences, {} failures injected, {} requests refused, {} audits; \
         {seconds:.0} s, {:.0} operations a second",
        done.operations,
        next.load(Ordering::Relaxed) - first,
        done.failures,
        done.refused,
        done.audits,
        done.operations as f64 / seconds
    );
}
