//! What the thread does when it is awake, with a clock to set.

use std::alloc::Layout;

use super::model::{Live, Model};
use super::ops::finish;
use super::{fake, fake_in_short};
use crate::cache::keeper::{Rest, Watch};
use crate::config::Config;
use crate::heap::Unit;
use crate::os::fake::{Call, Fake};
use crate::os::{CHUNK, Room};

const MIB: usize = 1 << 20;
pub(super) const SECOND: u64 = 1_000_000_000;

/// A cache of 96 MiB, on a host with so little memory that a forgotten peak decays to next to nothing.
fn cached(config: Config) -> Model<Fake> {
    let os = fake(2 << 30);
    os.pass(SECOND);
    let model = Model::new(os, 512 * MIB, config);
    let layout = Layout::from_size_align(8 * MIB, 8).unwrap();
    let blocks: Vec<Live> = (0..12).map(|_| model.allocate(layout, false, 3).unwrap()).collect();
    blocks.iter().for_each(|live| model.os().touch(live.p, live.layout.size()));
    blocks.into_iter().for_each(|live| model.free(live));
    assert!(model.cache.cached_bytes() >= 96 * MIB);
    model
}

/// Lets the thread run for so many seconds; gives how often it woke.
pub(super) fn run(model: &Model<Fake>, watch: &mut Watch, seconds: u64) -> usize {
    let mut left = seconds * SECOND;
    for woken in 1.. {
        let Rest::For(rest) = model.cache.keep_once(watch) else { return woken };
        assert!(rest >= SECOND / 4, "asleep most of the time");
        if rest > left {
            return woken;
        }
        left -= rest;
        model.os().pass(rest);
    }
    unreachable!("a thread that never sleeps")
}

#[test]
fn a_silent_process_gives_up_what_no_window_remembers() {
    let model = cached(Config::new());
    let mut watch = Watch::default();
    run(&model, &mut watch, 9);
    assert!(model.cache.cached_bytes() >= 96 * MIB, "a pause is no silence");
    let woken = run(&model, &mut watch, 30);
    assert!(woken < 45, "once a second when nothing happens: {woken}");
    assert!(model.cache.cached_bytes() <= 2 * CHUNK, "{} KiB", model.cache.cached_bytes() >> 10);
    assert!(model.os().resident_bytes() <= 4 * CHUNK);
    finish(&model, Vec::new(), true);
}

#[test]
fn one_request_in_ten_seconds_is_no_silence() {
    let model = cached(Config::new());
    let layout = Layout::from_size_align(MIB, 8).unwrap();
    let mut watch = Watch::default();
    for _ in 0..20 {
        run(&model, &mut watch, 9);
        model.free(model.allocate(layout, false, 3).unwrap());
    }
    assert!(model.cache.cached_bytes() >= 96 * MIB);
    finish(&model, Vec::new(), true);
}

#[test]
fn a_promise_is_kept_however_long_the_silence() {
    let model = cached(Config::new().cache_bytes(1 << 30));
    run(&model, &mut Watch::default(), 3600);
    assert!(model.cache.cached_bytes() >= 96 * MIB);
    finish(&model, Vec::new(), true);
}

#[test]
fn pressure_is_heard_in_silence() {
    for config in [Config::new(), Config::new().cache_bytes(1 << 30)] {
        let model = cached(config);
        let mut watch = Watch::default();
        run(&model, &mut watch, 3);
        assert!(model.cache.cached_bytes() >= 96 * MIB);
        model.os().set_room(Some(Room { limit: 1000 * MIB, left: 20 * MIB }));
        run(&model, &mut watch, 1);
        assert!(model.cache.cached_bytes() <= 70 * MIB);
        model.os().set_strain(|strain| *strain.swapped.get_or_insert(0) += 17 * MIB);
        run(&model, &mut watch, 2);
        assert_eq!(model.cache.cached_bytes(), 0);
        finish(&model, Vec::new(), true);
    }
}

#[test]
fn with_nothing_to_do_it_sleeps_until_it_is_woken() {
    let model = cached(Config::new());
    let layout = Layout::from_size_align(3 * MIB, 8).unwrap();
    let live = model.allocate(layout, false, 3).unwrap();
    model.cache.release();
    let mut watch = Watch::default();
    assert_eq!(
        model.cache.keep_once(&mut watch),
        Rest::For(SECOND),
        "what is handed out may be cached tomorrow"
    );
    model.free(live);
    assert_ne!(model.cache.keep_once(&mut watch), Rest::UntilWoken);
    model.cache.release();
    assert_eq!(model.cache.keep_once(&mut watch), Rest::UntilWoken);
    finish(&model, Vec::new(), true);
}

/// One that missed gave back the whole of a peak that was forgotten a moment ago: 10 s for 100 GiB in small pages.
#[test]
fn no_request_gives_back_much_more_of_a_forgotten_peak_than_it_faults_in() {
    let model = cached(Config::new());
    for _ in 0..2 {
        model.cache.limits.lock(model.os()).aged(0, 0);
        model.cache.heap.begin_window();
    }
    let kept = model.cache.cached_bytes();
    model.cache.fresh_slow(2 * CHUNK);
    assert_eq!(kept - model.cache.cached_bytes(), 64 * MIB + 2 * CHUNK);
    finish(&model, Vec::new(), true);
}

/// What else of the process came in between would have stayed beside all that was cached, but for a slice.
#[test]
fn a_request_that_misses_gives_back_what_has_come_beside_us() {
    let model = cached(Config::new());
    let kept = model.cache.cached_bytes();
    model.os().set_beside(Some(88 * MIB));
    model.os().pass(SECOND);
    model.cache.fresh_slow(0);
    assert_eq!(kept - model.cache.cached_bytes(), 88 * MIB);
    finish(&model, Vec::new(), true);
}

/// A call that purges holds the address space, which nobody maps in or moves in meanwhile.
#[test]
fn no_call_gives_back_more_than_a_gigabyte() {
    let os = fake_in_short(8 << 30, 0);
    let model = Model::new(os.clone(), 4 << 30, Config::new());
    let layout = Layout::from_size_align(2 << 30, 8).unwrap();
    let loud = (0..).find(|&seed| !model.writes_nothing(seed)).unwrap();
    let block = model.allocate(layout, false, loud).unwrap();
    model.free(block);
    os.reset_calls();
    let purged = model.cache.heap.purge(usize::MAX, Unit::Chunks);
    assert_eq!((purged >> 30, os.calls(Call::Purge)), (2, 3));
    finish(&model, Vec::new(), true);
}
