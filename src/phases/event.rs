//! Where every begin and end of a phase passes: the one place for whoever records them.
//!
//! Invariants: it is called once for each begin and end that is measured, on the thread that makes it, with the time that
//! was measured; it allocates nothing and does not unwind, as guards call it while their thread unwinds.

/// What happened to a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Begins,
    Ends,
}

/// Notes that `what` happened to the phase `name`, whose number in the table is `number`, `at` nanoseconds of the
/// monotonic clock.
#[inline]
pub(super) fn event(what: Event, number: usize, name: &'static str, at: u64) {
    let _ = (what, number, name, at);
}
