//! One arena for all threads: a worker each, the arena itself, and bumpalo behind a lock.

use std::hint::black_box;
use std::sync::Mutex;

use bumpalo::Bump;
use zk_nalloc::Arena;

use crate::harness::{Scale, Table, Way, seconds};

const PER_THREAD: usize = 1_000_000;
const SIZE: usize = 32;

/// Runs `work` on all threads at once and says how long the slowest took.
fn on_all(threads: usize, work: impl Fn() + Sync) -> f64 {
    seconds(|| {
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(&work);
            }
        });
    })
}

pub fn run(scale: Scale) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let bytes = threads * PER_THREAD * SIZE * 2;
    let what = format!("shared: {threads} threads, {PER_THREAD} objects of {SIZE} B each");
    let table = Table::new(scale, &what, "ns an object", "bumpalo behind a lock");
    let value = [1_u64; SIZE / 8];
    let mut workers = Arena::with_capacity(bytes).expect("address space");
    let mut plain = Arena::with_capacity(bytes).expect("address space");
    let mut locked = Mutex::new(Bump::with_capacity(bytes));
    let mut ways: [Way<'_>; 3] = [
        (
            "zk-nalloc, workers",
            Box::new(move || {
                let time = on_all(threads, || {
                    let worker = workers.worker();
                    for _ in 0..PER_THREAD {
                        black_box(worker.alloc(value));
                    }
                });
                workers.reset();
                time
            }),
        ),
        (
            "zk-nalloc, &Arena",
            Box::new(move || {
                let time = on_all(threads, || {
                    for _ in 0..PER_THREAD {
                        black_box(plain.alloc(value));
                    }
                });
                plain.reset();
                time
            }),
        ),
        (
            "bumpalo behind a lock",
            Box::new(move || {
                let time = on_all(threads, || {
                    for _ in 0..PER_THREAD {
                        let bump = locked.lock().expect("nobody panics");
                        black_box(bump.alloc(value));
                    }
                });
                locked.get_mut().expect("nobody panics").reset();
                time
            }),
        ),
    ];
    table.row("all", 1e9 / (threads * PER_THREAD) as f64, 11, &mut ways);
}
