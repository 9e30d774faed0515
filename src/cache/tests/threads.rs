//! Several threads at once, with blocks that are freed, resized and checked by others than took them.
//!
//! Seeded, so that what each thread does is the same each time; how they interleave is not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::draw::drawn;
use super::model::{Live, Model};
use super::ops::{Hooks, Op, one};
use super::pattern::mix;
use super::{fake, times};
use crate::config::{Config, Moves};
use crate::os::fake::When;
use crate::os::fake::errno;
use crate::os::{Linux, Room};

const MIB: usize = 1 << 20;

/// Operations that a thread does between two audits.
const ROUND: usize = 60;

/// What the threads do.
struct Stress {
    threads: usize,
    rounds: usize,
    size_max: usize,
    /// Live bytes of a thread.
    live_max: usize,
    seed: u64,
}

/// Runs threads that swap blocks through a table, and audits the books after each round.
fn stress<O: Hooks>(model: &Model<O>, how: &Stress) {
    let table: Mutex<Vec<Live>> = Mutex::new(Vec::new());
    let table = || table.lock().unwrap_or_else(PoisonError::into_inner);
    for round in 0..how.rounds {
        thread::scope(|scope| {
            for thread in 0..how.threads {
                let seed = mix(how.seed ^ (round * how.threads + thread) as u64);
                scope.spawn(move || {
                    let mut blocks = Vec::new();
                    for (turn, op) in drawn(seed, ROUND, how.size_max).into_iter().enumerate() {
                        let seed = mix(seed ^ turn as u64);
                        // The kernel's part is asked which memory is in use, which only one thread can say.
                        if !matches!(op, Op::Reclaim | Op::Fork) {
                            one(model, op, &mut blocks, how.live_max, seed);
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
                        }
                    }
                    // What is left is for others; threads end, and new ones go on.
                    table().append(&mut blocks);
                });
            }
        });
        let kept = table().len().min(how.threads * 4);
        for live in table().split_off(kept) {
            model.free(live);
        }
        model.audit(round % 4 == 3);
    }
    for live in table().drain(..) {
        model.free(live);
    }
    model.audit_empty(true);
}

#[test]
fn threads_over_the_fake_kernel_match_the_model() {
    for (i, threads) in [1, 2, 3, 5, 8].into_iter().enumerate() {
        for (j, config) in configs().into_iter().enumerate() {
            let model = Model::new(fake(3 << 30), 1 << 30, config);
            let rounds = times(2) as usize;
            let seed = (i * 16 + j) as u64;
            stress(&model, &Stress { threads, rounds, size_max: 24 * MIB, live_max: 48 * MIB, seed });
        }
    }
}

fn configs() -> [Config; 4] {
    let new = Config::new();
    [new, new.moves(Moves::Never), new.cache_bytes(0), new.cache_bytes(40 << 20)]
}

#[test]
fn threads_over_the_real_kernel_match_the_model() {
    for (j, config) in configs().into_iter().enumerate() {
        let model = Model::new(Linux, 1 << 36, config);
        let rounds = times(4) as usize;
        let seed = 100 + j as u64;
        stress(&model, &Stress { threads: 4, rounds, size_max: 64 * MIB, live_max: 160 * MIB, seed });
    }
}

/// What a thread does by itself: a sequence, after which it frees what it has left.
fn work<O: Hooks>(model: &Model<O>, how: &Stress, thread: usize) {
    let seed = mix(how.seed ^ (thread as u64) << 32);
    let mut blocks = Vec::new();
    for (turn, op) in drawn(seed, ROUND * how.rounds, how.size_max).into_iter().enumerate() {
        if !matches!(op, Op::Reclaim) {
            one(model, op, &mut blocks, how.live_max, mix(seed ^ turn as u64));
        }
    }
    blocks.into_iter().for_each(|live| model.free(live));
}

#[test]
fn threads_survive_a_kernel_that_refuses_every_so_often() {
    for every in [3, 7, 17] {
        let os = fake(3 << 30);
        os.fail(None, When::Every(every), errno::ENOMEM);
        let mut model = Model::new(os.clone(), 1 << 30, Config::new());
        model.may_refuse = true;
        for round in 0..times(2) {
            let seed = (every as u64) << 16 | u64::from(round);
            let how = Stress { threads: 4, rounds: 1, size_max: 24 * MIB, live_max: 48 * MIB, seed };
            thread::scope(|scope| {
                for thread in 0..how.threads {
                    let (model, how) = (&model, &how);
                    scope.spawn(move || work(model, how, thread));
                }
            });
            model.audit(true);
        }
        os.fail_no_more();
        model.audit_empty(true);
    }
}

#[test]
fn threads_go_on_while_another_forks_softens_releases_and_presses() {
    let os = fake(3 << 30);
    let model = Model::new(os.clone(), 1 << 30, Config::new());
    let done = AtomicBool::new(false);
    let rounds = times(6) as usize;
    let how = Stress { threads: 3, rounds, size_max: 24 * MIB, live_max: 48 * MIB, seed: 7 };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..how.threads)
            .map(|thread| {
                let (model, how) = (&model, &how);
                scope.spawn(move || work(model, how, thread))
            })
            .collect();
        scope.spawn(|| {
            let mut turn = 0_u64;
            while !done.load(Ordering::Relaxed) {
                turn += 1;
                match mix(turn) % 4 {
                    0 => {
                        model.cache.before_fork();
                        model.cache.after_fork();
                    }
                    1 => drop(model.cache.soften()),
                    2 => drop(model.cache.release()),
                    _ => os.set_room(Some(Room { limit: 1 << 30, left: (mix(turn) >> 38) as usize })),
                }
                os.pass(10_000_000);
                thread::yield_now();
            }
        });
        let failed = workers.into_iter().map(|worker| worker.join()).filter(Result::is_err).count();
        done.store(true, Ordering::Relaxed);
        assert_eq!(failed, 0, "workers that failed");
    });
    model.audit_empty(true);
}
