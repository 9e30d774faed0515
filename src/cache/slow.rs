//! What a request does that this thread's stack does not serve, in the order of what it costs.

use super::shard::TICK;
use super::untouched::WORTH_A_LOOK;
use super::{Cache, Handed, count::add, shard};
use crate::geometry::{Block, SizeClass};
use crate::heap::{Fit, Found, Run, Span, Unclean, Unit, Wish};
use crate::os::{CHUNK, GRANULE, Os};
use crate::sync::atomic::Ordering;
use crate::zeroing::Way;

/// Fresh memory between two looks at what the container or host has left, in bytes; a look reads files.
const LOOK_EVERY: usize = 256 << 20;

/// Nanoseconds after which a request that tells the limits looks too: a look takes a quarter of a millisecond.
const LOOK_AFTER: u64 = 250_000_000;

/// The most that one request purges for the decay of a forgotten peak, in bytes: a purge of this size takes
/// a quarter of a millisecond, and the next request goes on.
const SLICE: usize = 64 << 20;

/// How often a request that the kernel refuses gives up what is cached and tries again.
const RETRIES: usize = 2;

impl<O: Os> Cache<O> {
    /// Takes a block for a request of `requested` bytes that [`Cache::take`] had none for.
    #[cold]
    pub(crate) fn take_slow(&self, block: Block, requested: usize, zeroed: bool) -> Option<Handed> {
        self.wait_for_fork();
        let way = if zeroed { self.zeroing.way(block.len.bytes()) } else { Way::Written };
        let wish = if way == Way::Kernel { Wish::Zeroed } else { Wish::Any };
        let run = self.find(block, wish)?;
        self.note_untouched(&run, way);
        if let Found::Fresh(bytes) = run.found {
            self.fresh_slow(bytes, run.span.len);
        }
        let turn = self.count_taken(requested);
        if zeroed && way == Way::Kernel {
            add(&self.tally.zeroed_by_kernel, requested as u64);
        }
        Some(Handed { start: run.span.start, unclean: run.unclean, turn })
    }

    /// Waits for the end of another thread's fork, which takes the shards away meanwhile.
    fn wait_for_fork(&self) {
        while !self.is_ready() && !self.heap.is_forking_here() {
            self.os().nap();
        }
    }

    /// Counts a request that was served; gives its turn.
    pub(super) fn count_taken(&self, requested: usize) -> usize {
        let Some(shard) = self.shard() else { return 0 };
        let mut stacks = shard.lock(self.os());
        let (turn, tick) = stacks.count(requested);
        shard::bump(&shard.counts.slow_allocations, 1);
        shard::bump(&shard.counts.live, requested as u64);
        drop(stacks);
        if tick {
            self.tick_slow(requested.max(TICK));
        }
        turn
    }

    /// Looks for a run everywhere.
    pub(super) fn find(&self, block: Block, wish: Wish) -> Option<Run> {
        let fit = Fit::aligned(block.len.bytes(), block.align);
        let class = SizeClass::of(block.len).filter(|_| block.align <= GRANULE);
        if wish == Wish::Any
            && let Some(run) = class.and_then(|c| self.steal(c)).or_else(|| self.find_resident(fit))
        {
            return Some(run);
        }
        // Stacks are drained before a page is faulted in, or blocks in stacks would not serve every size.
        if self.drain() > 0
            && wish == Wish::Any
            && let Some(run) = self.find_resident(fit)
        {
            return Some(run);
        }
        for retry in 0..=RETRIES {
            if let Some(run) = self.heap.take_slow(fit, wish) {
                match run.found {
                    Found::Run => add(&self.tally.runs, 1),
                    Found::Gathered => add(&self.tally.gathered, 1),
                    Found::Fresh(bytes) => {
                        add(&self.tally.misses, 1);
                        add(&self.tally.fresh, bytes as u64);
                    }
                }
                return Some(run);
            }
            if retry < RETRIES {
                // What other threads have in their hands, in stacks, or resident for nothing may be enough.
                self.heap.wait_for_transit();
                self.drain();
                self.heap.release();
            }
        }
        add(&self.tally.refused, 1);
        None
    }

    fn find_resident(&self, fit: Fit) -> Option<Run> {
        let run = self.heap.take_resident(fit)?;
        add(&self.tally.runs, 1);
        Some(run)
    }

    /// Takes a block of a class from another shard's stack.
    fn steal(&self, class: SizeClass) -> Option<Run> {
        for shard in self.shards() {
            if shard.counts.is_filled(class)
                && let Some(mut stacks) = shard.stacks.try_lock(self.os())
                && let Some(start) = stacks.pop(class, &shard.counts)
            {
                drop(stacks);
                add(&self.tally.stolen, 1);
                let span = Span::new(start, class.len().bytes());
                return Some(Run { span, unclean: Unclean::all(span), found: Found::Run });
            }
        }
        None
    }

    /// Gives the blocks of all stacks back to the heap. Gives how many bytes those were.
    pub(super) fn drain(&self) -> usize {
        let mut drained = 0;
        for shard in self.shards() {
            // Relaxed: what another thread is freeing just now is a race that either may win.
            if shard.counts.stacked.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut words = [0; 2];
            for (word, filled) in words.iter_mut().zip(&shard.counts.filled) {
                *word = filled.load(Ordering::Relaxed);
            }
            for class in (0..SizeClass::COUNT).map(|c| SizeClass(c as u8)) {
                while words[class.0 as usize / 64] >> (class.0 % 64) & 1 == 1 {
                    let mut spans = [Span::default(); shard::FLUSH];
                    let count = shard.lock(self.os()).flush(class, &mut spans, &shard.counts);
                    if count == 0 {
                        break;
                    }
                    self.heap.give(&spans[..count]);
                    drained += count * class.len().bytes();
                }
            }
        }
        drained
    }

    /// Remembers a run that nobody has touched in part, so that its free tells what was touched.
    fn note_untouched(&self, run: &Run, way: Way) {
        if let Found::Fresh(bytes) = run.found
            && run.span.len >= WORTH_A_LOOK
            && bytes >= CHUNK
        {
            let credit = if way == Way::Kernel { self.zeroing.absent(run.span.len) } else { 0 };
            let mut untouched = self.untouched.lock(self.os());
            untouched.remember(run.span.start, credit);
            self.heap.expect_absent(untouched.credit());
        }
    }

    /// Sees to the limits after `fresh` bytes of a run of `len` were neither resident nor moved in.
    #[cold]
    pub(super) fn fresh_slow(&self, fresh: usize, len: usize) {
        let _ = len;
        // Relaxed: a statistic.
        self.tally.live_peak.fetch_max(self.live(), Ordering::Relaxed);
        if self.since_look.fetch_add(fresh, Ordering::Relaxed) + fresh > LOOK_EVERY {
            self.look_slow();
        }
        let level = self.heap.level();
        let mut limits = self.limits.lock(self.os());
        if fresh >= CHUNK {
            limits.missed();
        }
        limits.allocated(0, level.out_max, level.out);
        let excess = limits.excess(level.out, level.dirty);
        let unit = if limits.ceiling().is_some() { Unit::Pages } else { Unit::Chunks };
        drop(limits);
        if excess > 0 {
            self.heap.purge(excess, unit);
        }
    }

    /// Tells the limits what has been allocated, and applies what they say, a slice at a time.
    #[cold]
    pub(super) fn tick_slow(&self, bytes: usize) {
        self.tally.live_peak.fetch_max(self.live(), Ordering::Relaxed);
        // Relaxed: whoever is a moment late looks once more.
        if self.os().now().saturating_sub(self.last_look.load(Ordering::Relaxed)) > LOOK_AFTER {
            self.look_slow();
        }
        let level = self.heap.level();
        let mut limits = self.limits.lock(self.os());
        let ended = limits.allocated(bytes, level.out_max, level.out);
        let excess = limits.excess(level.out, level.dirty);
        drop(limits);
        if ended {
            self.heap.begin_window();
        }
        if excess > 0 {
            self.heap.purge(excess.min(SLICE), Unit::Chunks);
        }
    }

    /// Looks at what the container or host has left.
    #[cold]
    fn look_slow(&self) {
        // Relaxed: as in `tick_slow`.
        self.since_look.store(0, Ordering::Relaxed);
        self.last_look.store(self.os().now(), Ordering::Relaxed);
        if let Some(room) = self.os().room() {
            self.limits.lock(self.os()).room(room.limit, room.left);
        }
    }
}
