//! What other threads are told and do while one forks.

use std::alloc::Layout;
use std::thread;
use std::time::Duration;

use super::fake;
use super::model::Model;
use crate::cache::Cache;
use crate::config::Config;
use crate::os::Room;
use crate::os::fake::Fake;

const MIB: usize = 1 << 20;

/// A model with 64 MiB free and resident.
fn model() -> Model<Fake> {
    let model = Model::new(fake(2 << 30), 512 * MIB, Config::new());
    model.os().set_room(Some(Room { limit: 64 << 30, left: 48 << 30 }));
    let layout = Layout::from_size_align(64 * MIB, 8).unwrap();
    let block = model.allocate(layout, false, 1).unwrap();
    model.os().touch(block.p, 64 * MIB);
    model.free(block);
    model
}

/// They found no shards, and did nothing.
#[test]
fn who_gives_memory_back_while_another_thread_forks_waits_for_that() {
    let deeds: [fn(&Cache<Fake>) -> usize; 3] =
        [Cache::release, Cache::soften, |cache| cache.ahead_of(256 * MIB)];
    for deed in deeds {
        let model = model();
        model.cache.before_fork();
        let done = thread::scope(|scope| {
            let done = scope.spawn(|| deed(&model.cache));
            thread::sleep(Duration::from_millis(20));
            model.cache.after_fork();
            done.join().unwrap()
        });
        assert!(done >= 32 * MIB, "{done}");
        // In a child, in a handler of others that runs before ours.
        let model = self::model();
        model.cache.before_fork();
        model.os().become_child();
        deed(&model.cache);
        assert!(model.cache.is_ready());
        model.cache.after_fork_in_child();
        model.audit(true);
    }
}

/// They were without what shards had counted, and went backwards.
#[test]
fn counters_do_not_go_backwards_while_a_thread_forks() {
    let model = model();
    let figures = || {
        let snapshot = model.cache.snapshot();
        let requests: u64 = model.cache.by_size().iter().map(|size| size.requests).sum();
        (snapshot.allocations, snapshot.frees, snapshot.allocated, snapshot.shards, requests)
    };
    let before = figures();
    assert!(before.0 > 0 && before.3 > 0);
    model.cache.before_fork();
    assert_eq!(figures(), before);
    model.cache.after_fork();
    assert_eq!(figures(), before);
}
