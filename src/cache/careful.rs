//! Frees that do more than give a block back: looking for misuse, and wiping.
//!
//! Why it is here: both are off by default, and then cost nothing. Where either is on, the shards stand in another
//! place, so that the fast paths find none, as while a thread forks, and whoever takes the slow path asks here.
//! Invariants: where blocks are wiped, what a block held is overwritten before anybody else can be handed its memory,
//! or is with the kernel; where misuse is looked for, a block is in the table of live blocks exactly while its
//! caller has it (M1). Never here: the small side.

use core::alloc::Layout;

use super::{Cache, Shard};
use crate::config::Settings;
use crate::heap::Span;
use crate::misuse::Deed;
use crate::os::{CHUNK, Os};
use crate::sync::atomic::{AtomicPtr, Ordering};

/// Misuse is looked for.
const CHECKED: u8 = 1;

/// Freed blocks are wiped.
const WIPES: u8 = 2;

impl<O: Os> Cache<O> {
    /// Before the shards are published.
    pub(super) fn set_care(&self, settings: &Settings) {
        let care = if settings.checked { CHECKED } else { 0 } | if settings.wipe_on_free { WIPES } else { 0 };
        // Relaxed: published by the release store of the shards, here and below.
        self.care.store(care, Ordering::Relaxed);
        if settings.checked {
            // Blocks in stacks are nobody's to look at.
            self.shard_bytes_max.store(0, Ordering::Relaxed);
            self.heap.misuse().turn_on();
        }
    }

    /// Whether frees do more than give a block back.
    pub(crate) fn is_careful(&self) -> bool {
        self.care.load(Ordering::Relaxed) != 0
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
        if self.is_careful() { &self.shards_careful } else { &self.shards }
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
            self.heap.misuse().is_none_of_ours(self.os(), p, layout, deed);
        }
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
