//! Memory that is faulted in before anybody asks for it.
//!
//! Why it goes through a run that is handed out and given back: to everybody else it is a block that was filled and
//! freed. The limits remember it as a peak, a ceiling cuts it, and the next request of any size is served from it.
//! Never here: threads, and what somebody wants faulted in.

use super::{Cache, count::add};
use crate::heap::{Fit, Span, Wish};
use crate::limits::LEFT_SHARE;
use crate::os::{CHUNK, Os};
use crate::sync::atomic::Ordering;

/// The least that is worth a run of its own where the kernel refuses more, in bytes.
const LEAST: usize = 32 << 20;

impl<O: Os> Cache<O> {
    /// How many bytes are to be faulted in so that `wanted` are free and resident, as far as the limits let them be: the
    /// ceiling, and what the container or the host has left beside its reserve; 0 where nobody tells how much that is.
    pub(crate) fn ahead_of(&self, wanted: usize) -> usize {
        self.see_child();
        if !self.is_ready() {
            return 0;
        }
        let level = self.heap.level();
        // Relaxed: set once, before the shards were published.
        let wanted = wanted.min(self.dirty_max.load(Ordering::Relaxed));
        let missing = wanted.saturating_sub(level.dirty - level.inherited + self.stacked());
        let reserved = self.heap.closed() + self.thin.closed();
        let spare = self.os().spare(reserved, LEFT_SHARE).unwrap_or(0);
        let missing = missing.checked_next_multiple_of(CHUNK).unwrap_or(usize::MAX);
        missing.min(spare & !(CHUNK - 1))
    }

    /// Takes a run of about `bytes` of untouched memory, or as much of that as the kernel lets us have.
    pub(crate) fn take_ahead(&self, bytes: usize) -> Option<Span> {
        let mut len = bytes;
        loop {
            if let Some(run) = self.heap.take_slow(Fit::aligned(len, CHUNK), Wish::Zeroed, 0) {
                self.see_beside(self.os().now(), run.found.fresh());
                return Some(run.span);
            }
            len = (len / 2).next_multiple_of(CHUNK);
            if len < LEAST {
                return None;
            }
        }
    }

    /// Makes a part of such a run resident. `false` if the kernel has no memory for it.
    pub(crate) fn fault_in(&self, part: Span) -> bool {
        self.os().populate(part.start, part.len).is_ok()
    }

    /// Takes such a run back. If it was faulted in, it is memory like any other that was freed from here on; if not, what
    /// came of it goes back to the kernel.
    pub(crate) fn give_ahead(&self, span: Span, is_in: bool) {
        if is_in {
            add(&self.tally.ahead, span.len as u64);
            self.given(self.heap.give(&[span], 0));
            // Nobody may come by for long.
            self.keeper.see_to(self.hooks.as_ref());
            self.keeper.wake(self.os());
        } else {
            self.heap.give_purged(span, 0);
        }
    }
}
