//! Giving blocks back, and giving back what is cached.

use super::middling::is_middling;
use super::runs::{Bounds, Leaving};
use super::{Cache, Mine, shard};
use crate::geometry::{Block, SizeClass};
use crate::heap::{Keep, PageHeap, Span, Unit};
use crate::os::Os;
use crate::sync::{Guard, Nap, atomic::Ordering};

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
        self.release_by(PageHeap::release)
    }

    /// As [`Cache::release`], before null is the answer to a request: address space goes, too, that is worth no mapping of its own else.
    pub(crate) fn release_in_need(&self) -> usize {
        self.release_by(PageHeap::release_in_need)
    }

    fn release_by(&self, release: fn(&PageHeap<O>) -> usize) -> usize {
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
        release(&self.thin) + release(&self.heap)
    }
}
