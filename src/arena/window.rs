//! A window: memory that one thread hands out alone, by moving a cursor.
//!
//! Why it is here: this is the hot path. One allocation is a load, an addition, a comparison and a store (and two
//! more for an alignment above [`MIN_ALIGN`]). The fields are atomics read and written relaxed, which are plain
//! moves to the processor, so that other threads may read them for the statistics.
//!
//! Invariants (docs/SAFETY.md): R3, `cursor <= limit`, both are multiples of [`MIN_ALIGN`], and no live block lies
//! between them; R4, only one thread at a time calls anything here but `get`, except for a window that is always empty.
//! Never here: getting a window. See `refill`.

#![expect(unsafe_code, reason = "a pointer known not to be null, on the hot path")]

use core::alloc::Layout;
use core::ptr::NonNull;

use crate::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// Blocks begin and end at multiples of this, so that most types need no aligning: the alignment of all types
/// that hold nothing wider than a word.
pub(super) const MIN_ALIGN: usize = 8;

/// What a block of `size` bytes takes. `size` comes from a `Layout`, so the sum cannot overflow.
#[inline(always)]
pub(super) const fn footprint(size: usize) -> usize {
    (size + (MIN_ALIGN - 1)) & !(MIN_ALIGN - 1)
}

/// The next multiple of `align`, a power of two, from `addr` on, a multiple of [`MIN_ALIGN`].
///
/// Addresses lie below 2^57, and an alignment is at most 2^63 (of no bytes; 2^62 of any), so the sum cannot overflow.
#[inline(always)]
pub(super) const fn aligned(addr: usize, align: usize) -> usize {
    if align <= MIN_ALIGN { addr } else { (addr + (align - 1)) & !(align - 1) }
}

/// Zeros are a window that is nowhere: nothing fits into it, not even a block of no bytes, which has an address.
#[derive(Debug)]
pub(super) struct Window {
    cursor: AtomicPtr<u8>,
    /// The address behind the limit, so that no end is below zero.
    past: AtomicPtr<u8>,
}

impl Window {
    /// An empty window at `at`; nowhere if that is null.
    pub(super) fn empty(at: *mut u8) -> Self {
        Self { cursor: AtomicPtr::new(at), past: AtomicPtr::new(Self::past(at)) }
    }

    #[inline]
    fn past(limit: *mut u8) -> *mut u8 {
        limit.wrapping_add(usize::from(!limit.is_null()))
    }

    /// The cursor and the limit, null if it is nowhere. From another thread than the window's own: two values that need
    /// not match.
    #[inline]
    pub(super) fn get(&self) -> (*mut u8, *mut u8) {
        let past = self.past.load(Relaxed);
        (self.cursor.load(Relaxed), past.wrapping_sub(usize::from(!past.is_null())))
    }

    /// How many bytes are left. Out of date at worst, if the window is another thread's.
    pub(super) fn room(&self) -> usize {
        let (cursor, limit) = self.get();
        limit.addr().saturating_sub(cursor.addr())
    }

    /// Makes `cursor..limit` the window: free memory of this thread alone.
    #[inline]
    pub(super) fn set(&self, cursor: *mut u8, limit: *mut u8) {
        self.cursor.store(cursor, Relaxed);
        self.past.store(Self::past(limit), Relaxed);
    }

    /// Makes the window one that is nowhere.
    pub(super) fn clear(&self) {
        self.set(core::ptr::null_mut(), core::ptr::null_mut());
    }

    /// Makes this window the same as `other`.
    pub(super) fn copy(&self, other: &Window) {
        let (cursor, limit) = other.get();
        self.set(cursor, limit);
    }

    /// Hands out a block, or `None` where it does not fit.
    #[inline(always)]
    pub(super) fn bump(&self, layout: Layout) -> Option<NonNull<u8>> {
        let (start, end) = self.fitting(layout)?;
        self.end_at(end);
        // SAFETY: something fits, so the window is not nowhere, and the cursor of any other lies in a mapping (R3), of which no
        // byte is at address zero; aligning went up.
        Some(unsafe { NonNull::new_unchecked(start) })
    }

    /// Where the next block starts and ends, if it fits: [`end_at`](Self::end_at) hands it out.
    #[inline(always)]
    pub(super) fn fitting(&self, layout: Layout) -> Option<(*mut u8, *mut u8)> {
        let cursor = self.cursor.load(Relaxed);
        let start = cursor.map_addr(|addr| aligned(addr, layout.align()));
        // Cannot overflow: an address is below 2^57 and a size with its alignment at most 2^63.
        let end = start.wrapping_add(footprint(layout.size()));
        (end.addr() < self.past.load(Relaxed).addr()).then_some((start, end))
    }

    /// Hands out what lies below `end`, which [`fitting`](Self::fitting) gave.
    #[inline(always)]
    pub(super) fn end_at(&self, end: *mut u8) {
        self.cursor.store(end, Relaxed);
    }

    /// Moves the cursor from `end`, where the last block ends, to `to`. `false`, and nothing done, where the last
    /// block ends elsewhere or `to` lies behind the limit.
    #[inline]
    #[cfg(any(test, feature = "allocator-api2", feature = "nightly"))]
    pub(super) fn move_end(&self, end: usize, to: usize) -> bool {
        let (cursor, limit) = self.get();
        let ours = cursor.addr() == end && to <= limit.addr();
        if ours {
            self.cursor.store(cursor.with_addr(to), Relaxed);
        }
        ours
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Memory([u8; 256]);

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    #[test]
    fn blocks_follow_one_another_and_stop_at_the_limit() {
        let mut memory = Memory([0; 256]);
        let base = memory.0.as_mut_ptr();
        let window = Window::empty(base);
        assert_eq!(window.bump(layout(1, 1)), None);
        window.set(base, base.wrapping_add(64));
        let offset = |block: Option<NonNull<u8>>| block.map(|p| p.as_ptr().addr() - base.addr());
        assert_eq!(offset(window.bump(layout(1, 1))), Some(0));
        assert_eq!(offset(window.bump(layout(12, 4))), Some(8));
        assert_eq!(offset(window.bump(layout(16, 32))), Some(32));
        assert_eq!(window.bump(layout(17, 1)), None);
        assert_eq!(offset(window.bump(layout(16, 1))), Some(48));
        assert_eq!(offset(window.bump(layout(0, 1))), Some(64), "nothing fits at the very end");
        assert_eq!(window.bump(layout(1, 1)), None);
    }

    #[test]
    fn a_window_that_is_nowhere_hands_out_nothing() {
        let window = Window::empty(core::ptr::null_mut());
        for (size, align) in [(0, 1), (0, 64), (1, 1), (8, 8), (isize::MAX as usize, 1), (1 << 62, 1 << 62)] {
            assert_eq!(window.bump(layout(size, align)), None);
        }
        let mut memory = Memory([0; 256]);
        let base = memory.0.as_mut_ptr();
        window.set(base, base.wrapping_add(16));
        let other = Window::empty(base);
        other.copy(&window);
        assert_eq!((other.room(), other.bump(layout(16, 8))), (16, NonNull::new(base)));
        other.clear();
        assert_eq!((other.room(), other.bump(layout(8, 8))), (0, None));
    }

    #[test]
    fn the_largest_layouts_do_not_wrap_around() {
        let mut memory = Memory([0; 256]);
        let base = memory.0.as_mut_ptr();
        let window = Window::empty(base);
        window.set(base, base.wrapping_add(256));
        assert_eq!(window.bump(layout(isize::MAX as usize, 1)), None);
        assert_eq!(window.bump(layout(1, 1 << 62)), None);
        assert_eq!(window.bump(layout(1 << 62, 1 << 62)), None);
        assert_eq!(window.bump(layout(0, 1 << 63)), None);
        assert_eq!(window.get().0, base);
    }

    #[test]
    fn only_the_last_block_changes_its_length() {
        let mut memory = Memory([0; 256]);
        let base = memory.0.as_mut_ptr();
        let window = Window::empty(base);
        window.set(base, base.wrapping_add(64));
        window.bump(layout(16, 8));
        assert!(!window.move_end(base.addr() + 8, base.addr()), "not the end of the last block");
        assert!(!window.move_end(base.addr() + 16, base.addr() + 72), "behind the limit");
        assert!(window.move_end(base.addr() + 16, base.addr() + 64));
        assert!(window.move_end(base.addr() + 64, base.addr()));
        assert_eq!(window.get().0, base);
    }
}
