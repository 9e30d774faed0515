//! From a `Layout` to a block, by arithmetic alone.
//!
//! Why: `dealloc` gets back only the pointer and the `Layout`, and recomputes from them everything that
//! `alloc` decided (invariants G1 to G3). So every function here is pure, and what it says of a `Layout`
//! never depends on the colour, on the host or on what happened before.
//!
//! Never here: a decision that anything but the size and the alignment could change.

use core::alloc::Layout;

use crate::os::{CHUNK, GRANULE, Vendor};

/// What colours are multiples of, but for the skew of long blocks: a cache line.
const LINE: usize = 64;

/// From this size on blocks are longer than what most last-level caches hold: they may begin within a line.
const LONG_FROM: usize = 32 << 20;

/// How far from a line such blocks begin: half a line, so that no load of 32 bytes straddles two.
const SKEW: usize = 32;

/// First-level data caches of more ways than this hold what a transpose has in hand of one set, or nearly, and a skew
/// costs more there than it gains (docs/EXPERIMENTS.md has the measurements). AMD up to Zen 4 and Intel up to Cascade Lake
/// have eight, Intel from Ice Lake and AMD from Zen 5 on have twelve.
const SKEWED_WAYS_MAX: usize = 8;

/// Up to this size blocks that are taken one after the other begin a little more than seven lines after each other, and
/// longer ones back and forth (docs/EXPERIMENTS.md has the measurements): a table of a hundred columns of this length does not
/// fit into a cache, and loops over one of few longer columns are better off if nothing is fetched ahead.
const FORTH_MAX: usize = (4 << 20) + (64 << 10);

/// Lines from one colour to the next, times 128: nine turns are a round of the granule, or five.
const FORTH: usize = 910;
const BACK_AND_FORTH: usize = 4551;

/// The same of blocks without a class where [`Colours::Five`] are in force: five turns are two rounds. A row of 64 columns and
/// more that is written word by word has then more lines in each set of the first-level cache than that holds, without which
/// Intel's processors wait for one line after the other (docs/EXPERIMENTS.md has the measurements).
const OF_FIVE: usize = 3277;

/// Room in a block for the largest colour.
const COLOUR_ROOM: usize = GRANULE - LINE;

/// From this size on blocks leave so much behind them beside that: neighbours that are a power of two long begin seven
/// pages off each other instead of one, and loops over a few of them are up to a third faster (docs/EXPERIMENTS.md has the
/// measurement).
const APART_FROM: usize = 16 << 20;
const APART: usize = 6 * GRANULE;

/// More granules than any address space has (2^47 bytes, and room to add without overflow).
const GRANULES_MAX: usize = (1 << 47) / GRANULE;

/// A length in granules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Granules(pub(crate) usize);

impl Granules {
    /// The length in bytes.
    #[inline]
    pub(crate) const fn bytes(self) -> usize {
        self.0 * GRANULE
    }
}

/// One of the lengths that stacks of free blocks exist for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeClass {
    index: u8,
    len: Granules,
}

/// Classes per doubling of the length: 6.25 % between neighbours. With the room for the colour that keeps
/// the waste of a 64 KiB request under 12.5 %.
const STEPS_LOG2: u32 = 4;

/// Up to this many granules (64 KiB) and one, where a sixteenth is less than a granule, every length has a class.
const CLASS_BASE: usize = 1 << STEPS_LOG2;

/// Requests of up to this many granules (2 MiB) have a class; longer blocks have their exact length.
const CLASS_TOP: usize = CHUNK / GRANULE;

impl SizeClass {
    /// How many classes there are.
    pub(crate) const COUNT: usize = Self::of_at_least(CLASS_TOP + 1).index() + 1;

    /// The class whose blocks are exactly `len` long, which is a length that [`Block::of`] gave.
    #[inline]
    pub(crate) const fn of(len: Granules) -> Option<Self> {
        if len.0 > CLASS_TOP + 1 { None } else { Some(Self::of_at_least(len.0)) }
    }

    /// The class of blocks of at least `granules`, which are two at least and `CLASS_TOP + 1` at most.
    ///
    /// Lengths lie one granule above sixteenths of powers of two, because a power of two is what most requests are, and
    /// the colour takes the granule.
    #[inline]
    const fn of_at_least(granules: usize) -> Self {
        let octave = octave(granules);
        let step = (granules - 2) >> octave;
        let len = Granules(((step + 1) << octave) + 1);
        Self { index: ((octave << STEPS_LOG2) as usize + step) as u8, len }
    }

    /// The class of this index, which is under [`SizeClass::COUNT`].
    pub(crate) const fn nth(index: usize) -> Self {
        let octave = (index >> STEPS_LOG2).saturating_sub(1);
        let len = Granules(((index - (octave << STEPS_LOG2) + 1) << octave) + 1);
        Self { index: index as u8, len }
    }

    /// Its place among the classes, the shortest first.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.index as usize
    }

    /// The length of its blocks.
    #[inline]
    pub(crate) const fn len(self) -> Granules {
        self.len
    }
}

/// By how much lengths of about `granules`, two at least, differ from class to class, as a power of two.
#[inline]
const fn octave(granules: usize) -> u32 {
    ((granules - 2) | CLASS_BASE).ilog2() - STEPS_LOG2
}

/// What a large request occupies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The block's length.
    pub(crate) len: Granules,
    /// What its start must be a multiple of, in bytes: at least a granule.
    pub(crate) align: usize,
    /// The class of its length, which is known by the way; none where its alignment keeps others off ([`Block::is_apart`]), or would for
    /// the length of its class: what is as long as its alignment needs no granule for a colour, and with one it would take two places.
    pub(crate) class: Option<SizeClass>,
}

impl Block {
    /// The block of a large request (G2), or `None` if no address space is that large.
    #[inline]
    pub(crate) const fn of(layout: Layout) -> Option<Self> {
        let (size, align) = (layout.size(), layout.align());
        // `Layout` keeps the size under isize::MAX, so this cannot overflow.
        let (room, align) = match align < GRANULE {
            true if size < APART_FROM => (COLOUR_ROOM, GRANULE),
            true => (COLOUR_ROOM + APART, GRANULE),
            false => (0, align),
        };
        // Two at least: a class of one granule would serve next to nothing.
        let granules = (size + room).div_ceil(GRANULE);
        let granules = if granules < 2 { 2 } else { granules };
        if granules > GRANULES_MAX {
            return None;
        }
        if granules > CLASS_TOP + 1 {
            return Some(Self { len: Granules(granules), align, class: None });
        }
        let class = SizeClass::of_at_least(granules);
        let block = Self { len: class.len, align, class: None };
        if align > GRANULE {
            let exact = Self { len: Granules(granules), ..block };
            if exact.pitch() < block.pitch() {
                return Some(exact);
            }
            if block.is_apart() {
                return Some(block);
            }
        }
        Some(Self { class: Some(class), ..block })
    }

    /// From the beginning of one such block to that of the next, at least, in bytes.
    #[inline]
    const fn pitch(self) -> usize {
        self.len.bytes().next_multiple_of(self.align)
    }

    /// Whether it is shorter than a huge page, and its alignment so much longer than itself that blocks like it lie two of their
    /// lengths apart and more: in huge pages, each would make resident what none of them can use (4,000 blocks of 128 KiB that
    /// begin on 2 MiB had 8 GiB resident).
    #[inline]
    pub(crate) const fn is_apart(self) -> bool {
        let len = self.len.bytes();
        self.align > GRANULE && len < CHUNK && self.pitch() >= 2 * len
    }

    /// Where the block begins whose caller holds `pointer` (G3).
    #[inline]
    pub(crate) const fn start(pointer: usize, layout: Layout) -> usize {
        if layout.align() < GRANULE { pointer & !(GRANULE - 1) } else { pointer }
    }

    /// The offset into the block of the `turn`-th request: a colour, some cache lines into the first granule.
    ///
    /// Buffers that are walked in step must not begin at the same cache set (measured: 32 columns, ten times
    /// slower). Nine turns are five rounds of the granule, or one, but for a line in hundreds of turns, cut to whole lines: so
    /// neighbours in time lie six lines and more apart, every ninth begins alike, and all 64 colours come. Few colours at
    /// a time beat many, and no two may be next to each other.
    ///
    /// Their order matters because processors fetch ahead what lies as far from a load as that lies from the one before. In a
    /// loop over a table's columns that is the next column, if they begin equally far from each other, which a row of a
    /// hundred columns gains by; or else far off, and a load in a loop over a few long columns loses by it.
    /// docs/EXPERIMENTS.md has the measurements.
    ///
    /// What is best differs between processors: `colours`.
    #[inline]
    pub(crate) const fn colour(turn: usize, layout: Layout, colours: Colours) -> usize {
        if layout.align() >= GRANULE {
            return 0;
        }
        let (step, skew) = (colours.step(layout.size()), colours.skew());
        let lines = turn.wrapping_mul(step) >> 7;
        let whole = lines.wrapping_mul(LINE) & COLOUR_ROOM;
        let offset = if layout.size() < LONG_FROM {
            whole
        } else if whole == 0 {
            skew
        } else {
            whole - skew
        };
        offset & !(layout.align() - 1)
    }
}

/// How blocks begin within a granule, on the processor at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colours {
    /// On nine colours at a time, and long ones half a line before theirs. They are matrices whose rows are a power of two long,
    /// and a transpose writes a line into each of sixteen rows before it comes back to the first; all of them are in one set
    /// of the first-level data cache, which has few ways, unless every line of the matrix is spread over two.
    Skewed,
    /// On nine at a time: the first-level data cache has ways enough.
    Nine,
    /// On nine at a time, and those without a class on five: Intel's cache of as many ways.
    Five,
}

impl Colours {
    /// Those for a processor whose first-level data cache has so many ways; 0 is unknown, and taken for few
    /// (docs/EXPERIMENTS.md says what each gains, and what it costs).
    pub(crate) const fn of(l1_ways: usize, vendor: Vendor) -> Self {
        match vendor {
            _ if l1_ways <= SKEWED_WAYS_MAX => Self::Skewed,
            Vendor::Intel => Self::Five,
            Vendor::Other => Self::Nine,
        }
    }

    /// Those whose number this is; [`Colours::number`].
    #[inline]
    pub(crate) const fn numbered(number: u8) -> Self {
        match number {
            0 => Self::Skewed,
            1 => Self::Nine,
            _ => Self::Five,
        }
    }

    /// Their number, for an atomic.
    pub(crate) const fn number(self) -> u8 {
        self as u8
    }

    /// Lines from one block of `size` bytes to the next, times 128.
    #[inline]
    const fn step(self, size: usize) -> usize {
        if size <= CHUNK {
            FORTH
        } else if matches!(self, Self::Five) {
            OF_FIVE
        } else if size <= FORTH_MAX {
            FORTH
        } else {
            BACK_AND_FORTH
        }
    }

    /// How far from a line long blocks begin, in bytes.
    #[inline]
    const fn skew(self) -> usize {
        if matches!(self, Self::Skewed) { SKEW } else { 0 }
    }
}

/// Whether a block of `len` bytes is one of those that lie further apart than others, and below each other in the order in
/// which they are taken: a loop over columns goes down through them then, and what the processor fetches ahead, taking the
/// way from one to the next for one that it goes on with, was there before (docs/EXPERIMENTS.md has the measurement).
#[inline]
pub(crate) const fn is_long(len: usize) -> bool {
    len >= APART_FROM
}

/// Whether a request is served by the large side (G1).
#[inline]
pub(crate) const fn is_large(layout: Layout, large_from: usize) -> bool {
    layout.size() >= large_from
}

#[cfg(test)]
mod tests {
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
                for earlier in turn.saturating_sub(8)..turn {
                    let apart = line(turn).abs_diff(line(earlier));
                    assert!(apart.min(64 - apart) >= 6, "{size}: turns {earlier} and {turn}");
                }
            }
            assert!(seen.iter().all(|&s| s), "{size}");
        }
    }

    #[test]
    fn short_blocks_go_on_equally_far_and_long_ones_back_and_forth() {
        let line = |size, turn| Block::colour(turn, layout(size, 64), Colours::Nine) / LINE;
        // The ways from one to the next, of which most are seven lines; the others go round or make up for the rest.
        let on = |turn: &usize| line(4 << 20, turn + 1) == line(4 << 20, *turn) + 7;
        assert!((0..900).filter(on).count() >= 700);
        // Three times the same would be a distance that is gone on at.
        let forth =
            |turn| line((4 << 20) + (64 << 10) + 1, turn) < line((4 << 20) + (64 << 10) + 1, turn + 1);
        assert!((0..900).all(|turn| [1, 2].iter().any(|&more| forth(turn) != forth(turn + more))));
    }

    #[test]
    fn long_blocks_begin_within_a_line_where_ways_are_few_unless_an_alignment_was_asked_for() {
        let from_line = |turn, size, align, ways| {
            let colours = Colours::of(ways, Vendor::Other);
            Block::colour(turn, layout(size, align), colours) % LINE
        };
        for turn in 0..64 * 288 {
            for ways in [0, 4, 8] {
                assert_eq!(from_line(turn, LONG_FROM - 1, 8, ways), 0, "turn {turn}");
                for align in [1, 8, SKEW] {
                    assert_eq!(from_line(turn, LONG_FROM, align, ways), SKEW, "turn {turn}");
                }
                assert_eq!(from_line(turn, LONG_FROM, LINE, ways), 0, "turn {turn}");
            }
            assert_eq!(from_line(turn, LONG_FROM, 8, 12), 0, "turn {turn}");
        }
    }

    /// Ten turns have five colours; nine of other processors', and of blocks with a class.
    #[test]
    fn intels_twelve_ways_have_five_colours_of_blocks_without_a_class() {
        let colours = |size, of: Colours| {
            let line = move |turn| Block::colour(turn, layout(size, 8), of) / LINE;
            (0..64 * 640).step_by(97).map(move |first| {
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
}
