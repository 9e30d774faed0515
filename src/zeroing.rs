//! Who makes zeros, and by which means: the one decision, and what it learns from.
//!
//! Memory that must read as zero is either untouched (the kernel zeroes each page as it is touched) or
//! resident and written here. Neither is always right: 8 MiB written densely cost 0.16 ms by `memset` and 0.28 by
//! the kernel, a barely touched block next to nothing by the kernel if it does it in small pages (measured: a huge
//! page takes 180 µs, a small one 2). So what blocks of this length and rank were touched like decides ([`Zeroing`]).

mod grown;
mod kinds;
mod lessons;
mod parallel;

pub(crate) use kinds::Kind;
pub(crate) use lessons::{GROWN_MIN, WORTH_A_LOOK, Zeroing};
pub(crate) use parallel::{CPUS_MIN, Faults};

use crate::heap::{Span, Unclean};
use crate::os::{GRANULE, Os};

/// How zeros are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Resident memory, written.
    Written,
    /// Untouched memory in huge pages, by the kernel.
    Kernel,
    /// Untouched memory in small pages, by the kernel, for what is barely touched.
    Thin,
    /// Resident memory, given back as it is handed out: zeroed by the kernel, for each thread what that touches.
    Parallel,
}

/// What a share of one is written as.
const WHOLE: usize = 240;

/// Pages that are looked at in a block to see how much of it was written.
const SAMPLES: usize = 64;

/// Looks at a few pages spread over `range`, one in each of as many equal parts and at a place that differs from part
/// to part, and gives how many hold anything but zeros, and how many there were. Those that `absent` names are
/// untouched, and not read: reading would make them resident.
/// `range` is the caller's alone, and readable (O2).
pub(crate) fn sample_pages<O: Os>(os: &O, range: Span, absent: impl Fn(usize) -> bool) -> (usize, usize) {
    let range = range.inner(GRANULE);
    let part = range.len / SAMPLES;
    if part < GRANULE {
        return (0, 0);
    }
    let mut hits = 0;
    let mut mixed = range.start;
    for i in 0..SAMPLES {
        // A multiplicative generator (Knuth's MMIX constants): touches at equal distances must not keep step with it.
        mixed = mixed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let page = (range.start + i * part + (mixed >> 33) % part) & !(GRANULE - 1);
        if !absent(page) {
            hits += usize::from(!os.is_zero(page));
        }
    }
    (hits, SAMPLES)
}

/// Writes zeros over the parts of `range` that are not known to be zero. Gives how many bytes that were.
///
/// Through the caches, or past them on processors that are faster so (`os/streamed`): a block that is zeroed is read next.
///
/// `range` is the caller's alone, and accessible (O2).
pub(crate) fn write_zeros<O: Os>(os: &O, unclean: &Unclean, range: Span) -> usize {
    let mut bytes = 0;
    for part in unclean.parts() {
        let part = part.common(range);
        if !part.is_empty() {
            os.zero(part.start, part.len);
            bytes += part.len;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::Linux;

    #[test]
    fn samples_tell_the_written_from_the_untouched() {
        let len = 16 << 20;
        let mut bytes = vec![0_u8; len + GRANULE];
        // Whole pages: else one more sample or less lies in a half of it now and then.
        let range = Span::new(bytes.as_mut_ptr().expose_provenance().next_multiple_of(GRANULE), len);
        let look = |absent: usize| sample_pages(&Linux, range, |page| page < range.start + absent);
        assert_eq!(look(0), (0, SAMPLES));
        // Touches at equal distances: a page in 64.
        bytes.iter_mut().step_by(64 * GRANULE).for_each(|byte| *byte = 1);
        assert!(look(0).0 <= 6, "{:?}", look(0));
        bytes.fill(1);
        assert_eq!(look(0).0, SAMPLES);
        assert_eq!(look(len / 2).0, SAMPLES / 2);
        assert_eq!(sample_pages(&Linux, Span::new(range.start, 100), |_| false), (0, 0));
    }

    #[test]
    fn zeros_are_written_where_they_are_wanted_and_nowhere_else() {
        for (from, to) in [(0, 4096), (1, 4095), (63, 64), (64, 65), (100, 3001), (17, 17)] {
            let mut bytes = vec![0xff_u8; 4096];
            let start = bytes.as_mut_ptr().expose_provenance();
            let all = Unclean::all(Span::new(start, 4096));
            let written = write_zeros(&Linux, &all, Span::between(start + from, start + to));
            assert_eq!(written, to - from);
            for (i, &byte) in bytes.iter().enumerate() {
                assert_eq!(byte == 0, (from..to).contains(&i), "{from}..{to} at {i}");
            }
        }
    }
}
