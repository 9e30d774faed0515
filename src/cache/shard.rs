//! A shard: short stacks of free blocks, one per size class, behind a lock of its own (C1, C2).
//!
//! Everything that the pair of an allocation and a free of a warm class touches lies in one shard, and a shard's
//! cache lines are its own. Blocks in stacks are the heap's idea of handed out: the heap knows nothing of them.

use super::hot::Hot;
use crate::geometry::{Granules, SizeClass};
use crate::heap::Span;
use crate::os::Os;
use crate::sync::{
    Guard, Latch, Nap,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

/// Blocks in a stack: what a thread that frees and allocates in bursts of one size keeps to itself.
pub(super) const STACK_MAX: usize = 8;

/// Blocks that leave a full stack at once.
pub(super) const FLUSH: usize = STACK_MAX / 2;

#[derive(Clone, Copy)]
struct Stack {
    len: usize,
    starts: [usize; STACK_MAX],
}

/// What a shard guards.
pub(super) struct Stacks {
    stacks: [Stack; SizeClass::COUNT],
    pub(super) hot: Hot,
    /// In the stacks, and free in the hot run.
    bytes: usize,
    /// Requests served, for colours.
    turn: usize,
    /// Bytes that may be allocated before the limits are told.
    until_tick: usize,
    /// Bytes allocated up to the last time they were to be.
    counted: u64,
    /// Of these, what the limits have not been told yet.
    untold: usize,
}

/// What is counted in a shard. Written under its lock by whoever holds it, so plain stores suffice; read by
/// anybody.
#[derive(Default)]
pub(super) struct Counts {
    /// Allocations served otherwise.
    pub(super) slow_allocations: AtomicU64,
    pub(super) frees: AtomicU64,
    /// Allocations served from this shard's stacks.
    pub(super) stack_hits: AtomicU64,
    /// Bytes requested and not yet freed, as far as this shard knows: the sum over shards is what is live.
    pub(super) live: AtomicU64,
    /// Bytes in the stacks and free in the hot run.
    pub(super) stacked: AtomicUsize,
    /// The requests that its stacks did not serve, by size.
    pub(super) by_size: [BySize; SIZES],
    /// Which stacks are not empty, a bit a class.
    pub(super) filled: [AtomicU64; SizeClass::COUNT.div_ceil(64)],
}

/// Sizes that are told apart: under 64 KiB, doublings from there up to 16 GiB, and all above.
pub(crate) const SIZES: usize = 20;

/// The number of a size's line.
pub(crate) const fn size_line(bytes: usize) -> usize {
    let line = (bytes | 1).ilog2().saturating_sub(15) as usize;
    if line < SIZES { line } else { SIZES - 1 }
}

/// What is counted of the requests of a size.
#[derive(Default)]
pub(super) struct BySize {
    pub(super) requests: AtomicU64,
    pub(super) bytes: AtomicU64,
}

/// Two cache lines apart: processors fetch lines in pairs.
#[repr(align(128))]
pub(crate) struct Shard {
    pub(super) stacks: Latch<Stacks>,
    pub(super) counts: Counts,
}

impl Shard {
    pub(super) fn new() -> Self {
        let empty = Stack { len: 0, starts: [0; STACK_MAX] };
        let stacks = Stacks {
            stacks: [empty; SizeClass::COUNT],
            hot: Hot::EMPTY,
            bytes: 0,
            turn: 0,
            until_tick: TICK,
            counted: 0,
            untold: 0,
        };
        Self { stacks: Latch::new(stacks), counts: Counts::default() }
    }

    pub(super) fn lock<'a, O: Os>(&'a self, os: &'a O) -> Guard<'a, Stacks, O, Nap> {
        self.stacks.lock(os)
    }
}

/// Bytes allocated through a shard between two looks at the limits: a look costs a microsecond.
pub(super) const TICK: usize = 64 << 20;

/// Adds under the shard's lock, where nobody else writes: no locked instruction.
#[inline]
pub(super) fn bump(counter: &AtomicU64, by: u64) {
    // Relaxed: readers take each counter by itself.
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

impl Counts {
    #[inline]
    fn set_filled(&self, class: SizeClass, filled: bool) {
        let word = &self.filled[class.index() / 64];
        let bit = 1_u64 << (class.index() % 64);
        // Relaxed: a hint to thieves, who look again under the lock.
        let before = word.load(Ordering::Relaxed);
        word.store(if filled { before | bit } else { before & !bit }, Ordering::Relaxed);
    }

    /// Whether the stack of a class probably holds something.
    #[inline]
    pub(super) fn is_filled(&self, class: SizeClass) -> bool {
        // Relaxed: as in `set_filled`.
        self.filled[class.index() / 64].load(Ordering::Relaxed) >> (class.index() % 64) & 1 == 1
    }
}

impl Stacks {
    /// Counts a request of `bytes`; gives its turn and whether it is time to tell the limits.
    #[inline]
    pub(super) fn count(&mut self, bytes: usize) -> (usize, bool) {
        self.turn = self.turn.wrapping_add(1);
        match self.until_tick.checked_sub(bytes) {
            Some(left) => {
                self.until_tick = left;
                (self.turn, false)
            }
            None => {
                let more = TICK - self.until_tick + bytes;
                self.counted += more as u64;
                self.untold = self.untold.saturating_add(more);
                self.until_tick = TICK;
                (self.turn, true)
            }
        }
    }

    /// Bytes that requests served through this shard have asked for so far.
    pub(super) const fn allocated(&self) -> u64 {
        self.counted + (TICK - self.until_tick) as u64
    }

    /// Takes what the limits have not been told yet.
    pub(super) fn take_untold(&mut self) -> usize {
        core::mem::take(&mut self.untold)
    }

    /// Notes that `less` bytes left the free part of the hot run, and `more` came.
    #[inline]
    pub(super) fn note_hot(&mut self, less: usize, more: usize, counts: &Counts) {
        self.bytes = self.bytes + more - less;
        counts.stacked.store(self.bytes, Ordering::Relaxed);
    }

    /// Takes the block that was freed last.
    #[inline]
    pub(super) fn pop(&mut self, class: SizeClass, counts: &Counts) -> Option<usize> {
        let stack = &mut self.stacks[class.index()];
        stack.len = stack.len.checked_sub(1)?;
        let start = stack.starts[stack.len];
        if stack.len == 0 {
            counts.set_filled(class, false);
        }
        self.bytes -= class.len().bytes();
        counts.stacked.store(self.bytes, Ordering::Relaxed);
        Some(start)
    }

    /// Puts a freed block on its stack; `false` if it is full or the shard holds `bytes_max` already.
    #[inline]
    pub(super) fn push(&mut self, class: SizeClass, start: usize, bytes_max: usize, counts: &Counts) -> bool {
        let bytes = self.bytes + class.len().bytes();
        let stack = &mut self.stacks[class.index()];
        if stack.len == STACK_MAX || bytes > bytes_max {
            return false;
        }
        stack.starts[stack.len] = start;
        stack.len += 1;
        if stack.len == 1 {
            counts.set_filled(class, true);
        }
        self.bytes = bytes;
        counts.stacked.store(bytes, Ordering::Relaxed);
        true
    }

    /// Takes the blocks of a class that were freed longest ago, up to `out.len()` of them.
    pub(super) fn flush(&mut self, class: SizeClass, out: &mut [Span; FLUSH], counts: &Counts) -> usize {
        let stack = &mut self.stacks[class.index()];
        let count = stack.len.min(FLUSH);
        let len: Granules = class.len();
        for (slot, &start) in out.iter_mut().zip(&stack.starts[..count]) {
            *slot = Span::new(start, len.bytes());
        }
        stack.starts.copy_within(count..stack.len, 0);
        stack.len -= count;
        if stack.len == 0 {
            counts.set_filled(class, false);
        }
        self.bytes -= count * len.bytes();
        counts.stacked.store(self.bytes, Ordering::Relaxed);
        count
    }

    /// All blocks in the stacks.
    #[cfg(any(test, proof))]
    pub(super) fn blocks(&self) -> Vec<Span> {
        let of = |class: usize, stack: &Stack| {
            let len = SizeClass::nth(class).len().bytes();
            stack.starts[..stack.len].iter().map(move |&start| Span::new(start, len)).collect::<Vec<_>>()
        };
        self.stacks.iter().enumerate().flat_map(|(class, stack)| of(class, stack)).collect()
    }

    /// Bytes in the stacks and free in the hot run.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}
