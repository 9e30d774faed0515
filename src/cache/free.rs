//! Giving blocks back, and giving back what is cached.

#![expect(unsafe_code, reason = "the locks that a fork holds are given back without their guards")]

use super::shard::FLUSH;
use super::untouched::WORTH_A_LOOK;
use super::{Cache, shard};
use crate::geometry::{Granules, SizeClass};
use crate::heap::{Span, Unit};
use crate::os::{CHUNK, Os};
use crate::sync::{Guard, Nap, atomic::Ordering};

/// Untouched parts of a block that are told apart when it is freed.
const ABSENT_PARTS: usize = 7;

/// Into how many steps a block is cut to see what of it was touched.
const STEPS: usize = 64;

impl<O: Os> Cache<O> {
    /// Takes back a block of `len` at `start`, for which `requested` bytes were asked.
    #[inline]
    pub(crate) fn give(&self, start: usize, len: Granules, requested: usize) {
        let Some(shard) = self.shard() else { return self.give_while_forking(Span::new(start, len.bytes())) };
        let mut stacks = shard.lock(self.os());
        shard::bump(&shard.counts.frees, 1);
        shard::bump(&shard.counts.live, (requested as u64).wrapping_neg());
        let Some(class) = SizeClass::of(len) else {
            drop(stacks);
            return self.give_long(Span::new(start, len.bytes()));
        };
        // Relaxed: a limit, published when the shards were.
        let bytes_max = self.shard_bytes_max.load(Ordering::Relaxed);
        if stacks.push(class, start, bytes_max, &shard.counts) {
            return;
        }
        self.give_slow(stacks, shard, class, start, bytes_max);
    }

    /// Makes room on a full stack, or bypasses it.
    #[cold]
    fn give_slow(
        &self,
        mut stacks: Guard<'_, shard::Stacks, O, Nap>,
        shard: &shard::Shard,
        class: SizeClass,
        start: usize,
        bytes_max: usize,
    ) {
        let mut spans = [Span::default(); FLUSH];
        let mut count = stacks.flush(class, &mut spans, &shard.counts);
        let mut rest = None;
        if !stacks.push(class, start, bytes_max, &shard.counts) {
            rest = Some(Span::new(start, class.len().bytes()));
        }
        drop(stacks);
        if let Some(span) = rest {
            if count == FLUSH {
                self.heap.give(&[span]);
            } else {
                spans[count] = span;
                count += 1;
            }
        }
        if count > 0 {
            self.given(self.heap.give(&spans[..count]));
        }
    }

    /// Takes back a block that is too long for a stack.
    fn give_long(&self, span: Span) {
        if span.len >= WORTH_A_LOOK {
            let mut untouched = self.untouched.lock(self.os());
            if untouched.forget(span.start) {
                let credit = untouched.credit();
                drop(untouched);
                self.heap.expect_absent(credit);
                return self.give_untouched(span);
            }
        }
        self.given(self.heap.give(&[span]));
    }

    /// Takes back a block that was handed out untouched: what of it still is goes back as zero memory.
    #[cold]
    fn give_untouched(&self, span: Span) {
        let chunks = span.inner(CHUNK);
        let step = (span.len / STEPS).next_multiple_of(CHUNK).max(CHUNK);
        let mut absent = [Span::default(); ABSENT_PARTS];
        let mut count = 0_usize;
        let mut resident = 0;
        let mut at = chunks.start;
        while at < chunks.end() {
            let part = Span::between(at, (at + step).min(chunks.end()));
            at = part.end();
            let Some(bytes) = self.os().resident(part.start, part.len) else {
                self.given(self.heap.give(&[span]));
                return;
            };
            resident += bytes;
            // A part with little in it is purged too: it costs as little as it saves.
            if bytes > part.len / 4 {
                continue;
            }
            match count.checked_sub(1).map(|i| &mut absent[i]).filter(|last| last.end() == part.start) {
                Some(last) => last.len += part.len,
                None if count < ABSENT_PARTS => {
                    absent[count] = part;
                    count += 1;
                }
                None => {}
            }
        }
        // Its ends share huge pages with others and tell nothing.
        self.zeroing.learn(span.len, resident, chunks.len);
        if count == 0 {
            self.given(self.heap.give(&[span]));
        } else {
            self.heap.give_absent(span, &absent[..count]);
            self.given(self.heap.level().dirty);
        }
    }

    /// Keeps the ceiling, where there is one, with `dirty` bytes free and resident.
    pub(super) fn given(&self, dirty: usize) {
        // Relaxed: set once, before the shards were published.
        let dirty_max = self.dirty_max.load(Ordering::Relaxed);
        if dirty > dirty_max {
            self.heap.purge(dirty - dirty_max, Unit::Pages);
        }
    }

    /// Takes back a block from a handler that runs while this thread forks, or from a thread that waits for
    /// another one's fork to end.
    #[cold]
    fn give_while_forking(&self, span: Span) {
        self.heap.give(&[span]);
    }

    /// Offers what is cached to the kernel, which takes it when it needs it. Gives the bytes offered.
    pub(crate) fn soften(&self) -> usize {
        if !self.is_ready() {
            return 0;
        }
        self.drain();
        self.heap.soften()
    }

    /// Gives what is cached back to the kernel. Gives the bytes.
    pub(crate) fn release(&self) -> usize {
        if !self.is_ready() {
            return 0;
        }
        self.drain();
        self.heap.release()
    }

    /// Before a fork: waits until nothing is in transit, and holds all shards.
    pub(crate) fn before_fork(&self) {
        self.heap.before_fork();
        for shard in self.shards() {
            core::mem::forget(shard.lock(self.os()));
        }
        // Handlers that others registered may allocate: this thread then finds no shard and asks the heap.
        // Release: pairs with the acquire of whoever finds it null or, later, not null.
        let shards = self.shards.swap(core::ptr::null_mut(), Ordering::AcqRel);
        self.shards_in_fork.store(shards, Ordering::Release);
    }

    /// After a fork, in the parent.
    pub(crate) fn after_fork(&self) {
        self.restore_shards();
        for shard in self.shards() {
            // SAFETY: `before_fork` locked it in this thread and forgot the guard.
            unsafe { shard.stacks.unlock_forgotten(self.os()) };
        }
        self.heap.after_fork();
    }

    /// After a fork, in the child, which has this thread alone.
    pub(crate) fn after_fork_in_child(&self) {
        self.restore_shards();
        for shard in self.shards() {
            shard.stacks.reset_in_child();
        }
        // Whoever held these does not exist here. What they guard are numbers that steer, none of which can be
        // wrong enough to matter, and a table that begins anew.
        self.limits.reset_in_child();
        self.host.reset_in_child();
        self.untouched.reset_in_child();
        *self.untouched.lock(self.os()) = super::Untouched::new();
        self.heap.reset_in_child();
        self.heap.expect_absent(0);
        // What lies in stacks is shared with the parent too.
        self.drain();
        self.heap.after_fork_in_child();
    }

    fn restore_shards(&self) {
        // Acquire and release: as in `before_fork`.
        self.shards.store(self.shards_in_fork.load(Ordering::Acquire), Ordering::Release);
    }
}
