//! What was measured, for people and programs.

use core::fmt;
use core::time::Duration;

use super::table;

/// What was measured of the phases of one name.
///
/// Times and faults are those of the whole process while the phase was open, whatever thread did it: of phases that are
/// open at the same time, each is charged with all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PhaseReport {
    pub(super) name: &'static str,
    pub(super) count: u64,
    #[cfg_attr(feature = "serde", serde(rename = "wall_ns"))]
    pub(super) wall: u64,
    #[cfg_attr(feature = "serde", serde(rename = "longest_ns"))]
    pub(super) wall_max: u64,
    #[cfg_attr(feature = "serde", serde(rename = "kernel_ns"))]
    pub(super) kernel: u64,
    #[cfg_attr(feature = "serde", serde(rename = "faults"))]
    pub(super) minor: u64,
    #[cfg_attr(feature = "serde", serde(rename = "major_faults"))]
    pub(super) major: u64,
    #[cfg_attr(feature = "serde", serde(rename = "peak_live_bytes"))]
    pub(super) live: u64,
    #[cfg_attr(feature = "serde", serde(rename = "peak_resident_bytes", serialize_with = "null_if_nothing"))]
    pub(super) resident: u64,
}

/// Writes 0 as nothing: nobody looked.
#[cfg(feature = "serde")]
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn null_if_nothing<S: serde::Serializer>(bytes: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    match *bytes {
        0 => serializer.serialize_none(),
        bytes => serializer.serialize_some(&bytes),
    }
}

impl PhaseReport {
    /// The name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// How many have ended.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// How long they took together.
    #[must_use]
    pub const fn wall_time(&self) -> Duration {
        Duration::from_nanos(self.wall)
    }

    /// How long the longest took.
    #[must_use]
    pub const fn longest(&self) -> Duration {
        Duration::from_nanos(self.wall_max)
    }

    /// What the process spent in the kernel meanwhile, all threads together. Most kernels count that in ticks of one to
    /// four milliseconds: short phases are right on average alone.
    #[must_use]
    pub const fn kernel_time(&self) -> Duration {
        Duration::from_nanos(self.kernel)
    }

    /// Minor page faults of the process meanwhile, which are served from memory. The table shows these and
    /// [`major_faults`](Self::major_faults) together.
    #[must_use]
    pub const fn faults(&self) -> u64 {
        self.minor
    }

    /// Page faults that waited for a device: memory that was swapped out, files.
    #[must_use]
    pub const fn major_faults(&self) -> u64 {
        self.major
    }

    /// The most that large requests had in use while one was open, in bytes, as they were asked for. Exact to some
    /// megabytes a thread: blocks under 2 MiB are seen in bunches.
    #[must_use]
    pub const fn peak_live_bytes(&self) -> usize {
        self.live as usize
    }

    /// The most memory that the process was seen to have while one was open, in bytes; `None` if nobody looked: phases
    /// under ten milliseconds in which the process reaches no new height.
    #[must_use]
    pub const fn peak_resident_bytes(&self) -> Option<usize> {
        if self.resident == 0 { None } else { Some(self.resident as usize) }
    }
}

/// The phases of all names that were used so far, in the order of their first use. [`Display`](fmt::Display) is a table
/// of those that the iterator has not given yet.
#[derive(Clone, Debug)]
pub struct Phases {
    next: usize,
}

/// The phases of all names that were used so far.
///
/// ```
/// zk_nalloc::phase_named("setup", || vec![1_u8; 1 << 16]);
/// let setup = zk_nalloc::phases().find(|phase| phase.name() == "setup");
/// assert_eq!(setup.expect("it was used").count(), 1);
/// ```
#[must_use]
pub fn phases() -> Phases {
    Phases { next: 0 }
}

impl Iterator for Phases {
    type Item = PhaseReport;

    fn next(&mut self) -> Option<PhaseReport> {
        let line = table::lines().nth(self.next)?;
        self.next += 1;
        Some(line.report())
    }
}

impl fmt::Display for Phases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MIB: f64 = (1 << 20) as f64;
        let width = self.clone().map(|p| p.name.chars().count()).max().unwrap_or(0).max("phase".len());
        writeln!(
            f,
            "{:<width$}{:>8}{:>11}{:>11}{:>11}{:>10}{:>12}{:>12}",
            "phase", "times", "wall s", "longest s", "kernel s", "faults", "live MiB", "process MiB"
        )?;
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        for p in self.clone() {
            let resident = match p.resident {
                0 => "–".to_owned(),
                bytes => format!("{:.0}", bytes as f64 / MIB),
            };
            writeln!(
                f,
                "{:<width$}{:>8}{:>11.3}{:>11.3}{:>11.3}{:>10}{:>12.1}{:>12}",
                p.name,
                p.count,
                seconds(p.wall),
                seconds(p.wall_max),
                seconds(p.kernel),
                p.minor + p.major,
                p.live as f64 / MIB,
                resident
            )?;
        }
        match table::missed_so_far() {
            0 => Ok(()),
            missed => writeln!(f, "{missed} phases were not measured: more than 512 were open at once"),
        }
    }
}
