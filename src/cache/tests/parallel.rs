//! Long zeroed blocks on hosts of many processors: given back as they are handed out, so that the threads which touch them have
//! them zeroed.

use std::alloc::Layout;

use super::model::{Model, World};
use super::ops::finish;
use super::pattern::{assert_zero, soil};
use super::{fake, fake_in_short};
use crate::config::Config;
use crate::os::fake::{Call, Fake, When, errno};
use crate::os::{CHUNK, GRANULE};

const MIB: usize = 1 << 20;
const LEN: usize = 256 * MIB;

fn layout() -> Layout {
    Layout::from_size_align(LEN, 8).unwrap()
}

/// A cache on a host of so many processors.
fn on(cpus: usize, config: Config) -> Model<Fake> {
    let os = fake_in_short(8 << 30, 0);
    os.set_facts(|facts| facts.cpus = cpus);
    Model::new(os, 4 << 30, config)
}

/// A round: a zeroed block that is touched up to `touched`, by its own thread or by all, and freed. Gives how many bytes of it
/// were left to the threads, and how many written.
fn round(model: &Model<Fake>, touched: usize, alone: bool) -> (u64, u64) {
    let before = model.cache.snapshot();
    let p = model.cache.allocate_zeroed(layout(), &model.config, |_| ());
    assert!(!p.is_null());
    let faults = (touched / CHUNK) as u64;
    model.os().sow(p.addr(), touched, 1);
    let own = if alone { faults } else { faults / 16 };
    model.os().add_faults(own, faults - own);
    model.cache.deallocate(p, layout());
    let after = model.cache.snapshot();
    (after.left_to_threads - before.left_to_threads, after.zeroed_here - before.zeroed_here)
}

#[test]
fn what_all_threads_touch_is_left_to_them() {
    let model = on(16, Config::new());
    assert_eq!(round(&model, LEN, false), (0, 0), "the first one is fresh");
    for _ in 0..8 {
        let (left, written) = round(&model, LEN, false);
        assert!(left >= (LEN - 2 * CHUNK) as u64 && written < 2 * CHUNK as u64, "{left}, {written}");
        assert!(model.os().resident_bytes() <= LEN + 2 * CHUNK, "{}", model.os().resident_bytes());
    }
    // It was in memory already, so nothing else has to go, and no request missed.
    assert_eq!((model.cache.snapshot().misses, model.cache.heap.books().purged), (1, 0));
    finish(&model, Vec::new(), true);
}

#[test]
fn what_one_thread_touches_alone_is_written_from_the_fourth_on_and_tried_now_and_then() {
    let model = on(16, Config::new());
    let left = (0..64).filter(|_| round(&model, LEN, true).0 > 0).count();
    assert!((2..=5).contains(&left), "{left}");
    finish(&model, Vec::new(), true);
}

#[test]
fn few_processors_and_modes_in_which_a_free_touches_everything_write() {
    for (cpus, config) in [
        (4, Config::new()),
        (16, Config::new().thp(crate::config::Thp::Never)),
        (16, Config::new().wipe_on_free(true)),
    ] {
        let model = on(cpus, config);
        let left: u64 = (0..4).map(|_| round(&model, LEN, false).0).sum();
        assert_eq!(left, 0, "{cpus}");
        finish(&model, Vec::new(), true);
    }
}

/// The end that nobody touches goes back as zero memory, as that of a fresh block does.
#[test]
fn the_end_that_nobody_touched_of_what_was_left_to_threads_is_not_taken_for_resident() {
    let model = on(16, Config::new());
    let _ = round(&model, LEN, false);
    let _ = round(&model, LEN, false);
    let _ = round(&model, LEN / 4 * 3, false);
    assert!(model.os().resident_bytes() <= LEN / 4 * 3 + 4 * CHUNK, "{}", model.os().resident_bytes());
    assert!(model.cache.heap.books().dirty <= LEN / 4 * 3 + 4 * CHUNK, "{}", model.cache.heap.books().dirty);
    finish(&model, Vec::new(), true);
}

/// Less than a chunk at each end shares a huge page with others, and is written.
#[test]
fn what_is_left_to_threads_reads_as_zero_to_its_ends() {
    let os = fake(2 << 30);
    os.set_facts(|facts| facts.cpus = 16);
    let model = Model::new(os, 1 << 30, Config::new());
    let quiet = (0..).find(|&seed| model.writes_nothing(seed)).unwrap();
    let (beside, size) = (Layout::from_size_align(3 * MIB, 8).unwrap(), 140 * MIB + 5000);
    let zeroed = Layout::from_size_align(size, 8).unwrap();
    for round in 0..3 {
        // It begins and ends within chunks.
        let kept = model.allocate(beside, false, quiet).unwrap();
        let live = model.allocate(zeroed, true, quiet).unwrap();
        model.os().expect_touches(live.p, size);
        assert_zero(live.p, size, true);
        soil(live.p, size);
        model.os().add_faults(0, 70);
        model.free(live.soiled());
        model.free(kept);
        assert_eq!(model.cache.snapshot().left_to_threads > 0, round > 0);
    }
    finish(&model, Vec::new(), false);
}

/// Locked memory cannot be given back, and reads as what it was.
#[test]
fn what_the_kernel_does_not_take_back_is_zeroed_here() {
    let model = on(16, Config::new());
    let _ = round(&model, LEN, false);
    model.os().fail(Call::Purge, When::From(1), errno::EINVAL);
    let p = model.cache.allocate_zeroed(layout(), &model.config, |_| ());
    let snapshot = model.cache.snapshot();
    assert_eq!(snapshot.left_to_threads, 0);
    assert!(snapshot.zeroed_here >= (LEN - 2 * GRANULE) as u64, "{}", snapshot.zeroed_here);
    model.os().fail_no_more();
    model.cache.deallocate(p, layout());
    finish(&model, Vec::new(), true);
}
