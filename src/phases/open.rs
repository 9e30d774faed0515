//! Phases that are open: those begun by `begin`, which somebody ends who has nothing in hand, and all that is watched.
//!
//! Invariants: a place belongs to one open phase, from the peaks' `watch` to their `end`; its bit in `WAITING` is set exactly
//! while it waits for an `end_phase`, and whoever clears it ends the phase. A phase without a place is not measured.

use core::cell::Cell;

use super::reading::Reading;
use crate::cache::PLACES;
use crate::os::{Linux, Os, fork};
use crate::sync::process::{AtomicU64, Ordering};

/// A phase that was begun and waits for its end.
struct Place {
    /// When it was begun, as a running number.
    order: AtomicU64,
    process: AtomicU64,
    thread: AtomicU64,
    line: AtomicU64,
    at: AtomicU64,
    kernel: AtomicU64,
    minor: AtomicU64,
    major: AtomicU64,
    resident_max: AtomicU64,
}

static OPEN: [Place; PLACES] = [const {
    Place {
        order: AtomicU64::new(0),
        process: AtomicU64::new(0),
        thread: AtomicU64::new(0),
        line: AtomicU64::new(0),
        at: AtomicU64::new(0),
        kernel: AtomicU64::new(0),
        minor: AtomicU64::new(0),
        major: AtomicU64::new(0),
        resident_max: AtomicU64::new(0),
    }
}; PLACES];

/// The next running number.
static ORDER: AtomicU64 = AtomicU64::new(1);

/// Which places hold a phase that waits for its end, a bit each.
static WAITING: [AtomicU64; PLACES / 64] = [const { AtomicU64::new(0) }; PLACES / 64];

std::thread_local! {
    /// Phases that this thread began while no place was free: it began them last, so its next ends are theirs.
    static PLACELESS: Cell<u64> = const { Cell::new(0) };
}

/// A phase on its way to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) line: usize,
    /// Its place; `None` if it is not measured.
    pub(super) place: Option<usize>,
    pub(super) began: Reading,
    /// The process that it was begun in, as [`fork::mark`] has it: in a child of that, its place is somebody else's.
    pub(super) process: u64,
}

/// Leaves a phase to be ended by [`take`].
pub(super) fn leave(open: Open) {
    let Some(number) = open.place else {
        PLACELESS.set(PLACELESS.get() + 1);
        super::table::missed();
        return;
    };
    let place = &OPEN[number];
    // In a child the bit may be that of a phase which waits in its parent. Relaxed: who finds it set has the parent's place, and
    // passes on.
    WAITING[number / 64].fetch_and(!(1 << (number % 64)), Ordering::Relaxed);
    let put = |number: &AtomicU64, value: u64| number.store(value, Ordering::Relaxed);
    put(&place.process, open.process);
    put(&place.thread, Linux.thread());
    put(&place.line, open.line as u64);
    put(&place.at, open.began.at);
    put(&place.kernel, open.began.kernel);
    put(&place.minor, open.began.minor);
    put(&place.major, open.began.major);
    put(&place.resident_max, open.began.resident_max);
    put(&place.order, ORDER.fetch_add(1, Ordering::Relaxed));
    // Release: pairs with the acquire in `take`, whose thread reads what is above.
    WAITING[number / 64].fetch_or(1 << (number % 64), Ordering::Release);
}

/// Takes the phase that this thread began last; if it has begun none, the one that was begun last by any.
pub(super) fn take() -> Option<Open> {
    if let Some(fewer) = PLACELESS.get().checked_sub(1) {
        PLACELESS.set(fewer);
        return None;
    }
    loop {
        let number = last()?;
        let (word, bit) = (&WAITING[number / 64], 1 << (number % 64));
        // Another thread may have ended it meanwhile; then we look again. If a third has begun one there since, it
        // is that one's end. Acquire and release: see `leave`, and the next `leave` of this place.
        if word.fetch_and(!bit, Ordering::AcqRel) & bit != 0 {
            let place = &OPEN[number];
            let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
            let began = Reading {
                at: get(&place.at),
                kernel: get(&place.kernel),
                minor: get(&place.minor),
                major: get(&place.major),
                resident_max: get(&place.resident_max),
            };
            let (line, process) = (get(&place.line) as usize, get(&place.process));
            return Some(Open { line, place: Some(number), began, process });
        }
    }
}

/// The place of the phase that is to be ended next.
fn last() -> Option<usize> {
    let (me, here) = (Linux.thread(), fork::mark());
    let mut best: Option<((bool, u64), usize)> = None;
    for (word, bits) in WAITING.iter().enumerate() {
        // Acquire: see `leave`.
        let mut left = bits.load(Ordering::Acquire);
        while left != 0 {
            let number = word * 64 + left.trailing_zeros() as usize;
            left &= left - 1;
            let place = &OPEN[number];
            // Relaxed, all: see `leave`. What waited when this process was forked waits in the other one.
            if place.process.load(Ordering::Relaxed) != here {
                continue;
            }
            let rank = (place.thread.load(Ordering::Relaxed) == me, place.order.load(Ordering::Relaxed));
            if best.is_none_or(|(most, _)| rank > most) {
                best = Some((rank, number));
            }
        }
    }
    best.map(|(_, number)| number)
}
