//! The content of a fake space in short: a word for each granule, which stands for the granule's first bytes.
//!
//! Why it is here: to write, zero, move and compare a megabyte is 256 words of work, so that a sequence of operations is
//! done a thousand times as often as over real memory. What that leaves out is bytes within a granule, which the tests
//! over real memory look at.

#![expect(unsafe_code, reason = "cells are plain memory that whoever owns the granule may use")]

use std::cell::UnsafeCell;
use std::ops::Range;

use crate::os::GRANULE;

/// The step between the words of a pattern: odd, and with bits all over (2^64 divided by the golden ratio).
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

#[derive(Debug)]
pub(super) struct Cells {
    start: usize,
    /// Plain words, so that ThreadSanitizer sees two owners of one granule as it would in real memory.
    words: Box<[UnsafeCell<u64>]>,
}

// SAFETY: a cell is used as the granule is that it stands for, by whoever owns that one.
unsafe impl Sync for Cells {}

impl Cells {
    pub(super) fn new(range: &Range<usize>) -> Self {
        let words = vec![0_u64; range.len() / GRANULE].into_boxed_slice();
        // SAFETY: the cell of a word is a word.
        let words = unsafe { Box::from_raw(Box::into_raw(words) as *mut [UnsafeCell<u64>]) };
        Self { start: range.start, words }
    }

    /// The cells of the granules that begin in `range`.
    #[expect(clippy::mut_from_ref, reason = "as the memory of a kernel, they are whose the granule is")]
    fn of(&self, range: &Range<usize>) -> &mut [u64] {
        let from = (range.start - self.start).div_ceil(GRANULE);
        let to = (range.end - self.start).div_ceil(GRANULE);
        let words = &self.words[from..to.max(from)];
        // SAFETY: whoever asks owns the range, or asks about one that nobody changes now; the reference is dropped
        // before it gives that up.
        unsafe { std::slice::from_raw_parts_mut(words.as_ptr().cast_mut().cast(), words.len()) }
    }

    pub(super) fn fill(&self, range: &Range<usize>, word: u64) {
        self.of(range).fill(word);
    }

    /// Copies the cells of `from` to where they are `to`; the two are a multiple of a granule apart.
    pub(super) fn copy(&self, from: &Range<usize>, to: usize) {
        assert!(
            from.start.wrapping_sub(to).is_multiple_of(GRANULE),
            "a copy that shifts bytes within a granule"
        );
        self.of(&(to..to + from.len())).copy_from_slice(self.of(from));
    }

    pub(super) fn is_all(&self, range: &Range<usize>, word: u64) -> bool {
        self.of(range).iter().all(|&cell| cell == word)
    }

    /// Bytes of granules that are not zero.
    pub(super) fn resident(&self, range: &Range<usize>) -> usize {
        self.of(range).iter().filter(|&&cell| cell != 0).count() * GRANULE
    }

    /// Writes the pattern of `seed` over the granules that begin in `range`.
    pub(super) fn sow(&self, range: &Range<usize>, seed: u64) {
        let mut word = seed;
        for cell in self.of(range) {
            // Never 0, so that lost memory is never taken for kept.
            *cell = word | 1;
            word = word.wrapping_add(STEP);
        }
    }

    /// Finds the first granule that does not hold what was sown.
    pub(super) fn find_other(&self, range: &Range<usize>, seed: u64) -> Option<usize> {
        let word = |at: usize| seed.wrapping_add((at as u64).wrapping_mul(STEP)) | 1;
        let cells = self.of(range);
        // Without a branch in the loop, which is for all but the last of all runs the only one.
        let other = cells.iter().enumerate().fold(0, |other, (at, &cell)| other | (cell ^ word(at)));
        if other == 0 {
            return None;
        }
        let at = cells.iter().enumerate().position(|(at, &cell)| cell != word(at))?;
        Some(range.start.next_multiple_of(GRANULE) + at * GRANULE)
    }
}
