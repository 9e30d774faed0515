//! Giving blocks back, and giving back what is cached.

use super::middling::is_middling;
use super::runs::{Bounds, Leaving};
use super::scan::{Scan, step_of};
use super::untouched::Noted;
use super::{Cache, Mine, count::add, shard};
use crate::geometry::{Block, SizeClass};
use crate::heap::{Keep, Span, Unit};
use crate::os::{CHUNK, Os};
use crate::sync::{Guard, Nap, atomic::Ordering};
use crate::zeroing::{Faults, sample_pages};

/// How often a shard that holds much gives some of it to the heap at the end of a burst, at most.
const LEAVES_MAX: usize = 8;

impl<O: Os> Cache<O> {
    /// Takes back a block of a class at `start`, for which `requested` bytes were asked, more than none, if this thread's shard
    /// has a place for it and its latch is not held: the whole fast path, which calls nothing (see [`Cache::take_at_hand`]).
    /// `false`, and nothing done, is no refusal: [`Cache::give`] is to be asked.
    #[inline]
    pub(crate) fn give_at_hand(&self, mine: Mine, class: SizeClass, start: usize, requested: usize) -> bool {
        let Some(shard) = self.shard_at_hand(mine) else { return false };
        let Some(mut stacks) = shard.stacks.try_lock(self.os()) else { return false };
        let len = class.len().bytes();
        // Before a border regions may touch, which is noted, and what is in stacks merges at the end of a burst: registers for that
        // would be saved by every free.
        if stacks.hot.is_before_border(start, len) || stacks.is_last(requested, &shard.counts) {
            return false;
        }
        let borders = || self.heap.has_touching_regions();
        // What lies before the hot run is of it.
        let is_given = stacks.put_back(len, start, borders, &shard.counts)
            || self.homes(shard).is_of(start, shard.number)
                && stacks.push(class, start, self.bounds(), &shard.counts);
        if is_given {
            shard.counts.note_freed(requested);
        }
        is_given
    }

    /// Takes back a block at `start`, for which `requested` bytes were asked; 0 where the request lives on in
    /// another block. `false`, and nothing done, where frees take the slow path: [`Cache::give_slowly`].
    pub(crate) fn give(&self, start: usize, block: Block, requested: usize) -> bool {
        let Some(shard) = self.shard() else { return false };
        self.give_to(shard, start, block, requested);
        true
    }

    /// Takes back a block in any case.
    pub(crate) fn give_slowly(&self, start: usize, block: Block, requested: usize) {
        match self.shard_slow() {
            Some(shard) => self.give_to(shard, start, block, requested),
            None => self.give_while_forking(Span::new(start, block.len.bytes()), requested),
        }
    }

    fn give_to(&self, shard: &shard::Shard, start: usize, block: Block, requested: usize) {
        self.begin_if_new(shard);
        let Some(class) = block.class else {
            return self.give_long(shard, start, block, requested);
        };
        let here = shard;
        let (shard, mut stacks) = self.lock_for(here, Span::new(start, class.len().bytes()));
        let is_last = stacks.is_last(requested, &shard.counts);
        shard.note_freed(here, requested);
        let bounds = self.bounds();
        let len = class.len().bytes();
        let borders = || self.heap.has_touching_regions();
        let is_given = stacks.put_back(len, start, borders, &shard.counts)
            || stacks.push(class, start, bounds, &shard.counts);
        if is_given {
            drop(stacks);
        } else {
            self.give_full_slow(stacks, shard, class, start, bounds);
        }
        if is_last {
            self.begin_anew(shard, true);
        }
    }

    /// Locks the shard that a block goes to which a thread frees through `here`: its home, unless somebody is at that just now; else
    /// this one, which is its home from now on.
    fn lock_for<'a>(
        &'a self,
        here: &'a shard::Shard,
        block: Span,
    ) -> (&'a shard::Shard, Guard<'a, shard::Stacks, O, Nap>) {
        if let Some(home) = self.home_of(block.start, here)
            && let Some(stacks) = home.stacks.try_lock(self.os())
        {
            return (home, stacks);
        }
        if !self.homes(here).is_of(block.start, here.number) {
            self.note_home(here, block);
        }
        (here, here.lock(self.os()))
    }

    /// Has a thread begin where the one went on that had its shard before, if it has just been given it. To be called where a thread's
    /// first request or free may come.
    #[inline]
    pub(super) fn begin_if_new(&self, shard: &shard::Shard) {
        if shard.counts.is_taken_over() {
            self.begin_anew(shard, false);
        }
    }

    /// Merges what lies in a shard's stacks with its hot and free runs, where it has those: to be called when a burst of blocks has
    /// been freed. The next ones, of whatever classes, are cut where those lay so, which is in the caches; else they would
    /// come from what is left of the hot run, and then from elsewhere.
    ///
    /// If `shares`, all of it goes to the heap and merges there where it is nearly as much as a shard may hold: of more the shard
    /// gives up its longest run first, and the next burst would lie on what is left and on what is free elsewhere. Nothing is done
    /// then where the burst is not over any more; nor with another shard than this thread's while somebody is at it.
    #[cold]
    pub(super) fn begin_anew(&self, shard: &shard::Shard, shares: bool) {
        let bounds = self.bounds();
        let is_mine = self.shard_slow().is_some_and(|mine| core::ptr::eq(mine, shard));
        let mut is_new = false;
        // More are never needed, unless its thread goes on freeing meanwhile.
        for _ in 0..LEAVES_MAX {
            let mut out = Leaving::NOTHING;
            let stacks = if is_mine { Some(shard.lock(self.os())) } else { shard.stacks.try_lock(self.os()) };
            let Some(mut stacks) = stacks else { return };
            is_new |= shard.counts.forget_taken_over();
            if !bounds.merges() || shares && !is_new && !stacks.is_over(&shard.counts) {
                return;
            }
            stacks.end_burst(is_new, &shard.counts);
            if is_new {
                // That was another's.
                stacks.more = 0;
            }
            self.see_use(&mut stacks, &shard.counts);
            let most = bounds.bytes + stacks.more;
            let is_much = shares && stacks.bytes() - stacks.hot.excess() > most / 8 * 7;
            self.see_regions(&mut stacks);
            stacks.merge(&mut out, &shard.counts);
            // Room for vectors stays that: as a run it would be more than a shard may hold.
            let has_room = stacks.hot.excess() > 0;
            if !has_room {
                stacks.end_hot(&mut out, &shard.counts);
            }
            if is_much {
                stacks.let_go(0, &mut out, &shard.counts);
            } else if !has_room {
                stacks.begin_short_hot(&shard.counts);
            }
            stacks.let_tokens_go_alone(&mut out);
            drop(stacks);
            self.give_leaving(&out);
            if !is_much {
                return;
            }
        }
    }

    /// Makes room on a stack, or bypasses it.
    #[cold]
    fn give_full_slow(
        &self,
        mut stacks: Guard<'_, shard::Stacks, O, Nap>,
        shard: &shard::Shard,
        class: SizeClass,
        start: usize,
        bounds: Bounds,
    ) {
        let mut out = Leaving::NOTHING;
        self.see_regions(&mut stacks);
        self.see_use(&mut stacks, &shard.counts);
        stacks.make_room(class, bounds, &mut out, &shard.counts);
        if !stacks.push(class, start, bounds, &shard.counts) {
            let span = Span::new(start, class.len().bytes());
            stacks.keep_or_let_go(span, bounds, &mut out, &shard.counts);
            stacks.note_beside(bounds);
        }
        drop(stacks);
        self.give_leaving(&out);
    }

    /// Takes back a block that is too long for a stack.
    fn give_long(&self, here: &shard::Shard, start: usize, block: Block, requested: usize) {
        let span = Span::new(start, block.len.bytes());
        let is_thin = self.is_thin(span);
        // Before the memory can be anybody else's, who may note something of it.
        let noted = if is_thin { None } else { self.take_note(span.start) };
        let is_fresh = noted.as_ref().is_some_and(|noted| noted.fresh);
        // What of a fresh one is untouched goes back to the heap as that.
        let keeps = !is_thin && !is_fresh && is_middling(block) && self.bounds().merges();
        if let Some(noted) = noted.as_ref().filter(|_| keeps) {
            self.sample(span, noted, &[]);
        }
        let (shard, mut stacks) =
            if keeps { self.lock_for(here, span) } else { (here, here.lock(self.os())) };
        if keeps {
            // With this one, which may be all.
            self.see_use(&mut stacks, &shard.counts);
        }
        shard.note_freed(here, requested);
        let borders = || self.heap.has_touching_regions();
        let is_back = !is_thin && stacks.put_back(span.len, span.start, borders, &shard.counts);
        let is_too_much = is_back && stacks.hot.excess() > 0;
        let mut out = Leaving::NOTHING;
        let is_kept = keeps && !is_back && self.keep_middling(&mut stacks, span, &mut out, &shard.counts);
        drop(stacks);
        if is_too_much {
            // Room beyond a hot run's length: with the block back in it, it is one piece for the heap.
            self.drain_hot(shard);
        }
        if is_kept {
            self.note_home(shard, span);
            self.give_leaving(&out);
        }
        match noted {
            _ if is_thin => self.give_thin(span),
            Some(noted) if is_back || is_kept => self.settle_note(&noted),
            None if is_back || is_kept => {}
            Some(noted) => self.give_noted(span, noted, keeps),
            None => self.given(self.heap.give(&[span], 0)),
        }
    }

    /// Learns from a block of which something was noted how many of its pages hold anything, if it is time to. `absent` are the parts of it
    /// that are untouched.
    fn sample(&self, span: Span, noted: &Noted, absent: &[Span]) {
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
    fn give_noted(&self, span: Span, noted: Noted, is_sampled: bool) {
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

    /// Keeps the ceiling, where there is one, with `dirty` bytes free and resident.
    pub(super) fn given(&self, dirty: usize) {
        // Relaxed: a statistic; most calls raise nothing, and need not own the line.
        if dirty as u64 > self.tally.cached_peak.load(Ordering::Relaxed) {
            self.tally.cached_peak.fetch_max(dirty as u64, Ordering::Relaxed);
        }
        // Relaxed: set once, before the shards were published.
        let dirty_max = self.dirty_max.load(Ordering::Relaxed);
        if dirty > dirty_max {
            self.heap.purge_to(Keep::Dirty(dirty_max), dirty - dirty_max, Unit::Pages);
        }
    }

    /// Offers what is cached to the kernel, which takes it when it needs it. Gives the bytes offered.
    pub(crate) fn soften(&self) -> usize {
        self.see_child();
        if !self.is_ready() {
            return 0;
        }
        self.drain();
        self.heap.soften()
    }

    /// Gives what is cached back to the kernel. Gives the bytes.
    pub(crate) fn release(&self) -> usize {
        self.see_child();
        if !self.is_ready() {
            // The C library may keep some before there is anything of ours. Not while somebody forks: our locks may be a
            // parent's then.
            if !self.has_started() {
                self.ask_library();
            }
            return 0;
        }
        self.ask_library();
        self.drain_to_unmap();
        self.thin.release() + self.heap.release()
    }
}
