//! Zeroed blocks that are barely touched, and short blocks that their alignment keeps apart: memory in small pages, none of which
//! outlives its block.
//!
//! Why it is here: the first touch of a huge page takes a hundred times as long as that of a small one, and makes two
//! megabytes resident for a word. Blocks whose kind has been seen to be touched here and there alone
//! (`zeroing` keeps count) come from a page heap of their own, whose memory is advised against huge pages. What is
//! free in it is untouched: a block is purged when it is freed, which costs little where little was touched.
//! Never here: blocks of a class. Those lie in stacks, and all that lies in stacks is the heap's.

use super::Cache;
use super::count::add;
use crate::geometry::{Block, Granules, SizeClass};
use crate::heap::{End, Fit, Growth, Run, Setup, Span, Wish};
use crate::os::{GRANULE, Huge, Os};
use crate::sync::atomic::Ordering;
use crate::zeroing::{Kind, Zeroing};

/// Of a block so much is looked at, as a divisor, and at most so many bytes: a microsecond or less.
const PART: usize = 16;
const PART_MAX: usize = 1 << 20;

impl<O: Os> Cache<O> {
    /// Tells the heap of small pages about its host, which is also the heap's as far as `setup` says.
    pub(super) fn start_thin(&self, setup: Setup) {
        self.thin.start(Setup { huge: Huge::Forbid, moves: false, growth: Growth::Never, ..setup });
    }

    /// Takes a block of untouched small pages, if there is address space for it.
    pub(super) fn take_thin(&self, block: Block) -> Option<Run> {
        // In checked mode nothing is purged that was not looked at.
        // Where the kernel's pages are larger than a granule, neighbours share them and neither can be purged whole.
        if block.class.is_some() || self.page() != GRANULE || self.is_checked() {
            return None;
        }
        let fit = Fit::aligned(block.len.bytes(), block.align);
        // There is none, but where the kernel takes no pages back: of locked memory, before 5.18. Not for what teaches how it is touched.
        if SizeClass::of(block.len).is_some()
            && let Some(run) = self.thin.take_resident(fit, End::Low)
        {
            add(&self.tally.runs, 1);
            return Some(run);
        }
        let run = self.thin.take_slow(fit, Wish::Zeroed, 0)?;
        add(&self.tally.misses, 1);
        add(&self.tally.thin, 1);
        add(&self.tally.fresh, run.found.fresh() as u64);
        Some(run)
    }

    /// Whether a block lies in small pages.
    pub(super) fn is_thin(&self, block: Span) -> bool {
        self.thin.covers(block.start)
    }

    /// Takes back a block of small pages, and learns how many of them were touched.
    pub(super) fn give_thin(&self, span: Span) {
        let noted = if Kind::has_ranks(span.len) { self.forget(span.start) } else { None };
        let (kind, taken) = noted.map_or((Kind::of(span.len), span), |noted| (noted.kind, noted.taken(span)));
        // What short ones are touched like tells nothing of kinds. Each is looked at: one that is written all over took its faults
        // as long as a hundred take that are barely touched, and the next one would too.
        if SizeClass::of(Granules(span.len / GRANULE)).is_none()
            && let Some((resident, seen)) = self.look_at_thin(taken)
        {
            self.zeroing.learn_thin(kind, resident, seen);
            add(&self.tally.zeroed_not, (taken.len - taken.len.min(taken.len / seen * resident)) as u64);
        }
        self.thin.give_purged(span, 0);
    }

    /// Sees how many bytes are resident of how many that were looked at: of a part, elsewhere each time, if few are
    /// there, and of all otherwise. To look at all of 64 MiB takes as long as purging them.
    fn look_at_thin(&self, span: Span) -> Option<(usize, usize)> {
        let len = (span.len / PART).min(PART_MAX) & !(GRANULE - 1);
        if len > 0 {
            // Of those that are freed together each another one. Relaxed: any part is as good as another.
            let nth = self.tally.thin.load(Ordering::Relaxed).wrapping_add((span.start / GRANULE) as u64);
            // Multiples of the golden ratio: spread evenly, whatever the period of what is asked for.
            let place =
                (u128::from(nth.wrapping_mul(0x9E37_79B9_7F4A_7C15)) * (span.len - len) as u128) >> 64;
            let start = span.start + (place as usize & !(GRANULE - 1));
            let resident = self.os().resident(start, len)?;
            if Zeroing::is_thin(resident, len) {
                return Some((resident, len));
            }
        }
        Some((self.os().resident(span.start, span.len)?, span.len))
    }

    /// Learns what a block of small pages was touched like that is resized: later on it is of another length.
    pub(super) fn learn_thin_resized(&self, block: Span) {
        // Noted or not: what it was taken as is not known of short ones, and they are resized once, mostly.
        if SizeClass::of(Granules(block.len / GRANULE)).is_none()
            && let Some((resident, seen)) = self.look_at_thin(block)
        {
            let noted = if Kind::has_ranks(block.len) { self.note_of(block.start) } else { None };
            self.zeroing.learn_thin(noted.map_or(Kind::of(block.len), |noted| noted.kind), resident, seen);
        }
    }

    /// Makes a block of small pages shorter in place. `false` if it cannot be, and nothing has changed: a block of a
    /// class may not be one.
    pub(super) fn shrink_thin(&self, block: Span, keep: Granules) -> bool {
        self.learn_thin_resized(block);
        let done = SizeClass::of(keep).is_none() && self.thin.give_purged(block, keep.bytes());
        if done && Kind::has_ranks(block.len) {
            self.forget_untouched(block.start);
        }
        done
    }
}
