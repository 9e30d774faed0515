//! Many threads: all filling at once, buffers handed from one to the next, and threads that do not live long.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;

use super::{Case, Pattern};
use crate::block::{Random, add_dense, check_dense, check_filled, filled, zeroed};
use crate::scale::{KIB, MIB, Scale};

pub(super) fn list() -> Vec<Pattern> {
    let mut list = Vec::new();
    for (name, low, high) in
        [("mid", 64 * KIB, MIB), ("4M", 4 * MIB, 4 * MIB + 1), ("64M", 64 * MIB, 64 * MIB + 1)]
    {
        let what = if name == "mid" { "64 KiB to 1 MiB" } else { name };
        let about =
            format!("every thread fills and frees blocks of {what}, one at a time, 256 MiB a round each");
        list.push(Pattern::new(format!("fill-all/{name}"), about, move |scale| fill_all(scale, low, high)));
    }
    let about =
        "every thread adds to all of zeroed blocks of 128 KiB to 4 MiB, one at a time, 256 MiB a round each";
    list.push(Pattern::new("dense-all/mid", about, dense_all));
    let about = "buffers of 2 to 14 MiB: one thread fills, one changes, one checks and frees them";
    list.push(Pattern::new("pass-on", about, pass_on));
    let about =
        "1,000 threads, four at a time, each with 8 blocks of 64 KiB to 1 MiB, one of which outlives it";
    list.push(Pattern::new("short-threads", about, short_threads));
    list
}

fn fill_all(scale: Scale, low: usize, high: usize) -> Case {
    one_at_a_time(scale, low, high, move |bytes| check_filled(&filled(bytes, 5), 5, scale))
}

fn dense_all(scale: Scale) -> Case {
    one_at_a_time(scale, 128 * KIB, 4 * MIB, move |bytes| {
        let mut block = zeroed(bytes);
        add_dense(&mut block, 5);
        check_dense(&block, 5, scale);
    })
}

/// Has every thread do something with blocks of random lengths, one at a time.
fn one_at_a_time(scale: Scale, low: usize, high: usize, each: impl Fn(usize) + Sync + 'static) -> Case {
    let mut round = 0;
    Case::new(scale.rounds(12), move |watch| {
        round += 1;
        watch.timed(|| {
            let lives = rayon::broadcast(|context| {
                let mut random = Random::new(round * 1000 + context.index() as u64);
                let (mut left, mut largest) = (scale.bytes(256 * MIB), 0);
                while left > 0 {
                    let bytes = scale.bytes(random.between(low, high));
                    each(bytes);
                    left = left.saturating_sub(bytes);
                    largest = largest.max(bytes);
                }
                largest
            });
            lives.into_iter().sum()
        })
    })
}

/// Counts bytes alive across threads, and the most there were. Relaxed: the counts guard no memory.
#[derive(Debug, Default)]
struct Ledger {
    live: AtomicUsize,
    peak: AtomicUsize,
}

impl Ledger {
    fn add(&self, bytes: usize) {
        let live = self.live.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(live, Ordering::Relaxed);
    }

    fn remove(&self, bytes: usize) {
        self.live.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// # Panics
/// When a thread of the chain finds a wrong byte.
fn pass_on(scale: Scale) -> Case {
    // The threads stay from round to round, as a prover's do.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().expect("three threads can be started");
    let (mut round, buffers) = (0, scale.count(96));
    Case::new(scale.rounds(8), move |watch| {
        round += 1;
        let ledger = Ledger::default();
        let (to_worker, from_producer) = sync_channel::<Vec<u8>>(4);
        let (to_consumer, from_worker) = sync_channel::<Vec<u8>>(4);
        // Each end goes to the thread that uses it, so that the chain ends from its head.
        let ends = std::sync::Mutex::new((
            Some(to_worker),
            Some(from_producer),
            Some(to_consumer),
            Some(from_worker),
        ));
        let produce = |sender: std::sync::mpsc::SyncSender<Vec<u8>>| {
            let mut random = Random::new(round);
            for _ in 0..buffers {
                let bytes = random.between(scale.bytes(2 * MIB), scale.bytes(14 * MIB));
                ledger.add(bytes);
                sender.send(filled(bytes, 20)).expect("the worker listens");
            }
        };
        watch.timed(|| {
            pool.broadcast(|context| {
                let mut ends = ends.lock().expect("nobody panicked");
                match context.index() {
                    0 => {
                        let sender = ends.0.take().expect("taken once");
                        drop(ends);
                        produce(sender);
                    }
                    1 => {
                        let (receiver, sender) = (ends.1.take().expect("once"), ends.2.take().expect("once"));
                        drop(ends);
                        for mut buffer in receiver {
                            check_filled(&buffer, 20, scale);
                            buffer.fill(31);
                            sender.send(buffer).expect("the consumer listens");
                        }
                    }
                    _ => {
                        let receiver = ends.3.take().expect("taken once");
                        drop(ends);
                        for buffer in receiver {
                            check_filled(&buffer, 31, scale);
                            let bytes = buffer.len();
                            drop(buffer);
                            ledger.remove(bytes);
                        }
                    }
                }
            });
        });
        ledger.peak.load(Ordering::Relaxed)
    })
    .handing_out(buffers * (scale.bytes(2 * MIB) + scale.bytes(14 * MIB)) / 2)
}

fn short_threads(scale: Scale) -> Case {
    let (batches, width) = (scale.count(250), 4);
    Case::new(scale.rounds(4), move |watch| {
        let ledger = Ledger::default();
        watch.timed(|| {
            for batch in 0..batches {
                let one = |index: usize| {
                    let mut random = Random::new((batch * width + index) as u64);
                    let blocks: Vec<Vec<u8>> =
                        (0..8).map(|_| filled(random.between(64 * KIB, MIB), 40)).collect();
                    let bytes: usize = blocks.iter().map(Vec::len).sum();
                    ledger.add(bytes);
                    for block in &blocks {
                        check_filled(block, 40, scale);
                    }
                    let kept = blocks.into_iter().next();
                    ledger.remove(bytes - kept.as_ref().map_or(0, Vec::len));
                    kept
                };
                let kept: Vec<_> = thread::scope(|scope| {
                    let threads: Vec<_> = (0..width).map(|index| scope.spawn(move || one(index))).collect();
                    threads
                        .into_iter()
                        .map(|thread| thread.join().expect("the thread found its bytes"))
                        .collect()
                });
                for block in kept.into_iter().flatten() {
                    check_filled(&block, 40, scale);
                    ledger.remove(block.len());
                }
            }
        });
        ledger.peak.load(Ordering::Relaxed)
    })
}
