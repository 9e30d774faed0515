//! Whether the C library is to keep the heaps that it has for each thread but the first when they are free. Pure arithmetic:
//! it is told now and then what the process has faulted in and what it holds.
//!
//! Why it is here: glibc unmaps the last of a thread's heaps, 64 MiB long, once all of it is free, whatever it was told
//! to keep, and a burst that fills more than one faults it in again each time. Kept, each holds the most that its threads ever had at
//! once, though in each proof it may have been another's turn. So they are kept once as much as a heap was faulted in again, and no
//! longer when the process is larger for it by a quarter.
//!
//! Never here: how the library is told (`os`), and whether there is any need (`beside`).

use crate::os::GRANULE;

/// Page faults that took the process no further, beyond which heaps are kept: a heap in small pages. A heap is 64 MiB long
/// (`HEAP_MAX_SIZE` of glibc's arena.c).
const ENOUGH: u64 = ((64 << 20) / GRANULE) as u64;

/// The most that these come to, as each time that keeping was a mistake twice as many are asked for.
const ENOUGH_MAX: u64 = ENOUGH << 10;

/// Of what the process needed at most without, it may hold so much more, as a divisor.
const RISE: usize = 4;

#[derive(Debug)]
pub(super) struct Heaps {
    keeps: bool,
    /// The faults of the process when this was told last, and the most that it held at such a time, in bytes.
    seen: Option<(u64, usize)>,
    /// Faults that took it no further since heaps were last let go.
    again: u64,
    enough: u64,
    /// The most that it ever held while heaps went, and when they were let go last: since then more may have been needed.
    needed: usize,
    let_go_at: usize,
}

impl Heaps {
    pub(super) const fn new() -> Self {
        Self { keeps: false, seen: None, again: 0, enough: ENOUGH, needed: 0, let_go_at: 0 }
    }

    /// Sees how many page faults the process has had, and how many bytes it holds, and held at most. Gives whether heaps are to be kept
    /// from now on, if that has changed.
    pub(super) fn saw(&mut self, faults: u64, held: usize, most: usize) -> Option<bool> {
        let (faults_before, highest) = self.seen.unwrap_or((faults, held));
        self.seen = Some((faults, highest.max(held)));
        if self.keeps {
            if held <= self.needed + self.needed / RISE {
                return None;
            }
            self.keeps = false;
            self.again = 0;
            self.enough = (2 * self.enough).min(ENOUGH_MAX);
            self.let_go_at = most;
            return Some(false);
        }
        let grown = held.saturating_sub(highest) / GRANULE;
        self.again += faults.saturating_sub(faults_before).saturating_sub(grown as u64);
        if self.again < self.enough {
            return None;
        }
        // While they were kept it may have held more than it needed.
        if most > self.let_go_at {
            self.needed = most;
        }
        self.keeps = true;
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn what_grows_is_no_burst_that_comes_back() {
        let mut heaps = Heaps::new();
        for mib in 0..4096 {
            assert_eq!(heaps.saw((mib * MIB / GRANULE) as u64, mib * MIB, mib * MIB), None, "{mib} MiB");
        }
        // In huge pages it takes fewer faults than pages.
        assert_eq!(heaps.saw((4096 * MIB / GRANULE) as u64, 8192 * MIB, 8192 * MIB), None);
    }

    #[test]
    fn a_heap_that_is_faulted_in_again_is_kept() {
        let mut heaps = Heaps::new();
        let held = 500 * MIB;
        assert_eq!(heaps.saw(7, held, held), None);
        assert_eq!(heaps.saw(7 + ENOUGH - 1, held, held), None);
        assert_eq!(heaps.saw(7 + ENOUGH, held, held), Some(true));
        assert_eq!(heaps.saw(7 + 9 * ENOUGH, held, held), None, "they are kept already");
        assert_eq!(heaps.saw(7 + 9 * ENOUGH, held + held / RISE, 2 * held), None);
        assert_eq!(heaps.saw(7 + 9 * ENOUGH, held + held / RISE + 1, 2 * held), Some(false));
    }

    #[test]
    fn whoever_is_larger_for_it_is_asked_for_twice_as_much_and_may_be_no_larger_the_next_time() {
        let mut heaps = Heaps::new();
        let held = 400 * MIB;
        let mut faults = 0;
        let mut most = held;
        for twice in 0..14 {
            let _ = heaps.saw(faults, held, most);
            let enough = (ENOUGH << twice).min(ENOUGH_MAX);
            assert_eq!(heaps.saw(faults + enough - 1, held, most), None, "{twice}");
            assert_eq!(heaps.saw(faults + enough, held, most), Some(true), "{twice}");
            most = 600 * MIB;
            assert_eq!(heaps.saw(faults + enough, 501 * MIB, most), Some(false), "{twice}");
            faults += enough;
        }
    }

    #[test]
    fn whoever_needed_more_meanwhile_may_hold_more() {
        let mut heaps = Heaps::new();
        let mut faults = 0;
        let held = 400 * MIB;
        let _ = heaps.saw(0, held, held);
        assert_eq!(heaps.saw(ENOUGH, held, held), Some(true));
        assert_eq!(heaps.saw(ENOUGH, 2 * held, 2 * held), Some(false));
        faults += ENOUGH;
        let _ = heaps.saw(faults, 2 * held, 2 * held);
        assert_eq!(heaps.saw(faults + 2 * ENOUGH, 2 * held, 3 * held), Some(true));
        assert_eq!(heaps.saw(faults + 2 * ENOUGH, 3 * held + held / 2, 4 * held), None);
        assert_eq!(heaps.saw(faults + 2 * ENOUGH, 4 * held, 4 * held), Some(false));
    }

    #[test]
    fn bursts_are_kept_from_the_second_on_whenever_they_are_looked_at() {
        // As they come, when they are over, and both.
        for looks in [&[150][..], &[1], &[150, 1]] {
            let mut heaps = Heaps::new();
            let mut changes = Vec::new();
            for nth in 0..8 {
                let faults = ((nth + 1) * 150 * MIB / GRANULE) as u64;
                let told = looks.iter().filter_map(|mib| heaps.saw(faults, mib * MIB, 150 * MIB));
                changes.extend(told.map(|keeps| (nth, keeps)));
            }
            assert_eq!(changes, [(1, true)], "{looks:?}");
        }
    }
}
