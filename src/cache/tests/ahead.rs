//! Memory faulted in ahead of need: how much, and what becomes of it.

use std::alloc::Layout;

use super::model::Model;
use super::{fake, times};
use crate::config::Config;
use crate::os::fake::errno;
use crate::os::fake::{Call, When};
use crate::os::{CHUNK, Room};

const MIB: usize = 1 << 20;
const PLENTY: Option<Room> = Some(Room { limit: 64 << 30, left: 48 << 30 });

fn model(config: Config) -> Model<crate::os::fake::Fake> {
    Model::new(fake(2 << 30), 512 * MIB, config)
}

/// Starts a cache, which the first request does.
fn start(model: &Model<crate::os::fake::Fake>, config: &Config) {
    let layout = Layout::from_size_align(MIB, 8).unwrap();
    let p = model.cache.allocate(layout, config, |_| ());
    model.cache.deallocate(p, layout);
}

#[test]
fn as_much_as_is_missing_and_the_limits_let_there_be() {
    let config = Config::new();
    let model = model(config);
    assert_eq!(model.cache.ahead_of(100 * MIB), 0, "before the start");
    start(&model, &config);
    // It would be more than the host has, for all that is known.
    assert_eq!(model.cache.ahead_of(100 * MIB), 0, "where nobody tells how much there is");
    model.os().set_room(PLENTY);
    let cached = model.cache.cached_bytes();
    assert_eq!(model.cache.ahead_of(100 * MIB), (100 * MIB - cached).next_multiple_of(CHUNK));
    assert_eq!(model.cache.ahead_of(cached), 0);
    // 5 % of 200 are for others.
    model.os().set_room(Some(Room { limit: 200 * MIB, left: 50 * MIB }));
    assert_eq!(model.cache.ahead_of(100 * MIB), 40 * MIB);
    // As much as may be had, which was nothing at first.
    assert_eq!(model.cache.ahead_of(usize::MAX), 40 * MIB);
    model.os().set_room(Some(Room { limit: 200 * MIB, left: 9 * MIB }));
    assert_eq!(model.cache.ahead_of(100 * MIB), 0);
}

#[test]
fn a_ceiling_holds() {
    let config = Config::new().cache_bytes(64 * MIB);
    let model = model(config);
    start(&model, &config);
    model.os().set_room(PLENTY);
    let wanted = model.cache.ahead_of(1 << 30);
    assert!((16 * MIB..=64 * MIB).contains(&wanted), "{wanted}");
    let run = model.cache.take_ahead(wanted).unwrap();
    assert!(model.cache.fault_in(run));
    model.cache.give_ahead(run, true);
    assert!(model.cache.cached_bytes() <= 64 * MIB);
    model.audit(true);
}

#[test]
fn what_was_faulted_in_serves_every_size_and_is_forgotten_as_a_peak_is() {
    let config = Config::new();
    let model = model(config);
    start(&model, &config);
    let run = model.cache.take_ahead(128 * MIB).unwrap();
    assert!(model.cache.fault_in(run) && model.os().resident_bytes() >= 128 * MIB);
    model.cache.give_ahead(run, true);
    model.audit(true);
    let before = model.cache.snapshot();
    let layouts: Vec<Layout> = [3 * MIB, 40 * MIB, 64 << 10, 17 * MIB, 60 * MIB]
        .map(|size| Layout::from_size_align(size, 8).unwrap())
        .to_vec();
    for _ in 0..times(8) {
        let blocks: Vec<*mut u8> =
            layouts.iter().map(|&layout| model.cache.allocate(layout, &config, |_| ())).collect();
        for (&p, &layout) in blocks.iter().zip(&layouts) {
            model.cache.deallocate(p, layout);
        }
    }
    let after = model.cache.snapshot();
    assert_eq!((after.misses - before.misses, after.books.purged - before.books.purged), (0, 0));
    assert!(after.ahead >= 128 * MIB as u64);
}

#[test]
fn what_the_kernel_refuses_is_asked_for_in_smaller_runs_and_then_done_without() {
    let config = Config::new();
    let model = model(config);
    start(&model, &config);
    assert!(model.cache.take_ahead(8 << 30).is_none_or(|run| run.len < 2 << 30));
    let model = self::model(config);
    start(&model, &config);
    model.os().fail(None, When::From(1), errno::ENOMEM);
    assert_eq!(model.cache.take_ahead(256 * MIB).map(|run| run.len), None);
    model.os().fail_no_more();
    let run = model.cache.take_ahead(64 * MIB).unwrap();
    model.cache.give_ahead(run, false);
    assert!(model.cache.cached_bytes() < 64 * MIB, "what was not faulted in is not cached");
    model.os().fail(Call::Purge, When::From(1), errno::EINVAL);
    let run = model.cache.take_ahead(64 * MIB).unwrap();
    model.cache.give_ahead(run, false);
    model.os().fail_no_more();
    model.audit(true);
}

/// Nobody else came by, and what was faulted in stayed whatever happened.
#[test]
fn what_is_faulted_in_ahead_wakes_who_sleeps_until_there_is_something() {
    let config = Config::new();
    let model = model(config);
    start(&model, &config);
    let run = model.cache.take_ahead(64 * MIB).unwrap();
    assert!(model.cache.keeper.sleeps(true));
    assert!(model.cache.fault_in(run));
    model.cache.give_ahead(run, true);
    assert!(!model.cache.keeper.sleeps(false));
}
