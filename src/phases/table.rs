//! What is known of the phases of each name, added up over their repetitions.
//!
//! Invariants: a name has one line, for the life of the process; lines are never taken away; a name for which there is
//! no line left counts as [`OTHER`]; nothing allocates, and nothing waits for what another thread may never do: in a child that was
//! forked meanwhile a name that was being stored is never there.

use std::sync::OnceLock;

use super::Trim;
use super::reading::Reading;
use crate::sync::process::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Lines, the one for other names included. A prover has a dozen stages.
const LINES: usize = 64;

/// The line of all names that came when there was no line left.
const OTHER: usize = LINES - 1;

/// What [`OTHER`] is called.
const OTHER_NAME: &str = "(other)";

/// What has been added up for a name. Relaxed throughout: each number stands for itself.
pub(super) struct Line {
    name: OnceLock<&'static str>,
    /// Whether somebody stores the name, or has: nobody else may, who would wait for that.
    taken: AtomicBool,
    pub(super) trim: AtomicU8,
    count: AtomicU64,
    wall: AtomicU64,
    wall_max: AtomicU64,
    kernel: AtomicU64,
    minor: AtomicU64,
    major: AtomicU64,
    live_max: AtomicU64,
    live_last: AtomicU64,
    resident_max: AtomicU64,
}

/// Phases that were not measured, because too many were open at once.
static MISSED: AtomicU64 = AtomicU64::new(0);

/// How often a line that is taken and has no name yet is looked at before it is passed over. A name is there after some nanoseconds,
/// unless its thread is held up in between; then the same name may come to have two lines.
const LOOKS: usize = 1000;

static TABLE: [Line; LINES] = [const { Line::new() }; LINES];

impl Line {
    const fn new() -> Self {
        Self {
            name: OnceLock::new(),
            taken: AtomicBool::new(false),
            trim: AtomicU8::new(Trim::Keep as u8),
            count: AtomicU64::new(0),
            wall: AtomicU64::new(0),
            wall_max: AtomicU64::new(0),
            kernel: AtomicU64::new(0),
            minor: AtomicU64::new(0),
            major: AtomicU64::new(0),
            live_max: AtomicU64::new(0),
            live_last: AtomicU64::new(0),
            resident_max: AtomicU64::new(0),
        }
    }

    /// Its name, which is `name` from now on if it has none; none where another thread does not come to store it.
    fn named(&self, name: &'static str) -> Option<&'static str> {
        // Relaxed: who has taken it alone stores the name, whose own ordering makes it whole.
        if self.name.get().is_none() && !self.taken.swap(true, Ordering::Relaxed) {
            let _nobody_else_does = self.name.set(name);
        }
        for _ in 0..LOOKS {
            if let Some(name) = self.name.get() {
                return Some(name);
            }
            std::thread::yield_now();
        }
        None
    }
}

/// The number of a name's line.
pub(super) fn number(name: &'static str) -> usize {
    number_in(&TABLE, name)
}

fn number_in(table: &[Line; LINES], name: &'static str) -> usize {
    for (number, line) in table[..OTHER].iter().enumerate() {
        // Whoever else names it at the same time may have given it the same name.
        if line.named(name).is_some_and(|known| core::ptr::eq(known, name) || known == name) {
            return number;
        }
    }
    let _ = table[OTHER].named(OTHER_NAME);
    OTHER
}

/// Whether a line is of all names for which there was none left.
pub(super) const fn is_shared(number: usize) -> bool {
    number == OTHER
}

pub(super) fn line(number: usize) -> &'static Line {
    &TABLE[number]
}

/// Counts a phase that was not measured.
pub(super) fn missed() {
    MISSED.fetch_add(1, Ordering::Relaxed);
}

impl Line {
    pub(super) fn name(&self) -> &'static str {
        self.name.get().copied().unwrap_or("")
    }

    /// Adds a repetition, from one reading to another, with what was live and resident at most; 0 where unknown.
    pub(super) fn add(&self, from: &Reading, to: &Reading, live: u64, resident: u64) {
        let add = |number: &AtomicU64, from: u64, to: u64| {
            number.fetch_add(to.saturating_sub(from), Ordering::Relaxed);
        };
        self.count.fetch_add(1, Ordering::Relaxed);
        add(&self.wall, from.at, to.at);
        self.wall_max.fetch_max(to.at.saturating_sub(from.at), Ordering::Relaxed);
        add(&self.kernel, from.kernel, to.kernel);
        add(&self.minor, from.minor, to.minor);
        add(&self.major, from.major, to.major);
        self.live_max.fetch_max(live, Ordering::Relaxed);
        self.live_last.store(live, Ordering::Relaxed);
        self.resident_max.fetch_max(resident, Ordering::Relaxed);
    }

    /// What was live at most in the last repetition, in bytes.
    pub(super) fn live_last(&self) -> u64 {
        self.live_last.load(Ordering::Relaxed)
    }

    pub(super) fn report(&self) -> super::PhaseReport {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        super::PhaseReport {
            name: self.name(),
            count: get(&self.count),
            wall: get(&self.wall),
            wall_max: get(&self.wall_max),
            kernel: get(&self.kernel),
            minor: get(&self.minor),
            major: get(&self.major),
            live: get(&self.live_max),
            resident: get(&self.resident_max),
        }
    }
}

/// The lines in use, those of the names that came first first.
pub(super) fn lines() -> impl Iterator<Item = &'static Line> {
    TABLE.iter().filter(|line| line.name.get().is_some())
}

/// How many phases were not measured.
pub(super) fn missed_so_far() -> u64 {
    MISSED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_line_and_names_beyond_the_last_share_one() {
        let first = number("table: a");
        // The same letters at another address.
        let again: &'static str = String::from("table: a").leak();
        assert_eq!(number(again), first);
        assert_ne!(number("table: b"), first);
        let names: Vec<&'static str> = (0..LINES).map(|i| &*format!("table: {i}").leak()).collect();
        let numbers: Vec<usize> = names.iter().map(|name| number(name)).collect();
        assert_eq!(numbers[LINES - 1], OTHER);
        assert_eq!(line(OTHER).name(), OTHER_NAME);
        assert!(is_shared(OTHER) && !is_shared(first));
        assert_eq!(names.iter().map(|name| number(name)).collect::<Vec<_>>(), numbers);
    }

    /// It waited for a thread that is not there, for ever.
    #[test]
    fn in_a_child_a_name_that_was_being_stored_at_the_fork_is_passed_over() {
        let table = [const { Line::new() }; LINES];
        assert_eq!(number_in(&table, "a"), 0);
        table[1].taken.store(true, Ordering::Relaxed);
        assert_eq!([number_in(&table, "b"), number_in(&table, "a"), number_in(&table, "b")], [2, 0, 2]);
        assert_eq!(table[1].name(), "");
    }
}
