//! Which side serves what: requests under 64 KiB go to the allocator that was given, others never do.
//!
//! A process of its own, because the other allocator counts.

#![expect(unsafe_code, reason = "uses allocators by hand")]

#[expect(dead_code, reason = "no test uses all that the tests share")]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use support::pattern;
use zk_nalloc::{Config, NAlloc};

const LARGE: usize = 64 << 10;

/// The system's allocator, which counts, and wants nothing large.
struct Counting {
    /// Calls of any kind.
    calls: AtomicUsize,
}

impl Counting {
    const fn new() -> Self {
        Self { calls: AtomicUsize::new(0) }
    }

    fn count(&self, layout: Layout) {
        assert!(layout.size() < LARGE, "{layout:?}");
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls since the last time.
    fn calls(&self) -> usize {
        self.calls.swap(0, Ordering::Relaxed)
    }
}

// SAFETY: it is the system's.
unsafe impl GlobalAlloc for &Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.count(layout);
        // SAFETY: as our caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.count(layout);
        // SAFETY: as our caller promised.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        self.count(layout);
        // SAFETY: as our caller promised.
        unsafe { System.dealloc(p, layout) }
    }

    unsafe fn realloc(&self, p: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        self.count(layout);
        assert!(new_size < LARGE);
        // SAFETY: as our caller promised.
        unsafe { System.realloc(p, layout, new_size) }
    }
}

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

/// The bytes of a block.
fn bytes<'a>(p: *mut u8, len: usize) -> &'a mut [u8] {
    // SAFETY: the tests below ask for no more than a block has, hold one at a time, and have written all of it.
    unsafe { core::slice::from_raw_parts_mut(p, len) }
}

#[test]
fn small_requests_go_to_the_other_allocator_and_large_ones_never() {
    static COUNTING: Counting = Counting::new();
    static SIDES: NAlloc<&Counting> = NAlloc::with_small(&COUNTING);
    let sizes = [1, 8, 4096, LARGE - 1, LARGE, LARGE + 1, 2 << 20, 70 << 20];
    for (n, &size) in sizes.iter().enumerate() {
        let small = usize::from(size < LARGE);
        for zeroed in [false, true] {
            // SAFETY: the layout is not empty.
            let p = unsafe {
                if zeroed { SIDES.alloc_zeroed(layout(size, 8)) } else { SIDES.alloc(layout(size, 8)) }
            };
            assert!(!p.is_null());
            assert_eq!(COUNTING.calls(), small, "{size} bytes");
            assert!(!zeroed || pattern::is_zero(bytes(p, size)));
            // SAFETY: the block is so long.
            unsafe { p.write_bytes(0, size) };
            pattern::write(n as u64, bytes(p, size));
            // SAFETY: it came from there with this layout.
            unsafe { SIDES.dealloc(p, layout(size, 8)) };
            assert_eq!(COUNTING.calls(), small, "{size} bytes");
        }
    }
    for &from in &sizes {
        for &to in &sizes {
            // SAFETY: the layouts are not empty, and are those of the blocks.
            unsafe {
                let p = SIDES.alloc_zeroed(layout(from, 8));
                pattern::write(3, bytes(p, from));
                COUNTING.calls();
                let q = SIDES.realloc(p, layout(from, 8), to);
                // A block that changes sides is one call, for its new or for its old half.
                assert_eq!(COUNTING.calls(), usize::from(from < LARGE || to < LARGE), "{from} to {to}");
                assert!(pattern::holds(3, bytes(q, from.min(to))), "{from} to {to}");
                SIDES.dealloc(q, layout(to, 8));
            }
        }
    }
}

#[test]
fn alignments_up_to_a_gibibyte_are_kept() {
    static COUNTING: Counting = Counting::new();
    static SIDES: NAlloc<&Counting> = NAlloc::with_small_and_config(&COUNTING, Config::new());
    for align in (0..=30).map(|log2| 1 << log2) {
        for size in [100, LARGE, 1_000_000, 3 << 20] {
            // SAFETY: the layouts are not empty, and are those of the blocks.
            unsafe {
                let p = SIDES.alloc_zeroed(layout(size, align));
                assert!(!p.is_null() && p.addr().is_multiple_of(align), "{size} bytes at {align}: {p:?}");
                assert!(pattern::is_zero(bytes(p, size)));
                pattern::write(5, bytes(p, size));
                let longer = size * 3 / 2;
                let q = SIDES.realloc(p, layout(size, align), longer);
                assert!(!q.is_null() && q.addr().is_multiple_of(align), "{longer} bytes at {align}: {q:?}");
                assert!(pattern::holds(5, bytes(q, size)), "{longer} bytes at {align}");
                SIDES.dealloc(q, layout(longer, align));
            }
        }
    }
    assert_ne!(COUNTING.calls(), 0);
}

#[test]
fn absurd_sizes_are_refused_with_null() {
    static COUNTING: Counting = Counting::new();
    static SIDES: NAlloc<&Counting> = NAlloc::with_small(&COUNTING);
    let most = isize::MAX as usize;
    let absurd = [layout(most, 1), layout(most - 4095, 4096), layout(1 << 47, 8), layout(1 << 47, 1 << 46)];
    // SAFETY: the layouts are not empty, and are those of the blocks.
    unsafe {
        let p = SIDES.alloc_zeroed(layout(LARGE, 1));
        let s = SIDES.alloc_zeroed(layout(100, 1));
        pattern::write(1, bytes(p, LARGE));
        pattern::write(2, bytes(s, 100));
        COUNTING.calls();
        for absurd in absurd {
            assert!(SIDES.alloc(absurd).is_null(), "{absurd:?}");
            assert!(SIDES.alloc_zeroed(absurd).is_null(), "{absurd:?}");
            assert!(SIDES.realloc(p, layout(LARGE, 1), absurd.size()).is_null(), "{absurd:?}");
            assert!(SIDES.realloc(s, layout(100, 1), absurd.size()).is_null(), "{absurd:?}");
        }
        assert_eq!(COUNTING.calls(), 0);
        assert!(pattern::holds(1, bytes(p, LARGE)) && pattern::holds(2, bytes(s, 100)));
        SIDES.dealloc(p, layout(LARGE, 1));
        SIDES.dealloc(s, layout(100, 1));
    }
}
