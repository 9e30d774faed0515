//! Reading the process's counters, at most every few microseconds.
//!
//! Why not at each begin and end: adding up the counters of all threads takes the kernel 0.6 µs with one and 3.4 with 192
//! (measured), the clock 0.02. So a reading is used again for [`FRESH`]: what a phase is charged with is off by what the
//! process did in that long, which is nothing beside a phase worth asking about.
//!
//! Invariants: counters never go back within a process; in a forked child they begin anew, as the kernel's do.

use crate::global::ENGINE;
use crate::os::{Linux, Os, Usage, fork};
use crate::sync::process::{AtomicU64, Ordering};

/// How long a reading is used again, in nanoseconds: a begin and an end that share one cost a twentieth of one.
const FRESH: u64 = 20_000;

/// From this length on a phase's end looks at resident memory too, in nanoseconds: a look takes 5 µs.
const RESIDENT_FROM: u64 = 10_000_000;

/// The counters at one time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reading {
    /// Nanoseconds of the monotonic clock: exact, whatever the rest is.
    pub(super) at: u64,
    pub(super) kernel: u64,
    pub(super) minor: u64,
    pub(super) major: u64,
    /// The most that was ever resident, in bytes.
    pub(super) resident_max: u64,
}

/// The last reading, each number by itself.
struct Last {
    /// The process that made it.
    process: AtomicU64,
    at: AtomicU64,
    kernel: AtomicU64,
    minor: AtomicU64,
    major: AtomicU64,
    resident_max: AtomicU64,
}

static LAST: Last = Last {
    process: AtomicU64::new(0),
    at: AtomicU64::new(0),
    kernel: AtomicU64::new(0),
    minor: AtomicU64::new(0),
    major: AtomicU64::new(0),
    resident_max: AtomicU64::new(0),
};

/// Reads the counters, or takes the last reading where that is fresh.
pub(super) fn now() -> Reading {
    let at = Linux.now();
    // Acquire: pairs with the release in `read_slow`, so that the numbers are of that time or later.
    if at.saturating_sub(LAST.at.load(Ordering::Acquire)) >= FRESH {
        return read_slow(at);
    }
    let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
    Reading {
        at,
        kernel: get(&LAST.kernel),
        minor: get(&LAST.minor),
        major: get(&LAST.major),
        resident_max: get(&LAST.resident_max),
    }
}

#[cold]
fn read_slow(at: u64) -> Reading {
    let numbers = [&LAST.kernel, &LAST.minor, &LAST.major, &LAST.resident_max];
    // Relaxed: a child has one thread when it gets here first, and elsewhere this changes nothing.
    let process = fork::mark();
    if LAST.process.swap(process, Ordering::Relaxed) != process {
        numbers.iter().for_each(|number| number.store(0, Ordering::Relaxed));
    }
    let usage = Usage::now();
    // The highest of those that read at once, so that nothing goes back. Relaxed: published below.
    let [kernel, minor, major, resident_max] = [usage.kernel, usage.minor, usage.major, usage.resident_max];
    for (number, value) in numbers.into_iter().zip([kernel, minor, major, resident_max]) {
        number.fetch_max(value, Ordering::Relaxed);
    }
    // Release: see `now`.
    LAST.at.fetch_max(at, Ordering::Release);
    ENGINE.peaks().note(ENGINE.live(), 0);
    Reading { at, kernel, minor, major, resident_max }
}

/// Tells all open phases what is resident, at the end of one that took `wall` nanoseconds.
pub(super) fn look_at_resident(wall: u64) {
    if wall >= RESIDENT_FROM
        && let Some(bytes) = Linux.resident_in_all()
    {
        ENGINE.peaks().note(0, bytes as u64);
    }
}
