//! Runs without a heap, and what a shard keeps of them and lets go.

use super::*;
use crate::cache::counters::bump;
use crate::cache::shard::Shard;
use crate::cache::shard::tests::{MIB, class, pushed, starts};
use crate::os::Linux;

const KIB: usize = 1 << 10;

fn kib(span: Span) -> (usize, usize) {
    (span.start / KIB, span.end() / KIB)
}

fn runs_at(spans: &[(usize, usize)]) -> Runs {
    let mut runs = Runs::EMPTY;
    spans.iter().for_each(|&(start, end)| assert!(runs.insert(Span::between(start * KIB, end * KIB))));
    runs
}

fn all(runs: &Runs) -> Vec<(usize, usize)> {
    let mut all: Vec<_> = runs.all().map(kib).collect();
    all.sort_unstable();
    all
}

#[test]
fn ranges_merge_with_those_that_they_touch() {
    let mut runs = runs_at(&[(100, 200), (300, 400), (600, 700)]);
    assert!(runs.insert(Span::between(400 * KIB, 500 * KIB)), "behind one");
    assert!(runs.insert(Span::between(250 * KIB, 300 * KIB)), "before one");
    assert_eq!(all(&runs), [(100, 200), (250, 500), (600, 700)]);
    assert!(runs.insert(Span::between(200 * KIB, 250 * KIB)), "between two");
    assert!(runs.insert(Span::default()), "nothing");
    assert_eq!((all(&runs), runs.bytes()), (vec![(100, 500), (600, 700)], 500 * KIB));
}

#[test]
fn nothing_merges_where_two_regions_may_touch() {
    let chunk = CHUNK / KIB;
    let mut runs = runs_at(&[(chunk - 8, chunk), (2 * chunk, 2 * chunk + 8)]);
    runs.borders = true;
    assert!(runs.insert(Span::between(chunk * KIB, 2 * chunk * KIB)));
    assert_eq!(runs.count(), 3);
    assert!(runs.insert(Span::new((2 * chunk + 8) * KIB, 4 * KIB)), "this is within a chunk");
    assert_eq!(all(&runs), [(chunk - 8, chunk), (chunk, 2 * chunk), (2 * chunk, 2 * chunk + 12)]);
}

#[test]
fn blocks_are_cut_where_they_fit_best() {
    let mut runs = runs_at(&[(100, 200), (300, 350), (400, 460), (500, 600)]);
    let nth = runs.shortest_from(55 * KIB).unwrap();
    assert_eq!(kib(runs.cut(nth, 55 * KIB)), (400, 455));
    let nth = runs.shortest_from(50 * KIB).unwrap();
    assert_eq!(kib(runs.cut(nth, 50 * KIB)), (300, 350), "whole");
    assert_eq!((all(&runs), runs.bytes()), (vec![(100, 200), (455, 460), (500, 600)], 205 * KIB));
    assert_eq!(runs.shortest_from(101 * KIB), None);
}

#[test]
fn there_are_no_more_runs_than_there_are_places() {
    let mut runs = Runs::EMPTY;
    let at = |nth: usize| Span::new((1 + 2 * nth) * MIB, MIB);
    assert!((0..RUNS_MAX).all(|nth| runs.insert(at(nth))));
    assert!(!runs.insert(at(RUNS_MAX)) && runs.bytes() == RUNS_MAX * MIB);
    assert!(runs.insert(Span::new(2 * MIB, MIB)), "it fills a gap");
    assert!(runs.insert(at(RUNS_MAX)), "which left a place");
}

/// The blocks of `shard` that leave so that one more of a class finds room in `bytes_max`.
fn made_room(shard: &Shard, bytes: usize, bytes_max: usize, merges: bool) -> Leaving {
    let mut out = Leaving::NOTHING;
    let bounds = Bounds::of(bytes_max, merges);
    shard.lock(&Linux).make_room(class(bytes), bounds, &mut out, &shard.counts);
    out
}

#[test]
fn half_of_what_is_stacked_leaves_at_once() {
    let shard = Shard::new(1);
    pushed(&mut shard.lock(&Linux), &shard.counts, 12);
    let before = shard.lock(&Linux).bytes();
    let out = made_room(&shard, MIB, before, false);
    assert_eq!(starts(out.spans()), (0..6).map(|nth| 1 + 4 * nth).collect::<Vec<_>>());
    assert_eq!(shard.lock(&Linux).bytes(), before - out.spans().iter().map(|span| span.len).sum::<usize>());
}

#[test]
fn what_leaves_the_stacks_stays_as_runs_within_the_limit() {
    let shard = Shard::new(1);
    pushed(&mut shard.lock(&Linux), &shard.counts, 12);
    let before = shard.lock(&Linux).bytes();
    let out = made_room(&shard, MIB, before + 2 * MIB, true);
    assert!(out.spans().is_empty(), "all of it may stay");
    let stacks = shard.lock(&Linux);
    assert_eq!((stacks.bytes(), stacks.runs.count(), stacks.tokens), (before, 6, 6));
    drop(stacks);
    // The longest runs leave, until a quarter of the limit is free.
    let out = made_room(&shard, MIB, before, true);
    assert_eq!(starts(out.spans())[0] % 12, 9, "a block of 2 MiB");
    let stacks = shard.lock(&Linux);
    assert!(stacks.bytes() <= before / 4 * 3 && stacks.tokens == stacks.runs.count());
}

#[test]
fn room_is_made_beside_a_hot_run_and_not_where_there_can_be_none() {
    let shard = Shard::new(1);
    let mut stacks = shard.lock(&Linux);
    pushed(&mut stacks, &shard.counts, 8);
    let stacked = stacks.bytes();
    stacks.hot = Hot::of(Span::new(1 << 40, 4 * MIB));
    stacks.note_free(0, 4 * MIB, &shard.counts);
    drop(stacks);
    // The block and the run take more than there may be: whatever left would leave for nothing.
    let len = class(2 * MIB).len().bytes();
    assert!(made_room(&shard, 2 * MIB, 4 * MIB + len - 1, false).spans().is_empty());
    assert_eq!(shard.lock(&Linux).bytes(), stacked + 4 * MIB);
    // Half of what is stacked would not be enough.
    let bytes_max = 4 * MIB + len + stacked / 4;
    assert!(!made_room(&shard, 2 * MIB, bytes_max, false).spans().is_empty());
    assert!(shard.lock(&Linux).bytes() + len <= bytes_max);
}

#[test]
fn a_full_stack_gives_its_older_half_and_no_other_class_loses_any() {
    let shard = Shard::new(1);
    let mut stacks = shard.lock(&Linux);
    for nth in 0..=8 {
        let class = if nth == 8 { class(2 * MIB) } else { class(MIB) };
        assert!(stacks.push(class, (1 + 4 * nth) * MIB, Bounds::of(64 * MIB, false), &shard.counts));
    }
    drop(stacks);
    assert_eq!(starts(made_room(&shard, MIB, 64 * MIB, false).spans()), [1, 5, 9, 13]);
    let mut stacks = shard.lock(&Linux);
    assert_eq!(stacks.bytes(), 4 * class(MIB).len().bytes() + class(2 * MIB).len().bytes());
    assert_eq!(stacks.pop(class(MIB), &shard.counts), Some(29 * MIB));
}

#[test]
fn no_more_blocks_are_cut_than_were_paid_for() {
    let shard = Shard::new(1);
    let mut stacks = shard.lock(&Linux);
    let (mut out, short) = (Leaving::NOTHING, class(64 * KIB));
    stacks.keep(Span::new(MIB, MIB), &mut out, &shard.counts);
    assert_eq!(stacks.cut_run(short, &shard.counts), None, "the run needs its node");
    stacks.tokens += 2;
    assert_eq!(stacks.fit_run(short.len().bytes(), &shard.counts), None, "a rest may become a run");
    stacks.tokens += 1;
    bump(&shard.counts.live, MIB as u64);
    assert_eq!(stacks.cut_run(short, &shard.counts), Some(MIB));
    stacks.hot = Hot::of(Span::new(1 << 40, MIB));
    stacks.note_free(0, MIB, &shard.counts);
    assert_eq!((stacks.tokens, stacks.runs.count()), (3, 1));
    assert!(stacks.cut(short, &shard.counts).is_some());
    assert_eq!(stacks.cut(short, &shard.counts), None, "one is for the run, one for the rest");
}

/// Blocks of all lengths lay behind each other in the run, and a thread that has one at a time went over all of it.
#[test]
fn who_has_next_to_nothing_in_use_begins_each_block_where_the_one_before_began() {
    let shard = Shard::new(1);
    let mut stacks = shard.lock(&Linux);
    let mut out = Leaving::NOTHING;
    stacks.keep(Span::new(MIB, MIB), &mut out, &shard.counts);
    stacks.tokens = 10;
    for bytes in [300 * KIB, 64 * KIB, MIB - 64 * KIB, 100 * KIB] {
        let class = class(bytes);
        assert_eq!(stacks.take(class, &shard.counts), Some(MIB));
        assert!(stacks.put_back(class.len().bytes(), MIB, || false, &shard.counts));
    }
}

/// Who has much in use went through all that was free to a thread, a hot run at a time.
#[test]
fn a_thread_that_has_much_in_use_begins_no_hot_run_in_what_it_has() {
    for (in_use, start) in [(SHARD_BYTES_MAX, 16 * MIB), (SHARD_BYTES_MAX + 1, MIB)] {
        let shard = Shard::new(1);
        let mut stacks = shard.lock(&Linux);
        let mut out = Leaving::NOTHING;
        stacks.tokens = 10;
        stacks.keep(Span::new(MIB, MIB / 4), &mut out, &shard.counts);
        stacks.keep(Span::new(16 * MIB, 6 * MIB), &mut out, &shard.counts);
        bump(&shard.counts.live, in_use as u64);
        assert_eq!(stacks.cut_run(class(64 * KIB), &shard.counts), Some(start), "{in_use} in use");
        assert_eq!(stacks.hot.rest().is_empty(), in_use > SHARD_BYTES_MAX);
    }
}

#[test]
fn the_next_hot_run_begins_in_a_run_that_is_long_enough() {
    let shard = Shard::new(1);
    let mut stacks = shard.lock(&Linux);
    let (mut out, short) = (Leaving::NOTHING, class(64 * KIB));
    stacks.hot = Hot::of(Span::new(64 * MIB, 4 * KIB));
    stacks.note_free(0, 4 * KIB, &shard.counts);
    stacks.tokens = 10;
    stacks.keep(Span::new(MIB, (HOT_BLOCK_MAX - 1) / 4096 * 4096), &mut out, &shard.counts);
    stacks.keep(Span::new(16 * MIB, 6 * MIB), &mut out, &shard.counts);
    let before = stacks.bytes();
    assert_eq!(stacks.cut_run(short, &shard.counts), Some(16 * MIB));
    assert_eq!(stacks.hot.rest().end(), 16 * MIB + whole_blocks(HOT_MAX, short.len().bytes()));
    let rest = (64 * MIB / KIB, 64 * MIB / KIB + 4);
    assert!(all(&stacks.runs).contains(&rest), "the old one's rest is a run");
    assert_eq!(stacks.bytes(), before - short.len().bytes());
}

#[test]
fn all_leave_with_their_nodes_and_the_others_beyond_a_few() {
    let shard = Shard::new(1);
    let mut stacks = shard.lock(&Linux);
    let mut out = Leaving::NOTHING;
    pushed(&mut stacks, &shard.counts, 9);
    (0..40).for_each(|nth| stacks.keep(Span::new((100 + 2 * nth) * MIB, MIB), &mut out, &shard.counts));
    stacks.tokens += 5 * TOKENS;
    let (mut left, mut tokens) = (0, 0);
    while stacks.bytes() > 0 {
        let mut out = Leaving::NOTHING;
        stacks.leave(&mut out, &shard.counts);
        (left, tokens) = (left + out.spans().len(), tokens + out.tokens);
    }
    assert_eq!((left, stacks.runs.count()), (49, 0));
    assert_eq!(tokens + stacks.tokens, 5 * TOKENS);
    assert!(stacks.tokens <= 2 * TOKENS + 1);
}

#[test]
fn whole_rooms_are_cut_off_the_end_of_the_shortest_run_that_has_several() {
    let mut runs = runs_at(&[(100, 250), (1000, 1350), (2000, 2500)]);
    assert_eq!(runs.cut_end(100 * KIB, 300 * KIB).map(kib), Some((1050, 1350)), "three of one that has them");
    assert_eq!(runs.cut_end(100 * KIB, 300 * KIB).map(kib), Some((2200, 2500)));
    assert_eq!(runs.cut_end(100 * KIB, 300 * KIB).map(kib), Some((150, 250)), "one of the shortest");
    assert_eq!(runs.cut_end(200 * KIB, 200 * KIB).map(kib), Some((2000, 2200)), "all there is");
    assert_eq!((all(&runs), runs.bytes()), (vec![(100, 150), (1000, 1050)], 100 * KIB));
    assert_eq!(runs.cut_end(51 * KIB, 51 * KIB), None);
}

#[test]
fn a_block_goes_on_in_the_run_behind_it_but_not_over_the_end_of_a_region() {
    let chunk = CHUNK / KIB;
    let mut runs = runs_at(&[(100, 200), (chunk, chunk + 100)]);
    assert!(!runs.cut_at(100 * KIB, 101 * KIB), "it is shorter");
    assert!(!runs.cut_at(96 * KIB, 4 * KIB), "none begins there");
    assert!(runs.cut_at(100 * KIB, 60 * KIB) && runs.cut_at(CHUNK, 40 * KIB));
    assert_eq!((all(&runs), runs.bytes()), (vec![(160, 200), (chunk + 40, chunk + 100)], 100 * KIB));
    let mut runs = runs_at(&[(100, 200), (chunk, chunk + 100)]);
    runs.borders = true;
    assert!(!runs.cut_at(CHUNK, 40 * KIB), "here two regions may touch");
    assert!(runs.cut_at(100 * KIB, 100 * KIB));
    assert_eq!((all(&runs), runs.bytes()), (vec![(chunk, chunk + 100)], 100 * KIB));
}

/// What was kept next had no place to leave to.
#[test]
fn after_stacks_were_merged_there_is_a_place_for_one_range_more() {
    let shard = Shard::new(1);
    let mut stacks = shard.lock(&Linux);
    let mut out = Leaving::NOTHING;
    (0..RUNS_MAX)
        .for_each(|nth| stacks.keep(Span::new((1000 + 2 * nth) * MIB, 64 * KIB), &mut out, &shard.counts));
    for nth in 0..2 * SHED {
        let block = class((64 + 4 * (nth % 4)) * KIB);
        assert!(stacks.push(block, (1 + nth) * MIB, Bounds::of(64 * MIB, false), &shard.counts));
    }
    stacks.merge(&mut out, &shard.counts);
    stacks.keep(Span::new(4000 * MIB, 64 * KIB), &mut out, &shard.counts);
    assert!(out.spans().len() > SHED);
}

/// The memory that a hot run had been cut of was free, unmapped, and mapped again as another region before regions touched
/// anywhere else that the shard saw.
#[test]
fn what_came_back_from_another_region_merged_with_the_run_behind_it() {
    let shard = Shard::new(1);
    let mut stacks = shard.lock(&Linux);
    let mut out = Leaving::NOTHING;
    stacks.keep(Span::new(4 * CHUNK, MIB), &mut out, &shard.counts);
    stacks.begin_hot(Span::new(3 * CHUNK, CHUNK), &mut out, &shard.counts);
    while stacks.cut(class(64 * KIB), &shard.counts).is_some() {}
    let rest = stacks.hot.rest();
    assert!(stacks.extend(Span::new(rest.start - 64 * KIB, 64 * KIB), 64 * KIB + rest.len, &shard.counts));
    assert!(stacks.put_back(64 * KIB, 4 * CHUNK - 64 * KIB, || true, &shard.counts), "now of another region");
    stacks.begin_hot(Span::new(9 * CHUNK, CHUNK), &mut out, &shard.counts);
    let border = 4 * CHUNK / KIB;
    assert_eq!(all(&stacks.runs), [(border - 64, border), (border, border + 1024)]);
}

/// With as many runs as there are places for, a long one among them, and nothing in use, the heap was asked.
#[test]
fn a_hot_run_begins_in_a_long_run_though_there_is_no_place_for_another() {
    let shard = Shard::new(1);
    let mut stacks = shard.lock(&Linux);
    let mut out = Leaving::NOTHING;
    for nth in 0..RUNS_MAX {
        stacks.keep(Span::new((1000 + 4 * nth) * MIB, 64 * KIB), &mut out, &shard.counts);
    }
    stacks.keep(Span::new(1000 * MIB + 64 * KIB, 2 * MIB), &mut out, &shard.counts);
    stacks.tokens += TOKENS;
    assert_eq!(
        (stacks.runs.count(), stacks.cut_run(class(100 * KIB), &shard.counts)),
        (RUNS_MAX, Some(1000 * MIB))
    );
    // What is left of a hot run has no place among the runs: the block alone is cut, where it fits best.
    let rest = stacks.hot.rest();
    assert!(rest.len > MIB);
    stacks.keep(Span::new(3000 * MIB, 2 * MIB), &mut out, &shard.counts);
    stacks.keep(Span::new(4000 * MIB, 64 * KIB), &mut out, &shard.counts);
    assert_eq!(
        (stacks.runs.count(), stacks.cut_run(class(100 * KIB), &shard.counts)),
        (RUNS_MAX, Some(3000 * MIB))
    );
    assert_eq!(stacks.hot.rest().start, rest.start);
}
