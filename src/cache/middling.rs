//! Blocks without a class of less than 16 MiB: they go back to the shard that they were taken through, and the next ones are cut from
//! what that has.
//!
//! Why it is here: the heap gives any thread any thread's memory, and writing what another processor wrote last costs more. Threads
//! with blocks of 1 to 8 MiB found of 100 pages 40 to 50 last written by another, and went over twice as many as they had in use
//! at once (docs/EXPERIMENTS.md, "Middling blocks").
//!
//! They lie in the shard's free runs, with what its stacks had no room for, within the same bounds. Each brings its node, and takes one
//! along (H6). Never here: which of them are kept (`free`), and which are looked for here (`slow`).

use super::counters::Counts;
use super::runs::Leaving;
use super::shard::{Shard, Stacks};
use super::{Cache, count::add};
use crate::geometry::{Block, is_long};
use crate::heap::{Found, Run, Span, Unclean};
use crate::os::{GRANULE, Os};
use crate::sync::atomic::Ordering;

/// Of what a block needs a shard has to have this part in pieces, as a divisor, or they are not worth trading for one of the heap.
const TRADED_SHARE: usize = 2;

/// Nodes that are paid for where a block is cut from another shard's run that has none to spare ([`Stacks::can_cut`]).
const STOLEN_TOKENS: usize = 4;

/// Whether a block is one of those.
pub(super) fn is_middling(block: Block) -> bool {
    block.class.is_none() && block.align <= GRANULE && !is_long(block.len.bytes())
}

impl<O: Os> Cache<O> {
    /// Takes a block of `len` bytes from what this thread's shard has free, in whatever form; or, where that is in pieces, one of the heap
    /// as long as all of them together. `None` where neither has one; what the shard has may have gone to the heap then.
    pub(super) fn take_middling(&self, len: usize) -> Option<Run> {
        let shard = self.shard_with_runs()?;
        if shard.lock(self.os()).hot.excess() > 0 {
            // Room for vectors is more than a shard may hold as a run.
            self.drain_hot(shard);
        }
        let start = self.cut_middling(shard, len).or_else(|| self.trade(shard, len))?;
        add(&self.tally.runs, 1);
        let span = Span::new(start, len);
        Some(Run { span, unclean: Unclean::all(span), found: Found::Run })
    }

    /// Cuts such a block from what a shard has free, in whatever form.
    pub(super) fn cut_middling(&self, shard: &Shard, len: usize) -> Option<usize> {
        let mut stacks = shard.lock(self.os());
        if stacks.bytes() < len {
            return None;
        }
        self.see_regions(&mut stacks);
        let mut out = Leaving::NOTHING;
        stacks.end_hot(&mut out, &shard.counts);
        let mut start = stacks.fit_run(len, &shard.counts);
        if start.is_none() {
            stacks.merge(&mut out, &shard.counts);
            start = stacks.fit_run(len, &shard.counts);
        }
        let is_unpaid = start.is_none() && stacks.runs.has(len);
        drop(stacks);
        self.give_leaving(&out);
        if is_unpaid && self.pay(shard) {
            start = shard.lock(self.os()).fit_run(len, &shard.counts);
        }
        start
    }

    /// Cuts such a block from the free runs of another shard, unless somebody is at that, and pays for nodes where those are all that is
    /// missing.
    fn steal_middling_from(&self, shard: &Shard, len: usize) -> Option<usize> {
        let mut stacks = shard.stacks.try_lock(self.os())?;
        let start = stacks.fit_run(len, &shard.counts);
        if start.is_some() || !stacks.runs.has(len) {
            return start;
        }
        drop(stacks);
        if !self.heap.hold_nodes(STOLEN_TOKENS) {
            return None;
        }
        let Some(mut stacks) = shard.stacks.try_lock(self.os()) else {
            self.heap.give_piece(Span::default(), STOLEN_TOKENS);
            return None;
        };
        stacks.tokens += STOLEN_TOKENS;
        stacks.fit_run(len, &shard.counts)
    }

    /// Takes such a block from the free runs of another shard; first of one whose thread has less in use than at hand. A drain would take
    /// all from whoever comes first.
    pub(super) fn steal_middling(&self, len: usize) -> Option<Run> {
        let mine = self.shard_slow().map_or(0, |mine| mine.number);
        // Relaxed: a hint; the lock tells.
        let has =
            |shard: &&Shard| shard.counts.in_runs.load(Ordering::Relaxed) >= len && shard.number != mine;
        let from = |shard: &Shard| self.steal_middling_from(shard, len);
        let idle = |shard: &&Shard| !shard.needs_what_it_holds();
        let mut idlers = self.shards_from_mine().filter(has).filter(idle);
        let start = idlers.find_map(from).or_else(|| self.shards_from_mine().filter(has).find_map(from))?;
        add(&self.tally.stolen, 1);
        let span = Span::new(start, len);
        Some(Run { span, unclean: Unclean::all(span), found: Found::Run })
    }

    /// Gives all that a shard has to the heap, where that merges with what lies between it, and takes one piece for it that has room for a
    /// block of `len` bytes: for the block, and for the next ones.
    fn trade(&self, shard: &Shard, len: usize) -> Option<usize> {
        // Relaxed: an estimate.
        let held = shard.counts.stacked.load(Ordering::Relaxed);
        if held < len / TRADED_SHARE && held <= shard.counts.in_use() {
            return None;
        }
        let stacks = shard.lock(self.os());
        let (place, most) = (stacks.runs.start_of_longest(), self.bounds().bytes + stacks.more);
        drop(stacks);
        self.drain_shard(shard);
        // What is left of it is no more than the shard may hold.
        let long = held.min(most).max(len);
        let run = self.heap.take_run(len, long, long, place)?;
        let rest = Span::between(run.start + len, run.end());
        if !rest.is_empty() {
            let mut out = Leaving::NOTHING;
            let mut stacks = shard.lock(self.os());
            self.see_regions(&mut stacks);
            stacks.keep(rest, &mut out, &shard.counts);
            // Others may have freed blocks of it meanwhile.
            self.keep_to_limit(&mut stacks, &mut out, &shard.counts);
            drop(stacks);
            self.note_home(shard, rest);
            self.give_leaving(&out);
        }
        Some(run.start)
    }

    /// Keeps such a block in a shard, of which [`Cache::see_use`] has seen what is in use. `false`, and nothing done, if that may not hold
    /// as much.
    pub(super) fn keep_middling(
        &self,
        stacks: &mut Stacks,
        span: Span,
        out: &mut Leaving,
        counts: &Counts,
    ) -> bool {
        if span.len > self.bounds().bytes + stacks.more {
            return false;
        }
        self.see_regions(stacks);
        stacks.keep(span, out, counts);
        self.keep_to_limit(stacks, out, counts);
        true
    }
}
