//! Every length fits, no colour is missing, and blocks lie where they were meant to.

use super::*;
use crate::config::{LARGE_FROM, LARGE_FROM_MIN};

const ALL: [Colours; 3] = [Colours::Skewed, Colours::Nine, Colours::Five];

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

#[test]
fn classes_and_lengths_are_inverse_and_ascending() {
    let mut last = 0;
    for index in 0..SizeClass::COUNT {
        let class = SizeClass::nth(index);
        assert!(class.len().0 > last, "class {index}");
        last = class.len().0;
        assert_eq!(SizeClass::of(class.len()), Some(class));
    }
    assert_eq!(last, CLASS_TOP + 1);
    assert_eq!(SizeClass::of(Granules(CLASS_TOP + 2)), None);
}

#[test]
fn every_size_fits_with_every_colour_and_wastes_little() {
    let mut size = LARGE_FROM_MIN;
    while size < 1 << 38 {
        for align in [1, 8, 64, 256, 2048, 4096, 1 << 21, 1 << 30] {
            let request = layout(size, align);
            let block = Block::of(request).unwrap();
            for turn in 0..192 {
                let colour = Block::colour(turn / 3, request, ALL[turn % 3]);
                assert_eq!(colour % align.min(GRANULE), 0);
                assert!(colour + size <= block.len.bytes(), "{size} {align} {turn}");
                let pointer = 7 * (1 << 30) + colour;
                assert_eq!(Block::start(pointer, request), 7 << 30);
            }
            let waste = block.len.bytes() - size;
            if size < LARGE_FROM {
                // The room for the colour, and what is left of a granule.
                assert!(waste < 2 * GRANULE, "{size} {align}: {waste}");
            } else if size <= 2 << 20 {
                assert!(waste * 8 <= size, "{size} {align}: {waste}");
            } else if size > 16 << 20 {
                assert!(waste * 50 <= size, "{size} {align}: {waste}");
            }
            let is_exact = align > GRANULE && (size..size + GRANULE).contains(&block.len.bytes());
            assert!(block.class.is_some() || block.len.0 > CLASS_TOP + 1 || block.is_apart() || is_exact);
            assert!(block.class.is_none_or(|class| class.len() == block.len));
        }
        // Every size near the small end, then ever sparser ones, around powers of two exactly.
        size += if size < 200 << 10 { 61 } else { size / 97 };
    }
}

/// A class's length is a granule more, for a colour, and the next place to begin was one further on then.
#[test]
fn blocks_as_long_as_their_alignment_lie_beside_each_other() {
    for align in (13..=21).map(|log2| 1_usize << log2) {
        for size in
            [align, align - 1, 2 * align, 3 * align].into_iter().filter(|&size| size >= LARGE_FROM_MIN)
        {
            let block = Block::of(layout(size, align)).unwrap();
            assert_eq!(block.pitch(), size.next_multiple_of(align), "{size} {align}");
        }
    }
}

#[test]
fn lengths_never_fall_as_sizes_grow() {
    let mut last = Granules(0);
    for size in (LARGE_FROM_MIN..5 << 20).step_by(512) {
        let len = Block::of(layout(size, 8)).unwrap().len;
        assert!(len >= last);
        last = len;
    }
}

#[test]
fn nine_turns_give_nine_colours_far_apart_and_all_come() {
    for size in [LARGE_FROM, 4 << 20, 5 << 20, 1 << 30] {
        let line = |turn| Block::colour(turn, layout(size, 8), Colours::Nine) / LINE;
        let mut seen = [false; 64];
        for turn in 0..64 * 1152 {
            seen[line(turn)] = true;
            // Where they are turned, others come next.
            for earlier in turn.saturating_sub(8).max(turn & !63)..turn {
                let apart = line(turn).abs_diff(line(earlier));
                assert!(apart.min(64 - apart) >= 6, "{size}: turns {earlier} and {turn}");
            }
        }
        assert!(seen.iter().all(|&s| s), "{size}");
    }
}

/// A table had one colour whose columns were every ninth request of their thread, and three if every third: rows took three times as
/// long.
#[test]
fn columns_that_are_every_so_manieth_block_have_many_colours_too() {
    for (colours, most) in [(Colours::Nine, 12), (Colours::Five, 16)] {
        for (size, every) in
            [4 << 20, 8 << 20].into_iter().flat_map(|size| (1..=16).map(move |every| (size, every)))
        {
            let mut begin = [0; 64];
            for nth in 0..64 {
                begin[Block::colour(1_000 + nth * every, layout(size, 8), colours) / LINE] += 1;
            }
            let beside = (0..64).map(|line| begin[line] + begin[(line + 1) % 64]).max().unwrap();
            assert!(beside <= most, "{beside} of 64 columns of {size}, every {every}");
        }
    }
}

#[test]
fn short_blocks_go_on_equally_far_and_long_ones_back_and_forth() {
    let line = |size, turn| Block::colour(turn, layout(size, 64), Colours::Nine) / LINE;
    // The ways from one to the next, of which most are seven lines; the others go round or make up for the rest.
    let on = |turn: &usize| line(4 << 20, turn + 1) == line(4 << 20, *turn) + 7;
    assert!((0..900).filter(on).count() >= 700);
    // Three times the same would be a distance that is gone on at.
    let forth = |turn| line((4 << 20) + (64 << 10) + 1, turn) < line((4 << 20) + (64 << 10) + 1, turn + 1);
    assert!((0..900).all(|turn| [1, 2].iter().any(|&more| forth(turn) != forth(turn + more))));
}

#[test]
fn matrices_begin_within_a_line_where_ways_are_few_unless_an_alignment_was_asked_for() {
    const MATRIX: usize = 1312 << 17;

    let from_line = |turn, size, align, ways| {
        let colours = Colours::of(ways, Vendor::Other);
        Block::colour(turn, layout(size, align), colours) % LINE
    };
    for turn in 0..64 * 288 {
        for ways in [0, 4, 8] {
            // Too short, and vectors.
            for size in [LONG_FROM - 1, LONG_FROM, 8 * LONG_FROM] {
                assert_eq!(from_line(turn, size, 8, ways), 0, "turn {turn}");
            }
            for size in [LONG_FROM + 1, MATRIX] {
                for align in [1, 8, SKEW] {
                    assert_eq!(from_line(turn, size, align, ways), SKEW, "turn {turn}");
                }
                assert_eq!(from_line(turn, size, LINE, ways), 0, "turn {turn}");
            }
        }
        assert_eq!(from_line(turn, MATRIX, 8, 12), 0, "turn {turn}");
    }
}

/// Ten turns have five colours; nine of other processors', and of blocks with a class.
#[test]
fn intels_twelve_ways_have_five_colours_of_blocks_without_a_class() {
    let colours = |size, of: Colours| {
        let line = move |turn| Block::colour(turn, layout(size, 8), of) / LINE;
        let turned = |first: &usize| first % 64 > 64 - 10;
        (0..64 * 640).step_by(97).filter(move |first| !turned(first)).map(move |first| {
            let mut seen: Vec<usize> = (first..first + 10).map(line).collect();
            seen.sort_unstable();
            // One that has gone on by a line meanwhile is the same one.
            seen.dedup_by(|line, before| *line - *before <= 1);
            seen.len() - usize::from(seen[0] == 0 && seen[seen.len() - 1] == 63)
        })
    };
    let five = Colours::of(12, Vendor::Intel);
    for size in [CHUNK + 1, 4 << 20, 5 << 20, 1 << 30] {
        assert!(colours(size, five).all(|count| count == 5), "{size}");
        assert!(colours(size, Colours::Nine).all(|count| count == 9), "{size}");
    }
    assert!(colours(CHUNK, five).all(|count| count == 9));
    assert_eq!([Colours::of(8, Vendor::Intel), Colours::of(0, Vendor::Intel)], [Colours::Skewed; 2]);
    assert_eq!(Colours::of(12, Vendor::Other), Colours::Nine);
    assert!(ALL.iter().all(|&colours| Colours::numbered(colours.number()) == colours));
    // All 64 come in time.
    let mut seen = [false; 64];
    (0..64 * 640).for_each(|turn| seen[Block::colour(turn, layout(4 << 20, 8), five) / LINE] = true);
    assert!(seen.iter().all(|&seen| seen));
}

#[test]
fn long_columns_of_a_power_of_two_lie_seven_pages_off_and_shorter_ones_one() {
    for (size, pages) in [(APART_FROM / 2, 1), (APART_FROM, 7), (8 * LONG_FROM, 7)] {
        assert_eq!(Block::of(layout(size, 8)).unwrap().len.bytes(), size + pages * GRANULE);
        assert_eq!(Block::of(layout(size, GRANULE)).unwrap().len.bytes(), size);
    }
}

#[test]
fn absurd_sizes_have_no_block() {
    assert!(Block::of(layout(isize::MAX as usize - 7, 8)).is_none());
    assert!(Block::of(layout(1 << 47, 8)).is_none());
    assert!(Block::of(layout(1 << 46, 8)).is_some());
}
