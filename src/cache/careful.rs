//! Requests and frees that do more than take and give a block: looking for misuse, wiping, and recording.
//!
//! Why it is here: all are off by default, and then cost nothing. Where any is on, the shards stand in another
//! place, so that the fast paths find none, as while a thread forks, and whoever takes the slow path asks here.
//! Invariants: where blocks are wiped, what a block held is overwritten before anybody else can be handed its memory,
//! or is with the kernel; where misuse is looked for, a block is in the table of live blocks exactly while its
//! caller has it (M1). Recording changes nothing of where blocks come from and go to. Never here: the small side.

use core::alloc::Layout;

use super::runs::Bounds;
use super::{Cache, Handed, Shard};
use crate::config::Settings;
use crate::geometry::{Block, SizeClass};
use crate::heap::{Span, Unclean};
use crate::misuse::Deed;
use crate::os::{CHUNK, GRANULE, Os};
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::trace::{Outcome, PARTS_MAX, Sample, Touched};

/// Misuse is looked for.
const CHECKED: u8 = 1;

/// Freed blocks are wiped.
const WIPES: u8 = 2;

/// What happens is recorded.
const TRACED: u8 = 4;

/// Blocks from this length on are looked at when they are freed, to record what of them is resident: what is shorter
/// shares its huge page with others.
const LOOK_MIN: usize = CHUNK;

/// How long the parts are of which a record says whether they were touched, in bytes: whole chunks, and no more parts than it
/// has bits.
const fn part_of(len: usize) -> usize {
    len.div_ceil(PARTS_MAX).next_multiple_of(CHUNK)
}

impl<O: Os> Cache<O> {
    /// Before the shards are published.
    pub(super) fn set_care(&self, settings: &Settings, traced: bool) {
        let care = if settings.checked { CHECKED } else { 0 }
            | if settings.wipe_on_free { WIPES } else { 0 }
            | if traced { TRACED } else { 0 };
        // Relaxed: published by the release store of the shards, here and below.
        self.care.store(care, Ordering::Relaxed);
        if settings.checked {
            // Blocks in stacks are nobody's to look at.
            self.steady.shard_bytes_max.store(0, Ordering::Relaxed);
            self.heap.misuse().turn_on();
        }
        // Where freed memory is written to, nothing is cut off runs.
        let bounds = Bounds::of(self.steady.shard_bytes_max.load(Ordering::Relaxed), !self.spoils());
        self.steady.shard_stacked_max.store(bounds.stacked, Ordering::Relaxed);
    }

    /// Whether requests and frees do more than take a block and give it back.
    pub(crate) fn is_careful(&self) -> bool {
        self.care.load(Ordering::Relaxed) != 0
    }

    /// Whether freed memory is written to, by us.
    pub(crate) fn spoils(&self) -> bool {
        self.care.load(Ordering::Relaxed) & (CHECKED | WIPES) != 0
    }

    /// Whether what happens is recorded, or was until the trace ended.
    pub(crate) fn is_traced(&self) -> bool {
        self.care.load(Ordering::Relaxed) & TRACED != 0
    }

    /// Whether misuse is looked for.
    pub(crate) fn is_checked(&self) -> bool {
        self.care.load(Ordering::Relaxed) & CHECKED != 0
    }

    /// Whether freed blocks are wiped.
    pub(crate) fn wipes(&self) -> bool {
        self.care.load(Ordering::Relaxed) & WIPES != 0
    }

    /// Where the shards stand while nobody forks.
    pub(super) fn home_of_shards(&self) -> &AtomicPtr<Shard> {
        if self.is_careful() { &self.shards_careful } else { &self.steady.shards }
    }

    /// Notes a block that is about to be handed out; `false` if it cannot be, and must not.
    pub(crate) fn note_born(&self, p: usize, layout: Layout) -> bool {
        !self.is_checked() || self.heap.misuse().born(self.os(), p, layout)
    }

    /// Notes that a block goes back, or what became of it when it was resized.
    pub(crate) fn note_dies(&self, p: usize, layout: Layout, deed: Deed) {
        if self.is_checked() || !self.has_started() {
            self.heap.misuse().dies(self.os(), p, layout, deed);
        }
    }

    /// Notes where a block is now that was said to be resized.
    pub(crate) fn note_reborn(&self, p: usize, layout: Layout) {
        if self.is_checked() {
            self.heap.misuse().reborn(self.os(), p, layout);
        }
    }

    /// Ends the process if a live large block begins at `p`, which its owner calls a small one.
    pub(crate) fn look_at_small(&self, p: usize, layout: Layout, deed: Deed) {
        if self.is_checked() {
            self.see_child();
            self.heap.misuse().is_none_of_ours(self.os(), p, layout, deed);
        }
    }

    /// As [`Cache::take`], where that finds no shards because what happens is recorded.
    pub(crate) fn take_traced(&self, block: Block, requested: usize) -> Option<Handed> {
        if !self.is_traced() || self.spoils() || block.align != GRANULE {
            return None;
        }
        let class = SizeClass::of(block.len)?;
        let shard = self.shard_slow()?;
        self.begin_if_new(shard);
        let (start, turn) = self.take_from(shard, class, requested)?;
        Some(Handed { start, unclean: Unclean::all(Span::new(start, block.len.bytes())), turn, fresh: 0 })
    }

    /// Records a block that is about to be handed out.
    pub(crate) fn trace_taken(&self, p: usize, layout: Layout, zeroed: bool, fresh: usize) {
        if self.is_traced() {
            self.trace.taken(self.os(), p, layout, zeroed, fresh);
            self.trace_sample();
        }
    }

    /// Records a request that was refused.
    pub(crate) fn trace_refused(&self, layout: Layout) {
        if self.is_traced() {
            self.trace.refused(self.os(), layout);
        }
    }

    /// Records a block that is about to go back.
    pub(crate) fn trace_freed(&self, p: usize, layout: Layout) {
        if self.is_traced() && self.trace.is_on() {
            let touched = if layout.size() >= LOOK_MIN { self.look_at(p, layout.size()) } else { None };
            self.trace_sample();
            self.trace.freed(self.os(), p, layout, touched);
        }
    }

    /// Records that a block is about to be resized.
    pub(crate) fn trace_resizing(&self, p: usize, layout: Layout) {
        if self.is_traced() {
            self.trace.resizing(self.os(), p, layout);
        }
    }

    /// Records what became of it.
    pub(crate) fn trace_resized(&self, p: usize, layout: Layout, outcome: Outcome) {
        if self.is_traced() {
            self.trace.resized(self.os(), p, layout, outcome);
            self.trace_sample();
        }
    }

    /// Records that a phase begins. Before the first large request nothing is recorded.
    pub(crate) fn trace_phase_begins(&self, phase: u64, name: &str) {
        if self.is_traced() {
            self.trace.phase_begins(self.os(), phase, name);
        }
    }

    /// Records that a phase ends, on whatever thread.
    pub(crate) fn trace_phase_ends(&self, phase: u64, name: &str) {
        if self.is_traced() {
            self.trace.phase_ends(self.os(), phase, name);
            self.trace_sample();
        }
    }

    /// Records what is held, if it is time to.
    fn trace_sample(&self) {
        if self.trace.wants_sample(self.os()) {
            self.trace_sample_now();
        }
    }

    fn trace_sample_now(&self) {
        if self.is_ready() {
            let books = self.heap.books().plus(self.thin.books());
            let cached = self.stacked() + books.dirty + books.soft;
            let resident = self.heap.out_presumed_resident() + books.dirty + books.soft;
            self.trace.sample(self.os(), Sample { cached, resident });
        }
    }

    /// Ends the trace, if there is one. At the end of the process.
    pub(crate) fn end_trace(&self) {
        if self.is_traced() && self.trace.is_on() {
            self.trace_sample_now();
            self.trace.finish(self.os());
        }
    }

    /// Sees what of a block is resident, which is what was touched of it since it was last untouched. `None` where the
    /// kernel does not tell.
    fn look_at(&self, p: usize, len: usize) -> Option<Touched> {
        let part = part_of(len);
        let mut touched = Touched { len, resident: 0, part, parts: 0 };
        for (index, offset) in (0..len).step_by(part).enumerate() {
            let resident = self.os().resident(p + offset, part.min(len - offset))?;
            touched.resident += resident;
            touched.parts |= u64::from(resident > 0) << index;
        }
        Some(touched)
    }

    /// Overwrites what a block holds, or a part of one, whose owner has given it up. Chunks of which nothing is
    /// resident go back to the kernel instead: they hold nothing, or what was swapped out.
    pub(crate) fn wipe(&self, p: usize, len: usize) {
        let span = Span::new(p, len);
        let chunks = span.inner(CHUNK);
        if chunks.is_empty() {
            return self.os().wipe(p, len);
        }
        self.os().wipe(span.start, chunks.start - span.start);
        self.wipe_resident(chunks, CHUNK);
        self.os().wipe(chunks.end(), span.end() - chunks.end());
    }

    /// Overwrites the steps of a range of whole ones that something of is resident.
    fn wipe_resident(&self, span: Span, step: usize) {
        /// As long as the longest page of a kernel.
        const SMALL: usize = 64 << 10;
        for at in (span.start..span.end()).step_by(step) {
            match self.os().resident(at, step) {
                // Not resident is not untouched: what was swapped out goes too.
                Some(0) if self.os().purge(at, step).is_ok() => {}
                Some(bytes) if bytes < step && step > SMALL => self.wipe_resident(Span::new(at, step), SMALL),
                _ => self.os().wipe(at, step),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block a little longer than 64 whole chunks had 65 parts.
    #[test]
    fn a_block_has_as_many_parts_as_a_record_has_bits_for() {
        for len in [1, CHUNK, PARTS_MAX * CHUNK, PARTS_MAX * CHUNK + 8, 3 * PARTS_MAX * CHUNK + 63, 1 << 46] {
            assert!(part_of(len).is_multiple_of(CHUNK) && len.div_ceil(part_of(len)) <= PARTS_MAX, "{len}");
        }
        assert_eq!([CHUNK, PARTS_MAX * CHUNK].map(part_of), [CHUNK; 2]);
    }
}
