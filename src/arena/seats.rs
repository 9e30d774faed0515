//! Seats: a window of an arena for each thread that allocates from it by `&Arena`.
//!
//! Why it is here: a thread has its seat at the place that its number says, the same in every arena. So it finds its window
//! by one load of its own and no test, and no two threads write to the same cache line.
//!
//! Checkpoints save the windows of those seats that were used, and put them back; a reset empties them. So both cost
//! something for each thread that has allocated since the last reset, and nothing for the others.
//!
//! Invariant (docs/SAFETY.md): R8, a seat has one user. Never here: memory for blocks.

#![expect(unsafe_code, reason = "a seat is found by its offset, on the hot path")]

use super::number::{NOBODY, NUMBERS, Numbers, STRIDE};
use super::window::Window;
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};

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
    /// What the window was when the checkpoints that are open began, from the outermost on.
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

/// The seats of an arena. Zeros are a value of this: seats that nobody has used (but for loom's atomics).
#[derive(Debug)]
pub(super) struct Seats {
    /// Which were used since the last reset; all others have empty windows.
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

    /// The seat of `number`, which is the caller's.
    pub(super) fn seat(&self, number: usize) -> &Seat {
        &self.table[number].0
    }

    fn in_use(&self) -> impl Iterator<Item = (usize, &Seat)> {
        self.used.iter().map(|number| (number, self.seat(number)))
    }

    /// The windows that may not be empty.
    pub(super) fn windows(&self) -> impl Iterator<Item = &Window> {
        self.in_use().map(|(_, seat)| &seat.window)
    }

    /// The caller's seat, `number`, made ready for use; and whether it is the only one used since the last reset.
    #[inline]
    pub(super) fn taken(&self, number: usize) -> (&Seat, bool) {
        let seat = self.seat(number);
        if !self.used.has(number) {
            // What a rewind will put back: at the time of the checkpoints that are open the window was empty. What the seat's
            // user before left here was seen, since the set was emptied by somebody who held the arena exclusively.
            let depth = self.depth.load(Relaxed);
            seat.saved.iter().take(depth).for_each(Window::clear);
            self.used.add(number);
        }
        (seat, !self.used.has_another(number))
    }

    // What follows is done with the arena held exclusively, so relaxed accesses do: whoever shares the arena afterwards
    // got it from the holder.

    /// Empties all windows. To be called with the arena held exclusively.
    pub(super) fn start_over(&self) {
        for (_, seat) in self.in_use() {
            seat.window.clear();
            seat.step.store(0, Relaxed);
        }
        self.used.clear();
        self.depth.store(0, Relaxed);
    }

    /// Saves all windows and says what to go [`back`](Self::back) to. What there is no place for is given up, but for the
    /// window of `number`, which the caller saves. To be called as [`Self::start_over`].
    pub(super) fn enter(&self, number: usize) -> usize {
        let depth = self.depth.load(Relaxed);
        for (other, seat) in self.in_use() {
            match seat.saved.get(depth) {
                Some(saved) => saved.copy(&seat.window),
                None if other != number => seat.window.clear(),
                None => {}
            }
        }
        self.depth.store(depth + 1, Relaxed);
        depth
    }

    /// Makes all windows what they were when [`enter`](Self::enter) gave `depth`, but for those given up, which are
    /// empty. To be called as [`Self::start_over`].
    pub(super) fn back(&self, depth: usize) {
        for (_, seat) in self.in_use() {
            match seat.saved.get(depth) {
                Some(saved) => seat.window.copy(saved),
                None => seat.window.clear(),
            }
        }
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
            used: Numbers::new(),
            depth: AtomicUsize::new(0),
            table: core::array::from_fn(|_| Apart(seat())),
        }
    }
}

const _: () = assert!(NOBODY == 0, "the first seat");

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
