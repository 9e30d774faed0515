//! Where every begin and end of a phase passes: the one place for whoever records them.
//!
//! Invariants: it is called once for each begin and end, on the thread that makes it; it allocates nothing and does not
//! unwind, as guards call it while their thread unwinds.

use super::open::Open;
use crate::cache::PLACES;
use crate::global::ENGINE;

/// What happened to a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Begins,
    Ends,
}

/// Notes that `what` happened to the phase `open`, whose name is `name`.
#[inline]
pub(super) fn event(what: Event, open: &Open, name: &'static str) {
    if ENGINE.is_traced() {
        event_slow(what, open, name);
    }
}

#[cold]
fn event_slow(what: Event, open: &Open, name: &'static str) {
    // Its own while it is open: a place has one phase at a time, and without one its first nanosecond has to do.
    let place = open.place.unwrap_or(PLACES) as u64;
    let number = open.began.at.wrapping_mul(PLACES as u64 + 1).wrapping_add(place);
    match what {
        Event::Begins => ENGINE.trace_phase_begins(number, name),
        Event::Ends => ENGINE.trace_phase_ends(number, name),
    }
}
