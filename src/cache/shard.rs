//! A shard: short stacks of free blocks, one per size class, behind a lock of its own (C1, C2).
//!
//! Everything that the pair of an allocation and a free of a warm class touches lies in one shard, and a shard's
//! cache lines are its own. Blocks in stacks are the heap's idea of handed out: the heap knows nothing of them.

use super::counters::{Counts, bump};
use super::depth::Depth;
use super::hot::{HOT_BLOCK_MAX, Hot};
use super::room::Growth;
use super::runs::{Bounds, Runs};
use crate::geometry::{Granules, SizeClass};
use crate::heap::Span;
use crate::os::Os;
use crate::sync::{Guard, Latch, Nap, atomic::Ordering};

/// Blocks in a stack: what a thread that frees and allocates in bursts of one size keeps to itself.
pub(super) const STACK_MAX: usize = 8;

/// Blocks that leave a full stack at once.
const FLUSH: usize = STACK_MAX / 2;

/// Blocks that leave a shard at once, at most: the heap's lock is taken once for all of them.
pub(super) const SHED: usize = 16;

/// So many blocks freed in a row are a burst: two or three are where threads replace blocks, of which some are the small side's, and
/// to merge these costs more than it gains (a tenth in `random/7`).
const BURST_MIN: usize = 4;

#[derive(Clone, Copy)]
struct Stack {
    len: usize,
    starts: [usize; STACK_MAX],
}

/// What a shard guards.
pub(super) struct Stacks {
    stacks: [Stack; SizeClass::COUNT],
    pub(super) depth: Depth,
    pub(super) hot: Hot,
    pub(super) runs: Runs,
    pub(super) growth: Growth,
    /// The vector that began last in the hot run, as it was then. A hint: where it is stale, room is left where none is needed.
    pub(super) last_begun: Span,
    /// Nodes that are paid for beside those of the blocks in the stacks: at least one for each free run and one for the rest of
    /// the hot run; the others are for blocks yet to be cut (H6).
    pub(super) tokens: usize,
    /// What the shard may hold beyond its bounds, in bytes, as its thread has much in use: as of when it was last full.
    pub(super) more: usize,
    /// Where the next block leaves that has to: the number of a class.
    next_shed: usize,
    /// Blocks freed since the last request, but those that went back to the hot run.
    pushed: usize,
    /// What was in use when the last request came after several of them; or less, if that was so since then.
    low: i64,
    /// In the stacks, free in the hot run, and in the free runs.
    bytes: usize,
    /// How many bytes will have been allocated when it is time to tell the limits.
    tick_at: u64,
    /// Of what was allocated, so many bytes the limits have been told of.
    told: u64,
    /// What blocks grew by since then, in bytes.
    grown: u64,
}

/// Two cache lines apart: processors fetch lines in pairs.
#[repr(align(128))]
pub(crate) struct Shard {
    pub(super) stacks: Latch<Stacks>,
    pub(super) counts: Counts,
    /// From one on, as threads are given it.
    pub(super) number: u32,
}

impl Shard {
    pub(super) fn new(number: u32) -> Self {
        let empty = Stack { len: 0, starts: [0; STACK_MAX] };
        let stacks = Stacks {
            stacks: [empty; SizeClass::COUNT],
            depth: Depth::WHOLE,
            hot: Hot::EMPTY,
            runs: Runs::EMPTY,
            growth: Growth::NONE,
            last_begun: Span::new(0, 0),
            tokens: 0,
            more: 0,
            next_shed: 0,
            pushed: 0,
            low: 0,
            bytes: 0,
            tick_at: TICK,
            told: 0,
            grown: 0,
        };
        Self { stacks: Latch::new(stacks), counts: Counts::default(), number }
    }

    /// Counts a free of a request of so many bytes by a thread that uses the shard `here`.
    #[inline]
    pub(super) fn note_freed(&self, here: &Self, requested: usize) {
        if self.number == here.number {
            self.counts.note_freed(requested);
        } else {
            self.counts.note_freed_by_another(requested);
        }
    }

    /// Whether a shard's threads have more in use than it has at hand, or it has no more at hand than who has one block at a time goes
    /// over. One whose threads free what others took, or are gone, has mostly more.
    pub(super) fn needs_what_it_holds(&self) -> bool {
        // Relaxed: an estimate.
        let held = self.counts.stacked.load(Ordering::Relaxed);
        held <= HOT_BLOCK_MAX || self.counts.in_use() >= held
    }

    pub(super) fn lock<'a, O: Os>(&'a self, os: &'a O) -> Guard<'a, Stacks, O, Nap> {
        self.stacks.lock(os)
    }
}

/// Bytes allocated through a shard between two looks at the limits: a look costs a microsecond.
pub(super) const TICK: u64 = 64 << 20;

impl Stacks {
    /// Counts what a request of `bytes` comes to, however it was served; gives its turn, for which it is to have been counted
    /// itself, and whether it is time to tell the limits.
    #[inline]
    fn count(&mut self, bytes: usize, counts: &Counts) -> (usize, bool) {
        if self.pushed > 0 {
            self.turn(counts);
        }
        bump(&counts.live, bytes as u64);
        bump(&counts.allocated, bytes as u64);
        // Relaxed: written under the lock.
        let allocated = counts.allocated.load(Ordering::Relaxed);
        let tick = allocated > self.tick_at;
        if tick {
            self.tick_at = allocated.saturating_add(TICK);
        }
        // Relaxed, both: as above. What wraps does no harm.
        let turn = counts
            .stack_hits
            .load(Ordering::Relaxed)
            .wrapping_add(counts.slow_allocations.load(Ordering::Relaxed));
        (turn as usize, tick)
    }

    /// Notes that a request comes after blocks that were pushed. After a few, blocks are replaced; after more a burst begins.
    #[inline]
    fn turn(&mut self, counts: &Counts) {
        if self.pushed >= BURST_MIN {
            self.low = counts.balance();
        }
        self.pushed = 0;
    }

    /// Notes that no more is in use than when the last burst began; or that a thread begins, `is_new`, to which all that was before is
    /// nothing.
    pub(super) fn end_burst(&mut self, is_new: bool, counts: &Counts) {
        let balance = counts.balance();
        self.low = if is_new { balance } else { self.low.min(balance) };
        self.pushed = 0;
    }

    /// Whether no more is in use than when the last burst began.
    pub(super) fn is_over(&self, counts: &Counts) -> bool {
        counts.balance() <= self.low
    }

    /// Counts a request that was served from what the shard has.
    #[inline]
    pub(super) fn count_hit(&mut self, bytes: usize, counts: &Counts) -> (usize, bool) {
        bump(&counts.stack_hits, 1);
        self.count(bytes, counts)
    }

    /// Counts a request that was served otherwise.
    pub(super) fn count_other(&mut self, bytes: usize, counts: &Counts) -> (usize, bool) {
        bump(&counts.slow_allocations, 1);
        self.count(bytes, counts)
    }

    /// Counts `more` bytes by which a block grew: no request, but memory that the limits are told of all the same. By the next
    /// request: while vectors grow, what the shorter ones left is between them, and would be purged just before it is used.
    pub(super) fn grew(&mut self, more: u64) {
        self.grown = self.grown.saturating_add(more);
        self.tick_at = self.tick_at.saturating_sub(more);
    }

    /// Takes what the limits have not been told yet, in bytes.
    pub(super) fn take_untold(&mut self, counts: &Counts) -> usize {
        // Relaxed: written under the lock.
        let allocated = counts.allocated.load(Ordering::Relaxed);
        let taken = allocated - core::mem::replace(&mut self.told, allocated);
        taken.saturating_add(core::mem::take(&mut self.grown)) as usize
    }

    /// Notes that `less` bytes left what is free beside the stacks, and `more` came.
    #[inline]
    pub(super) fn note_free(&mut self, less: usize, more: usize, counts: &Counts) {
        self.bytes = self.bytes + more - less;
        counts.stacked.store(self.bytes, Ordering::Relaxed);
    }

    /// Takes a block of a class from whatever the shard has.
    #[inline]
    pub(super) fn take(&mut self, class: SizeClass, counts: &Counts) -> Option<usize> {
        match self.cut(class, counts).or_else(|| self.pop(class, counts)) {
            Some(start) => Some(start),
            None => self.cut_run(class, counts),
        }
    }

    /// Takes the block that was freed last.
    #[inline]
    pub(super) fn pop(&mut self, class: SizeClass, counts: &Counts) -> Option<usize> {
        // Without a panic that the compiler would have to save registers for.
        let stack = self.stacks.get_mut(class.index())?;
        let last = stack.len.checked_sub(1)?;
        let start = *stack.starts.get(last)?;
        stack.len = last;
        self.depth.note_taken();
        if last == 0 {
            counts.set_filled(class, false);
        }
        self.bytes -= class.len().bytes();
        counts.stacked.store(self.bytes, Ordering::Relaxed);
        Some(start)
    }

    /// Puts a freed block on its stack; `false` if that is full, or the shard holds as much as it may.
    // Always: for a call, every free would save registers before the latch.
    #[inline(always)]
    pub(super) fn push(&mut self, class: SizeClass, start: usize, bounds: Bounds, counts: &Counts) -> bool {
        let bytes = self.bytes + class.len().bytes();
        let stacked = bytes - self.beside();
        if bytes > bounds.bytes + self.beyond() || stacked > self.depth.within(bounds) {
            return false;
        }
        // As in `pop`.
        let Some(stack) = self.stacks.get_mut(class.index()) else { return false };
        // None where it is full.
        let Some(place) = stack.starts.get_mut(stack.len) else { return false };
        *place = start;
        stack.len += 1;
        // Where nothing merges there is nothing to count.
        self.pushed += usize::from(bounds.merges());
        if stack.len == 1 {
            counts.set_filled(class, true);
        }
        self.bytes = bytes;
        counts.stacked.store(bytes, Ordering::Relaxed);
        true
    }

    /// Notes that a block was freed for which there was no place on its stack: it is one of a burst as well.
    pub(super) fn note_beside(&mut self, bounds: Bounds) {
        self.pushed += usize::from(bounds.merges());
    }

    /// Whether the stack of a class is full.
    pub(super) const fn is_full(&self, class: SizeClass) -> bool {
        self.stacks[class.index()].len == STACK_MAX
    }

    /// Takes the older half of a full stack out. Gives how many blocks that is.
    pub(super) fn flush(&mut self, class: SizeClass, out: &mut [Span; SHED], counts: &Counts) -> usize {
        self.drop_oldest(class, &mut out[..FLUSH], counts);
        FLUSH
    }

    /// Takes blocks out of the stacks, the oldest of one class after the other, until the shard holds no more than `keep`
    /// bytes, no block is left, or `out` is full.
    pub(super) fn shed(&mut self, keep: usize, out: &mut [Span; SHED], counts: &Counts) -> usize {
        let mut count = 0;
        while count < SHED && self.bytes > keep {
            let Some(class) = counts.filled_from(self.next_shed).or_else(|| counts.filled_from(0)) else {
                break;
            };
            self.next_shed = class.index() + 1;
            self.drop_oldest(class, &mut out[count..=count], counts);
            count += 1;
        }
        count
    }

    /// Takes the `out.len()` blocks of a class that were freed longest ago, of at least as many.
    fn drop_oldest(&mut self, class: SizeClass, out: &mut [Span], counts: &Counts) {
        let stack = &mut self.stacks[class.index()];
        let len: Granules = class.len();
        for (slot, &start) in out.iter_mut().zip(&stack.starts) {
            *slot = Span::new(start, len.bytes());
        }
        stack.starts.copy_within(out.len()..stack.len, 0);
        stack.len -= out.len();
        if stack.len == 0 {
            counts.set_filled(class, false);
        }
        self.bytes -= out.len() * len.bytes();
        counts.stacked.store(self.bytes, Ordering::Relaxed);
    }

    /// Whether a block in the stacks begins there, or what is free in the hot run, or a free run.
    pub(super) fn begins_at(&self, start: usize) -> bool {
        let rest = self.hot.rest();
        self.runs.begins_at(start)
            || (rest.start == start && !rest.is_empty())
            || self.stacks.iter().any(|stack| stack.starts[..stack.len].contains(&start))
    }

    /// All blocks in the stacks.
    #[cfg(any(test, zk_nalloc_proof))]
    pub(super) fn blocks(&self) -> Vec<Span> {
        let of = |class: usize, stack: &Stack| {
            let len = SizeClass::nth(class).len().bytes();
            stack.starts[..stack.len].iter().map(move |&start| Span::new(start, len)).collect::<Vec<_>>()
        };
        self.stacks.iter().enumerate().flat_map(|(class, stack)| of(class, stack)).collect()
    }

    /// Whether the counters tell of each stack whether it holds something.
    #[cfg(any(test, zk_nalloc_proof))]
    pub(super) fn is_in_step(&self, counts: &Counts) -> bool {
        let holds = self.stacks.iter().map(|stack| stack.len > 0);
        holds.enumerate().all(|(class, holds)| counts.is_filled(SizeClass::nth(class)) == holds)
    }

    /// Whether a block for which `requested` bytes were asked is one of a burst that is freed, with no more in use through the shard
    /// after it than when the burst began, and others lie in its stacks.
    #[inline]
    pub(super) fn is_last(&self, requested: usize, counts: &Counts) -> bool {
        self.pushed + 1 >= BURST_MIN && counts.balance() - requested as i64 <= self.low && self.stacked() > 0
    }

    /// Bytes free in the hot run and in the free runs.
    #[inline]
    pub(super) const fn beside(&self) -> usize {
        self.hot.rest().len + self.runs.bytes()
    }

    /// What the shard may hold beyond its bounds now, in bytes.
    #[inline]
    pub(super) const fn beyond(&self) -> usize {
        self.hot.excess() + self.more
    }

    /// Bytes in the stacks.
    #[inline]
    pub(super) const fn stacked(&self) -> usize {
        self.bytes - self.beside()
    }

    /// Bytes in the stacks, free in the hot run, and in the free runs.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(all(test, not(loom)))]
pub(super) mod tests;
