//! How much free memory may stay resident.
//!
//! Without a ceiling: what is handed out and what is cached never exceed the recent peak of what was handed
//! out, so that keeping adds no memory. "Recent" is counted in bytes allocated, because a proof may take
//! minutes: a window is 16 peaks long, and twice as long each time that forgetting turns out to have been a
//! mistake. Pure arithmetic: it is told what happens and answers how much is too much.

use crate::heap::{Keep, Level, Overstated, Unit};
use crate::os::Strain;

/// A window is this many peaks of bytes allocated, at first. A prover allocates its peak two to ten times a
/// proof (measured); 16 keeps it over a whole one.
const WINDOW_PEAKS: u64 = 16;

/// The longest window, in peaks: beyond it forgetting no longer saves anybody memory.
const WINDOW_PEAKS_MAX: u64 = 1 << 20;

/// A peak that comes back is higher than what was remembered when it was forgotten by this share of that at least, and by this share of the
/// way to it, as divisors.
const MISSED_SHARE: usize = 16;
const WAY_BACK: usize = 2;

/// A forgotten peak decays to this, or to an eighth of RAM where that is less.
const FLOOR: usize = 1 << 30;

/// The share of the time between two looks, as a divisor, that some task waited for memory, from which on the cache
/// shrinks: 10 %. systemd-oomd kills at 60 %, and compaction for huge pages alone comes to a few.
const STALLED_SHARE: u64 = 10;

/// Stalls count only where less than this share is left, as a divisor: elsewhere no memory is short.
const TIGHT_SHARE: usize = 4;

/// A limit that was hit counts only where less than this share is left, as a divisor: the page cache of files runs into the limit of
/// a container all the time, and what is read next takes its place (measured: a process that had 1.9 of 2.5 GiB, and read a file of 1.5
/// each round, had 600 to 2,700 faults in each for nothing).
const SHORT_SHARE: usize = 10;

/// What more may be swapped of the process before the cache is taken for the reason, in bytes: the kernel swaps pages that nobody uses
/// now and then, whatever there is; …
const SWAPPED_MAX: usize = 16 << 20;

/// … and while memory is not tight this part of what is free, as a divisor, if that is more.
const SWAPPED_SHARE: usize = 16;

/// Looks that are closer than this are not compared, in nanoseconds: what stalls in a moment says nothing.
const COMPARED_AFTER: u64 = 100_000_000;

/// The share of a container's or host's memory, as a divisor, that is left to others: 5 %, …
pub(crate) const LEFT_SHARE: usize = 20;

/// … and no more than so many bytes: a host of half a terabyte that others fill to 96 % is short of nothing.
const LEFT_MAX: usize = 8 << 30;

/// So many looks at most pass between two that give memory up because tasks wait for it, while that does not help: a quarter of a
/// minute. What is given up is faulted in again, and huge pages that are faulted in have tasks wait for compaction.
const STALLS_PASSED_MAX: u32 = 64;

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
    /// How often the heap's highest level had been raised, and had turned out to be too high, when it was seen last, and when the window
    /// before ended.
    seen: (u64, u64),
    seen_before: (u64, u64),
    /// The highest of all, as far as the floor goes.
    forgotten: usize,
    /// What was remembered before memory was given up because its peak was forgotten, and then, if none has been missed since.
    gave_up: Option<(usize, usize)>,
    /// Bytes that must go because too little is left beside us.
    pressed: usize,
    /// What the kernel's counters were, and when.
    before: Option<(u64, Strain)>,
    /// How much was swapped when the cache was taken for it last, or since then at the least.
    swapped: Option<usize>,
    /// How much was when memory was not tight last.
    swapped_before: Option<usize>,
    /// How many looks at which tasks wait for memory are passed over after the next one that gives it up, and how many yet.
    stalls: (u32, u32),
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
            seen: (0, 0),
            seen_before: (0, 0),
            forgotten: 0,
            gave_up: None,
            pressed: 0,
            before: None,
            swapped: None,
            swapped_before: None,
            stalls: (0, 0),
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

    /// Notes how full the heap is. If its highest level turned out to have been too high, so had this window's.
    pub(crate) fn saw(&mut self, level: &Level) {
        // Who read it before somebody else who has been here tells nothing new.
        if level.corrections > self.seen.1 {
            self.peak = level.out_max;
            self.seen.1 = level.corrections;
        }
        self.seen.0 = self.seen.0.max(level.raises);
    }

    /// Lowers the peak of the window before by what it was too high for a block that has gone back since; the heap has lowered its own for
    /// the `corrections`th time.
    pub(crate) fn overstated(&mut self, by: Overstated, corrections: u64) {
        if by.since < self.seen_before.0 && corrections > self.seen_before.1 {
            self.peak_before = self.peak_before.saturating_sub(by.bytes);
        }
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
            self.gave_up = Some((before, self.total()));
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
        self.seen_before = self.seen;
        self.peak = now;
    }

    /// Notes that memory had to be faulted in, while `highest` was handed out at most. If a peak had been forgotten, and it is
    /// one that comes back, peaks are remembered twice as long from now on. What is faulted in below all peaks that were
    /// remembered then, or not far above them on the way to what was forgotten, was not missed for that: peaks differ a little, some blocks
    /// are handed out untouched whatever there is, and a program's memory may grow slowly. What was remembered then is what counts: a peak
    /// that comes back block by block is always little above what is remembered of itself.
    pub(crate) fn missed(&mut self, highest: usize) {
        let is_missed = self.gave_up.is_some_and(|(before, then)| {
            let more = highest.saturating_sub(then);
            more > then / MISSED_SHARE && more > (before - then) / WAY_BACK
        });
        if is_missed {
            self.gave_up = None;
            self.window_peaks = (self.window_peaks * 2).min(WINDOW_PEAKS_MAX);
        }
    }

    /// Notes what the container or host has: `limit` bytes in all, of which `left` are left. Where that is
    /// under 5 %, or 8 GiB, what is missing must go.
    pub(crate) fn room(&mut self, limit: usize, left: usize) {
        self.pressed = Self::wanted(limit).saturating_sub(left);
    }

    /// How much is left to others of so many bytes.
    pub(crate) fn wanted(limit: usize) -> usize {
        (limit / LEFT_SHARE).min(LEFT_MAX)
    }

    /// Notes at `now`, in nanoseconds, how hard the kernel works for memory, and the scarcest `room` and that of the `host`, as
    /// bytes in all and left, with `free` bytes held free.
    ///
    /// Where more of the process is swapped than before, but for a little, all that is free must go: it is the first to be
    /// swapped, and the last to be worth it. Where tasks wait for memory, or a limit was hit, half of it goes, and half of the rest
    /// at the next look; while tasks wait all the same, though a tenth is left, after one more, two more, four and so on. What tasks of others
    /// wait for is our business only where it is the host that has little left.
    pub(crate) fn strain(
        &mut self,
        now: u64,
        mut strain: Strain,
        [room, host]: [Option<(usize, usize)>; 2],
        free: usize,
    ) {
        let Some((then, before)) = self.before else {
            (self.swapped, self.swapped_before) = (strain.swapped, strain.swapped);
            self.before = Some((now, strain));
            return;
        };
        let elapsed = now.saturating_sub(then);
        if elapsed < COMPARED_AFTER {
            return;
        }
        let has_less = |room: Option<(usize, usize)>, share: usize| {
            room.is_none_or(|(limit, left)| left < limit / share)
        };
        let is_tight = |room| has_less(room, TIGHT_SHARE);
        // What cannot be read for once is as it was.
        strain.swapped = strain.swapped.or(before.swapped);
        strain.hits = strain.hits.or(before.hits);
        strain.stalled = [0, 1].map(|which| strain.stalled[which].or(before.stalled[which]));
        let stalled = |which: usize| {
            let waited = strain.stalled[which].zip(before.stalled[which]);
            let waited = waited.map_or(0, |(now, before)| now.saturating_sub(before));
            waited.saturating_mul(1000 * STALLED_SHARE) >= elapsed
        };
        let was_hit = strain.hits.zip(before.hits).is_some_and(|(now, before)| now > before);
        let was_hit = was_hit && has_less(room, SHORT_SHARE);
        let waits = is_tight(room) && stalled(0) || is_tight(host) && stalled(1);
        let has_little = |room: Option<(usize, usize)>| room.is_some_and(|_| has_less(room, SHORT_SHARE));
        // The looks are counted, whatever else is short.
        let is_short = was_hit | self.waits_long_enough(waits, has_little(room) || has_little(host));
        let (than, more) = match is_tight(room) {
            // What was swapped long ago is no reason.
            true => (self.swapped.max(self.swapped_before), 0),
            false => (self.swapped, free / SWAPPED_SHARE),
        };
        if !is_tight(room) {
            self.swapped_before = strain.swapped;
        }
        let most = than.map(|then| then.saturating_add(more.max(SWAPPED_MAX)));
        // Little by little it comes to something, too.
        if strain.swapped.zip(most).is_some_and(|(now, most)| now > most) {
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

    /// Whether what is free shall go at this look because tasks wait, little being left or not.
    fn waits_long_enough(&mut self, waits: bool, is_little: bool) -> bool {
        let (passed, yet) = &mut self.stalls;
        if !waits {
            (*passed, *yet) = (0, 0);
        } else if *yet > 0 && !is_little {
            *yet -= 1;
            return false;
        } else {
            *yet = *passed;
            *passed = (2 * *passed).clamp(1, STALLS_PASSED_MAX);
        }
        waits
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
mod tests;
