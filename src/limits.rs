//! How much free memory may stay resident.
//!
//! Without a ceiling: what is handed out and what is cached never exceed the recent peak of what was handed
//! out, so that keeping adds no memory. "Recent" is counted in bytes allocated, because a proof may take
//! minutes: a window is 16 peaks long, and twice as long each time that forgetting turns out to have been a
//! mistake. Pure arithmetic: it is told what happens and answers how much is too much.

use crate::heap::{Keep, Unit};
use crate::os::Strain;

/// A window is this many peaks of bytes allocated, at first. A prover allocates its peak two to ten times a
/// proof (measured); 16 keeps it over a whole one.
const WINDOW_PEAKS: u64 = 16;

/// The longest window, in peaks: beyond it forgetting no longer saves anybody memory.
const WINDOW_PEAKS_MAX: u64 = 1 << 20;

/// A peak that comes back is higher than what is remembered by this share at least, as a divisor.
const MISSED_SHARE: usize = 16;

/// A forgotten peak decays to this, or to an eighth of RAM where that is less.
const FLOOR: usize = 1 << 30;

/// The share of the time between two looks, as a divisor, that some task waited for memory, from which on the cache
/// shrinks: 10 %. systemd-oomd kills at 60 %, and compaction for huge pages alone comes to a few.
const STALLED_SHARE: u64 = 10;

/// Stalls, and limits that were hit, count only where less than this share is left, as a divisor: page cache of
/// files runs into the limit of a container all the time, and no memory is short.
const TIGHT_SHARE: usize = 4;

/// What more may be swapped of the process while memory is not tight before the cache is taken for the reason, in bytes: the
/// kernel swaps pages that nobody uses now and then, whatever there is.
const SWAPPED_MAX: usize = 16 << 20;

/// Looks that are closer than this are not compared, in nanoseconds: what stalls in a moment says nothing.
const COMPARED_AFTER: u64 = 100_000_000;

/// The share of a container's or host's memory, as a divisor, that is left to others: 5 %.
pub(crate) const LEFT_SHARE: usize = 20;

#[derive(Debug)]
pub(crate) struct Limits {
    ceiling: Option<usize>,
    floor: usize,
    /// Bytes allocated in this window.
    allocated: u64,
    window_peaks: u64,
    /// The highest bytes handed out, in this window and in the one before.
    peak: usize,
    peak_before: usize,
    /// The highest of all, as far as the floor goes.
    forgotten: usize,
    /// What was remembered when memory was given up last because its peak was forgotten, if none has been missed since.
    gave_up: Option<usize>,
    /// Bytes that must go because too little is left beside us.
    pressed: usize,
    /// What the kernel's counters were, and when.
    before: Option<(u64, Strain)>,
    /// How much was swapped when the cache was taken for it last, or since then at the least.
    swapped: Option<usize>,
}

impl Limits {
    pub(crate) const fn new() -> Self {
        Self {
            ceiling: None,
            floor: FLOOR,
            allocated: 0,
            window_peaks: WINDOW_PEAKS,
            peak: 0,
            peak_before: 0,
            forgotten: 0,
            gave_up: None,
            pressed: 0,
            before: None,
            swapped: None,
        }
    }

    pub(crate) fn start(&mut self, ceiling: Option<usize>, ram: usize) {
        self.ceiling = ceiling;
        self.floor = (ram / 8).min(FLOOR);
    }

    /// The ceiling, if there is one.
    pub(crate) const fn ceiling(&self) -> Option<usize> {
        self.ceiling
    }

    /// The most that may be handed out and cached together, or cached alone where there is a ceiling.
    pub(crate) fn total(&self) -> usize {
        self.peak.max(self.peak_before).max(self.forgotten)
    }

    /// Notes that `bytes` have been allocated, while `highest` was handed out at most and `now` is. Gives
    /// whether a window has ended.
    pub(crate) fn allocated(&mut self, bytes: usize, highest: usize, now: usize) -> bool {
        self.peak = self.peak.max(highest);
        self.allocated += bytes as u64;
        let recent = self.peak.max(self.peak_before).max(1) as u64;
        if self.allocated < recent.saturating_mul(self.window_peaks) {
            return false;
        }
        let before = self.total();
        self.end_window(now);
        if self.ceiling.is_none() && self.total() < before {
            self.gave_up = Some(self.total());
        }
        true
    }

    /// Ends a window because nothing is allocated, while `highest` was handed out at most and `now` is.
    pub(crate) fn aged(&mut self, highest: usize, now: usize) {
        self.peak = self.peak.max(highest);
        self.end_window(now);
    }

    fn end_window(&mut self, now: usize) {
        self.allocated = 0;
        self.forgotten = self.forgotten.max(self.peak_before).min(self.floor);
        self.peak_before = self.peak;
        self.peak = now;
    }

    /// Notes that memory had to be faulted in, while `highest` was handed out at most. If a peak had been forgotten, and it is
    /// one that comes back, peaks are remembered twice as long from now on. What is faulted in below all peaks that are
    /// remembered, or little above them, was not missed for that: peaks differ a little, and some blocks are handed out untouched
    /// whatever there is. What was remembered then is what counts: one that comes back block by block is always little above what is
    /// remembered of itself.
    pub(crate) fn missed(&mut self, highest: usize) {
        if self.gave_up.is_some_and(|then| highest > then.saturating_add(then / MISSED_SHARE)) {
            self.gave_up = None;
            self.window_peaks = (self.window_peaks * 2).min(WINDOW_PEAKS_MAX);
        }
    }

    /// Notes what the container or host has: `limit` bytes in all, of which `left` are left. Where that is
    /// under 5 %, what is missing must go.
    pub(crate) fn room(&mut self, limit: usize, left: usize) {
        self.pressed = (limit / LEFT_SHARE).saturating_sub(left);
    }

    /// Notes at `now`, in nanoseconds, how hard the kernel works for memory, and the scarcest `room` and that of the `host`, as
    /// bytes in all and left, with `free` bytes held free.
    ///
    /// Where more of the process is swapped than before, all that is free must go: it is the first to be swapped, and
    /// the last to be worth it. Where tasks wait for memory, or a limit was hit, half of it goes, and half of the rest at
    /// the next look. What tasks of others wait for is our business only where it is the host that has little left.
    pub(crate) fn strain(
        &mut self,
        now: u64,
        mut strain: Strain,
        [room, host]: [Option<(usize, usize)>; 2],
        free: usize,
    ) {
        let Some((then, before)) = self.before else {
            self.swapped = strain.swapped;
            self.before = Some((now, strain));
            return;
        };
        let elapsed = now.saturating_sub(then);
        if elapsed < COMPARED_AFTER {
            return;
        }
        let is_tight =
            |room: Option<(usize, usize)>| room.is_none_or(|(limit, left)| left < limit / TIGHT_SHARE);
        let stalled = |which: usize| {
            let waited = strain.stalled[which].saturating_sub(before.stalled[which]);
            waited.saturating_mul(1000 * STALLED_SHARE) >= elapsed
        };
        let is_short =
            is_tight(room) && (stalled(0) || strain.hits > before.hits) || is_tight(host) && stalled(1);
        // What cannot be read for once is as it was.
        strain.swapped = strain.swapped.or(before.swapped);
        let is_more = |than: Option<usize>, by: usize| {
            strain.swapped.zip(than).is_some_and(|(now, then)| now > then.saturating_add(by))
        };
        // Little by little it comes to something, too.
        if is_tight(room) && is_more(before.swapped, 0) || is_more(self.swapped, SWAPPED_MAX) {
            self.pressed = usize::MAX;
            self.swapped = strain.swapped;
        } else {
            self.swapped = self.swapped.min(strain.swapped).or(strain.swapped);
            if is_short {
                self.pressed = self.pressed.max(free / 2);
            }
        }
        self.before = Some((now, strain));
    }

    /// How many bytes must go because memory is short, whatever is allowed. Asked once a look.
    pub(crate) fn pressed(&mut self) -> usize {
        core::mem::take(&mut self.pressed)
    }

    /// How many of `dirty` free resident bytes are too many, with `out` bytes handed out.
    pub(crate) fn excess(&self, out: usize, dirty: usize) -> usize {
        let allowed = match self.ceiling {
            Some(ceiling) => ceiling,
            None => self.total().saturating_sub(out),
        };
        dirty.saturating_sub(allowed)
    }

    /// What a purge of it leaves.
    pub(crate) fn keep(&self) -> Keep {
        self.ceiling.map_or_else(|| Keep::Present(self.total()), Keep::Dirty)
    }

    /// In what units what is too much goes: a ceiling is hard, so parts of huge pages go too; a peak that is forgotten
    /// is not worth splitting one.
    pub(crate) const fn unit(&self) -> Unit {
        if self.ceiling.is_some() { Unit::Pages } else { Unit::Chunks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn limits(ceiling: Option<usize>) -> Limits {
        let mut limits = Limits::new();
        limits.start(ceiling, 8 << 30);
        limits
    }

    /// Rounds in which `peak` is out once, then `small` is allocated until `times` peaks have been. Gives the
    /// rounds in which something had been given up before the peak came back.
    fn rounds_with_faults(times: u64, rounds: usize) -> Vec<usize> {
        let (peak, small) = (4 << 30, 64 * MIB);
        let mut limits = limits(None);
        let mut faulted = Vec::new();
        let mut resident = 0;
        for round in 0..rounds {
            if resident < peak {
                faulted.push(round);
                limits.missed(peak);
            }
            limits.allocated(peak, peak, 0);
            resident = peak;
            let mut allocated = peak as u64;
            while allocated < times * peak as u64 {
                limits.allocated(small, small, small);
                resident -= limits.excess(small, resident - small);
                allocated += small as u64;
            }
        }
        faulted
    }

    #[test]
    fn a_peak_that_comes_back_faults_in_the_first_rounds_alone() {
        assert_eq!(rounds_with_faults(2, 40), [0]);
        for times in [20, 200] {
            let faulted = rounds_with_faults(times, 60);
            assert!(faulted.len() <= 6 && faulted.iter().all(|&r| r <= 8), "{times}: {faulted:?}");
        }
    }

    /// Peaks that differed by a page counted as forgotten, and the next fault as missed: in the end all were remembered for ever.
    #[test]
    fn what_is_faulted_in_below_the_peaks_makes_none_of_them_last() {
        let mut limits = limits(None);
        for window in 0..40 {
            for _ in 0..WINDOW_PEAKS {
                let peak = (4 << 30) - (window % 2) * 4096;
                limits.missed(peak);
                limits.allocated(4 << 30, peak, 0);
            }
        }
        assert_eq!(limits.window_peaks, WINDOW_PEAKS);
    }

    /// What had been faulted in already counted as remembered, and the next block was never far above that.
    #[test]
    fn a_peak_that_comes_back_block_by_block_is_missed() {
        let (peak, block) = (4 << 30, 32 * MIB);
        let mut limits = limits(None);
        for _ in 0..3 {
            for out in (block..=peak).step_by(block) {
                limits.missed(out);
                limits.allocated(0, out, out);
            }
            while limits.total() > limits.floor {
                limits.allocated(peak, block, block);
            }
        }
        assert_eq!(limits.window_peaks, 4 * WINDOW_PEAKS);
    }

    #[test]
    fn a_peak_that_never_comes_back_decays_to_the_floor() {
        let mut limits = limits(None);
        limits.allocated(4 << 30, 4 << 30, 0);
        for _ in 0..64 << 10 {
            limits.allocated(4 * MIB, 4 * MIB, 4 * MIB);
        }
        assert_eq!(limits.total(), 1 << 30);
        let mut small = Limits::new();
        small.start(None, 1 << 30);
        small.allocated(600 * MIB, 600 * MIB, 0);
        for _ in 0..64 << 10 {
            small.allocated(4 * MIB, 4 * MIB, 4 * MIB);
        }
        assert_eq!(small.total(), 128 * MIB);
    }

    #[test]
    fn the_default_keeps_out_and_cached_under_the_peak() {
        let mut limits = limits(None);
        limits.allocated(100, 100, 60);
        assert_eq!(limits.excess(60, 40), 0);
        assert_eq!(limits.excess(60, 41), 1);
        assert_eq!(limits.excess(120, 41), 41);
    }

    #[test]
    fn silence_makes_a_peak_older_until_the_floor_is_left() {
        let mut limits = limits(None);
        limits.allocated(4 << 30, 4 << 30, 0);
        assert_eq!(limits.excess(0, 4 << 30), 0);
        limits.aged(0, 0);
        assert_eq!(limits.excess(0, 4 << 30), 0);
        for _ in 0..9 {
            limits.aged(0, 0);
            assert_eq!(limits.excess(0, 4 << 30), 3 << 30);
        }
        let mut promised = super::Limits::new();
        promised.start(Some(4 << 30), 8 << 30);
        (0..9).for_each(|_| promised.aged(0, 0));
        assert_eq!(promised.excess(0, 4 << 30), 0);
    }

    #[test]
    fn a_ceiling_is_a_promise_however_much_is_allocated() {
        let mut limits = limits(Some(10 * MIB));
        for _ in 0..1000 {
            limits.allocated(MIB, MIB, MIB);
        }
        assert_eq!(limits.excess(0, 10 * MIB), 0);
        assert_eq!(limits.excess(4 << 30, 10 * MIB), 0);
        assert_eq!(limits.excess(0, 11 * MIB), MIB);
    }

    #[test]
    fn too_little_left_presses_even_a_promise() {
        let mut limits = limits(Some(100));
        limits.room(1000, 50);
        assert_eq!((limits.excess(0, 100), limits.pressed()), (0, 0));
        limits.room(1000, 30);
        assert_eq!((limits.excess(0, 100), limits.pressed()), (0, 20));
        assert_eq!(limits.pressed(), 0, "pressed once a look");
    }

    /// What is pressed out of 1000 free bytes by what happened in a second, with so much of 100 left, and of the host's 1000.
    fn pressed_by(left: [usize; 2], change: impl FnOnce(&mut Strain)) -> usize {
        let mut limits = limits(None);
        let rooms = [Some((100, left[0])), Some((1000, left[1]))];
        let mut strain = Strain { stalled: [1 << 20, 1 << 30], hits: 77, swapped: Some(1 << 20) };
        limits.strain(5, strain, rooms, 1000);
        change(&mut strain);
        limits.strain(5 + 1_000_000_000, strain, rooms, 1000);
        limits.pressed()
    }

    #[test]
    fn stalls_and_hits_take_half_where_memory_is_tight_and_nothing_where_it_is_not() {
        for (left, expected) in [(24, 500), (25, 0), (90, 0)] {
            let both = [left, 10 * left];
            assert_eq!(pressed_by(both, |s| s.hits += 1), expected);
            for which in [0, 1] {
                assert_eq!(pressed_by(both, |s| s.stalled[which] += 100_000), expected);
                assert_eq!(pressed_by(both, |s| s.stalled[which] += 99_999), 0, "under a tenth of the time");
            }
        }
        assert_eq!(pressed_by([0; 2], |_| ()), 0, "what was before the first look is no news");
        // A counter that cannot be read for once, and one that begins anew.
        assert_eq!(pressed_by([0; 2], |s| *s = Strain::default()), 0);
    }

    /// A container with little left lost its whole cache to what others, in containers of their own, were waiting for.
    #[test]
    fn what_others_wait_for_counts_where_the_host_has_little_left() {
        assert_eq!(pressed_by([0, 900], |s| s.stalled[1] += 900_000), 0);
        assert_eq!(pressed_by([0, 900], |s| s.stalled[0] += 900_000), 500);
        assert_eq!(pressed_by([90, 0], |s| s.stalled[0] += 900_000), 0);
        assert_eq!(pressed_by([90, 0], |s| s.stalled[1] += 900_000), 500);
    }

    /// One page that nobody uses was swapped on a host with memory to spare, and hundreds of gigabytes given up.
    #[test]
    fn what_more_is_swapped_takes_all_that_is_free_but_a_little_where_there_is_much() {
        for (left, most) in [(0, 0), (24, 0), (25, SWAPPED_MAX), (100, SWAPPED_MAX)] {
            let pressed_at = |swapped| pressed_by([left; 2], |s: &mut Strain| s.swapped = Some(swapped));
            assert_eq!(pressed_at((1 << 20) + most), 0);
            assert_eq!(pressed_at((1 << 20) + most + 4096), usize::MAX);
            assert_eq!(pressed_at((1 << 20) - 4096), 0);
        }
    }

    /// The seconds of those in which it is pressed, where so much is swapped, and left of 100.
    fn seconds_pressed(each: &[(Option<usize>, usize)]) -> Vec<usize> {
        let mut limits = limits(None);
        let mut pressed = |second: usize, swapped, left| {
            let strain = Strain { swapped, ..Strain::default() };
            limits.strain(second as u64 * 1_000_000_000, strain, [Some((100, left)); 2], 8);
            limits.pressed() > 0
        };
        let all = each.iter().enumerate();
        all.filter(|&(second, &(swapped, left))| pressed(second, swapped, left))
            .map(|(second, _)| second)
            .collect()
    }

    #[test]
    fn what_is_swapped_little_by_little_counts_once_it_is_much() {
        let each: Vec<_> = (0..40).map(|second| (Some(second << 20), 90)).collect();
        assert_eq!(seconds_pressed(&each), [17, 34]);
        // What was swapped long ago is no reason once memory is tight; what is swapped then is.
        let before = (Some(5 << 20), 90);
        let tight = (Some(5 << 20), 10);
        assert_eq!(seconds_pressed(&[(Some(0), 90), before, tight, tight, (Some(6 << 20), 10), tight]), [4]);
        // Nor is what could not be read for once.
        assert_eq!(seconds_pressed(&[before, (None, 10), tight, (None, 90), before]), [0; 0]);
    }

    #[test]
    fn looks_in_quick_succession_are_one() {
        let mut limits = limits(None);
        let strain = |hits| Strain { hits, ..Strain::default() };
        limits.strain(0, strain(0), [None; 2], 8);
        for now in 1..100 {
            limits.strain(now * 1_000_000, strain(now), [None; 2], 8);
            assert_eq!(limits.pressed(), 0);
        }
        limits.strain(100_000_000, strain(100), [None; 2], 8);
        assert_eq!(limits.pressed(), 4);
    }
}
