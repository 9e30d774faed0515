//! How long blocks get, as far as it is known.

use super::*;

const MIB: usize = 1 << 20;

/// Pushes to so many vectors until they are so long.
fn push(growth: &mut Growth, vectors: usize, bytes: usize) {
    for _ in 0..vectors {
        growth.begin();
        let mut size = 128 << 10;
        while size <= bytes {
            growth.note(size / 2 + 4096, size + 4096);
            size *= 2;
        }
    }
}

#[test]
fn room_is_what_half_of_the_vectors_get_to() {
    let mut growth = Growth::NONE;
    assert_eq!(growth.usual(), 0);
    push(&mut growth, 1, MIB);
    assert_eq!(growth.usual(), MIB + 4096);
    push(&mut growth, 1, 8 * MIB);
    push(&mut growth, 1, MIB);
    assert_eq!(growth.usual(), MIB + 4096, "one of three");
    push(&mut growth, 1, 8 * MIB);
    assert_eq!(growth.usual(), 8 * MIB + 4096, "two of four");
    push(&mut growth, 1, MIB);
    assert_eq!(growth.usual(), MIB + 4096, "two of five");
}

#[test]
fn no_room_is_made_for_vectors_that_have_stopped_growing() {
    let mut growth = Growth::NONE;
    push(&mut growth, 100, MIB);
    push(&mut growth, 10, 0);
    assert_eq!(growth.usual(), MIB + 4096);
    push(&mut growth, 1, 0);
    assert_eq!(growth.usual(), 0);
    push(&mut growth, 1, MIB);
    assert_eq!(growth.usual(), MIB + 4096, "one that grows is enough");
}

#[test]
fn no_room_is_made_where_pages_are_moved_instead() {
    let mut growth = Growth::NONE;
    push(&mut growth, 2, 32 * MIB);
    assert_eq!(growth.usual(), 32 * MIB + 4096);
    push(&mut growth, 3, 512 * MIB);
    assert_eq!(growth.usual(), 0);
}

/// Those that were long when they began grew by copies at each doubling.
#[test]
fn a_block_that_grows_has_room_for_what_such_blocks_get_to() {
    let mut growth = Growth::NONE;
    let grow = |growth: &mut Growth, to: usize| {
        for log in 20..=to.ilog2() {
            growth.note(1 << (log - 1), 1 << log);
        }
    };
    (0..3).for_each(|_| grow(&mut growth, 8 * MIB));
    assert_eq!([growth.usual_from(MIB), growth.usual_from(4 * MIB), growth.usual()], [8 * MIB, 8 * MIB, 0]);
    assert_eq!(growth.usual_from(16 * MIB), 0, "none has got there");
    (0..10).for_each(|_| grow(&mut growth, 2 * MIB));
    assert_eq!(growth.usual_from(MIB), 2 * MIB, "three of thirteen");
    assert_eq!(growth.usual_from(4 * MIB), 8 * MIB, "all of three");
    (0..4000).for_each(|_| grow(&mut growth, MIB));
    assert_eq!(growth.usual_from(4 * MIB), 0, "long ago");
    (0..2).for_each(|_| grow(&mut growth, 512 * MIB));
    assert_eq!(growth.usual_from(4 * MIB), 0, "pages are moved there");
    let mut growth = Growth::NONE;
    (0..10).for_each(|_| grow(&mut growth, MIB));
    // Others that were longer from the beginning, and one that jumps.
    (0..100).for_each(|_| growth.note(4 * MIB, 8 * MIB));
    (0..100).for_each(|_| growth.note(24 * MIB, 80 * MIB));
    assert_eq!([growth.usual_from(MIB), growth.usual_from(8 * MIB)], [MIB, 8 * MIB]);
    (0..10).for_each(|_| growth.note(MIB, 3 * MIB));
    assert_eq!(growth.usual_from(MIB), 3 * MIB, "none of those goes on to where the others begin");
}

#[test]
fn what_was_is_forgotten_in_time() {
    let mut growth = Growth::NONE;
    push(&mut growth, 10_000, 8 * MIB);
    assert_eq!(growth.usual(), 8 * MIB + 4096);
    push(&mut growth, 2 * usize::from(HALVED_AFTER), 128 << 10);
    assert_eq!(growth.usual(), (128 << 10) + 4096);
}

#[test]
fn a_block_counts_once_for_each_doubling() {
    let mut growth = Growth::NONE;
    (0..100_000).for_each(|step| growth.note(MIB + step, MIB + step + 1));
    growth.note(MIB, 32 * MIB);
    assert_eq!(growth.usual(), 0, "none of them has begun short");
    (0..4).for_each(|_| growth.begin());
    (0..100_000).for_each(|step| growth.note(2 * MIB + step, 2 * MIB + step + 1));
    growth.note(4 * MIB - 1, 4 * MIB);
    assert_eq!(growth.usual(), 0, "one of four");
    growth.note(4 * MIB - 1, 4 * MIB);
    assert_eq!(growth.usual(), 4 * MIB, "two of four");
}

/// It was added to until there was no room for twice as much.
#[test]
fn any_number_of_vectors_may_begin() {
    let mut growth = Growth::NONE;
    (0..100_000).for_each(|_| growth.begin());
    growth.note(64 << 10, 128 << 10);
    assert_eq!(growth.usual(), 0);
    (0..100_000).for_each(|_| growth.begin());
    assert_eq!(growth.usual(), 0);
}

/// Of many that are pushed to in turn none has grown when the last one begins.
#[test]
fn vectors_that_are_pushed_to_in_turn_count_as_others_do() {
    let mut growth = Growth::NONE;
    for _ in 0..20 {
        (0..256).for_each(|_| growth.begin());
        (0..256).for_each(|_| growth.note(MIB / 2, MIB));
        (0..100).for_each(|_| growth.begin());
        assert_eq!(growth.usual(), MIB);
        (0..100).for_each(|_| growth.note(MIB / 2, MIB));
    }
}

#[test]
fn no_room_is_made_for_a_while_once_gaps_cost_memory_and_for_longer_the_next_time() {
    let mut growth = Growth::NONE;
    assert!(growth.grants());
    let denied = |growth: &mut Growth| (0..).take_while(|_| !growth.grants()).count();
    growth.note_gaps();
    growth.note_gaps();
    assert_eq!(denied(&mut growth), 1 << 14, "noted twice, it is once");
    growth.note_gaps();
    assert!(!growth.grants());
    growth.note_gaps();
    assert_eq!(denied(&mut growth), (1 << 16) - 1);
    (0..10).for_each(|_| {
        growth.denied = 0;
        growth.note_gaps();
    });
    assert_eq!(growth.denied, 1 << 24);
}
