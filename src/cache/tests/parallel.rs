//! Long zeroed blocks on hosts of many processors: given back as they are handed out, so that the threads which touch them have
//! them zeroed.

use std::alloc::Layout;

use super::model::{Model, World};
use super::ops::finish;
use super::pattern::{assert_zero, soil};
use super::{fake, fake_in_short};
use crate::config::{Config, Thp};
use crate::heap::{Found, Run, Span, Unclean};
use crate::os::fake::{Call, Fake, When, errno};
use crate::os::{CHUNK, GRANULE, Os};
use crate::zeroing::CPUS_MIN;

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
fn few_processors_and_small_pages_write() {
    for (cpus, config) in [(4, Config::new()), (16, Config::new().thp(Thp::Never))] {
        let model = on(cpus, config);
        let left: u64 = (0..4).map(|_| round(&model, LEN, false).0).sum();
        assert_eq!(left, 0, "{cpus}");
        finish(&model, Vec::new(), true);
    }
}

#[test]
fn modes_in_which_a_free_touches_everything_write() {
    for config in [Config::new().wipe_on_free(true), Config::new().checked(true)] {
        let os = fake(2 << 30);
        os.set_facts(|facts| facts.cpus = 16);
        let model = Model::new(os, 1 << 30, config);
        let quiet = (0..).find(|&seed| model.writes_nothing(seed)).unwrap();
        for _ in 0..3 {
            let live = model.allocate(Layout::from_size_align(130 * MIB, 8).unwrap(), true, quiet).unwrap();
            model.os().expect_touches(live.p, 130 * MIB);
            soil(live.p, 130 * MIB);
            model.os().add_faults(0, 65);
            model.free(live.soiled());
        }
        assert_eq!(model.cache.snapshot().left_to_threads, 0);
        finish(&model, Vec::new(), false);
    }
}

/// A container with a quota, or a pool that was told how many threads to have.
#[test]
fn few_threads_write_on_many_processors() {
    for threads in [Some(CPUS_MIN - 1), None] {
        let model = on(64, Config::new());
        model.os().set_threads(threads);
        let left: u64 = (0..4).map(|_| round(&model, LEN, false).0).sum();
        assert_eq!(left, 0, "{threads:?}");
        model.os().set_threads(Some(CPUS_MIN));
        assert!(round(&model, LEN, false).0 > 0);
        finish(&model, Vec::new(), true);
    }
}

/// Beside four workers a container of four processors has the threads of its service, which touch nothing.
#[test]
fn a_quota_of_few_processors_is_few_processors() {
    for (quota, leaves) in [(4, false), (CPUS_MIN, true)] {
        let os = fake_in_short(8 << 30, 0);
        os.set_facts(|facts| (facts.cpus, facts.quota) = (64, Some(quota)));
        let model = Model::new(os, 4 << 30, Config::new());
        let left: u64 = (0..4).map(|_| round(&model, LEN, false).0).sum();
        assert_eq!(left > 0, leaves, "{quota}");
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
fn whole_chunks_are_left_to_threads_and_what_is_beside_them_is_not() {
    let model = Model::new(fake(1 << 30), 512 * MIB, Config::new());
    let quiet = (0..).find(|&seed| model.writes_nothing(seed)).unwrap();
    let live = model.allocate(Layout::from_size_align(16 * MIB, CHUNK).unwrap(), false, quiet).unwrap();
    let span = Span::new(live.p, 16 * MIB);
    model.os().expect_touches(span.start, span.len);
    soil(span.start, span.len);
    let mut unclean = Unclean::default();
    let parts = [(3, 500), (512, 512), (1536 + 7, 1024), (3072, 517)].map(|(start, len)| {
        let part = Span::new(span.start + start * GRANULE, len * GRANULE);
        unclean.push(part);
        part
    });
    let mut run = Run { span, unclean, found: Found::Run };
    assert_eq!(model.cache.leave_to_threads(&mut run), 3 * CHUNK);
    let [short, whole, between, from] = parts;
    let [left, behind] = [between, from].map(|part| part.inner(CHUNK));
    let beside = [
        short,
        Span::between(between.start, left.start),
        Span::between(left.end(), between.end()),
        Span::between(behind.end(), from.end()),
    ];
    assert_eq!(run.unclean.parts(), beside);
    for part in [whole, left, behind] {
        assert_zero(part.start, part.len, true);
    }
    let first = |part: Span| Os::is_zero(model.os(), part.start);
    assert!(!beside.map(first).contains(&true));
    model.free(live.soiled());
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
