//! A load like a prover's: large vectors of all sizes on several threads, each byte written and checked.

use std::sync::mpsc;
use std::thread;

use super::pattern::{Numbers, Patterned};

/// How large a load is.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) threads: usize,
    /// The longest vector, in bytes.
    pub(crate) most: usize,
    /// What one thread has live at most, in bytes.
    pub(crate) budget: usize,
}

/// A gigabyte.
pub(crate) const LOAD: Load = Load { threads: 4, most: 200 << 20, budget: 280 << 20 };

/// A hundred megabytes or so, for tests that run it many times.
pub(crate) const LIGHT: Load = Load { threads: 3, most: 20 << 20, budget: 40 << 20 };

/// The shortest vector: what the large side serves.
const LEAST: usize = 64 << 10;

/// One thread's part: takes, resizes and drops, and hands some of its blocks to the next thread.
fn work(
    load: &Load,
    thread: usize,
    steps: usize,
    inbox: &mpsc::Receiver<Patterned>,
    next: &mpsc::Sender<Patterned>,
) {
    let mut numbers = Numbers::new(thread as u64 + 1);
    let mut live: Vec<Patterned> = Vec::new();
    for step in 0..steps {
        let seed = numbers.next();
        let len = numbers.length(LEAST, load.most);
        while live.iter().map(|block| block.bytes.len()).sum::<usize>() + len > load.budget {
            let block = live.swap_remove(numbers.below(live.len()));
            block.check("a block that is dropped");
        }
        match numbers.below(8) {
            0..3 => live.push(Patterned::new(seed, len)),
            3..5 => live.push(Patterned::from_zeroed(seed, len)),
            5..7 if !live.is_empty() => {
                let at = numbers.below(live.len());
                // Down to what the small side serves, and up from there.
                live[at].resize(if step % 5 == 0 { len % LEAST + 1 } else { len });
            }
            _ if !live.is_empty() => {
                // Whoever gets it may have ended.
                let _ = next.send(live.swap_remove(numbers.below(live.len())));
            }
            _ => {}
        }
        for block in inbox.try_iter() {
            block.check("a block of another thread");
        }
    }
    live.iter().for_each(|block| block.check("a block that was live to the end"));
}

/// Runs a load of so many steps on each thread.
pub(crate) fn load(load: &Load, steps: usize) {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..load.threads).map(|_| mpsc::channel()).unzip();
    thread::scope(|scope| {
        for (thread, inbox) in receivers.into_iter().enumerate() {
            let next = senders[(thread + 1) % load.threads].clone();
            scope.spawn(move || work(load, thread, steps, &inbox, &next));
        }
    });
}
