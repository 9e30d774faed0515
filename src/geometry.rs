//! From a `Layout` to a block, by arithmetic alone.
//!
//! Why: `dealloc` gets back only the pointer and the `Layout`, and recomputes from them everything that
//! `alloc` decided (invariants G1 to G3). So every function here is pure, and what it says of a `Layout`
//! never depends on the colour, on the host or on what happened before.
//!
//! Never here: a decision that anything but the size and the alignment could change.

use core::alloc::Layout;

use crate::os::{CHUNK, GRANULE, Vendor};

/// What colours are multiples of, but for the skew of matrices: a cache line.
const LINE: usize = 64;

/// From this size on blocks are longer than what most last-level caches hold: matrices may begin within a line.
const LONG_FROM: usize = 32 << 20;

/// How far from a line they begin: half a line, so that no load of 32 bytes straddles two.
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

/// So many turns on, colours go on this many further (measured and counted, docs/EXPERIMENTS.md: "Every ninth"): blocks that are every third or
/// ninth of those that a thread takes, as a table's columns are if each takes others too, have all colours as well.
const TURNED_AFTER: u32 = 6;
const TURNED: usize = 23;

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
    /// neighbours in time lie six lines and more apart, every ninth of a few begins alike, and all 64 colours come. Few colours at
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
        let turn = turn.wrapping_add((turn >> TURNED_AFTER).wrapping_mul(TURNED));
        let lines = turn.wrapping_mul(step) >> 7;
        let whole = lines.wrapping_mul(LINE) & COLOUR_ROOM;
        let offset = if !is_matrix(layout.size()) {
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
    /// On nine colours at a time, and matrices half a line before theirs. Their rows are a power of two long, and a transpose
    /// writes a line into each of sixteen rows before it comes back to the first; all of them are in one set of the first-level
    /// data cache, which has few ways, unless every line of the matrix is spread over two.
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

    /// How far from a line matrices begin, in bytes.
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

/// Whether a block of `size` bytes is likely a matrix whose rows are a power of two long on one side of a transpose. The
/// number of its columns seldom is one, and so its length is none either; what is long and a power of two is taken for a
/// vector, whose wide loads a skew would have straddle two lines (docs/EXPERIMENTS.md has the measurements).
#[inline]
const fn is_matrix(size: usize) -> bool {
    size >= LONG_FROM && !size.is_power_of_two()
}

/// Whether a request is served by the large side (G1).
#[inline]
pub(crate) const fn is_large(layout: Layout, large_from: usize) -> bool {
    layout.size() >= large_from
}

#[cfg(test)]
mod tests;
