//! Seats: a window of an arena for each thread that allocates from it by `&Arena`.
//!
//! Why it is here: a thread has its seat at the place that its number says, the same in every arena. So it finds its window
//! by one load of its own and no test, and no two threads write to the same cache line.
//!
//! Checkpoints save the windows of those seats that were used, and put them back; a reset empties them. So both cost
//! something for each thread that has allocated since the last reset, and nothing for the others. Most arenas have one
//! user, who is kept apart, so that it pays for no search.
//!
//! Invariant (docs/SAFETY.md): R8, a seat has one user. Never here: memory for blocks.

#![expect(unsafe_code, reason = "a seat is found by its offset, on the hot path")]

use super::number::{NOBODY, NUMBERS, Numbers, STRIDE};
use super::window::Window;
use crate::sync::atomic::AtomicUsize;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Inside of how many checkpoints the windows of all threads are saved: what fills a seat. Inside of more, those of all
/// but the thread that makes the checkpoint are given up until the outer ones end.
const DEPTH: usize = 6;

/// The first chunk of a thread that is not alone, in bytes. Each next one is twice as long, so that a thread that allocates
/// little, or ends, strands no more than it used.
const STEP_MIN: usize = 256;

/// Keeps what threads write to apart: two cache lines, since processors fetch them in pairs.
#[repr(align(128))]
#[derive(Debug)]
pub(super) struct Apart<T>(pub(super) T);

#[derive(Debug)]
pub(super) struct Seat {
    pub(super) window: Window,
    /// How long its last chunk was to be, in bytes.
    step: AtomicUsize,
    /// What the window was when the checkpoints of other threads that are open began, from the outermost on.
    saved: [Window; DEPTH],
}

const _: () = assert!(size_of::<Apart<Seat>>() == STRIDE || cfg!(all(test, loom)));

impl Seat {
    /// How long the next chunk is to be, in bytes: at most `most`, at least 256 of them.
    pub(super) fn next_step(&self, most: usize) -> usize {
        // Relaxed: its user's alone.
        let step = (2 * self.step.load(Relaxed)).clamp(STEP_MIN, most);
        self.step.store(step, Relaxed);
        step
    }
}

/// What [`Seats::first`] is where several threads have used their seats.
const MANY: usize = usize::MAX;

/// The seats of an arena. Zeros are a value of this: seats that nobody has used (but for loom's atomics).
#[derive(Debug)]
pub(super) struct Seats {
    /// The number of the only thread that has used its seat since the last reset, or [`NOBODY`], or [`MANY`].
    first: AtomicUsize,
    /// Which have, where they are many. The windows of all others are empty.
    used: Numbers,
    /// How many checkpoints are open.
    depth: AtomicUsize,
    /// By number. That of nobody is never used, so its window is always empty.
    table: [Apart<Seat>; NUMBERS + 1],
}

impl Seats {
    /// The window at `offset`, which is that of a thread (`number::offset`).
    #[inline(always)]
    pub(super) fn window(&self, offset: usize) -> &Window {
        debug_assert!(offset.is_multiple_of(STRIDE) && offset / STRIDE <= NUMBERS);
        let table = self.table.as_ptr();
        // SAFETY: an offset is `STRIDE`, the size of a place in the table, times a number for which there is a place (R7).
        unsafe { &(*table.byte_add(offset)).0.window }
    }

    /// The seat of `number`.
    #[inline]
    pub(super) fn seat(&self, number: usize) -> &Seat {
        &self.table[number].0
    }

    /// Calls `look` with the seats that were used, and their numbers; without those that are just being taken.
    #[inline]
    pub(super) fn each(&self, mut look: impl FnMut(usize, &Seat)) {
        // Acquire: pairs with the release in `claim_slow`.
        match self.first.load(Acquire) {
            NOBODY => {}
            MANY => self.used.iter().for_each(|number| look(number, self.seat(number))),
            number => look(number, self.seat(number)),
        }
    }

    /// The caller's seat, `number`, made ready for use; and whether it is the only one used since the last reset.
    #[inline]
    pub(super) fn taken(&self, number: usize) -> (&Seat, bool) {
        // Acquire: pairs with the release in `claim_slow`: a thread that was the first sees that it is among the many.
        match self.first.load(Acquire) {
            first if first == number => (self.seat(number), true),
            MANY if self.used.has(number) => (self.seat(number), false),
            _ => self.claim_slow(number),
        }
    }

    #[cold]
    fn claim_slow(&self, number: usize) -> (&Seat, bool) {
        let seat = self.seat(number);
        // What a rewind will put back: when the checkpoints that are open began, the window was empty.
        let depth = self.depth.load(Relaxed);
        seat.saved.iter().take(depth).for_each(Window::clear);
        // Relaxed, and acquire: as in `taken`; nothing else is read of what the others did.
        match self.first.compare_exchange(NOBODY, number, Relaxed, Acquire) {
            Ok(_) => (seat, true),
            Err(first) => {
                self.used.add(number);
                if first != MANY {
                    self.used.add(first);
                    // Release: pairs with the acquires above: who sees that they are many sees the first among them.
                    self.first.store(MANY, Release);
                }
                (seat, false)
            }
        }
    }

    // What follows is done with the arena held exclusively, so relaxed accesses do: whoever shares the arena afterwards
    // got it from the holder.

    /// Empties all windows. To be called with the arena held exclusively, by the thread of `number`; if that alone has used
    /// its seat, it keeps it.
    pub(super) fn start_over(&self, number: usize) {
        self.each(|_, seat| {
            seat.window.clear();
            seat.step.store(0, Relaxed);
        });
        let first = self.first.load(Relaxed);
        if first == MANY {
            self.used.clear();
        }
        if first != number {
            self.first.store(NOBODY, Relaxed);
        }
        self.depth.store(0, Relaxed);
    }

    /// Saves all windows but that of `number`, which the caller saves, and says what to go [`back`](Self::back) to. What there
    /// is no place for is given up. To be called with the arena held exclusively.
    #[inline]
    pub(super) fn enter(&self, number: usize) -> usize {
        let depth = self.depth.load(Relaxed);
        self.each(|other, seat| {
            if other != number {
                match seat.saved.get(depth) {
                    Some(saved) => saved.copy(&seat.window),
                    None => seat.window.clear(),
                }
            }
        });
        self.depth.store(depth + 1, Relaxed);
        depth
    }

    /// Makes all windows but that of `number` what they were when [`enter`](Self::enter) gave `depth`; those that were
    /// given up are empty. To be called with the arena held exclusively.
    #[inline]
    pub(super) fn back(&self, depth: usize, number: usize) {
        self.each(|other, seat| {
            if other != number {
                match seat.saved.get(depth) {
                    Some(saved) => seat.window.copy(saved),
                    None => seat.window.clear(),
                }
            }
        });
        self.depth.store(depth, Relaxed);
    }

    /// Seats that nobody has used.
    #[cfg(test)]
    pub(super) fn new() -> Self {
        let seat = || Seat {
            window: Window::empty(core::ptr::null_mut()),
            step: AtomicUsize::new(0),
            saved: core::array::from_fn(|_| Window::empty(core::ptr::null_mut())),
        };
        Self {
            first: AtomicUsize::new(NOBODY),
            used: Numbers::new(),
            depth: AtomicUsize::new(0),
            table: core::array::from_fn(|_| Apart(seat())),
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
