//! Operations spelled by bytes: what a fuzzer mutates, and what a generator of numbers makes without end.
//!
//! Every byte string spells a world and some operations, so that no input is wasted.

use super::ops::Op;
use super::pattern::mix;
use crate::config::{Config, Moves};
use crate::os::fake::{Call, MoveFailure, PurgeFailure, RemapFailure, When};

const MIB: usize = 1 << 20;

/// Where bytes come from; `None` at their end.
pub(super) trait Letters {
    fn letter(&mut self) -> Option<u8>;

    fn word(&mut self) -> Option<usize> {
        Some(usize::from(u16::from_le_bytes([self.letter()?, self.letter()?])))
    }
}

impl Letters for &[u8] {
    fn letter(&mut self) -> Option<u8> {
        let (&first, rest) = self.split_first()?;
        *self = rest;
        Some(first)
    }
}

/// Letters without a pattern, so many of them.
pub(super) struct Drawn {
    seed: u64,
    word: u64,
    left: u64,
}

impl Drawn {
    pub(super) const fn new(seed: u64, count: u64) -> Self {
        Self { seed: mix(seed), word: 0, left: count }
    }
}

impl Letters for Drawn {
    fn letter(&mut self) -> Option<u8> {
        self.left = self.left.checked_sub(1)?;
        if self.word < 1 << 8 {
            self.seed = self.seed.wrapping_add(1);
            // The one on top tells when all others have been used.
            self.word = mix(self.seed) | 1 << 63;
        }
        let letter = self.word as u8;
        self.word >>= 8;
        Some(letter)
    }
}

/// What a sequence is done over.
#[derive(Clone, Copy, Debug)]
pub(super) struct World {
    pub(super) config: Config,
    /// Whether address space may be reserved.
    pub(super) plain: bool,
    /// The kernel's page size in bytes.
    pub(super) page: usize,
    /// CPUs that it tells of.
    pub(super) cpus: usize,
    /// Whether calls fail.
    pub(super) fails: bool,
    /// By what power of two blocks are shorter than they are spelled.
    shorter: u32,
    /// What of the host there is.
    pub(super) moves: bool,
    pub(super) residency: bool,
    pub(super) soften: bool,
}

impl World {
    pub(super) fn read(letters: &mut impl Letters) -> Option<Self> {
        let (kind, more, ceiling) = (letters.letter()?, letters.letter()?, letters.letter()?);
        let config = Config::new().moves(if kind & 3 == 3 { Moves::Never } else { Moves::Auto });
        let config = config.wipe_on_free(kind >> 2 & 7 == 7);
        let config = match ceiling % 8 {
            0 => config.cache_bytes(0),
            1 => config.cache_bytes(usize::from(ceiling) * MIB),
            2 => config.cache_bytes(1 << 40),
            _ => config,
        };
        Some(Self {
            config,
            plain: kind >> 5 & 3 == 3,
            page: [4 << 10, 4 << 10, 4 << 10, 4 << 10, 4 << 10, 4 << 10, 16 << 10, 64 << 10]
                [usize::from(more & 7)],
            cpus: 1 + usize::from(more >> 3 & 3),
            fails: kind >> 7 == 1,
            shorter: [0, 0, 0, 4][usize::from(more >> 5 & 3)],
            moves: ceiling >> 3 & 7 != 7,
            residency: ceiling >> 6 != 3,
            soften: more >> 7 == 0,
        })
    }

    /// A length: two bytes, of which the low nibble says of how many bits it is.
    fn size(&self, letters: &mut impl Letters) -> Option<usize> {
        /// From 64 KiB to 32 MiB, short ones more often.
        const BITS: [u32; 16] = [16, 16, 16, 16, 17, 17, 18, 18, 19, 19, 20, 20, 21, 21, 22, 24];
        let word = letters.word()?;
        let (bits, rest) = (BITS[word & 15], word >> 4);
        let size = (1_usize << bits) + ((rest << bits) >> 12);
        // Round lengths, and those beside them, are where something ends.
        let size = match rest & 7 {
            0 => 1 << bits,
            1 => size & !((4 << 10) - 1),
            _ => size,
        };
        Some((size >> self.shorter).max(1))
    }

    fn align(&self, letters: &mut impl Letters) -> Option<usize> {
        Some(match letters.letter()? {
            byte @ 0..=127 => 1 << (byte & 7),
            byte @ 128..=223 => 1 << (6 + (byte & 7)),
            byte => 1 << (14 + (byte & 7)),
        })
    }

    /// The next operation.
    pub(super) fn op(&self, letters: &mut impl Letters) -> Option<Op> {
        let letter = letters.letter()?;
        let zeroed = letter & 128 != 0;
        Some(match letter & 127 {
            0..=33 => Op::Allocate { size: self.size(letters)?, align: 8, zeroed },
            34..=41 => Op::Allocate { size: self.size(letters)?, align: self.align(letters)?, zeroed },
            42 => {
                Op::Allocate { size: (64 * MIB + self.size(letters)? * 4) >> self.shorter, align: 8, zeroed }
            }
            43..=50 => Op::Resize { which: letters.word()?, size: self.size(letters)? },
            51..=58 => Op::Scale { which: letters.word()?, share: 32 + letters.word()? % 992 },
            59..=62 => Op::ResizeLast { back: usize::from(letters.letter()? & 3), size: self.size(letters)? },
            63..=97 => Op::Free { which: letters.word()? },
            98 => Op::FreeEvery { nth: 2 + usize::from(letters.letter()? & 3) },
            99 => Op::Soften,
            100 => Op::Reclaim,
            101 => Op::Release,
            102..=103 => Op::Drain,
            104 => Op::Fork,
            105 => Op::ForkChild,
            106..=112 => Op::As { shard: usize::from(letters.letter()? & 7) },
            113 => Op::Keep,
            114 => Op::Pass { nanoseconds: letters.word()? as u64 * 300_000 },
            115 => Op::Press { left: letters.word()? << 14 },
            116..=127 if !self.fails => Op::Free { which: letters.word()? },
            116..=120 => {
                let (call, when) = (letters.letter()?, letters.letter()?);
                let n = usize::from(when >> 2);
                Op::Fail {
                    call: Call::FAILING.get(usize::from(call & 15)).copied(),
                    when: match when & 3 {
                        0 => When::From(n + 1),
                        1 => When::Every(n % 16 + 2),
                        _ => When::Nth(n % 16 + 1),
                    },
                }
            }
            121 => {
                let letter = letters.letter()?;
                Op::Manner {
                    moves: [
                        MoveFailure::Clean,
                        MoveFailure::UnmapsTarget,
                        MoveFailure::MovesFirstPart,
                        MoveFailure::LetsForeignIn,
                    ][usize::from(letter & 3)],
                    remaps: [RemapFailure::Clean, RemapFailure::Unmaps][usize::from(letter >> 2 & 1)],
                    purges: [PurgeFailure::Keeps, PurgeFailure::Halfway][usize::from(letter >> 3 & 1)],
                    one_vma: letter >> 4 & 1 == 1,
                }
            }
            122 => Op::Vmas { max: usize::from(letters.letter()?) },
            _ => Op::Relent,
        })
    }
}
