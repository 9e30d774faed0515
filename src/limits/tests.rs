//! What is remembered, forgotten and missed, and how much is too much.

use super::*;

const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

fn limits(ceiling: Option<usize>) -> Limits {
    let mut limits = Limits::new();
    limits.start(ceiling, 8 << 30);
    limits
}

/// Rounds in which `peak` is out once, then `small` is allocated until `times` peaks have been. Gives the
/// rounds in which something had been given up before the peak came back.
fn rounds_with_faults(times: u64, rounds: usize) -> Vec<usize> {
    let (peak, small) = (4 << 30, 64 * MIB);
    let mut limits = limits(None);
    let mut faulted = Vec::new();
    let mut resident = 0;
    for round in 0..rounds {
        if resident < peak {
            faulted.push(round);
            limits.missed(peak);
        }
        limits.allocated(peak, peak, 0);
        resident = peak;
        let mut allocated = peak as u64;
        while allocated < times * peak as u64 {
            limits.allocated(small, small, small);
            resident -= limits.excess(small, resident - small);
            allocated += small as u64;
        }
    }
    faulted
}

#[test]
fn a_peak_that_comes_back_faults_in_the_first_rounds_alone() {
    assert_eq!(rounds_with_faults(2, 40), [0]);
    for times in [20, 200] {
        let faulted = rounds_with_faults(times, 60);
        assert!(faulted.len() <= 6 && faulted.iter().all(|&r| r <= 8), "{times}: {faulted:?}");
    }
}

/// Peaks that differed by a page counted as forgotten, and the next fault as missed: in the end all were remembered for ever.
#[test]
fn what_is_faulted_in_below_the_peaks_makes_none_of_them_last() {
    let mut limits = limits(None);
    for window in 0..40 {
        for _ in 0..WINDOW_PEAKS {
            let peak = (4 << 30) - (window % 2) * 4096;
            limits.missed(peak);
            limits.allocated(4 << 30, peak, 0);
        }
    }
    assert_eq!(limits.window_peaks, WINDOW_PEAKS);
}

/// What had been faulted in already counted as remembered, and the next block was never far above that.
#[test]
fn a_peak_that_comes_back_block_by_block_is_missed() {
    let (peak, block) = (4 << 30, 32 * MIB);
    let mut limits = limits(None);
    for _ in 0..3 {
        for out in (block..=peak).step_by(block) {
            limits.missed(out);
            limits.allocated(0, out, out);
        }
        while limits.total() > limits.floor {
            limits.allocated(peak, block, block);
        }
    }
    assert_eq!(limits.window_peaks, 4 * WINDOW_PEAKS);
}

/// Any sixteenth more than what had been remembered once counted as a peak that came back, however slowly it came about.
#[test]
fn memory_that_grows_slowly_after_a_peak_was_forgotten_is_none_that_comes_back() {
    let mut limits = limits(None);
    limits.allocated(8 << 30, 8 << 30, 0);
    while limits.total() > limits.floor {
        limits.allocated(64 * MIB, 64 * MIB, 64 * MIB);
    }
    for highest in (limits.floor..4 << 30).step_by(64 * MIB) {
        limits.missed(highest);
        limits.allocated(64 * MIB, highest, highest);
    }
    assert_eq!(limits.window_peaks, WINDOW_PEAKS);
    limits.missed(5 << 30);
    assert_eq!(limits.window_peaks, 2 * WINDOW_PEAKS);
}

#[test]
fn a_peak_that_never_comes_back_decays_to_the_floor() {
    let mut limits = limits(None);
    limits.allocated(4 << 30, 4 << 30, 0);
    for _ in 0..64 << 10 {
        limits.allocated(4 * MIB, 4 * MIB, 4 * MIB);
    }
    assert_eq!(limits.total(), 1 << 30);
    let mut small = Limits::new();
    small.start(None, 1 << 30);
    small.allocated(600 * MIB, 600 * MIB, 0);
    for _ in 0..64 << 10 {
        small.allocated(4 * MIB, 4 * MIB, 4 * MIB);
    }
    assert_eq!(small.total(), 128 * MIB);
}

#[test]
fn the_default_keeps_out_and_cached_under_the_peak() {
    let mut limits = limits(None);
    limits.allocated(100, 100, 60);
    assert_eq!(limits.excess(60, 40), 0);
    assert_eq!(limits.excess(60, 41), 1);
    assert_eq!(limits.excess(120, 41), 41);
}

#[test]
fn silence_makes_a_peak_older_until_the_floor_is_left() {
    let mut limits = limits(None);
    limits.allocated(4 << 30, 4 << 30, 0);
    assert_eq!(limits.excess(0, 4 << 30), 0);
    limits.aged(0, 0);
    assert_eq!(limits.excess(0, 4 << 30), 0);
    for _ in 0..9 {
        limits.aged(0, 0);
        assert_eq!(limits.excess(0, 4 << 30), 3 << 30);
    }
    let mut promised = super::Limits::new();
    promised.start(Some(4 << 30), 8 << 30);
    (0..9).for_each(|_| promised.aged(0, 0));
    assert_eq!(promised.excess(0, 4 << 30), 0);
}

#[test]
fn a_ceiling_is_a_promise_however_much_is_allocated() {
    let mut limits = limits(Some(10 * MIB));
    for _ in 0..1000 {
        limits.allocated(MIB, MIB, MIB);
    }
    assert_eq!(limits.excess(0, 10 * MIB), 0);
    assert_eq!(limits.excess(4 << 30, 10 * MIB), 0);
    assert_eq!(limits.excess(0, 11 * MIB), MIB);
}

#[test]
fn too_little_left_presses_even_a_promise() {
    let mut limits = limits(Some(100));
    limits.room(1000, 50);
    assert_eq!((limits.excess(0, 100), limits.pressed()), (0, 0));
    limits.room(1000, 30);
    assert_eq!((limits.excess(0, 100), limits.pressed()), (0, 20));
    assert_eq!(limits.pressed(), 0, "pressed once a look");
}

/// What is pressed out of 1000 free bytes by what happened in a second, with so much of 100 left, and of the host's 1000.
fn pressed_by(left: [usize; 2], change: impl FnOnce(&mut Strain)) -> usize {
    pressed_of(1000, left, change)
}

/// The same of so many free ones.
fn pressed_of(free: usize, left: [usize; 2], change: impl FnOnce(&mut Strain)) -> usize {
    let mut limits = limits(None);
    let rooms = [Some((100, left[0])), Some((1000, left[1]))];
    let mut strain =
        Strain { stalled: [Some(1 << 20), Some(1 << 30)], hits: Some(77), swapped: Some(1 << 20) };
    limits.strain(5, strain, rooms, free);
    change(&mut strain);
    limits.strain(5 + 1_000_000_000, strain, rooms, free);
    limits.pressed()
}

/// Has tasks wait for so many microseconds more.
fn stall(strain: &mut Strain, which: usize, more: u64) {
    strain.stalled[which] = strain.stalled[which].map(|waited| waited + more);
}

#[test]
fn stalls_and_hits_take_half_where_memory_is_tight_and_nothing_where_it_is_not() {
    // Files that are read run into a limit wherever less is free than they take.
    for (left, expected) in [(9, 500), (10, 0), (24, 0), (90, 0)] {
        assert_eq!(pressed_by([left, 10 * left], |s| s.hits = Some(78)), expected);
    }
    for (left, expected) in [(24, 500), (25, 0), (90, 0)] {
        let both = [left, 10 * left];
        for which in [0, 1] {
            assert_eq!(pressed_by(both, |s| stall(s, which, 100_000)), expected);
            assert_eq!(pressed_by(both, |s| stall(s, which, 99_999)), 0, "under a tenth of the time");
        }
    }
    assert_eq!(pressed_by([0; 2], |_| ()), 0, "what was before the first look is no news");
    // A counter that cannot be read for once, and one that begins anew.
    assert_eq!(pressed_by([0; 2], |s| *s = Strain::default()), 0);
    assert_eq!(pressed_by([0; 2], |s| (s.stalled, s.hits) = ([Some(0); 2], Some(0))), 0);
}

/// All that had come together since the host was started counted as new after a look at which no file could be opened.
#[test]
fn what_could_not_be_read_for_once_is_no_news_when_it_can_be_read_again() {
    let mut limits = limits(None);
    let known = Strain { stalled: [Some(1 << 40); 2], hits: Some(77), swapped: None };
    for (second, strain) in (0..).zip([Strain::default(), known, Strain::default(), known]) {
        limits.strain(second * 1_000_000_000, strain, [Some((100, 1)); 2], 1000);
        assert_eq!(limits.pressed(), 0, "{second}");
    }
}

/// What was given up had to be faulted in, in huge pages, tasks waited for their compaction, and all of it went within ten looks.
#[test]
fn where_tasks_wait_whatever_goes_it_goes_ever_more_seldom_unless_little_is_left() {
    let looks_pressed = |left: usize, calm: usize| {
        let mut limits = limits(None);
        let mut waited = 0;
        let pressed = (0..200).filter(|&look: &usize| {
            waited += if look == calm { 0 } else { 200_000 };
            let strain = Strain { stalled: [Some(waited), Some(0)], ..Strain::default() };
            limits.strain(look as u64 * 1_000_000_000, strain, [Some((100, left)), None], 1000);
            limits.pressed() > 0
        });
        pressed.collect::<Vec<_>>()
    };
    assert_eq!(looks_pressed(17, 0), [1, 2, 4, 7, 12, 21, 38, 71, 136]);
    assert_eq!(looks_pressed(17, 15)[..7], [1, 2, 4, 7, 12, 16, 17]);
    assert_eq!(looks_pressed(9, 0), (1..200).collect::<Vec<_>>());
}

/// On a large host that others fill ten gigabytes were missing all the time.
#[test]
fn no_more_is_left_to_others_than_some_gigabytes() {
    for (limit, left, missing) in
        [(100, 4, 1), (100, 5, 0), (512, 15, 0), (512, 7, 1), (usize::MAX >> 30, 8, 0)]
    {
        let mut limits = limits(None);
        limits.room(limit << 30, left << 30);
        assert_eq!(limits.pressed(), missing << 30, "{left} of {limit} GiB");
    }
}

/// A container with little left lost its whole cache to what others, in containers of their own, were waiting for.
#[test]
fn what_others_wait_for_counts_where_the_host_has_little_left() {
    assert_eq!(pressed_by([0, 900], |s| stall(s, 1, 900_000)), 0);
    assert_eq!(pressed_by([0, 900], |s| stall(s, 0, 900_000)), 500);
    assert_eq!(pressed_by([90, 0], |s| stall(s, 0, 900_000)), 0);
    assert_eq!(pressed_by([90, 0], |s| stall(s, 1, 900_000)), 500);
}

/// One page that nobody uses was swapped, and hundreds of gigabytes given up; on a host with memory to spare it was for 16 MiB.
#[test]
fn what_more_is_swapped_takes_all_that_is_free_but_a_little_or_a_part_of_it_where_there_is_much() {
    let much = 1 << 30;
    for (left, free, most) in [
        (0, 1000, SWAPPED_MAX),
        (24, much, SWAPPED_MAX),
        (25, 1000, SWAPPED_MAX),
        (25, much, much / SWAPPED_SHARE),
        (100, much, much / SWAPPED_SHARE),
    ] {
        let pressed_at = |swapped| pressed_of(free, [left; 2], |s: &mut Strain| s.swapped = Some(swapped));
        assert_eq!(pressed_at((1 << 20) + most), 0);
        assert_eq!(pressed_at((1 << 20) + most + 4096), usize::MAX);
        assert_eq!(pressed_at((1 << 20) - 4096), 0);
    }
}

/// The seconds of those in which it is pressed, where so much is swapped, and left of 100.
fn seconds_pressed(each: &[(Option<usize>, usize)]) -> Vec<usize> {
    seconds_pressed_of(8, each)
}

/// The same of so many free bytes.
fn seconds_pressed_of(free: usize, each: &[(Option<usize>, usize)]) -> Vec<usize> {
    let mut limits = limits(None);
    let mut pressed = |second: usize, swapped, left| {
        let strain = Strain { swapped, ..Strain::default() };
        limits.strain(second as u64 * 1_000_000_000, strain, [Some((100, left)); 2], free);
        limits.pressed() > 0
    };
    let all = each.iter().enumerate();
    all.filter(|&(second, &(swapped, left))| pressed(second, swapped, left))
        .map(|(second, _)| second)
        .collect()
}

#[test]
fn what_is_swapped_little_by_little_counts_once_it_is_much() {
    let each: Vec<_> = (0..40).map(|second| (Some(second << 20), 90)).collect();
    assert_eq!(seconds_pressed(&each), [17, 34]);
    // What was swapped long ago is no reason once memory is tight; what is swapped then is, once it is much with it.
    let before = (Some(5 << 20), 90);
    let tight = (Some(5 << 20), 10);
    let more = (Some((21 << 20) + 4096), 10);
    assert_eq!(seconds_pressed(&[(Some(0), 90), before, tight, tight, more, more, tight]), [4]);
    let long_ago = [(Some(0), 90), (Some(300 << 20), 90), (Some(300 << 20), 10), (Some(317 << 20), 10)];
    assert_eq!(seconds_pressed_of(8 << 30, &long_ago), [3]);
    // Nor is what could not be read for once.
    assert_eq!(seconds_pressed(&[before, (None, 10), tight, (None, 90), before]), [0; 0]);
}

#[test]
fn looks_in_quick_succession_are_one() {
    let mut limits = limits(None);
    let strain = |hits| Strain { hits: Some(hits), ..Strain::default() };
    limits.strain(0, strain(0), [None; 2], 8);
    for now in 1..100 {
        limits.strain(now * 1_000_000, strain(now), [None; 2], 8);
        assert_eq!(limits.pressed(), 0);
    }
    limits.strain(100_000_000, strain(100), [None; 2], 8);
    assert_eq!(limits.pressed(), 4);
}

fn level(out_max: usize, raises: u64, corrections: u64) -> Level {
    Level { out: 0, out_max, raises, corrections, dirty: 0, inherited: 0, zero: 0 }
}

#[test]
fn a_level_that_turned_out_too_high_is_no_peak_and_one_that_was_read_before_tells_nothing() {
    let mut limits = limits(None);
    for (level, total) in [
        (level(4 << 30, 3, 0), 4 << 30),
        // Half of it had been touched.
        (level(2 << 30, 3, 1), 2 << 30),
        (level(GIB, 4, 1), 2 << 30),
    ] {
        limits.saw(&level);
        limits.allocated(0, level.out_max, 0);
        assert_eq!(limits.total(), total);
    }
    limits.saw(&level(3 << 30, 5, 0));
    assert_eq!(limits.total(), 2 << 30);
}

#[test]
fn a_peak_of_the_window_before_is_lowered_by_what_was_out_at_it() {
    let mut limits = limits(None);
    let seen = |limits: &mut Limits, level: Level| {
        limits.saw(&level);
        limits.allocated(0, level.out_max, 0);
    };
    seen(&mut limits, level(6 << 30, 7, 1));
    limits.aged(6 << 30, 0);
    assert_eq!(limits.total(), 6 << 30);
    // Taken since the peak, or lowered before the window ended: that is in it already.
    limits.overstated(Overstated { bytes: GIB, since: 7 }, 2);
    limits.overstated(Overstated { bytes: GIB, since: 6 }, 1);
    assert_eq!(limits.total(), 6 << 30);
    limits.overstated(Overstated { bytes: GIB, since: 6 }, 2);
    assert_eq!(limits.total(), 5 << 30);
    // What is forgotten of it goes too.
    limits.aged(0, 0);
    limits.aged(0, 0);
    assert_eq!(limits.total(), FLOOR);
}
