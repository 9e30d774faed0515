//! What is decided after which lessons, for a length and for its ranks.

use super::*;

const MIB: usize = 1 << 20;

/// Where it is known how far a block was touched.
fn learn_reach(zeroing: &Zeroing, kind: Kind, len: usize, zeroed: bool, end: usize) {
    zeroing.learn_reach(kind, len, zeroed, end..=end);
}

#[test]
fn small_blocks_are_written_and_unknown_ones_left_to_the_kernel() {
    let zeroing = Zeroing::new();
    assert_eq!(zeroing.way(Kind::of(MIB), MIB), Way::Written);
    // A request of two megabytes, with the room for its colour.
    assert_eq!(zeroing.way(Kind::of(2 * MIB + 4096), 2 * MIB + 4096), Way::Written);
    assert_eq!(zeroing.way(Kind::of(8 * MIB), 8 * MIB), Way::Kernel);
    assert_eq!(zeroing.absent(Kind::of(8 * MIB), 8 * MIB), 0);
    assert_eq!(zeroing.reach(Kind::of(8 * MIB), 8 * MIB, false), 8 * MIB);
}

#[test]
fn blocks_whose_chunks_nobody_looks_at_are_written_unless_they_are_barely_touched() {
    let zeroing = Zeroing::new();
    for len in [2 * MIB + 8192, 3 * MIB, WORTH_A_LOOK - 4096] {
        let kind = Kind::of(len);
        assert_eq!(zeroing.way(kind, len), Way::Written, "{len}");
        zeroing.learn_pages(kind, 6, 64);
        for _ in 0..64 {
            let _ = zeroing.samples(kind);
            assert_eq!(zeroing.way(kind, len), Way::Written, "{len}");
        }
        for _ in 0..16 {
            zeroing.learn_pages(kind, 1, 64);
        }
        assert_eq!(zeroing.way(kind, len), Way::Thin, "{len}");
    }
    assert_eq!(zeroing.way(Kind::of(WORTH_A_LOOK), WORTH_A_LOOK), Way::Kernel);
}

#[test]
fn what_is_touched_densely_is_written() {
    let zeroing = Zeroing::new();
    zeroing.learn_chunks(Kind::of(8 * MIB), 8 * MIB, 8 * MIB);
    zeroing.learn_pages(Kind::of(8 * MIB), 64, 64);
    for _ in 0..512 {
        assert_eq!(zeroing.way(Kind::of(8 * MIB), 8 * MIB), Way::Written);
        let _ = zeroing.samples(Kind::of(8 * MIB));
    }
}

#[test]
fn what_is_touched_here_and_there_is_looked_at_again_now_and_then() {
    let zeroing = Zeroing::new();
    zeroing.learn_chunks(Kind::of(8 * MIB), 8 * MIB, 8 * MIB);
    zeroing.learn_pages(Kind::of(8 * MIB), 6, 64);
    let ways = (0..64).map(|_| {
        let _ = zeroing.samples(Kind::of(8 * MIB));
        zeroing.way(Kind::of(8 * MIB), 8 * MIB)
    });
    assert_eq!(ways.filter(|&way| way == Way::Kernel).count(), 2);
}

/// Whatever the length of a program's round, and wherever in it the dense block is taken. (Where there are more barely touched ones to a
/// dense one, small pages are cheaper for all of them together.)
#[test]
fn a_dense_block_among_barely_touched_ones_does_not_stay_in_small_pages() {
    for period in 2..=6 {
        for dense in 0..period {
            let (zeroing, len) = (Zeroing::new(), 8 * MIB);
            let kind = Kind::of(len);
            let mut thin = 0;
            for turn in 0..4096 {
                let way = zeroing.way(kind, len);
                let is_dense = turn % period == dense;
                let pages = if is_dense { 64 } else { 1 };
                if way == Way::Kernel {
                    zeroing.learn_chunks(kind, if is_dense { len } else { 2 * MIB }, len);
                }
                match way {
                    Way::Thin => zeroing.learn_thin(kind, pages, 64),
                    _ if zeroing.samples(kind) => zeroing.learn_pages(kind, pages, 64),
                    _ => {}
                }
                thin += usize::from(is_dense && way == Way::Thin);
            }
            let all = 4096 / period;
            assert!(thin <= 3, "{thin} of {all}, one in {period}, the {dense}th");
        }
    }
}

/// While samples were not believed, what they said was not remembered either, and each that was not thin put off the end of that.
#[test]
fn what_is_touched_now_is_learned_after_a_block_in_small_pages_was_dense() {
    let zeroing = Zeroing::new();
    let kind = Kind::of(64 * MIB);
    zeroing.learn_chunks(kind, 64 * MIB, 64 * MIB);
    zeroing.learn_thin(kind, 64, 64);
    (0..20).for_each(|_| zeroing.learn_pages(kind, 13, 64));
    let ways = (0..64).map(|_| {
        let _ = zeroing.samples(kind);
        zeroing.way(kind, 64 * MIB)
    });
    assert_eq!(
        ways.filter(|&way| way == Way::Kernel).count(),
        2,
        "it is seen whether whole chunks stay untouched"
    );
}

#[test]
fn each_rank_is_sampled_before_it_is_taken_for_dense() {
    let zeroing = Zeroing::new();
    let kinds = [0; RANKS].map(|_| zeroing.enter(512 * MIB));
    // All chunks touched, and few pages.
    for kind in kinds {
        assert!(zeroing.samples(kind));
        zeroing.learn_pages(kind, 1, 64);
        zeroing.learn_chunks(kind, 512 * MIB, 512 * MIB);
    }
    for kind in kinds {
        assert_eq!(zeroing.way(kind, 512 * MIB), Way::Thin);
    }
}

#[test]
fn a_rank_that_was_full_once_is_looked_at_when_it_is_half_used() {
    let zeroing = Zeroing::new();
    let kind = zeroing.enter(64 * MIB);
    zeroing.learn_chunks(kind, 64 * MIB, 64 * MIB);
    learn_reach(&zeroing, kind, 64 * MIB, true, 64 * MIB);
    for _ in 0..24 {
        zeroing.learn_pages(kind, 32, 64);
    }
    let ways = (0..64).map(|_| {
        let _ = zeroing.samples(kind);
        zeroing.way(kind, 64 * MIB)
    });
    assert_eq!(ways.filter(|&way| way == Way::Kernel).count(), 2);
}

#[test]
fn zeroed_blocks_have_a_reach_from_where_ranks_begin() {
    let zeroing = Zeroing::new();
    for len in [8 * MIB, RANKED_MIN] {
        let kind = zeroing.enter(len);
        learn_reach(&zeroing, kind, len, true, len / 2);
        assert_eq!(zeroing.reach(kind, len, true) < len, len == RANKED_MIN);
    }
}

#[test]
fn ranks_do_not_look_again_in_one_round() {
    let zeroing = Zeroing::new();
    let kinds = [0; RANKS].map(|_| zeroing.enter(64 * MIB));
    for kind in kinds {
        zeroing.learn_chunks(kind, 64 * MIB, 64 * MIB);
        zeroing.learn_pages(kind, 6, 64);
    }
    for round in 0..64 {
        let looks = kinds.iter().filter(|&&kind| {
            let way = zeroing.way(kind, 64 * MIB);
            let _ = zeroing.samples(kind);
            way == Way::Kernel
        });
        assert!(looks.count() <= 1, "round {round}");
    }
}

#[test]
fn whose_chunks_stay_untouched_is_left_to_the_kernel() {
    let zeroing = Zeroing::new();
    zeroing.learn_chunks(Kind::of(64 * MIB), 16 * MIB, 64 * MIB);
    zeroing.learn_pages(Kind::of(64 * MIB), 16, 64);
    assert_eq!(zeroing.way(Kind::of(64 * MIB), 64 * MIB), Way::Kernel);
    assert_eq!(zeroing.absent(Kind::of(64 * MIB), 64 * MIB), 64 * MIB - 64 * MIB / WHOLE * 60);
}

#[test]
fn what_is_barely_touched_gets_small_pages_until_it_is_not() {
    let zeroing = Zeroing::new();
    zeroing.learn_chunks(Kind::of(6 * MIB), 6 * MIB, 6 * MIB);
    zeroing.learn_pages(Kind::of(6 * MIB), 1, 64);
    assert_eq!(zeroing.way(Kind::of(6 * MIB), 6 * MIB), Way::Thin);
    zeroing.learn_thin(Kind::of(6 * MIB), 16 << 12, 6 * MIB);
    assert_eq!(zeroing.way(Kind::of(6 * MIB), 6 * MIB), Way::Thin);
    zeroing.learn_thin(Kind::of(6 * MIB), 6 * MIB, 6 * MIB);
    assert_eq!(zeroing.way(Kind::of(6 * MIB), 6 * MIB), Way::Written);
}

#[test]
fn samples_that_called_dense_zeros_untouched_are_not_believed_for_a_while() {
    let zeroing = Zeroing::new();
    zeroing.learn_chunks(Kind::of(6 * MIB), 6 * MIB, 6 * MIB);
    zeroing.learn_pages(Kind::of(6 * MIB), 0, 64);
    zeroing.learn_thin(Kind::of(6 * MIB), 6 * MIB, 6 * MIB);
    for _ in 0..DISTRUST {
        zeroing.learn_pages(Kind::of(6 * MIB), 0, 64);
        assert_eq!(zeroing.way(Kind::of(6 * MIB), 6 * MIB), Way::Written);
    }
}

#[test]
fn the_reach_grows_at_once_and_shrinks_slowly() {
    let zeroing = Zeroing::new();
    let near = |bytes: usize, wanted: usize| bytes >= wanted && bytes <= wanted + wanted / 32;
    learn_reach(&zeroing, Kind::of(64 * MIB), 64 * MIB, false, 32 * MIB);
    assert!(near(zeroing.reach(Kind::of(64 * MIB), 64 * MIB, false), 32 * MIB));
    learn_reach(&zeroing, Kind::of(64 * MIB), 64 * MIB, false, 64 * MIB);
    assert_eq!(zeroing.reach(Kind::of(64 * MIB), 64 * MIB, false), 64 * MIB);
    learn_reach(&zeroing, Kind::of(64 * MIB), 64 * MIB, false, 32 * MIB);
    assert!(zeroing.reach(Kind::of(64 * MIB), 64 * MIB, false) > 48 * MIB);
    for _ in 0..40 {
        learn_reach(&zeroing, Kind::of(64 * MIB), 64 * MIB, false, 32 * MIB);
    }
    assert!(near(zeroing.reach(Kind::of(64 * MIB), 64 * MIB, false), 32 * MIB));
}

/// It was up to a 240th of the block behind that, in the next huge page, which was resident then for nobody.
#[test]
fn a_block_of_which_it_is_not_known_how_far_it_was_touched_changes_no_more_than_it_must() {
    let zeroing = Zeroing::new();
    let (len, kind) = (8 * MIB + 4096, Kind::of(8 * MIB + 4096));
    let learn = |end: RangeInclusive<usize>| {
        zeroing.learn_reach(kind, len, false, end);
        zeroing.reach(kind, len, false) / MIB
    };
    assert_eq!(learn(2 * MIB..=4 * MIB), 4, "nothing was known: as much as it may be");
    assert_eq!(learn(4 * MIB..=6 * MIB), 4);
    assert_eq!(learn(4 * MIB..=len), 4);
    assert_eq!(learn(6 * MIB..=len), 8, "it was too little: as much as it may be");
    for _ in 0..16 {
        let _ = learn(4 * MIB..=6 * MIB);
    }
    assert_eq!(learn(4 * MIB..=len), 6);
    for _ in 0..16 {
        let _ = learn(2 * MIB..=4 * MIB);
    }
    assert_eq!(learn(2 * MIB..=6 * MIB), 4);
    assert_eq!(learn(len..=len), 8);
}

#[test]
fn a_reach_ends_where_a_huge_page_does() {
    for len in [8 * MIB + GRANULE, 16 * MIB + 7 * GRANULE, 24 * MIB, 62 * MIB, 400 * MIB + GRANULE] {
        for chunks in 1..len / CHUNK {
            let zeroing = Zeroing::new();
            learn_reach(&zeroing, Kind::of(len), len, false, chunks * CHUNK);
            assert_eq!(zeroing.reach(Kind::of(len), len, false), chunks * CHUNK, "of {len}");
            // What ends within one makes all of it resident. A 240th of a longer block may be more than that is off.
            if len > 64 * MIB {
                continue;
            }
            let zeroing = Zeroing::new();
            learn_reach(&zeroing, Kind::of(len), len, false, chunks * CHUNK - CHUNK / 3);
            let reach = zeroing.reach(Kind::of(len), len, false);
            assert_eq!(reach, chunks * CHUNK, "of {len}");
        }
    }
    let (zeroing, kind) = (Zeroing::new(), Kind::of(64 * MIB));
    learn_reach(&zeroing, kind, 64 * MIB, false, 0);
    assert_eq!(zeroing.reach(kind, 64 * MIB, false), 0, "nothing is moved in for nobody");
}

#[test]
fn a_rank_knows_better_than_its_length_and_less_than_nothing_else() {
    let zeroing = Zeroing::new();
    let [trace, extension, scratch] = [0; 3].map(|_| zeroing.enter(64 * MIB));
    let near = |bytes: usize, wanted: usize| bytes >= wanted && bytes <= wanted + wanted / 32;
    for _ in 0..3 {
        for (kind, touched) in [(scratch, 64 * MIB), (trace, 32 * MIB), (extension, 64 * MIB)] {
            zeroing.learn_chunks(kind, touched, 64 * MIB);
            zeroing.learn_pages(kind, touched / MIB, 64);
            learn_reach(&zeroing, kind, 64 * MIB, true, touched);
            learn_reach(&zeroing, kind, 64 * MIB, false, touched / 2);
        }
    }
    assert!(near(zeroing.reach(trace, 64 * MIB, true), 32 * MIB));
    assert!(near(zeroing.reach(trace, 64 * MIB, false), 16 * MIB));
    for kind in [extension, scratch, Kind::of(64 * MIB), zeroing.enter(64 * MIB)] {
        assert!(zeroing.reach(kind, 64 * MIB, true) > 48 * MIB);
        assert_eq!(zeroing.way(kind, 64 * MIB), Way::Written);
    }
    assert_eq!(zeroing.way(trace, 64 * MIB), Way::Written);
}

#[test]
fn of_a_new_length_as_much_is_expected_as_of_half_or_twice_of_it() {
    let zeroing = Zeroing::new();
    let near = |bytes: usize, wanted: usize| bytes >= wanted && bytes <= wanted + wanted / 32;
    let enter = |len: usize| [0; 2].map(|_| zeroing.enter(len));
    let [trace, extension] = enter(64 * MIB);
    learn_reach(&zeroing, trace, 64 * MIB, false, 32 * MIB);
    learn_reach(&zeroing, extension, 64 * MIB, false, 64 * MIB);
    learn_reach(&zeroing, extension, 64 * MIB, true, 16 * MIB);
    // Each from the one before, too.
    for len in [128 * MIB, 32 * MIB, 512 * MIB, 256 * MIB, 2048 * MIB] {
        let [trace, extension] = enter(len);
        assert!(near(zeroing.reach(trace, len, false), len / 2), "{len}");
        assert_eq!(zeroing.reach(trace, len, true), len);
        assert_eq!(zeroing.reach(extension, len, false), len);
        assert!(near(zeroing.reach(extension, len, true), len / 4), "{len}");
        assert_eq!(zeroing.reach(zeroing.enter(len), len, false), len, "nobody knows");
    }
    for len in [96 * MIB, 16 << 30, 16 * MIB] {
        assert_eq!(zeroing.reach(zeroing.enter(len), len, false), len, "{len}");
    }
    // What is known of itself counts, and what is known of its length.
    let [_, extension] = enter(192 * MIB);
    learn_reach(&zeroing, extension, 192 * MIB, false, 96 * MIB);
    let [trace, _] = enter(384 * MIB);
    learn_reach(&zeroing, trace, 384 * MIB, false, 384 * MIB);
    zeroing.leave_all();
    for len in [384 * MIB, 192 * MIB, 64 * MIB] {
        let reach = zeroing.reach(zeroing.enter(len), len, false);
        assert!(if len == 384 * MIB { reach == len } else { near(reach, len / 2) }, "{len}: {reach}");
    }
}

#[test]
fn what_is_touched_densely_up_to_somewhere_is_written_up_to_there() {
    let zeroing = Zeroing::new();
    let kind = zeroing.enter(64 * MIB);
    zeroing.learn_chunks(kind, 16 * MIB, 64 * MIB);
    zeroing.learn_pages(kind, 16, 64);
    learn_reach(&zeroing, kind, 64 * MIB, true, 16 * MIB);
    assert_eq!(zeroing.way(kind, 64 * MIB), Way::Written);
    // Not if it is touched here and there up to there.
    learn_reach(&zeroing, kind, 64 * MIB, true, 48 * MIB);
    assert_eq!(zeroing.way(kind, 64 * MIB), Way::Kernel);
}

#[test]
fn lengths_of_about_the_same_size_learn_together() {
    let zeroing = Zeroing::new();
    learn_reach(&zeroing, Kind::of(64 * MIB), 64 * MIB, false, 32 * MIB);
    assert!(zeroing.reach(Kind::of(64 * MIB + 4096), 64 * MIB + 4096, false) < 64 * MIB);
    assert_eq!(zeroing.reach(Kind::of(96 * MIB), 96 * MIB, false), 96 * MIB);
    for len in [0, 1, 2, 3, 4, 5, usize::MAX] {
        assert_eq!(zeroing.reach(Kind::of(len), len, false), len);
    }
}

/// Each step is short, and all of it is touched.
#[test]
fn what_grows_in_small_steps_says_nothing_of_what_doubles() {
    let zeroing = Zeroing::new();
    let (half, len) = (32 * MIB, 64 * MIB);
    for _ in 0..100 {
        zeroing.learn_grown(len - 4 * MIB, len, len);
        assert!(!zeroing.stays(len - 4 * MIB, len, len));
    }
    assert_eq!(zeroing.reach_grown(half, len), len);
    (0..4).for_each(|_| zeroing.learn_grown(half, len, half + 4096));
    assert_eq!(zeroing.reach_grown(half, len), half + len / 8);
    assert_eq!(zeroing.reach_grown(len - 4 * MIB, len), len);
    assert!(zeroing.stays(half, len, len));
}
