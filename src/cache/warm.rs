//! Where a block goes on that grows, in resident memory: behind it or elsewhere, its thread's own, the heap's, or what another has.
//!
//! Why it is here: what others have at hand is in their caches, and they come for it again. So nobody gives up all he has where one
//! piece will do. Never here: in which order this comes with what has to be gathered, faulted in or moved (`grow`).

use super::middling::is_middling;
use super::shard::Shard;
use super::{Cache, count::add};
use crate::geometry::{Block, SizeClass};
use crate::heap::{Behind, End, Fit, Span};
use crate::os::{GRANULE, Os};

impl<O: Os> Cache<O> {
    /// Takes resident memory for the content of a block that is to be one `to` is for, `by_little` with room for twice as much: of what the
    /// thread has at hand, of the heap, of what another has, and at last has others give up all they have, one after the other.
    pub(super) fn take_warm(
        &self,
        to: Block,
        by_little: bool,
        keeps: impl Fn(&Shard) -> bool,
    ) -> Option<usize> {
        let len = to.len.bytes();
        let fit = Fit::aligned(len, to.align);
        let is_middling = is_middling(to) && !by_little;
        // Room for vectors stays that.
        let own = || {
            let shard = self.shard_with_runs()?;
            let mut stacks = shard.lock(self.os());
            if stacks.hot.excess() > 0 {
                return None;
            }
            if let Some(class) = to.class {
                return stacks.take(class, &shard.counts);
            }
            drop(stacks);
            self.cut_middling(shard, len)
        };
        let has_own = is_middling || to.class.is_some() && to.align <= GRANULE;
        let resident = || match by_little {
            true => self.heap.take_with_room(fit),
            false => self.heap.take_resident(fit, End::Low),
        };
        let start = if has_own { own() } else { None }.or_else(|| Some(resident()?.span.start));
        if start.is_none()
            && is_middling
            && let Some(run) = self.steal_middling(len)
        {
            return Some(run.span.start);
        }
        let start = start.or_else(|| Some(self.drain_until(keeps, resident)?.span.start))?;
        add(&self.tally.runs, 1);
        Some(start)
    }

    /// Makes a block longer into what the shard has at hand that had what lies behind it last, as far as that is known: into a free run of
    /// another's, or into whatever is free there once this thread's gives up all it has, if it has what is next.
    pub(super) fn extend_behind(&self, block: Span, longer: usize) -> bool {
        let Some(here) = self.shard_with_runs() else { return false };
        let Some(shard) = self.last_home_of(block.end(), here) else { return false };
        if shard.number == here.number {
            return here.lock(self.os()).begins_at(block.end())
                && self.drain_shard(here) > 0
                && self.heap.extend(block, longer, Behind::Resident, longer).is_some();
        }
        let Some(mut stacks) = shard.stacks.try_lock(self.os()) else { return false };
        self.see_regions(&mut stacks);
        stacks.extend_into_run(block.end(), longer - block.len, &shard.counts)
    }

    /// Makes a block longer that lies at the front of this thread's hot run, or before one of its shard's runs.
    pub(super) fn extend_hot(&self, block: Span, longer: usize) -> bool {
        let Some(shard) = self.shard_with_runs() else { return false };
        let mut stacks = shard.lock(self.os());
        self.see_regions(&mut stacks);
        stacks.extend(block, longer, &shard.counts)
    }

    /// Takes a block of a class for the content of another from this thread's shard.
    pub(super) fn cut_warm(&self, class: SizeClass) -> Option<usize> {
        let shard = self.shard_slow()?;
        let warm = shard.lock(self.os()).take(class, &shard.counts);
        if warm.is_none() {
            return self.cut_slow(class);
        }
        add(&self.tally.runs, 1);
        warm
    }
}
