//! Requests by size.
//!
//! Why by doublings, and stacks apart: what a stack serves is counted without its size, on the path where every
//! instruction shows. So the table has a line for all of that, exact as the others, and the lines add up to all requests.

use core::fmt;

use crate::cache::{SIZES, size_line};
use crate::config::LARGE_FROM;
use crate::global::ENGINE;

/// The large requests of a size, all of them so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SizeStats {
    /// The least bytes of such a request; 1 for those under 64 KiB, 0 for those of any size up to 2 MiB that a stack served.
    pub from: usize,
    /// How many there were.
    pub requests: u64,
    /// Bytes that they asked for.
    pub bytes: u64,
    /// How many needed memory that was not resident; blocks that were copied to grow count too.
    pub misses: u64,
}

/// The large requests by size. [`Display`](fmt::Display) is a table that adds up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Sizes {
    lines: Vec<SizeStats>,
}

impl Sizes {
    /// The lines with something in them: first what stacks served, then by size.
    #[must_use]
    pub fn lines(&self) -> &[SizeStats] {
        &self.lines
    }

    /// The lines that asked for most bytes, the first one first.
    #[must_use]
    pub fn largest(&self) -> Vec<SizeStats> {
        let mut lines = self.lines.clone();
        lines.sort_by_key(|line| core::cmp::Reverse(line.bytes));
        lines
    }
}

pub(super) fn read() -> Sizes {
    let by_size = ENGINE.by_size();
    let all = ENGINE.snapshot();
    let (requests, bytes) =
        by_size.iter().fold((0, 0), |(requests, bytes), s| (requests + s.requests, bytes + s.bytes));
    let stacks = SizeStats {
        from: 0,
        requests: all.allocations.saturating_sub(requests),
        bytes: all.allocated.saturating_sub(bytes),
        misses: 0,
    };
    let of_size = (0..SIZES).map(|line| {
        let from = (LARGE_FROM / 2) << line;
        debug_assert_eq!(size_line(from), line, "lines are doublings");
        let s = by_size[line];
        SizeStats {
            from: if line == 0 { 1 } else { from },
            requests: s.requests,
            bytes: s.bytes,
            misses: s.misses,
        }
    });
    let lines = core::iter::once(stacks).chain(of_size);
    Sizes { lines: lines.filter(|line| line.requests + line.misses > 0).collect() }
}

/// What a line is called.
pub(crate) fn name(line: &SizeStats) -> String {
    match line.from {
        0 => "up to 2 MiB, from stacks".to_owned(),
        from if from < LARGE_FROM => "under 64 KiB".to_owned(),
        from => format!("{} and up", short(from as u64)),
    }
}

/// Bytes in the largest unit of which there is a whole number, as sizes are.
pub(crate) fn short(bytes: u64) -> String {
    match bytes {
        0 => "0".to_owned(),
        b if b % (1 << 30) == 0 => format!("{} GiB", b >> 30),
        b if b % (1 << 20) == 0 => format!("{} MiB", b >> 20),
        b => format!("{} KiB", b >> 10),
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MIB: f64 = (1 << 20) as f64;
        writeln!(f, "{:<26}{:>12}{:>14}{:>10}", "size", "requests", "MiB", "misses")?;
        let mut sum = SizeStats::default();
        for line in &self.lines {
            let mib = line.bytes as f64 / MIB;
            writeln!(f, "{:<26}{:>12}{:>14.1}{:>10}", name(line), line.requests, mib, line.misses)?;
            sum.requests += line.requests;
            sum.bytes += line.bytes;
            sum.misses += line.misses;
        }
        writeln!(f, "{:<26}{:>12}{:>14.1}{:>10}", "= all", sum.requests, sum.bytes as f64 / MIB, sum.misses)
    }
}
