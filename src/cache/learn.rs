//! What a block tells of others like it when it is freed, cut or grows: how many of its pages were touched, and how far.
//!
//! Why it is here: a block of which nothing will be touched shall get nothing that is resident, and only what was handed out untouched, or
//! zeroed, can tell. It is noted in `untouched`; what is concluded is the business of `crate::zeroing`.

use super::scan::{Scan, step_of};
use super::untouched::Noted;
use super::{Cache, count::add};
use crate::heap::Span;
use crate::os::{CHUNK, Os};
use crate::zeroing::{Faults, sample_pages};

impl<O: Os> Cache<O> {
    /// Learns from a block of which something was noted how many of its pages hold anything, if it is time to. `absent` are the parts of it
    /// that are untouched.
    pub(super) fn sample(&self, span: Span, noted: &Noted, absent: &[Span]) {
        let kind = noted.kind;
        // What was wiped or filled tells nothing.
        if !noted.zeroed || self.spoils() || !self.zeroing.samples(kind) {
            return;
        }
        let untouched = |page: usize| absent.iter().any(|part| page >= part.start && page < part.end());
        // The block is the cache's since its owner gave it back, and readable: who protected it has undone that
        // before, as the contract of `NAlloc` demands.
        let (hits, seen) = sample_pages(self.os(), noted.taken(span), untouched);
        if seen > 0 {
            self.zeroing.learn_pages(kind, hits, seen);
        }
    }

    /// Takes back a block of which something was noted: learns from it, unless it `is_sampled` also how many of its pages hold anything,
    /// and what of it is still untouched goes back as zero memory.
    pub(super) fn give_noted(&self, span: Span, noted: Noted, is_sampled: bool) {
        // Most are touched no further than blocks like them were before, and no part of those had to be faulted in.
        let as_before = || if noted.warm_whole { self.scan_behind(span, noted.warm) } else { None };
        let scan = if noted.fresh { as_before().or_else(|| self.scan(span)) } else { None };
        let scan = scan.unwrap_or(Scan::all_of(span));
        let absent = scan.absent();
        let (kind, taken) = (noted.kind, noted.taken(span));
        if !is_sampled {
            self.sample(span, &noted, absent);
        }
        let mut fills = false;
        if noted.fresh {
            if noted.zeroed {
                // What it grew by was not handed out as zeros.
                let (resident, seen) =
                    if taken.len == span.len { (scan.resident, scan.seen) } else { scan.within(taken) };
                self.zeroing.learn_chunks(kind, resident, seen);
                if let Some(before) = noted.faults {
                    // What was resident when it was handed out nobody faulted in.
                    let bytes = resident.saturating_sub(noted.warm);
                    self.zeroing.learn_alone(kind, before, Faults::now(self.os()), bytes);
                }
                add(&self.tally.zeroed_not, seen.saturating_sub(resident) as u64);
            }
            // Of what the block was taken as; it may go on behind.
            let seen_to = scan.end.min(taken.inner(CHUNK).end());
            let (seen, end) = match absent.iter().rfind(|part| part.start < seen_to) {
                Some(last) if last.end() >= seen_to => (last.start, last.start),
                // What lies behind the last untouched part may have been resident before.
                Some(last) if last.end() < span.start + noted.warm => (last.start, last.start),
                // What lies behind the last whole chunk is not seen.
                _ if seen_to > taken.start => (seen_to, taken.end()),
                _ => (taken.end(), taken.end()),
            };
            self.learn_reach(taken, noted, seen, end);
            // Where blocks that grow get fuller than that, the next one goes on as if what this one left was there.
            fills = noted.from > 0 && !self.zeroing.stays(noted.from, noted.len, end - taken.start);
        }
        if absent.is_empty() || fills {
            let dirty = self.heap.give(&[span], 0);
            self.settle_note(&noted);
            self.given(dirty);
        } else {
            self.give_absent(span, &scan, &noted);
            self.settle_note(&noted);
            self.given(self.heap.level().dirty);
        }
    }

    /// Takes back the end of a block that was handed out untouched, from `keep` bytes on; `false` if that cannot be booked, and
    /// the block is as it was. What of it is still untouched goes back as zero memory: booked as resident, the pages of others would
    /// be moved under the end of the next such block, which nobody touches either, while its front is faulted in.
    pub(super) fn give_noted_tail(&self, block: Span, keep: usize, noted: Noted) -> bool {
        let tail = Span::between(block.start + keep, block.end());
        self.learn_resized(noted, block);
        let scan = self.scan(tail).unwrap_or(Scan::NOTHING);
        let Some(&last) = scan.absent().last() else { return self.heap.give_tail(block, keep) };
        let held = self.heap.hold_tail();
        if held {
            // What lies before the end that is cut off says nothing.
            let taken = noted.taken(block);
            if last.end() >= scan.end && last.start < taken.end() {
                self.learn_reach(taken, noted, last.start, last.start);
            }
            // With a node of its own it is as a block.
            self.give_absent(tail, &scan, &noted);
        }
        held
    }

    /// Gives the heap a block, or the end of one, of which parts were seen untouched, and has the peaks that it was out at be
    /// what they were of memory.
    fn give_absent(&self, span: Span, scan: &Scan, noted: &Noted) {
        let absent = scan.absent();
        let overstated = noted.overstated(absent.iter().map(|part| part.len).sum());
        let corrections = self.heap.give_absent(span, absent, overstated);
        if overstated.bytes > 0 {
            self.limits.lock(self.os()).overstated(overstated, corrections);
        }
    }

    /// Learns from a block that is resized before it is freed, and not noted any more, what was touched of it until now; `block` is where its
    /// pages are.
    pub(super) fn learn_resized(&self, noted: Noted, block: Span) {
        if noted.fresh
            && noted.zeroed
            && let Some(scan) = self.scan(noted.taken(block))
        {
            self.zeroing.learn_chunks(noted.kind, scan.resident, scan.seen);
        }
    }

    /// Learns that a block of which something was noted was touched in the chunk that ends at `seen`, and not beyond `end`.
    fn learn_reach(&self, block: Span, noted: Noted, seen: usize, end: usize) {
        let reach = end - block.start;
        // What was resident before tells nothing, nor does the step in which that ended.
        let is_news = reach > noted.warm + step_of(block);
        if noted.from > 0 {
            // But for what its owner had before it grew, and the huge page in which that ended.
            if is_news || noted.warm < noted.from + CHUNK {
                self.zeroing.learn_grown(noted.from, block.len, reach);
            }
        } else if is_news || noted.warm == 0 || end == block.end() {
            // One that begins with a huge page is touched up to the end of one. This one, where it does not, was up to somewhere in the
            // chunk before what was seen: up to the end of that one, or of the next.
            let least = ((seen - block.start) & !(CHUNK - 1)).max(CHUNK).min(reach);
            let most = reach.next_multiple_of(CHUNK).min(block.len);
            self.zeroing.learn_reach(noted.kind, block.len, noted.zeroed, least..=most);
        }
    }

    /// Learns from a block that grows further, and is not noted any more, that it was touched to its end: vectors grow when they are
    /// full.
    pub(super) fn learn_whole(&self, noted: Noted) {
        if noted.fresh && noted.from > 0 {
            self.zeroing.learn_grown(noted.from, noted.len, noted.len);
        } else if noted.fresh && !noted.zeroed {
            self.zeroing.learn_reach(noted.kind, noted.len, false, noted.len..=noted.len);
        }
    }
}
