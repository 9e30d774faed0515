//! What the C library keeps free: when it is asked for that, and when it is left alone.

use std::alloc::Layout;

use super::fake;
use super::keeper::{SECOND, run};
use super::model::{Live, Model};
use super::ops::finish;
use crate::cache::keeper::Watch;
use crate::config::Config;
use crate::os::fake::{Call, Fake, When, errno};
use crate::os::{GRANULE, Os, Room};

const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

/// A cache in a process whose C library has been told to keep what is free.
fn told() -> Model<Fake> {
    let os = fake(2 << 30);
    os.pass(SECOND);
    os.set_beside(Some(0));
    let model = Model::new(os, 1 << 30, Config::new());
    model.cache.library_keeps();
    model
}

/// Small blocks of so many bytes come and go: the C library keeps them, beside others of 8 MiB that are in use.
fn burst(model: &Model<Fake>, bytes: usize) {
    model.os().set_beside(Some(8 * MIB + bytes));
    model.os().set_library_keeps(bytes);
}

/// How often the C library was asked.
fn asked(model: &Model<Fake>) -> usize {
    model.os().calls(Call::TrimLibrary)
}

fn touched(model: &Model<Fake>, size: usize) -> Live {
    let quiet = (0..).find(|&seed| model.writes_nothing(seed)).unwrap();
    let layout = Layout::from_size_align(size, 8).unwrap();
    let live = model.allocate(layout, false, quiet).expect("memory is not short");
    model.os().touch(live.p, size);
    live
}

/// Takes so many blocks of 8 MiB at once and gives them back.
fn round(model: &Model<Fake>, blocks: usize) {
    let blocks: Vec<Live> = (0..blocks).map(|_| touched(model, 8 * MIB)).collect();
    blocks.into_iter().for_each(|live| model.free(live));
}

/// All that is in memory.
fn in_memory(model: &Model<Fake>) -> usize {
    model.os().anonymous().unwrap()
}

#[test]
fn what_the_library_keeps_makes_room_for_large_blocks() {
    let model = told();
    burst(&model, 128 * MIB);
    let blocks: Vec<Live> = (0..16).map(|_| touched(&model, 8 * MIB)).collect();
    assert_eq!(asked(&model), 1);
    assert!(in_memory(&model) <= (8 + 128 + 2) * MIB, "{} MiB", in_memory(&model) / MIB);
    blocks.into_iter().for_each(|live| model.free(live));
    // Warm: nothing is asked for, whatever the library keeps meanwhile.
    burst(&model, 100 * MIB);
    (0..40).for_each(|_| round(&model, 14));
    assert_eq!(asked(&model), 1);
    finish(&model, Vec::new(), true);
}

/// It looks through all of its heap each time, and `malloc` waits meanwhile.
#[test]
fn while_memory_is_short_it_is_asked_every_few_seconds_alone() {
    let model = told();
    let held = touched(&model, 64 * MIB);
    model.os().set_room(Some(Room { limit: 1 << 30, left: 0 }));
    for _ in 0..48 {
        model.os().pass(SECOND / 4 + 1_000_000);
        round(&model, 12);
    }
    assert!(model.os().calls(Call::Room) > 40);
    assert!((2..=3).contains(&asked(&model)), "{} times in 12 seconds", asked(&model));
    finish(&model, vec![held], true);
}

#[test]
fn what_makes_room_is_not_remembered_as_needed_at_once() {
    let model = told();
    round(&model, 24);
    model.cache.release();
    burst(&model, 128 * MIB);
    model.os().pass(SECOND);
    // The limits are told, and measure: less than was needed of late.
    (0..12).for_each(|_| round(&model, 1));
    assert_eq!(asked(&model), 1, "by the release");
    let large = touched(&model, 128 * MIB);
    assert_eq!(asked(&model), 2);
    let remembered = model.cache.heap.level().out_max;
    assert!(remembered <= (24 * 8 + 8 + 4) * MIB, "{} MiB", remembered / MIB);
    finish(&model, vec![large], true);
}

/// A block that nobody has touched yet was taken off what the rest of the process holds.
#[test]
fn a_block_that_is_longer_than_what_is_kept_asks_too() {
    let model = told();
    burst(&model, 128 * MIB);
    let large = touched(&model, 256 * MIB);
    assert_eq!(asked(&model), 1);
    assert!(in_memory(&model) <= (8 + 256 + 4) * MIB, "{} MiB", in_memory(&model) / MIB);
    finish(&model, vec![large], true);
}

/// What is handed out and stays untouched was taken off it for as long as that was in use.
#[test]
fn what_is_expected_to_stay_untouched_is_none_of_it() {
    let model = told();
    let layout = Layout::from_size_align(64 * MIB, 8).unwrap();
    let quiet = (0..).find(|&seed| model.writes_nothing(seed)).unwrap();
    let quarter = || {
        let live = model.allocate(layout, true, quiet).unwrap();
        model.os().touch(live.p, 16 * MIB);
        live
    };
    (0..8).for_each(|_| model.free(quarter()));
    let half_empty: Vec<Live> = (0..4).map(|_| quarter()).collect();
    assert!(model.cache.heap.level().out < 160 * MIB, "{} MiB", model.cache.heap.level().out / MIB);
    burst(&model, 32 * MIB);
    model.os().pass(SECOND);
    model.cache.see_beside(model.os().now(), 0);
    let beside = model.cache.heap.beside();
    // 40 MiB; what stays untouched is expected by shares and whole chunks.
    assert!((32 * MIB..64 * MIB).contains(&beside), "{} MiB", beside / MIB);
    finish(&model, half_empty, true);
}

#[test]
fn short_blocks_ask_too() {
    let model = told();
    burst(&model, 512 * MIB);
    let blocks: Vec<Live> = (0..200).map(|_| touched(&model, MIB)).collect();
    assert_eq!(asked(&model), 1);
    assert!(in_memory(&model) <= (8 + 200 + 12) * MIB, "{} MiB", in_memory(&model) / MIB);
    finish(&model, blocks, true);
}

/// While large blocks are warm nothing is faulted in.
#[test]
fn a_small_side_that_grows_by_itself_is_asked() {
    let model = told();
    (0..4).for_each(|_| round(&model, 4));
    for bytes in [100 * MIB, 400 * MIB] {
        let before = asked(&model);
        burst(&model, bytes);
        model.os().pass(SECOND);
        (0..12).for_each(|_| round(&model, 1));
        assert_eq!(asked(&model), before + 1, "{} MiB", bytes / MIB);
    }
    finish(&model, Vec::new(), true);
}

#[test]
fn how_much_was_needed_long_ago_keeps_nobody_from_asking() {
    let model = told();
    burst(&model, 512 * MIB);
    round(&model, 1);
    assert_eq!(asked(&model), 1, "at 528 MiB");
    // Sixteen peaks, twice and more.
    (0..400).for_each(|_| round(&model, 1));
    burst(&model, 128 * MIB);
    model.os().pass(SECOND);
    let large = touched(&model, 64 * MIB);
    assert_eq!(asked(&model), 2, "at 200 MiB");
    finish(&model, vec![large], true);
}

#[test]
fn nothing_is_asked_for_below_what_was_needed_of_late() {
    let model = told();
    round(&model, 24);
    model.cache.release();
    assert_eq!(asked(&model), 1);
    burst(&model, 100 * MIB);
    model.os().pass(SECOND);
    round(&model, 10);
    assert_eq!(asked(&model), 1);
    finish(&model, Vec::new(), true);
}

#[test]
fn the_library_is_asked_again_once_a_quarter_more_is_in_use() {
    let model = told();
    burst(&model, 120 * MIB);
    let mut blocks = vec![touched(&model, 8 * MIB)];
    assert_eq!(asked(&model), 1, "at 136 MiB");
    for expected in [1, 1, 1, 1, 2, 2] {
        burst(&model, 120 * MIB);
        model.os().pass(SECOND);
        blocks.push(touched(&model, 8 * MIB));
        assert_eq!(asked(&model), expected, "with {} blocks", blocks.len());
    }
    finish(&model, blocks, true);
}

#[test]
fn a_burst_that_comes_back_every_round_stays_after_a_few() {
    let model = told();
    let mut asked_before = 0;
    let mut rounds = Vec::new();
    for nth in 0..20 {
        burst(&model, 128 * MIB);
        model.os().pass(SECOND);
        round(&model, 24);
        if asked(&model) > asked_before {
            rounds.push(nth);
        }
        asked_before = asked(&model);
    }
    assert!(rounds.len() <= 4 && rounds.iter().all(|&nth| nth < 6), "asked in rounds {rounds:?}");
    finish(&model, Vec::new(), true);
}

#[test]
fn a_library_that_was_told_nothing_or_keeps_little_is_left_alone() {
    for (tell, keeps) in [(false, 512 * MIB), (true, 50 * MIB)] {
        let os = fake(2 << 30);
        let model = Model::new(os, 1 << 30, Config::new());
        if tell {
            model.cache.library_keeps();
        }
        burst(&model, keeps);
        round(&model, 32);
        assert_eq!(asked(&model), 0);
        if !tell {
            model.cache.release();
            assert_eq!(asked(&model), 0);
        }
        finish(&model, Vec::new(), true);
    }
}

/// Bursts of 128 MiB are faulted in again in small pages: the C library is to keep them then, until the process is larger for it.
#[test]
fn heaps_that_are_faulted_in_again_are_kept_while_the_process_grows_no_further() {
    for (ceiling, keeps, expected) in [(None, 128, true), (None, 50, false), (Some(GIB), 128, false)] {
        let config = ceiling.map_or(Config::new(), |ceiling| Config::new().cache_bytes(ceiling));
        let os = fake(2 << 30);
        os.set_beside(Some(0));
        os.set_resident_max(256 * MIB);
        let model = Model::new(os, 1 << 30, config);
        model.cache.library_keeps();
        let rounds = |count: usize, mib: usize| {
            for _ in 0..count {
                burst(&model, mib * MIB);
                model.os().add_faults((mib * MIB / GRANULE) as u64, 0);
                model.os().pass(SECOND);
                (0..12).for_each(|_| round(&model, 1));
            }
        };
        rounds(4, keeps);
        assert_eq!(model.os().library_keeps_heaps(), expected, "{keeps} MiB under {ceiling:?}");
        assert_eq!(model.os().calls(Call::KeepLibraryHeaps), usize::from(expected));
        let before = asked(&model);
        rounds(1, 3 * keeps);
        assert!(!model.os().library_keeps_heaps(), "{keeps} MiB under {ceiling:?}");
        assert_eq!(model.os().calls(Call::KeepLibraryHeaps), 2 * usize::from(expected));
        // Once as more is in use than ever, as without.
        assert_eq!(asked(&model) - before, 1 + usize::from(expected), "{keeps} MiB under {ceiling:?}");
        finish(&model, Vec::new(), true);
    }
}

#[test]
fn whoever_gives_up_all_that_is_cached_gives_up_what_the_library_keeps() {
    let model = told();
    round(&model, 4);
    burst(&model, 32 * MIB);
    model.cache.release();
    assert_eq!(asked(&model), 1);
    // Memory runs short: by less than is cached, and by more.
    for (left, expected) in [(40, 1), (0, 2)] {
        round(&model, 4);
        model.os().set_room(Some(Room { limit: 1000 * MIB, left: left * MIB }));
        model.cache.look_slow();
        assert_eq!(asked(&model), expected, "{left} MiB left");
        model.os().set_room(None);
    }
    // The kernel refuses memory.
    let before = asked(&model);
    model.os().fail(None, When::From(1), errno::ENOMEM);
    let mut model = model;
    model.may_refuse = true;
    let layout = Layout::from_size_align(1200 * MIB, 8).unwrap();
    assert!(model.allocate(layout, false, 1).is_none());
    assert!(asked(&model) > before);
    model.os().fail_no_more();
    finish(&model, Vec::new(), true);
}

#[test]
fn a_silent_process_asks_once() {
    let model = told();
    round(&model, 12);
    burst(&model, 32 * MIB);
    let mut watch = Watch::default();
    run(&model, &mut watch, 9);
    assert_eq!(asked(&model), 0, "a pause is no silence");
    run(&model, &mut watch, 60);
    assert_eq!(asked(&model), 1);
    finish(&model, Vec::new(), true);
}
