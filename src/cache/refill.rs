//! Where a shard comes by memory that its stacks and runs do not have: nodes for what lies there, a run from the heap, and
//! what is taken along with a fresh block.
//!
//! Invariants: what a shard keeps brings its node (H6), and is looked at for regions that touch before (`see_regions`, H1).
//! Never here: what a request does next that finds none of this (`slow`).

use super::counters::Counts;
use super::hot::{HOT_BLOCK_MAX, HOT_MAX, Hot, TOKENS};
use super::runs::{Bounds, Leaving, whole_blocks};
use super::shard::{Shard, Stacks};
use super::{Cache, SHARD_BYTES_MAX, count::add};
use crate::geometry::SizeClass;
use crate::heap::{Found, Run, Span, Unclean};
use crate::os::{GRANULE, Os};
use crate::sync::{Guard, Nap, atomic::Ordering};

// Or a run of the heap that is the block alone would bring one node where a hot run needs two (H6).
const _: () = assert!(!HOT_BLOCK_MAX.is_multiple_of(GRANULE));

/// Fresh memory comes with so much more of it as this part of what the thread has in use, as a divisor.
const FRESH_SHARE: usize = 32;

/// Of what a shard holds because its thread has had much in use this part is let go each time that thread tells the limits what it has
/// allocated, which is after 64 MiB or more, as a divisor.
pub(super) const FORGOTTEN: usize = 16;

/// The same where a window of the limits ends, of what any shard holds.
pub(super) const FORGOTTEN_IN_A_WINDOW: usize = 2;

/// The most that a shard holds because its thread has much in use, in bytes.
pub(super) const HELD_MAX: usize = 3 * SHARD_BYTES_MAX;

/// A thread that has little in use takes so much along for its first hot run, in bytes: it is all that it goes over then, a block
/// or a vector at a time, whatever comes from a hot run, and what is not touched of it costs nothing.
const FIRST_HOT: usize = HOT_BLOCK_MAX / GRANULE * GRANULE;

/// So much free memory for each shard, and at most so much in all, is left where it is for a block of a class, in bytes: with two
/// shards a processor, a first hot run for each thread of as many as there are processors, of 64 at most.
const LITTLE_PER_SHARD: usize = 768 << 10;
const LITTLE_MAX: usize = 128 * LITTLE_PER_SHARD;

/// With more in use than so many times that, caches hold little of it, and nothing is left.
const CACHED_TIMES: usize = 8;

impl<O: Os> Cache<O> {
    /// How much a shard may hold now.
    #[inline]
    pub(super) fn bounds(&self) -> Bounds {
        // Relaxed, both: limits, published when the shards were.
        let bytes = self.steady.shard_bytes_max.load(Ordering::Relaxed);
        Bounds { bytes, stacked: self.steady.shard_stacked_max.load(Ordering::Relaxed) }
    }

    /// The calling thread's shard, if it has a hot run and free runs: not where it may hold little, nor where freed memory is
    /// written to.
    pub(super) fn shard_with_runs(&self) -> Option<&Shard> {
        if self.bounds().merges() { self.shard_slow() } else { None }
    }

    /// To be called before a range from elsewhere is kept in a shard: from when on it may touch one that lies in another
    /// region.
    pub(super) fn see_regions(&self, stacks: &mut Stacks) {
        if self.heap.has_touching_regions() {
            stacks.runs.borders = true;
        }
    }

    /// Has a shard hold half as much again as its thread has in use, or had of late, if that is more than it may otherwise: what threads
    /// that replace blocks need between them, and a burst comes to. Where it held less, each would go over what all have; and what is
    /// gone through the heap comes back in another's caches. Not under a ceiling, which what shards hold is counted against.
    pub(super) fn see_use(&self, stacks: &mut Stacks, counts: &Counts) {
        let bounds = self.bounds();
        // Relaxed: set once, before the shards were published.
        let is_bounded = !bounds.merges() || self.dirty_max.load(Ordering::Relaxed) < usize::MAX;
        let now = (counts.in_use() / 2 * 3).min(HELD_MAX).saturating_sub(bounds.bytes);
        stacks.more = if is_bounded { 0 } else { now.max(stacks.more) };
    }

    /// Forgets a part of what a shard's thread had in use, as a divisor, and lets go what it holds beyond the rest.
    pub(super) fn forget_use(&self, shard: &Shard, part: usize) {
        let mut out = Leaving::NOTHING;
        let mut stacks = shard.lock(self.os());
        stacks.more -= stacks.more / part;
        self.keep_to_limit(&mut stacks, &mut out, &shard.counts);
        drop(stacks);
        self.give_leaving(&out);
    }

    /// Gives what left a shard back to the heap.
    pub(super) fn give_leaving(&self, out: &Leaving) {
        if !out.spans().is_empty() || out.tokens > 0 {
            self.given(self.heap.give(out.spans(), out.tokens));
        }
    }

    /// Looks further for a block of a class, once this thread's shard has none: nodes for what lies there, blocks of other
    /// classes where more is kept than is in use, and a run from the heap. `None` if no resident memory is free for it.
    ///
    /// A hot run begins in the shortest piece that has room for one. What bursts of blocks go over stays as small as a burst so, and in
    /// the cache: behind the end of the last run, or in the longest pieces, all free memory would be gone through.
    pub(super) fn cut_slow(&self, class: SizeClass) -> Option<usize> {
        let shard = self.shard_with_runs()?;
        let start = match self.cut_again_slow(shard, class) {
            Some(start) => start,
            None => self.take_run_slow(shard, class)?,
        };
        add(&self.tally.runs, 1);
        Some(start)
    }

    fn cut_again_slow(&self, shard: &Shard, class: SizeClass) -> Option<usize> {
        if let Some(start) = self.cut_once_paid(shard, class) {
            return Some(start);
        }
        let stacks = shard.lock(self.os());
        let live = shard.counts.in_use();
        if live >= stacks.bytes() - stacks.hot.excess() && live > HOT_MAX {
            return None;
        }
        // More is kept than is in use, or all of it is little: blocks of other classes, which are what is in this thread's
        // cache.
        self.merge_and_cut(shard, stacks, class)
    }

    /// Looks for a block of a class in this thread's shard once more, after what is in its stacks was merged with its free runs: where
    /// the heap has nothing either. What is in stacks serves one class each, and other threads' memory is in other caches.
    pub(super) fn cut_merged(&self, class: SizeClass) -> Option<Run> {
        let shard = self.shard_with_runs()?;
        let stacks = shard.lock(self.os());
        if stacks.stacked() == 0 {
            return None;
        }
        let span = Span::new(self.merge_and_cut(shard, stacks, class)?, class.len().bytes());
        add(&self.tally.runs, 1);
        Some(Run { span, unclean: Unclean::all(span), found: Found::Run })
    }

    fn merge_and_cut(
        &self,
        shard: &Shard,
        mut stacks: Guard<'_, Stacks, O, Nap>,
        class: SizeClass,
    ) -> Option<usize> {
        self.see_regions(&mut stacks);
        let mut out = Leaving::NOTHING;
        stacks.merge(&mut out, &shard.counts);
        let start = stacks.cut_run(class, &shard.counts);
        drop(stacks);
        self.give_leaving(&out);
        start.or_else(|| self.cut_once_paid(shard, class))
    }

    /// Cuts a block where all that was missing is nodes for more of them, and pays for those.
    fn cut_once_paid(&self, shard: &Shard, class: SizeClass) -> Option<usize> {
        let len = class.len().bytes();
        let stacks = shard.lock(self.os());
        if stacks.can_cut() || (stacks.hot.rest().len < len && stacks.runs.bytes() < len) {
            return None;
        }
        drop(stacks);
        if !self.heap.hold_nodes(TOKENS) {
            return None;
        }
        let mut stacks = shard.lock(self.os());
        stacks.tokens += TOKENS;
        stacks.cut(class, &shard.counts).or_else(|| stacks.cut_run(class, &shard.counts))
    }

    /// Takes a piece from the heap for this thread's next blocks, and the first of them from it.
    fn take_run_slow(&self, shard: &Shard, class: SizeClass) -> Option<usize> {
        let len = class.len().bytes();
        if len > HOT_BLOCK_MAX {
            return None;
        }
        let run = self.heap.take_run(len, HOT_BLOCK_MAX, whole_blocks(HOT_MAX, len), None)?;
        self.note_home(shard, run);
        let mut out = Leaving::NOTHING;
        let mut stacks = shard.lock(self.os());
        self.see_regions(&mut stacks);
        // A shorter piece than that does for a thread that has little in use and no hot run.
        let does = run.len > len && stacks.hot.rest().is_empty() && shard.counts.in_use() <= HOT_MAX;
        let start = if run.len >= HOT_BLOCK_MAX || does {
            // Another thread of this shard may have begun one meanwhile, which is kept.
            stacks.begin_hot(run, &mut out, &shard.counts);
            stacks.cut(class, &shard.counts)
        } else {
            let rest = Span::between(run.start + len, run.end());
            if !rest.is_empty() {
                stacks.keep(rest, &mut out, &shard.counts);
            }
            Some(run.start)
        };
        self.keep_to_limit(&mut stacks, &mut out, &shard.counts);
        drop(stacks);
        self.give_leaving(&out);
        self.note_peaks();
        start
    }

    /// Lets go what a shard holds beyond its limit, which the free part of its hot run comes on top of.
    pub(super) fn keep_to_limit(&self, stacks: &mut Stacks, out: &mut Leaving, counts: &Counts) {
        self.see_use(stacks, counts);
        stacks.let_go(self.bounds().bytes + stacks.more + stacks.hot.rest().len, out, counts);
        // Where blocks grow into whole runs, too, the nodes of those stay behind.
        stacks.let_tokens_go_alone(out);
    }

    /// How much more than a block of a class shall be taken where it is fresh, in bytes, for which a node is held then: a part of
    /// what the thread has in use; or, where little is free in all, what a hot run begins with, for a thread that has none.
    /// Nothing for which address space would have to be mapped, or where all that is open is resident.
    /// Threads that go on to take fresh memory block by block lie between each other's blocks, and what each frees never
    /// merges with its own.
    pub(super) fn more_fresh(&self, class: SizeClass, is_little_free: bool) -> usize {
        let len = class.len().bytes();
        let Some(shard) = self.shard_with_runs().filter(|_| len <= HOT_BLOCK_MAX) else { return 0 };
        let most = if !is_little_free {
            whole_blocks(HOT_MAX.min(shard.counts.in_use() / FRESH_SHARE), len)
        } else if shard.lock(self.os()).hot.rest().is_empty() {
            FIRST_HOT
        } else {
            0
        };
        let more = most.saturating_sub(len);
        if more > 0 && self.heap.hold_node_for_fresh(len + more) { more } else { 0 }
    }

    /// Whether a block of `len` bytes is part of more than ever was in use, and all shards together hold no more than they may
    /// have taken along with fresh blocks: threads that all go on to take fresh memory would drain each other of that for each
    /// block. Below the highest peak what they hold was needed once and will be again.
    pub(super) fn grows(&self, len: usize) -> bool {
        // Relaxed, all: estimates.
        let held: usize =
            self.shards().iter().map(|shard| shard.counts.stacked.load(Ordering::Relaxed)).sum();
        let live = self.live();
        live + len as u64 > self.tally.live_peak.load(Ordering::Relaxed)
            && held as u64 <= live / FRESH_SHARE as u64
    }

    /// Whether so little is free in all, and in use, that a block of a class takes nothing from threads that need what they have at
    /// hand ([`Cache::is_used_by_others`]): it is in their caches; where each block goes from one to another, filling it costs
    /// twice as much. Not under a small ceiling, nor where blocks are wiped: such shards have no runs to go on with.
    pub(super) fn is_little_free(&self) -> bool {
        let Some(mine) = self.shard_with_runs() else { return false };
        let shards = self.shards();
        let little = LITTLE_MAX.min(LITTLE_PER_SHARD * shards.len());
        let in_caches = CACHED_TIMES * little;
        // Its own first, which is at hand: what a program has in use that has much is not added up.
        if mine.counts.in_use() > in_caches {
            return false;
        }
        // Then the heap, which a warm program has much in: with hundreds of shards, to add up what all of them hold takes tens of
        // microseconds.
        let dirty = self.heap.level().dirty;
        if dirty > little {
            return false;
        }
        let live = usize::try_from(self.live()).unwrap_or(usize::MAX);
        // Relaxed: an estimate.
        let held: usize = shards.iter().map(|shard| shard.counts.stacked.load(Ordering::Relaxed)).sum();
        live <= in_caches && held + dirty <= little
    }

    /// Whether a shard is another thread's than this one's, and has more in use than at hand, or no more at hand than who has one block
    /// at a time goes over. One whose threads free what others took, or are gone, has mostly more.
    pub(super) fn is_used_by_others(&self, shard: &Shard) -> bool {
        shard.needs_what_it_holds() && self.shard_slow().is_none_or(|mine| !core::ptr::eq(mine, shard))
    }

    /// Keeps what a run has beyond `len` bytes for this thread's next blocks, with the node that is held for it; the node
    /// alone if there was no run. If there is no hot run, it is that, and the block in front of it can be put back.
    pub(super) fn keep_more(&self, run: Option<&mut Run>, len: usize, is_little_free: bool) {
        let (start, rest) = run.map_or((0, Span::default()), |run| (run.span.start, run.cut_back(len)));
        let Some(shard) = self.shard_slow() else {
            return self.heap.give_piece(rest, 1);
        };
        self.note_home(shard, rest);
        let mut out = Leaving::NOTHING;
        let mut stacks = shard.lock(self.os());
        self.see_regions(&mut stacks);
        if rest.is_empty() {
            stacks.tokens += 1;
        } else if is_little_free && stacks.hot.rest().is_empty() {
            stacks.replace_hot(Hot::behind(start, rest), &shard.counts);
            stacks.tokens += 1;
        } else {
            stacks.keep(rest, &mut out, &shard.counts);
        }
        self.keep_to_limit(&mut stacks, &mut out, &shard.counts);
        drop(stacks);
        self.give_leaving(&out);
    }
}
