//! How large a pattern is run: in full for a comparison, or small, to see that it is right.
//!
//! Why it is here: every size of every pattern is written once, as it is in full, and goes through [`Scale`]. So the
//! quick form is the same code over smaller numbers, with every byte checked in place of samples.

use rayon::current_num_threads;

/// Bytes in a KiB.
pub const KIB: usize = 1 << 10;
/// Bytes in a MiB.
pub const MIB: usize = 1 << 20;
/// Bytes in a GiB.
pub const GIB: usize = 1 << 30;

/// Full or quick, and what the machine has.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Small sizes, everything checked.
    pub quick: bool,
    /// Memory that the machine has to spare, in bytes.
    pub memory_bytes: usize,
}

impl Scale {
    /// Returns the bytes of a block that has `full` of them in full.
    #[must_use]
    pub fn bytes(self, full: usize) -> usize {
        if self.quick { (full / 64).max(64 * KIB).min(full) } else { full }
    }

    /// Returns how many of something there are that are `full` in full.
    #[must_use]
    pub const fn count(self, full: usize) -> usize {
        if self.quick { full.div_ceil(if full < 512 { 8 } else { 64 }) } else { full }
    }

    /// Returns how many warm rounds are run where `full` are run in full.
    #[must_use]
    pub const fn rounds(self, full: u32) -> u32 {
        if self.quick { 2 } else { full }
    }

    /// Returns the share of `total` for each thread of the pool, at least 1.
    #[must_use]
    pub fn per_thread(self, total: usize) -> usize {
        total.div_ceil(current_num_threads()).max(1)
    }

    /// Returns the distance between two places of a block that are checked.
    #[must_use]
    pub const fn stride(self) -> usize {
        if self.quick { 1 } else { 64 * KIB }
    }
}
