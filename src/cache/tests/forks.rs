//! Forks: before a start, beside one, and in handlers of others that run while this process or its child stands still.

use std::alloc::Layout;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::fake;
use super::model::{Live, Model};
use super::ops::finish;
use crate::cache::{Cache, Hooks};
use crate::config::Config;
use crate::os::fake::errno;
use crate::os::fake::{Call, Fake, When};

const MIB: usize = 1 << 20;

fn model(os: Fake) -> Model<Fake> {
    Model::new(os, 512 * MIB, Config::new())
}

/// Takes a block and leaves it as it came.
fn untouched(model: &Model<Fake>, size: usize, zeroed: bool) -> Live {
    let seed = (0..).find(|&seed| model.writes_nothing(seed)).unwrap();
    model.allocate(Layout::from_size_align(size, 8).unwrap(), zeroed, seed).unwrap()
}

/// Runs `body` on a thread of its own, and fails if it does not come to an end.
fn ends(body: impl FnOnce() + Send + 'static) {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        body();
        sender.send(()).unwrap();
    });
    receiver.recv_timeout(Duration::from_secs(60)).expect("it waits for ever, or has failed");
}

#[test]
fn a_handler_that_ran_in_a_child_before_ours_found_the_locks_of_threads_that_were_gone() {
    let model = model(fake(2 << 30));
    let resident = untouched(&model, 16 * MIB, false);
    let mut kept = untouched(&model, 8 * MIB, false);
    model.os().touch(resident.p, 16 * MIB);
    model.free(resident);
    model.cache.before_fork();
    // In a handler before the fork.
    let first = untouched(&model, MIB, false);
    assert!(!model.cache.is_ready());
    // Another thread is about to ask the limits, and has their lock.
    core::mem::forget(model.cache.limits.lock(model.os()));
    model.os().become_child();
    // In one after it.
    let second = untouched(&model, MIB, false);
    assert!(model.cache.is_ready());
    let fresh = untouched(&model, 64 * MIB, true);
    assert!(model.resize(&mut kept, 12 * MIB, 0));
    // It forks, before our handler has run: in that child both kinds run again.
    model.cache.before_fork();
    model.os().become_child();
    model.free(first);
    assert!(model.cache.is_ready());
    model.cache.after_fork_in_child();
    model.audit(true);
    // A child of that, whose handlers allocate nothing.
    model.cache.before_fork();
    model.os().become_child();
    model.cache.after_fork_in_child();
    assert!(model.cache.is_ready());
    finish(&model, vec![kept, second, fresh], true);
}

/// They took locks that threads had held which were gone, or that our handler then opened under them.
#[test]
fn figures_that_a_handler_in_a_child_asked_for_before_ours_waited_for_ever() {
    ends(|| {
        let asks: [fn(&Cache<Fake>); 4] = [
            |cache| _ = cache.cached_bytes(),
            |cache| _ = cache.inherited_bytes(),
            |cache| _ = cache.snapshot(),
            |cache| _ = cache.ceiling(),
        ];
        for ask in asks {
            let model = model(fake(2 << 30));
            let block = untouched(&model, 8 * MIB, false);
            model.cache.before_fork();
            ask(&model.cache);
            assert!(!model.cache.is_ready(), "in a handler before the fork all stays held");
            core::mem::forget(model.cache.limits.lock(model.os()));
            model.os().become_child();
            ask(&model.cache);
            assert!(model.cache.is_ready());
            model.cache.after_fork_in_child();
            finish(&model, vec![block], true);
        }
    });
}

#[test]
fn the_handler_of_a_child_of_a_child_took_it_for_seen_to() {
    let model = model(fake(2 << 30));
    model.free(untouched(&model, MIB, false));
    model.cache.before_fork();
    model.os().become_child();
    model.free(untouched(&model, MIB, false));
    // A handler forks, and none allocates in the child of the child.
    model.cache.before_fork();
    model.os().become_child();
    model.cache.after_fork_in_child();
    assert!(model.cache.is_ready());
    finish(&model, Vec::new(), true);
}

/// A thread that a handler of others has started in a child, before ours runs there, takes a block. Gives what `seen` saw before
/// ours ran.
fn beside_a_thread_of_a_handler(model: &Model<Fake>, seen: impl Fn() -> bool) -> bool {
    model.cache.before_fork();
    model.os().become_child();
    let (sender, receiver) = mpsc::channel();
    let block = thread::scope(|scope| {
        let block = scope.spawn(move || {
            sender.send(()).unwrap();
            untouched(model, MIB, false)
        });
        receiver.recv().unwrap();
        thread::sleep(Duration::from_millis(20));
        let seen = seen();
        model.cache.after_fork_in_child();
        (block.join().unwrap(), seen)
    });
    model.free(block.0);
    block.1
}

#[test]
fn a_thread_that_a_handler_started_did_the_work_of_the_one_that_forked() {
    ends(|| {
        let model = model(fake(2 << 30));
        model.free(untouched(&model, MIB, false));
        assert!(!beside_a_thread_of_a_handler(&model, || model.cache.is_ready()), "it waits");
        finish(&model, Vec::new(), true);
    });
}

#[test]
fn a_thread_that_a_handler_started_started_the_cache_and_lost_it() {
    ends(|| {
        let model = model(fake(2 << 30));
        assert!(!beside_a_thread_of_a_handler(&model, || model.cache.has_started()), "it waits");
        finish(&model, Vec::new(), true);
    });
}

/// That thread has all that it holds when ours runs, and opens it itself.
#[test]
fn a_thread_of_a_child_that_forks_lost_what_it_held_to_the_handler() {
    ends(|| {
        let model = model(fake(2 << 30));
        model.free(untouched(&model, MIB, false));
        model.cache.before_fork();
        model.os().become_child();
        // A handler of others allocates, and starts a thread.
        model.free(untouched(&model, MIB, false));
        assert!(model.cache.is_ready());
        let (sender, receiver) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel();
        let cache = &model.cache;
        thread::scope(|scope| {
            scope.spawn(move || {
                cache.before_fork();
                sender.send(()).unwrap();
                may_go_on.recv().unwrap();
                cache.after_fork();
            });
            receiver.recv().unwrap();
            cache.after_fork_in_child();
            let is_held = cache.host.try_lock(model.os()).is_none() && !cache.is_ready();
            go_on.send(()).unwrap();
            assert!(is_held);
        });
        assert!(cache.is_ready());
        finish(&model, vec![untouched(&model, MIB, false)], true);
    });
}

#[test]
fn a_child_waited_for_a_thread_that_had_been_starting_the_cache() {
    // For ever, if they wait for ever.
    let model: &'static Model<Fake> = Box::leak(Box::new(model(fake(2 << 30))));
    core::mem::forget(model.cache.lock_host());
    model.os().become_child();
    let (sender, receiver) = mpsc::channel();
    // Two at once: one of them sees to it.
    for _ in 0..2 {
        let sender = sender.clone();
        thread::spawn(move || sender.send(model.cache.start(&Config::new()).is_some()));
    }
    for _ in 0..2 {
        assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(true));
    }
    finish(model, vec![untouched(model, MIB, false)], true);
}

#[test]
fn what_started_while_another_thread_forked_was_lost() {
    let model = model(fake(2 << 30));
    model.cache.before_fork();
    thread::scope(|scope| {
        let started = scope.spawn(|| model.cache.start(&Config::new()).is_some());
        thread::sleep(Duration::from_millis(20));
        model.cache.after_fork();
        assert!(started.join().unwrap());
    });
    assert!(model.cache.is_ready());
    finish(&model, vec![untouched(&model, MIB, false)], true);
}

/// It took the lock of the start for one that is free, and went on while the shards were being mapped.
#[test]
fn a_fork_waits_for_a_start_that_is_under_way() {
    let model = model(fake(2 << 30));
    let starting = model.cache.lock_host();
    thread::scope(|scope| {
        let forking = scope.spawn(|| {
            model.cache.before_fork();
            model.cache.after_fork();
        });
        thread::sleep(Duration::from_millis(20));
        assert!(!forking.is_finished(), "it waits");
        drop(starting);
        forking.join().unwrap();
    });
    finish(&model, vec![untouched(&model, MIB, false)], true);
}

#[test]
fn a_handler_that_forks_itself_waited_for_its_own_thread() {
    for in_child in [false, true] {
        ends(move || {
            let model = model(fake(2 << 30));
            model.free(untouched(&model, MIB, false));
            model.cache.before_fork();
            model.cache.before_fork();
            if in_child {
                model.os().become_child();
                model.cache.after_fork_in_child();
            } else {
                model.cache.after_fork();
                assert!(!model.cache.is_ready(), "the fork within is over, not the other");
            }
            model.free(untouched(&model, MIB, false));
            // The other one's; in the child it goes on as a fork of that.
            model.cache.after_fork();
            assert!(model.cache.is_ready());
            // The next one.
            model.cache.before_fork();
            model.cache.after_fork();
            assert!(model.cache.is_ready());
            finish(&model, vec![untouched(&model, MIB, false)], true);
        });
    }
}

/// By the loader, and by a thread that starts the cache meanwhile.
#[test]
fn handlers_that_were_registered_twice_opened_locks_that_a_thread_of_the_child_held() {
    ends(|| {
        let model = model(fake(2 << 30));
        model.free(untouched(&model, MIB, false));
        for in_child in [false, true] {
            model.cache.before_fork();
            model.cache.before_fork();
            if in_child {
                model.os().become_child();
                model.cache.after_fork_in_child();
                let held = model.cache.limits.lock(model.os());
                model.cache.after_fork_in_child();
                assert!(model.cache.limits.try_lock(model.os()).is_none());
                drop(held);
            } else {
                model.cache.after_fork();
                model.cache.after_fork();
            }
            assert!(model.cache.is_ready());
            model.free(untouched(&model, MIB, false));
        }
        finish(&model, Vec::new(), true);
    });
}

/// A start was refused, which has asked for the handlers by then; another handler's is the next request.
#[test]
fn a_handler_that_would_start_the_cache_waited_for_its_own_thread() {
    ends(|| {
        let model = model(fake(2 << 30));
        model.cache.before_fork();
        assert!(model.cache.start(&Config::new()).is_none());
        model.cache.after_fork();
        let block = untouched(&model, MIB, false);
        finish(&model, vec![block], true);
        // The same in a child, before our handler has run there.
        let model = self::model(fake(2 << 30));
        model.cache.before_fork();
        model.os().become_child();
        let block = untouched(&model, MIB, false);
        model.cache.after_fork_in_child();
        assert!(model.cache.is_ready());
        finish(&model, vec![block], true);
    });
}

/// Whether its handler has run, or has not, as of `_Fork`.
#[test]
fn a_fork_in_a_child_opened_locks_that_threads_of_the_child_held() {
    for is_seen in [true, false] {
        let model = model(fake(2 << 30));
        model.free(untouched(&model, MIB, false));
        if is_seen {
            model.cache.before_fork();
        }
        model.os().become_child();
        if is_seen {
            model.cache.after_fork_in_child();
        }
        let held = model.cache.limits.lock(model.os());
        model.cache.before_fork();
        assert!(model.cache.limits.try_lock(model.os()).is_none());
        model.cache.after_fork();
        drop(held);
        finish(&model, Vec::new(), true);
    }
}

/// The handlers were registered while it forked; all shards were gone after it.
#[test]
fn the_end_of_a_fork_that_nobody_had_seen_begin_lost_the_shards() {
    for in_child in [false, true] {
        let model = model(fake(2 << 30));
        model.free(untouched(&model, MIB, false));
        if in_child {
            model.os().become_child();
            model.cache.after_fork_in_child();
        } else {
            let starting = model.cache.lock_host();
            model.cache.after_fork();
            assert!(model.cache.host.try_lock(model.os()).is_none());
            drop(starting);
        }
        assert!(model.cache.is_ready());
        finish(&model, vec![untouched(&model, MIB, false)], true);
    }
}

#[test]
fn forks_are_watched_from_before_the_start() {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    fn watch_forks() {
        ASKED.fetch_add(1, Ordering::Relaxed);
    }
    let os = fake(2 << 30);
    os.fail(Call::Map, When::Nth(1), errno::ENOMEM);
    let cache = Box::new(Cache::with_reserve(
        os.clone(),
        os,
        512 * MIB,
        Some(Hooks { watch_forks, start_keeper: || false, watch_thread: |_| false }),
    ));
    assert!(cache.start(&Config::new()).is_none());
    assert_eq!(ASKED.load(Ordering::Relaxed), 1);
    assert!(cache.start(&Config::new()).is_some());
}

/// Whoever watched for a phase's peak on another thread is not in the child, which looked for it at every request for ever.
#[test]
fn those_who_watched_peaks_are_not_waited_on_in_a_child() {
    let model = model(fake(2 << 30));
    model.free(untouched(&model, MIB, false));
    let place = model.cache.peaks().watch(0).unwrap();
    model.cache.before_fork();
    model.os().become_child();
    model.cache.after_fork_in_child();
    assert!(!model.cache.peaks().is_watched());
    // The thread that forked may have been one of them.
    model.cache.peaks().end(place);
    assert!(!model.cache.peaks().is_watched());
    finish(&model, Vec::new(), true);
}
