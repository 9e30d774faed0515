//! What an arena is made of, and the states that it comes back to.
//!
//! The memory is one mapping, given away from its start. Each thread that allocates bumps a window of its own without an
//! atomic exchange; windows and what workers hold are cut from the shared counter. As long as nobody else takes anything,
//! a window grows in place and wastes nothing.
//!
//! Invariants (docs/SAFETY.md): R8 for who may bump; R9, every byte at or above `dirty` that is in no live block is zero.
//! Never here: lifetimes of blocks (see `place`) and destructors.

use core::ops::Deref;

use super::mapping::{Mapping, PAGE_MAX};
use super::number::{self, NOBODY};
use super::seats::{Apart, Seats};
use super::shared::Shared;
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The most that a window grows by at once: so large that the way to more memory, about 150 instructions, does not
/// show (at 64 KiB and 128 B a block, it is 0.3 of an instruction each). What is not touched costs no memory.
const REFILL_MAX: usize = 1 << 20;

/// A window grows by at most this share of the capacity, so that a small arena can serve several threads: no more than
/// this is stranded when that thread stops allocating.
const REFILL_SHARE: usize = 16;

/// The most that another thread's window grows by at once, as for a worker.
const CHUNK_MAX: usize = 64 << 10;

/// As [`REFILL_SHARE`]: with 16 threads, a sixteenth of a small arena is stranded at worst.
const CHUNK_SHARE: usize = 256;

/// What an arena's pointer leads to: the parts that are the same for all threads, and a seat for each thread.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) parts: Parts,
    /// The windows of threads.
    pub(super) seats: Seats,
}

// More would make the mapping longer, and count twice where memory is committed strictly.
const _: () = assert!(size_of::<Body>() <= PAGE_MAX);

impl Deref for Body {
    type Target = Parts;

    #[inline(always)]
    fn deref(&self) -> &Parts {
        &self.parts
    }
}

#[derive(Debug)]
pub(super) struct Parts {
    /// By how much the window of a thread that is alone grows.
    pub(super) refill: usize,
    /// By how much the windows of other threads grow, at most.
    pub(super) chunk: usize,
    /// No byte at or above this address was written since the kernel gave it (R9).
    dirty: AtomicUsize,
    /// The most that was in use at once before now, in bytes.
    high: AtomicUsize,
    pub(super) map: Mapping,
    pub(super) shared: Apart<Shared>,
}

/// A state of an arena to come back to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    top: usize,
    depth: usize,
    /// Whose window the following is: that of the thread that made the mark. The seats save the others.
    number: usize,
    cursor: usize,
    limit: usize,
}

impl Parts {
    pub(super) fn new(map: Mapping) -> Self {
        let start = map.start();
        Self {
            refill: (map.capacity() / REFILL_SHARE).min(REFILL_MAX),
            chunk: (map.capacity() / CHUNK_SHARE).min(CHUNK_MAX),
            dirty: AtomicUsize::new(start),
            high: AtomicUsize::new(0),
            shared: Apart(Shared::new(start)),
            map,
        }
    }

    /// How many bytes were ever in use at most, from the start on, and so may not be zero (R9).
    pub(super) fn dirty(&self) -> usize {
        self.dirty.load(Relaxed) - self.map.start()
    }

    /// Takes note that all bytes are zero (R9). To be called with the arena held exclusively.
    pub(super) fn note_clean(&self) {
        self.dirty.store(self.map.start(), Relaxed);
    }

    /// Takes note that memory below `end` may have been written (R9). To be called before any of it is free again.
    pub(super) fn note_dirty(&self, end: usize) {
        // Relaxed: whoever is given the memory later sees this by what hands the memory on (R6).
        if self.dirty.load(Relaxed) < end {
            self.dirty.fetch_max(end, Relaxed);
        }
        self.note_high(end);
    }

    /// Takes note that memory below `end` was given away. To be called before any of it is free again.
    pub(super) fn note_high(&self, end: usize) {
        if self.high.load(Relaxed) < end - self.map.start() {
            self.high.fetch_max(end - self.map.start(), Relaxed);
        }
    }

    /// How many of `len` bytes from `at` on, a block just handed out, may not be zero (R9).
    pub(super) fn dirty_len(&self, at: *mut u8, len: usize) -> usize {
        self.dirty.load(Relaxed).saturating_sub(at.addr()).min(len)
    }
}

impl Body {
    /// Bytes that are in use, or in the chunks of workers; out of date by what other threads are just doing.
    pub(super) fn used(&self) -> usize {
        let mut unused = 0;
        self.seats.each(|_, seat| unused += seat.window.room());
        (self.shared.0.top() - self.map.start()).saturating_sub(unused)
    }

    /// The most bytes that were ever in use, as [`used`](Self::used), from the start to the last one.
    pub(super) fn high(&self) -> usize {
        // A window that is just being begun may show its end beside where it is not yet: 0.
        self.high.load(Relaxed).max(self.extent().saturating_sub(self.map.start()))
    }

    /// The address behind the last byte in use; exact where no other thread allocates.
    fn extent(&self) -> usize {
        let top = self.shared.0.top();
        let mut extent = top;
        self.seats.each(|_, seat| {
            let (cursor, limit) = seat.window.get();
            if limit.addr() == top {
                extent = extent.min(cursor.addr());
            }
        });
        extent
    }

    /// Frees everything. To be called with the arena held exclusively.
    pub(super) fn start_over(&self) {
        self.note_dirty(self.extent());
        self.seats.start_over(number::current());
        self.shared.0.rewind(self.map.start());
    }

    /// The state to come back to. The caller holds the arena exclusively, and every mark is rewound to, or forgotten
    /// with all that came after it.
    pub(super) fn mark(&self) -> Mark {
        let number = number::current();
        let (cursor, limit) = self.seats.seat(number).window.get();
        let depth = self.seats.enter(number);
        Mark { top: self.shared.0.top(), depth, number, cursor: cursor.addr(), limit: limit.addr() }
    }

    /// Frees everything allocated since `mark`. The caller has made sure that none of it is in use, and that
    /// nobody else is using the arena (R10).
    pub(super) fn rewind(&self, mark: Mark) {
        self.note_dirty(self.extent());
        self.seats.back(mark.depth, mark.number);
        if mark.number != NOBODY {
            let base = self.map.base().as_ptr();
            let window = &self.seats.seat(mark.number).window;
            window.set(base.with_addr(mark.cursor), base.with_addr(mark.limit));
        }
        self.shared.0.rewind(mark.top);
    }
}
