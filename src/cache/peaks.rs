//! The highest that memory stood at while somebody watched.
//!
//! Why it is here: a phase wants to know its own peak, and the peaks are seen on the slow paths of the cache. Whoever
//! watches has a place; the slow paths raise all places that are watched, and look at one number where none is.
//!
//! Invariants: a place has one watcher, from [`Peaks::watch`] to [`Peaks::end`]; nothing allocates or waits.

use crate::sync::process::{AtomicU32, AtomicU64, Ordering};

/// How many may watch at once: every thread of a large pool, a few deep.
pub(crate) const PLACES: usize = 512;

const WORDS: usize = PLACES / 64;

pub(crate) struct Peaks {
    /// Watchers now.
    count: AtomicU32,
    /// Which places are taken, a bit each.
    taken: [AtomicU64; WORDS],
    live: [AtomicU64; PLACES],
    resident: [AtomicU64; PLACES],
}

impl Peaks {
    pub(super) const fn new() -> Self {
        Self {
            count: AtomicU32::new(0),
            taken: [const { AtomicU64::new(0) }; WORDS],
            live: [const { AtomicU64::new(0) }; PLACES],
            resident: [const { AtomicU64::new(0) }; PLACES],
        }
    }

    /// Begins to watch, with `live` bytes live; `None` if all places are taken.
    pub(crate) fn watch(&self, live: u64) -> Option<usize> {
        let place = (0..WORDS).find_map(|word| self.take(word))?;
        // Relaxed, here and below: each number stands for itself. Who is a moment late to raise a place raises it for
        // the next watcher, by a peak that was real a moment ago.
        self.live[place].store(live, Ordering::Relaxed);
        self.resident[place].store(0, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        Some(place)
    }

    fn take(&self, word: usize) -> Option<usize> {
        let bits = &self.taken[word];
        let mut seen = bits.load(Ordering::Relaxed);
        while seen != u64::MAX {
            let bit = seen.trailing_ones();
            // Acquire: pairs with the release in `end`, so that the last watcher is done with the place.
            match bits.compare_exchange(seen, seen | 1 << bit, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(word * 64 + bit as usize),
                Err(now) => seen = now,
            }
        }
        None
    }

    /// Ends all watches, in a child of a fork: who watched is not there, but for one thread, whose phases then have no peak.
    pub(super) fn forget_all(&self) {
        // Relaxed: no other thread is here yet but those that handlers started, whose watches began too early to be whole.
        self.count.store(0, Ordering::Relaxed);
        self.taken.iter().for_each(|bits| bits.store(0, Ordering::Relaxed));
    }

    /// Whether anybody watches.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Raises all places that are watched. `resident` is 0 where it was not looked at.
    pub(crate) fn note(&self, live: u64, resident: u64) {
        for (word, bits) in self.taken.iter().enumerate() {
            let mut left = bits.load(Ordering::Relaxed);
            while left != 0 {
                let place = word * 64 + left.trailing_zeros() as usize;
                left &= left - 1;
                // Loads first: most notes raise nothing, and need not own the line.
                if self.live[place].load(Ordering::Relaxed) < live {
                    self.live[place].fetch_max(live, Ordering::Relaxed);
                }
                if self.resident[place].load(Ordering::Relaxed) < resident {
                    self.resident[place].fetch_max(resident, Ordering::Relaxed);
                }
            }
        }
    }

    /// Ends a watch: the most that was live, and the most that was resident, 0 if nobody looked.
    pub(crate) fn end(&self, place: usize) -> (u64, u64) {
        let peaks = (self.live[place].load(Ordering::Relaxed), self.resident[place].load(Ordering::Relaxed));
        // Release: see `take`. A watch that began before a fork has been forgotten in the child.
        let taken = self.taken[place / 64].fetch_and(!(1 << (place % 64)), Ordering::Release);
        if taken >> (place % 64) & 1 == 1 {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        peaks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_watcher_sees_the_highest_of_its_own_time() {
        let peaks = Peaks::new();
        assert!(!peaks.is_watched());
        let outer = peaks.watch(5).unwrap();
        peaks.note(70, 0);
        let inner = peaks.watch(20).unwrap();
        peaks.note(30, 8);
        assert_eq!(peaks.end(inner), (30, 8));
        assert_eq!(peaks.end(outer), (70, 8));
        assert!(!peaks.is_watched());
    }

    #[test]
    fn places_run_out_and_come_back() {
        let peaks = Peaks::new();
        let places: Vec<_> = (0..PLACES).map(|_| peaks.watch(1).unwrap()).collect();
        assert_eq!(peaks.watch(1), None);
        peaks.note(9, 9);
        assert_eq!(peaks.end(places[77]), (9, 9));
        assert_eq!(peaks.watch(2), Some(places[77]));
    }
}
