//! Stacks of a shard without a heap; and what others test shards with.

use super::*;
use crate::os::Linux;

pub(in crate::cache) const MIB: usize = 1 << 20;

pub(in crate::cache) fn class(bytes: usize) -> SizeClass {
    SizeClass::of(Granules(bytes / 4096 + 1)).expect("a length that has a class")
}

pub(in crate::cache) fn starts(out: &[Span]) -> Vec<usize> {
    out.iter().map(|span| span.start / MIB).collect()
}

/// Pushes blocks of three classes in turn, one at each fourth MiB from the first on.
pub(in crate::cache) fn pushed(stacks: &mut Stacks, counts: &Counts, count: usize) {
    for nth in 0..count {
        let class = [class(64 << 10), class(512 << 10), class(2 * MIB)][nth % 3];
        assert!(stacks.push(class, (1 + 4 * nth) * MIB, Bounds::of(64 * MIB, false), counts));
    }
}

#[test]
fn the_oldest_of_each_class_in_turn_leave_first() {
    let shard = Shard::new(1);
    let mut stacks = shard.lock(&Linux);
    let half = STACK_MAX / 2 / 2 * 3;
    pushed(&mut stacks, &shard.counts, 2 * half);
    let (before, mut out) = (stacks.bytes(), [Span::default(); SHED]);
    let count = stacks.shed(before / 2, &mut out, &shard.counts);
    assert_eq!(starts(&out[..count]), (0..half).map(|nth| 1 + 4 * nth).collect::<Vec<_>>());
    assert_eq!(stacks.bytes(), before - out[..count].iter().map(|span| span.len).sum::<usize>());
    // It goes on where it stopped, and all over again from the first class.
    let count = stacks.shed(0, &mut out, &shard.counts);
    assert_eq!(starts(&out[..count]), (half..2 * half).map(|nth| 1 + 4 * nth).collect::<Vec<_>>());
    assert_eq!((stacks.bytes(), stacks.shed(0, &mut out, &shard.counts)), (0, 0));
}

#[test]
fn no_more_leave_at_once_than_there_is_a_place_for() {
    let shard = Shard::new(1);
    let mut stacks = shard.lock(&Linux);
    for nth in 0..2 * SHED {
        assert!(stacks.push(
            class((64 + 4 * nth) << 10),
            (1 + nth) * MIB,
            Bounds::of(64 * MIB, false),
            &shard.counts
        ));
    }
    let mut out = [Span::default(); SHED];
    assert_eq!([0, 0, 0].map(|keep| stacks.shed(keep, &mut out, &shard.counts)), [SHED, SHED, 0]);
}

#[test]
fn of_a_full_stack_the_older_half_leaves() {
    let shard = Shard::new(1);
    let mut stacks = shard.lock(&Linux);
    for nth in 0..STACK_MAX {
        assert!(!stacks.is_full(class(MIB)));
        assert!(stacks.push(class(MIB), (1 + nth) * MIB, Bounds::of(64 * MIB, false), &shard.counts));
    }
    let mut out = [Span::default(); SHED];
    assert!(
        stacks.is_full(class(MIB))
            && !stacks.push(class(MIB), MIB, Bounds::of(64 * MIB, false), &shard.counts)
    );
    assert_eq!(stacks.flush(class(MIB), &mut out, &shard.counts), FLUSH);
    assert_eq!(starts(&out[..FLUSH]), (1..=FLUSH).collect::<Vec<_>>());
    assert_eq!(stacks.bytes(), (STACK_MAX - FLUSH) * class(MIB).len().bytes());
    assert_eq!(stacks.pop(class(MIB), &shard.counts), Some(STACK_MAX * MIB));
}

#[test]
fn stacks_hold_a_part_of_what_the_shard_may_beside_runs() {
    let shard = Shard::new(1);
    let mut stacks = shard.lock(&Linux);
    let blocks = (0..).take_while(|nth| {
        stacks.push(class((64 + 8 * nth) << 10), MIB << nth, Bounds::of(12 * MIB, true), &shard.counts)
    });
    assert!(blocks.count() > 8 && stacks.bytes() <= 4 * MIB && stacks.bytes() > 3 * MIB);
    // A shard that holds little has no runs, and all of it for stacks.
    let small = Shard::new(1);
    let mut stacks = small.lock(&Linux);
    assert!(stacks.push(class(2 * MIB), MIB, Bounds::of(3 * MIB, true), &small.counts));
}
