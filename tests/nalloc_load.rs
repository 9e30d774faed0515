//! A load like a prover's: large vectors of all sizes on four threads, each byte written and checked.
//!
//! A process of its own, because the load has to be all that its allocator sees.

#[expect(dead_code, reason = "no test uses all that the tests share")]
mod support;

use std::sync::mpsc;
use std::thread;

use support::pattern::{Numbers, Patterned};
use zk_nalloc::NAlloc;

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

const THREADS: usize = 4;
const LEAST: usize = 64 << 10;
const MOST: usize = 200 << 20;

/// The most that one thread has live, in bytes.
const BUDGET: usize = 280 << 20;

/// One thread's part: takes, resizes and drops, and hands some of its blocks to the next thread.
fn work(thread: usize, steps: usize, inbox: &mpsc::Receiver<Patterned>, next: &mpsc::Sender<Patterned>) {
    let mut numbers = Numbers::new(thread as u64 + 1);
    let mut live: Vec<Patterned> = Vec::new();
    for step in 0..steps {
        let seed = numbers.next();
        let len = numbers.length(LEAST, MOST);
        while live.iter().map(|block| block.bytes.len()).sum::<usize>() + len > BUDGET {
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

fn load(steps: usize) {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| mpsc::channel()).unzip();
    thread::scope(|scope| {
        for (thread, inbox) in receivers.into_iter().enumerate() {
            let next = senders[(thread + 1) % THREADS].clone();
            scope.spawn(move || work(thread, steps, &inbox, &next));
        }
    });
}

#[test]
fn a_prover_s_load_keeps_every_byte() {
    support::in_both_modes("a_prover_s_load_keeps_every_byte", || {
        load(100 * support::times());
        let stats = zk_nalloc::stats();
        assert!(stats.hits() > 0, "nothing was reused:\n{stats}");
    });
}

#[test]
fn blocks_cross_every_boundary_by_realloc() {
    support::in_both_modes("blocks_cross_every_boundary_by_realloc", || {
        const SMALL: usize = 64 << 10;
        const LONG: usize = 2 << 20;
        // Sizes around where the small side ends, where classes end, and where moving begins to pay.
        let around =
            |boundary: usize| [boundary - 4097, boundary - 1, boundary, boundary + 1, boundary + 4097];
        let sizes: Vec<_> = [SMALL, LONG, 2 * LONG, 16 * LONG].into_iter().flat_map(around).collect();
        for &from in &sizes {
            let mut block = Patterned::new(from as u64, from);
            for &to in &sizes {
                block.resize(to);
                block.resize(from);
            }
        }
    });
}

#[test]
fn vectors_pushed_side_by_side_stay_apart() {
    support::in_both_modes("vectors_pushed_side_by_side_stay_apart", || {
        let mut columns: Vec<_> = (0..16_u64).map(|seed| Patterned::new(seed, 40 << 10)).collect();
        for doubling in 1..10 {
            for column in &mut columns {
                column.resize(40 << (10 + doubling));
            }
        }
        columns.iter().for_each(|column| column.check("a column"));
    });
}
