//! Who makes zeros, and by which means: the one decision, and what it learns from.
//!
//! Memory that must read as zero is either untouched (the kernel zeroes each page as it is touched) or
//! resident and written here. Neither is always right: 8 MiB written densely cost 0.16 ms by `memset` and 0.28 by
//! the kernel, a barely touched block nothing by the kernel (measured). So what blocks of this length were touched
//! like decides. What is longer than the cache can hold is written past it: 512 MiB in 6 ms instead of 8 to 16 by
//! `memset` and 25 by the kernel (measured).

#![expect(unsafe_code, reason = "writes the zeros")]

use crate::heap::{Span, Unclean};
use crate::sync::process::{AtomicU8, AtomicU32, Ordering};

/// Up to this many bytes a block is zeroed where it is: it fits in a huge page that its first touch makes
/// resident as a whole anyhow, and a `memset` of it costs less than that fault.
const ALWAYS_WRITTEN: usize = 2 << 20;

/// What is assumed of the last-level cache where the host does not say: 8 MiB.
const CACHE_UNKNOWN: usize = 8 << 20;

/// How zeros are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Resident memory, written.
    Written,
    /// Untouched memory, by the kernel.
    Kernel,
}

/// Lengths by powers of two.
const LENGTHS: usize = 48;

/// Nothing known yet.
const UNKNOWN: u8 = u8::MAX;

/// Shares are kept in sixty-fourths.
const WHOLE: usize = 64;

/// Every so often a length that is written is given to the kernel, to see whether it is still touched densely.
const LOOK_AGAIN: u32 = 32;

#[derive(Debug)]
pub(crate) struct Zeroing {
    /// The share of blocks of each length that was touched, of late.
    touched: [AtomicU8; LENGTHS],
    turns: AtomicU32,
}

impl Zeroing {
    pub(crate) const fn new() -> Self {
        Self { touched: [const { AtomicU8::new(UNKNOWN) }; LENGTHS], turns: AtomicU32::new(0) }
    }

    fn touched_of(&self, len: usize) -> &AtomicU8 {
        &self.touched[(len.max(1).ilog2() as usize).min(LENGTHS - 1)]
    }

    /// Decides for a block of `len` bytes.
    pub(crate) fn way(&self, len: usize) -> Way {
        if len <= ALWAYS_WRITTEN {
            return Way::Written;
        }
        // Relaxed, here and below: hints about speed, each by itself.
        let touched = self.touched_of(len).load(Ordering::Relaxed) as usize;
        if touched == UNKNOWN as usize || touched < WHOLE / 2 {
            return Way::Kernel;
        }
        if self.turns.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK_AGAIN) {
            return Way::Kernel;
        }
        Way::Written
    }

    /// How many bytes of a block of `len` that is handed out untouched are expected to stay so.
    pub(crate) fn absent(&self, len: usize) -> usize {
        match self.touched_of(len).load(Ordering::Relaxed) {
            UNKNOWN => 0,
            touched => len - len / WHOLE * touched as usize,
        }
    }

    /// Learns that of a block of `len` bytes that was handed out untouched, `resident` of `seen` have been touched.
    pub(crate) fn learn(&self, len: usize, resident: usize, seen: usize) {
        let share = (resident.saturating_mul(WHOLE) / seen.max(1)).min(WHOLE);
        let slot = self.touched_of(len);
        let before = slot.load(Ordering::Relaxed);
        // A quarter of what is new: four blocks change its mind.
        let now = if before == UNKNOWN { share } else { (usize::from(before) * 3 + share).div_ceil(4) };
        slot.store(now as u8, Ordering::Relaxed);
    }
}

/// Writes zeros over the parts of `range` that are not known to be zero, past a last-level cache of `cache` bytes
/// (0: unknown) if it cannot hold half of them. Gives how many bytes that were.
///
/// # Safety
/// `range` is mapped, writable and the caller's alone.
pub(crate) unsafe fn write_zeros(unclean: &Unclean, range: Span, cache: usize) -> usize {
    let cache = if cache == 0 { CACHE_UNKNOWN } else { cache };
    let mut bytes = 0;
    for part in unclean.parts() {
        let part = part.common(range);
        if !part.is_empty() {
            let to: *mut u8 = core::ptr::with_exposed_provenance_mut(part.start);
            // SAFETY: `part` lies in `range`, which the caller owns.
            unsafe {
                if part.len > cache / 2 { stream_zeros(to, part.len) } else { to.write_bytes(0, part.len) }
            }
            bytes += part.len;
        }
    }
    bytes
}

/// Writes zeros past the cache.
///
/// # Safety
/// `to..to + len` is mapped, writable and the caller's alone.
#[cfg(target_arch = "x86_64")]
unsafe fn stream_zeros(to: *mut u8, len: usize) {
    use core::arch::x86_64::{__m128i, _mm_setzero_si128, _mm_sfence, _mm_stream_si128};
    /// Whole cache lines, which the write-combining buffers pass on without reading them first.
    const LINE: usize = 64;
    let head = to.align_offset(LINE).min(len);
    let lines = (len - head) / LINE;
    let tail = len - head - lines * LINE;
    // SAFETY: head, lines and tail cover the range exactly, and the lines begin at a multiple of 64; SSE2, which
    // the stores need, is part of x86-64. The fence orders them before whatever publishes the block.
    unsafe {
        to.write_bytes(0, head);
        let zero = _mm_setzero_si128();
        let mut line: *mut __m128i = to.add(head).cast();
        for _ in 0..lines {
            _mm_stream_si128(line, zero);
            _mm_stream_si128(line.add(1), zero);
            _mm_stream_si128(line.add(2), zero);
            _mm_stream_si128(line.add(3), zero);
            line = line.add(4);
        }
        _mm_sfence();
        line.cast::<u8>().write_bytes(0, tail);
    }
}

/// As `memset` does it: elsewhere it is what clears whole lines without reading them (`dc zva` on aarch64).
///
/// # Safety
/// `to..to + len` is mapped, writable and the caller's alone.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn stream_zeros(to: *mut u8, len: usize) {
    // SAFETY: as our caller promised.
    unsafe { to.write_bytes(0, len) };
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn small_blocks_are_written_and_unknown_ones_left_to_the_kernel() {
        let zeroing = Zeroing::new();
        assert_eq!(zeroing.way(MIB), Way::Written);
        assert_eq!(zeroing.way(8 * MIB), Way::Kernel);
        assert_eq!(zeroing.absent(8 * MIB), 0);
    }

    #[test]
    fn what_is_touched_densely_is_written_and_looked_at_again() {
        let zeroing = Zeroing::new();
        zeroing.learn(8 * MIB, 8 * MIB, 8 * MIB);
        let ways: Vec<_> = (0..64).map(|_| zeroing.way(8 * MIB)).collect();
        assert_eq!(ways.iter().filter(|&&w| w == Way::Kernel).count(), 2);
    }

    #[test]
    fn what_is_barely_touched_is_left_to_the_kernel_until_it_is_not() {
        let zeroing = Zeroing::new();
        zeroing.learn(6 * MIB, 4096, 4 * MIB);
        assert!((0..64).all(|_| zeroing.way(6 * MIB) == Way::Kernel));
        assert_eq!(zeroing.absent(6 * MIB), 6 * MIB);
        for _ in 0..16 {
            zeroing.learn(6 * MIB, 6 * MIB, 6 * MIB);
        }
        assert_eq!(zeroing.absent(6 * MIB), 0);
        assert!((0..64).any(|_| zeroing.way(6 * MIB) == Way::Written));
    }

    #[test]
    fn zeros_are_written_where_they_are_wanted_and_nowhere_else() {
        for cache in [1 << 10, 1 << 30] {
            for (from, to) in [(0, 4096), (1, 4095), (63, 64), (64, 65), (100, 3001), (17, 17)] {
                let mut bytes = vec![0xff_u8; 4096];
                let start = bytes.as_mut_ptr().expose_provenance();
                let all = Unclean::all(Span::new(start, 4096));
                // SAFETY: the range lies in `bytes`.
                let written = unsafe { write_zeros(&all, Span::between(start + from, start + to), cache) };
                assert_eq!(written, to - from);
                for (i, &byte) in bytes.iter().enumerate() {
                    assert_eq!(byte == 0, (from..to).contains(&i), "{cache} {from}..{to} at {i}");
                }
            }
        }
    }
}
