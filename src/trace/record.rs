//! What an event is in the file: four words of eight bytes, little-endian.
//!
//! The first holds the time in nanoseconds (48 bits, three days) over the number of the thread (16 bits), the second an
//! address, which is a multiple of 32, over the kind (5 bits). A slot whose kind is 0 was never written.

use core::alloc::Layout;

/// The header, in bytes.
pub(super) const HEADER_BYTES: usize = 128;

const HEADER_WORDS: usize = HEADER_BYTES / 8;

/// The first bytes of a file.
const MAGIC: u64 = u64::from_le_bytes(*b"zknalloc");

/// The version of the format.
const VERSION: u64 = 1;

/// Words of a slot.
pub(super) const WORDS: usize = 4;

/// Bytes of a slot.
pub(super) const SLOT_BYTES: usize = WORDS * 8;

/// Bytes of a name that fit into one event.
pub(super) const NAME_PIECE: usize = 16;

/// A block is cut into at most so many parts to tell which of them were touched: the bits of a word.
pub(crate) const PARTS_MAX: usize = 64;

/// What became of a block that was to be resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing: the kernel refused.
    Refused = 0,
    InPlace = 1,
    /// Its pages were moved.
    Moved = 2,
    Copied = 3,
}

/// What of a block is resident when it is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touched {
    /// All of the block, and how much of it is resident, in bytes.
    pub(crate) len: usize,
    pub(crate) resident: usize,
    /// The block in parts of `part` bytes: a bit for each that something of is resident, the first part's lowest.
    pub(crate) part: usize,
    pub(crate) parts: u64,
}

impl Touched {
    /// Whether some of it is not resident.
    pub(super) const fn is_partial(&self) -> bool {
        self.resident < self.len
    }
}

/// What is recorded.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event<'a> {
    Taken { p: usize, layout: Layout, zeroed: bool, fresh: usize },
    Freed { p: usize, layout: Layout, resident: Option<usize> },
    Parts { p: usize, parts: u64, part: usize },
    Resizing { p: usize, layout: Layout },
    Resized { p: usize, layout: Layout, outcome: Outcome },
    Held { cached: usize, resident: usize },
    Process { anonymous: usize, faults: u64 },
    PhaseBegins { phase: u64, name_len: usize },
    Name { index: usize, piece: &'a [u8] },
    PhaseEnds { phase: u64, name_len: usize },
    Refused { layout: Layout },
    Huge { bytes: usize },
}

/// Size and alignment in one word.
fn of(layout: Layout) -> u64 {
    (layout.size() as u64) << 8 | u64::from(layout.align().ilog2())
}

impl Event<'_> {
    /// The slot of an event at `time` on `thread`. Its first word is never 0.
    pub(super) fn words(self, time: u64, thread: u32) -> [u64; WORDS] {
        let (kind, place, second, third) = match self {
            Self::Taken { p, layout, zeroed, fresh } => {
                (1, p, of(layout), (fresh as u64) << 1 | u64::from(zeroed))
            }
            Self::Freed { p, layout, resident } => {
                (2, p, of(layout), resident.map_or(0, |bytes| bytes as u64 + 1))
            }
            Self::Parts { p, parts, part } => (3, p, parts, part as u64),
            Self::Resizing { p, layout } => (4, p, of(layout), 0),
            Self::Resized { p, layout, outcome } => (5, p, of(layout), outcome as u64),
            Self::Held { cached, resident } => (6, 0, cached as u64, resident as u64),
            Self::Process { anonymous, faults } => (7, 0, anonymous as u64, faults),
            Self::PhaseBegins { phase, name_len } => (8, 0, phase, name_len as u64),
            Self::Name { index, piece } => {
                let mut bytes = [0; NAME_PIECE];
                for (place, &byte) in bytes.iter_mut().zip(piece) {
                    *place = byte;
                }
                let both = u128::from_le_bytes(bytes);
                (9, index << 6, both as u64, (both >> 64) as u64)
            }
            Self::PhaseEnds { phase, name_len } => (10, 0, phase, name_len as u64),
            Self::Refused { layout } => (11, 0, of(layout), 0),
            Self::Huge { bytes } => (12, 0, bytes as u64, 0),
        };
        let thread = u64::from(thread.clamp(1, 0xffff));
        [time << 16 | thread, place as u64 & !31 | kind, second, third].map(u64::to_le)
    }
}

/// The head of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) process: u64,
    pub(super) page: u64,
    pub(super) huge_page: u64,
    pub(super) cpus: u64,
    pub(super) ram: u64,
    /// Page faults of the process before the trace began.
    pub(super) faults_before: u64,
    /// Whether the trace was ended in order; what follows is known only then.
    pub(super) finished: bool,
    /// Slots that were given out, and events for which there was none.
    pub(super) events: u64,
    pub(super) lost: u64,
    pub(super) nanoseconds: u64,
    pub(super) faults: u64,
}

impl Header {
    pub(super) fn words(&self) -> [u64; HEADER_WORDS] {
        let mut words = [0; HEADER_WORDS];
        let said = [
            MAGIC,
            VERSION,
            self.process,
            self.page,
            self.huge_page,
            self.cpus,
            self.ram,
            self.faults_before,
            u64::from(self.finished),
            self.events,
            self.lost,
            self.nanoseconds,
            self.faults,
        ];
        for (place, word) in words.iter_mut().zip(said) {
            *place = word.to_le();
        }
        words
    }
}
