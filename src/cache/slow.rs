//! What a request does that this thread's stack does not serve, in the order of what it costs.

use core::cell::LazyCell;

use super::hot::HOT_BLOCK_MAX;
use super::middling::is_middling;
use super::untouched::Noted;
use super::{Cache, Handed, count::add, counters, shard};
use crate::geometry::{Block, Granules, SizeClass, is_long};
use crate::heap::{End, Fit, Found, PageHeap, Run, Span, Unclean, Wish};
use crate::os::{CHUNK, GRANULE, Os};
use crate::sync::atomic::Ordering;
use crate::zeroing::{CPUS_MIN, Faults, Kind, WORTH_A_LOOK, Way};

/// Requests from this size on are seen by those who watch peaks, in bytes: adding up what is live costs some nanoseconds
/// for each shard.
const NOTED_MIN: usize = 1 << 20;

/// The so-manieth in a row of long blocks that found next to nothing in use, and rooms that found nothing, begins at the low
/// end. Sooner, and the first of many that are going to be live together does, now and then: columns that are pushed to in turn
/// are copied then.
const ALONE_AFTER: u32 = 8;

/// Beside a long block so much may be in use that it counts as alone, as a divisor of its length: tables that a program keeps.
const ALONE_SHARE: usize = 16;

/// How often a request that the kernel refuses gives up what is cached and tries again.
const RETRIES: usize = 2;

impl<O: Os> Cache<O> {
    /// Takes a block for a request of `requested` bytes that [`Cache::take`] had none for.
    #[cold]
    pub(crate) fn take_slow(&self, block: Block, requested: usize, zeroed: bool) -> Option<Handed> {
        self.see_child();
        let len = block.len.bytes();
        match block.class.filter(|_| block.align <= GRANULE) {
            Some(class) => {
                if let Some(start) = self.cut_slow(class) {
                    let turn = self.count_taken(requested);
                    let unclean = Unclean::all(Span::new(start, len));
                    return Some(Handed { start, unclean, turn, fresh: 0 });
                }
            }
            // A hot run in the middle of free memory would be between this block and the next.
            None => {
                if let Some(shard) = self.shard_with_runs() {
                    self.begin_if_new(shard);
                    if !is_middling(block) {
                        self.make_way(shard, len);
                    }
                }
            }
        }
        let kind = self.zeroing.enter(len);
        let Some(run) = self.find_for(block, zeroed, kind) else {
            self.zeroing.leave(kind);
            return None;
        };
        if matches!(run.found, Found::Fresh(_)) {
            add(&self.tally.missed_by_size[counters::size_line(requested)], 1);
        }
        let turn = self.count_taken(requested);
        if block.class.is_some() {
            self.note_home_here(run.span);
        } else if is_middling(block) {
            // Where it begins is all that its free looks at.
            self.note_home_here(Span::new(run.span.start, GRANULE));
        }
        if run.found.fresh() >= CHUNK {
            // It was not counted yet when its fresh memory was seen to. Relaxed: a statistic.
            self.tally.live_peak.fetch_max(self.live(), Ordering::Relaxed);
        }
        Some(Handed { start: run.span.start, unclean: run.unclean, turn, fresh: run.found.fresh() })
    }

    /// Gives the heap what would lie in the way of a block of `len` bytes that has none of it: the hot run, or where the block is alone,
    /// which begins where the last one did, all that this thread's shard has.
    fn make_way(&self, shard: &shard::Shard, len: usize) {
        if self.is_alone_but_for(len / ALONE_SHARE) {
            self.drain_shard(shard);
        } else {
            self.drain_hot(shard);
        }
    }

    /// Looks for a run for a block of a kind, in the way that is best for it.
    fn find_for(&self, block: Block, zeroed: bool, kind: Kind) -> Option<Run> {
        let len = block.len.bytes();
        let way = if zeroed { self.zeroing.way(kind, len) } else { Way::Written };
        if (way == Way::Thin || block.is_apart())
            && let Some(run) = self.take_thin(block)
        {
            if kind.is_ranked() {
                self.remember(run.span.start, Noted { zeroed, kind, len, ..Noted::NOTHING });
            }
            return Some(run);
        }
        if is_middling(block)
            && let Some(shard) = self.shard_with_runs()
        {
            if way == Way::Written
                && let Some(run) = self.take_middling(len)
            {
                self.note(&run, zeroed, 0, kind, 0);
                return Some(run);
            }
            self.drain_hot(shard);
        }
        if way == Way::Written || way == Way::Parallel {
            let reach = self.zeroing.reach(kind, len, zeroed);
            let mut run = self.find(block, Wish::Any, reach, zeroed)?;
            // On a host of many processors a program may have few threads: it was told to, or a quota of cgroups of version 1 has it.
            let parallel = way == Way::Parallel && self.os().threads().is_some_and(|count| count >= CPUS_MIN);
            let left = if parallel { self.leave_to_threads(&mut run) } else { 0 };
            self.note(&run, zeroed, len - reach, kind, left);
            return Some(run);
        }
        let absent = self.zeroing.absent(kind, len);
        self.make_room_for(len - self.credit_for(absent));
        let run = self.find(block, Wish::Zeroed, len, true)?;
        self.note(&run, true, absent, kind, 0);
        Some(run)
    }

    /// Gives the pages of whole chunks of a run back to the kernel, which zeroes what is touched as it is touched, by
    /// whichever thread does. Gives how many bytes.
    pub(super) fn leave_to_threads(&self, run: &mut Run) -> usize {
        let mut unclean = Unclean::default();
        let mut left = 0;
        for part in run.unclean.parts() {
            let chunks = part.inner(CHUNK);
            // The run is ours alone until it is handed out (H1). What is not given back, as locked memory, holds anything.
            if chunks.is_empty() || self.os().purge(chunks.start, chunks.len).is_err() {
                unclean.push(*part);
                continue;
            }
            unclean.push(Span::between(part.start, chunks.start));
            unclean.push(Span::between(chunks.end(), part.end()));
            left += chunks.len;
        }
        run.unclean = unclean;
        add(&self.tally.left_to_threads, left as u64);
        left
    }

    /// Counts a request that was served; gives its turn.
    pub(super) fn count_taken(&self, requested: usize) -> usize {
        let Some(shard) = self.shard_slow() else {
            // Another thread has begun to fork meanwhile.
            add(&self.tally.allocations_in_fork, 1);
            add(&self.tally.allocated_in_fork, requested as u64);
            add(&self.tally.live_in_fork, requested as u64);
            return 0;
        };
        let mut stacks = shard.lock(self.os());
        let (turn, tick) = stacks.count_other(requested, &shard.counts);
        let by_size = &shard.counts.by_size[counters::size_line(requested)];
        counters::bump(&by_size.requests, 1);
        counters::bump(&by_size.bytes, requested as u64);
        drop(stacks);
        if requested >= NOTED_MIN {
            self.note_peaks();
        }
        if tick {
            self.tick_slow(shard);
        }
        turn
    }

    /// Tells those who watch what is live now, if anybody does.
    #[inline]
    pub(super) fn note_peaks(&self) {
        if self.peaks.is_watched() {
            let live = self.live();
            self.tally.live_peak.fetch_max(live, Ordering::Relaxed);
            self.peaks.note(live, 0);
        }
    }

    /// Looks for a run everywhere. Only its leading `reach` bytes are worth resident memory from elsewhere. `zeroed` if it shall
    /// read as zero, however that comes about.
    pub(super) fn find(&self, block: Block, wish: Wish, reach: usize, zeroed: bool) -> Option<Run> {
        let len = block.len.bytes();
        // What is touched of a block whose end is not shall be whole chunks, so that rounds of such blocks fall on the
        // same ones; what that leaves between two blocks is memory that neither touches.
        let fit = Fit::aligned(len, if reach < len { block.align.max(CHUNK) } else { block.align });
        let class = block.class.filter(|_| block.align <= GRANULE);
        // A run that is resident to its end is wasted on a block whose end is not touched.
        let whole = wish == Wish::Any && reach >= fit.len / 8 * 7;
        let from = if is_long(len) { self.end_for_long(len / ALONE_SHARE) } else { End::Low };
        // Asked once it counts: it takes the heap's lock, and mostly what is looked for there first is found.
        let spares = LazyCell::new(|| class.is_some() && self.is_little_free());
        let keeps = |shard: &shard::Shard| *spares && self.is_used_by_others(shard);
        if whole {
            let own = || class.and_then(|class| self.cut_merged(class));
            let stolen = || match class {
                Some(class) => self.steal(class, keeps),
                None if is_middling(block) => self.steal_middling(len),
                None => None,
            };
            // Shorter ones have been looked for in the heap already, where shards have runs, and to look at all shards takes a line or
            // two of each.
            let found = if len > HOT_BLOCK_MAX || !self.bounds().merges() {
                self.find_resident(fit, from).or_else(own).or_else(stolen)
            } else {
                own().or_else(stolen).or_else(|| self.find_resident(fit, from))
            };
            if found.is_some() {
                return found;
            }
        }
        // Shards are drained before a page is faulted in, or blocks in stacks would not serve every size.
        // Not for what is to be untouched, nor where pages in the heap can be moved under what is touched of it.
        if wish == Wish::Any
            && (whole || !self.heap.has_to_move(reach))
            && (class.is_none() || !self.grows(len))
            && let Some(run) =
                self.drain_until(keeps, || if whole { self.find_resident(fit, from) } else { None })
        {
            return Some(run);
        }
        for retry in 0..=RETRIES {
            // Whole chunks, and memory for the next blocks, are preferences, which refuse nobody.
            let fit = if retry == 0 { fit } else { Fit::aligned(len, block.align) };
            // Nor does what a block is expected to leave untouched: at last all that is free will do.
            let reach = if retry == RETRIES { len } else { reach };
            // What is zero stays untouched for a request that wishes for zeros, in whatever it would share.
            let more = class
                .filter(|_| retry == 0 && whole && !zeroed)
                .map_or(0, |class| self.more_fresh(class, *spares));
            let mut run =
                self.heap.take_slow(Fit { len: fit.len + more, ..fit }, wish, reach.saturating_add(more));
            if more > 0 {
                self.keep_more(run.as_mut(), len, *spares);
                run = run.or_else(|| self.heap.take_slow(fit, wish, reach));
            }
            if let Some(run) = run {
                self.count_found(run.found);
                return Some(run);
            }
            if retry < RETRIES {
                // What other threads have in their hands, in stacks, or resident for nothing may be enough.
                self.heap.wait_for_transit();
                if *spares
                    && self.drain() > 0
                    && let Some(run) = self.find_resident(fit, from)
                {
                    return Some(run);
                }
                self.ask_library();
                self.drain_to_unmap();
                // What is open in either counts against the same limits.
                let release = if retry + 1 < RETRIES { PageHeap::release } else { PageHeap::release_in_need };
                for heap in [&self.thin, &self.heap] {
                    release(heap);
                }
            }
        }
        add(&self.tally.refused, 1);
        None
    }

    /// Counts how a run of the heap's slow path was come by.
    pub(super) fn count_found(&self, found: Found) {
        match found {
            Found::Run => add(&self.tally.runs, 1),
            Found::Gathered(ends) => {
                add(&self.tally.gathered, 1);
                add(&self.tally.fresh_beside, ends as u64);
            }
            Found::Fresh(bytes) => {
                add(&self.tally.misses, 1);
                add(&self.tally.fresh, bytes as u64);
            }
        }
    }

    /// From which end of resident memory a long block, or room for a vector, is taken: the high one, so that blocks that come
    /// and go meanwhile lie before it; but the low one where [`ALONE_AFTER`] in a row have been alone but for `beside` bytes, which
    /// then all begin where the last one did.
    pub(super) fn end_for_long(&self, beside: usize) -> End {
        let is_alone = self.is_alone_but_for(beside);
        // Relaxed, both: a hint. The line is all threads', and mostly says so already.
        let before = self.alone.load(Ordering::Relaxed);
        let alone = if is_alone { (before + 1).min(ALONE_AFTER) } else { 0 };
        if alone != before {
            self.alone.store(alone, Ordering::Relaxed);
        }
        if alone == ALONE_AFTER { End::Low } else { End::High }
    }

    /// Whether no more than `beside` bytes are in use.
    fn is_alone_but_for(&self, beside: usize) -> bool {
        // Its own first, which is at hand.
        self.shard_slow().is_none_or(|mine| mine.counts.in_use() <= beside) && self.live() <= beside as u64
    }

    fn find_resident(&self, fit: Fit, from: End) -> Option<Run> {
        let run = self.heap.take_resident(fit, from)?;
        add(&self.tally.runs, 1);
        Some(run)
    }

    /// Takes a block of a class from the stack or the free runs of another shard than those of which `keeps` says that they
    /// keep it.
    fn steal(&self, class: SizeClass, keeps: impl Fn(&shard::Shard) -> bool) -> Option<Run> {
        let len = class.len().bytes();
        for shard in self.shards_from_mine() {
            // Relaxed: a hint, as is the other; the lock tells.
            if !keeps(shard)
                && (shard.counts.is_filled(class) || shard.counts.in_runs.load(Ordering::Relaxed) >= len)
                && let Some(mut stacks) = shard.stacks.try_lock(self.os())
                && let Some(start) =
                    stacks.pop(class, &shard.counts).or_else(|| stacks.fit_run(len, &shard.counts))
            {
                drop(stacks);
                add(&self.tally.stolen, 1);
                let span = Span::new(start, len);
                return Some(Run { span, unclean: Unclean::all(span), found: Found::Run });
            }
        }
        None
    }

    /// Remembers what its free will tell about a run, of which `absent` bytes are expected to stay untouched as far as
    /// they are, and `left` were given back just now; and sees to the limits if some of it is fresh.
    fn note(&self, run: &Run, zeroed: bool, absent: usize, kind: Kind, left: usize) {
        let len = run.span.len;
        let untouched = run.found.fresh();
        let is_fresh = left > 0
            || match run.found {
                Found::Run => false,
                // An end that is expected to stay untouched, beside pages that were moved in for the rest, is as absent as any.
                Found::Gathered(bytes) => absent > 0 && bytes >= CHUNK / 2,
                Found::Fresh(bytes) => bytes >= CHUNK,
            };
        let fresh = is_fresh && len >= WORTH_A_LOOK;
        let credit = if fresh { self.credit_for(absent.min(untouched)) } else { 0 };
        if fresh || kind.is_ranked() || (zeroed && SizeClass::of(Granules(len / GRANULE)).is_none()) {
            // What the block ends in shares its huge page with what lies behind, and is resident if any of that ever was.
            let whole = run.span.inner(CHUNK);
            let mut parts = run.unclean.parts().iter().filter(|part| part.start < whole.end());
            let (first, last) = (parts.next(), parts.next_back());
            let warm = last.or(first).map_or(0, |part| part.end() - run.span.start);
            let warm_whole = last.is_none() && first.is_some_and(|part| part.start == run.span.start);
            let since = if fresh { self.heap.raises() } else { 0 };
            let tells = fresh && zeroed && self.zeroing.may_be_parallel(len);
            let faults = tells.then(|| Faults::now(self.os()));
            self.remember(
                run.span.start,
                Noted { credit, zeroed, fresh, warm, warm_whole, kind, since, len, from: 0, faults },
            );
        }
        if untouched > credit {
            self.fresh_slow(untouched - credit);
        }
    }

    /// Remembers the block at `start` until [`Cache::forget`].
    pub(super) fn remember(&self, start: usize, noted: Noted) {
        let mut table = self.untouched.lock(self.os());
        let before = table.credit();
        let replaced = table.remember(start, noted);
        self.note_credit(before, table.credit());
        drop(table);
        self.zeroing.leave(replaced.kind);
    }

    /// How many of `bytes` that are expected to stay untouched may be taken for that: no more than there would be memory for, were all of
    /// them touched after all.
    pub(super) fn credit_for(&self, bytes: usize) -> usize {
        // Relaxed: as old as the last look in any case.
        let left = self.memory_left.load(Ordering::Relaxed);
        if bytes == 0 || left == usize::MAX {
            return bytes;
        }
        bytes.min(left.saturating_sub(self.untouched.lock(self.os()).credit()))
    }

    /// Tells the heap how much of what is handed out is expected to stay untouched, if that has changed.
    pub(super) fn note_credit(&self, before: usize, now: usize) {
        if before != now {
            self.heap.expect_absent(now);
        }
    }
}
