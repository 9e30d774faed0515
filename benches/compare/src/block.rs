//! Buffers that are written and checked: the one place that says what "filled" means.
//!
//! Why it is here: every pattern writes its memory by the same few loops, so that no difference between patterns
//! comes from a difference in writing. Checks are samples in a full run (one word in 64 KiB, and the last), all of it
//! in a quick one, and are part of what is timed: they cost every allocator the same. None of the loops is inlined: what is inlined
//! around it differs from allocator to allocator, and moves it.

use std::hint::black_box;

use crate::scale::Scale;

/// Makes a block of `bytes` bytes, all of them `value`.
#[must_use]
pub fn filled(bytes: usize, value: u8) -> Vec<u8> {
    // A zero would become a request for zeroed memory, which is another pattern.
    black_box(vec![value | 1; bytes])
}

/// Checks a block made by [`filled`].
///
/// # Panics
/// When it holds anything else.
#[inline(never)]
pub fn check_filled(block: &[u8], value: u8, scale: Scale) {
    let wrong = |byte: &u8| byte ^ (value | 1);
    let bits = if scale.quick {
        // Without an early end, so that it is fast.
        block.iter().fold(0, |bits, byte| bits | wrong(byte))
    } else {
        block.iter().step_by(scale.stride()).chain(block.last()).fold(0, |bits, byte| bits | wrong(byte))
    };
    assert_eq!(bits, 0, "a filled block of {} bytes holds something else than {}", block.len(), value | 1);
}

/// Makes a block of zeroed words.
#[must_use]
pub fn zeroed(bytes: usize) -> Vec<u64> {
    black_box(vec![0; bytes / 8])
}

/// Adds to every word of a zeroed block a value of its own.
#[inline(never)]
pub fn add_dense(block: &mut [u64], seed: u64) {
    for (i, word) in (seed..).zip(block.iter_mut()) {
        *word = word.wrapping_add(i);
    }
    black_box(block);
}

/// Checks a block that was zeroed and then went through [`add_dense`]: any byte that was not zero shows.
///
/// # Panics
/// When it holds anything else.
#[inline(never)]
pub fn check_dense(block: &[u64], seed: u64, scale: Scale) {
    let stride = scale.stride().div_ceil(8);
    if stride == 1 {
        let bits = (seed..).zip(block).fold(0, |bits, (wanted, &word)| bits | (wanted ^ word));
        assert_eq!(bits, 0, "a word of a zeroed block of {} words is wrong", block.len());
        return;
    }
    for i in (0..block.len()).step_by(stride).chain(block.len().checked_sub(1)) {
        assert_eq!(block[i], seed + i as u64, "word {i} of a zeroed block of {} words", block.len());
    }
}

/// A stream of numbers that are the same in every process (`SplitMix64`).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts the stream of this number.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    #[inline]
    pub const fn next_word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from `low` on and below `high`, uniform but for a bias far below what any pattern could tell.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the remainder is below a usize")]
    pub const fn between(&mut self, low: usize, high: usize) -> usize {
        low + (self.next_word() % (high - low) as u64) as usize
    }
}
