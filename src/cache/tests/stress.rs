//! Threads over the real kernel, for as long as is wanted: each does spelled operations, and passes blocks on to others.
//!
//! After each round all threads stand still, the heap walker compares the books with the model, and what was done is
//! counted. How the threads interleave is the host's doing.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::model::{Live, Model};
use super::ops::{Hooks, Op, one};
use super::pattern::mix;
use super::spell::{Drawn, World};
use crate::config::{Config, Moves};
use crate::os::Linux;

const MIB: usize = 1 << 20;

/// Operations that a thread does between two audits.
const ROUND: u64 = 2_000;

/// Live bytes of a thread, and blocks.
const LIVE_MAX: usize = 64 * MIB;
const BLOCKS_MAX: usize = 48;

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Operations, each checked against the model.
    pub operations: u64,
    /// Threads that lived and ended.
    pub threads: u64,
    /// Blocks that another thread freed or resized than had taken them.
    pub passed: u64,
    /// Walks over the whole heap.
    pub audits: u64,
}

/// One thread's part of a round. Gives how many blocks it passed on.
fn part<O: Hooks>(model: &Model<O>, seed: u64, table: &Mutex<Vec<Live>>) -> u64 {
    let table = || table.lock().unwrap_or_else(PoisonError::into_inner);
    let mut letters = Drawn::new(seed, u64::MAX);
    // A world without failures, and blocks as long as they are spelled.
    let mut quiet: &[u8] = &[0, 0, 7];
    let Some(world) = World::read(&mut quiet) else { return 0 };
    let mut blocks = Vec::new();
    let mut passed = 0;
    for turn in 0..ROUND {
        let Some(op) = world.op(&mut letters) else { break };
        let seed = mix(seed ^ turn << 20);
        if blocks.len() == BLOCKS_MAX {
            one(model, Op::FreeEvery { nth: 2 }, &mut blocks, 0, 0);
        }
        match op {
            // That many at once would be nothing but that.
            Op::Release | Op::Soften | Op::Fork if !seed.is_multiple_of(64) => {}
            // A child has one thread.
            Op::ForkChild => {}
            _ => one(model, op, &mut blocks, LIVE_MAX, seed),
        }
        if seed.is_multiple_of(4)
            && let Some(live) = blocks.pop()
        {
            table().push(live);
        }
        if seed % 8 >= 6
            && let mut table = table()
            && !table.is_empty()
        {
            let at = seed as usize / 8 % table.len();
            blocks.push(table.swap_remove(at));
            passed += 1;
        }
    }
    table().append(&mut blocks);
    passed
}

/// Runs `threads` threads over the real kernel until `time` is over, and `report`s after each round. Panics where the
/// engine and the model differ.
pub fn run(threads: usize, time: Duration, seed: u64, mut report: impl FnMut(&Done)) -> Done {
    let began = Instant::now();
    let new = Config::new();
    let configs = [
        new,
        new.moves(Moves::Never),
        new.cache_bytes(0),
        new.cache_bytes(256 << 20),
        new.wipe_on_free(true),
    ];
    let models = configs.map(|config| Model::new(Linux, 1 << 36, config));
    let table = Mutex::new(Vec::new());
    let mut done = Done::default();
    for round in 0.. {
        let model = &models[round as usize % models.len()];
        thread::scope(|scope| {
            let parts: Vec<_> = (0..threads as u64)
                .map(|thread| {
                    let table = &table;
                    scope.spawn(move || part(model, mix(seed) ^ round << 8 ^ thread, table))
                })
                .collect();
            done.passed +=
                parts.into_iter().map(|part| part.join().expect("a thread that found no fault")).sum::<u64>();
        });
        for live in table.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            model.free(live);
        }
        model.audit_empty(round % 16 == 0);
        done.operations += threads as u64 * ROUND;
        done.threads += threads as u64;
        done.audits += 1;
        report(&done);
        if began.elapsed() >= time {
            break;
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::tests::times;

    #[test]
    fn threads_that_do_spelled_operations_match_the_model() {
        let done = run(4, Duration::from_secs(u64::from(times(3))), 1, |_| ());
        eprintln!("{done:?}");
        assert!(done.operations > 0 && done.passed > 0);
    }
}
