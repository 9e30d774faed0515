//! Where the large side begins is the program's choice, and a block goes back to the side that it came from,
//! whichever way it is resized.
//!
//! The allocators are values here, not installed: what the small side serves is counted by a small side of ours.

#![expect(unsafe_code, reason = "calls the allocator by hand")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use zk_nalloc::{Config, NAlloc};

/// The system's allocator, and how many bytes of it are in use.
struct Counted(AtomicUsize);

// SAFETY: all is the system's work; the count changes nothing of it.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.0.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as our caller promised, here and below.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        self.0.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(p, layout) }
    }
}

const KIB: usize = 1 << 10;

/// Resizes one block through all `sizes`; after each step its content is what it was, and it lies on the side that
/// its size says.
fn walk(from: usize, align: usize, sizes: &[usize]) {
    let allocator =
        NAlloc::with_small_and_config(Counted(AtomicUsize::new(0)), Config::new().large_from(from));
    let from = from.clamp(4 * KIB, 1 << 30);
    let small = |a: &NAlloc<Counted>| format!("{a:?}");
    let mut layout = Layout::from_size_align(sizes[0], align).unwrap();
    // SAFETY: every block is used within the size that it has, resized and freed with the layout that it has.
    unsafe {
        let before = zk_nalloc::stats().live_bytes();
        let mut p = allocator.alloc(layout);
        p.write_bytes(0x5a, layout.size());
        for &size in sizes {
            let kept = size.min(layout.size());
            p = allocator.realloc(p, layout, size);
            assert!(!p.is_null());
            assert!(p.addr().is_multiple_of(align));
            layout = Layout::from_size_align(size, align).unwrap();
            assert!(std::slice::from_raw_parts(p, kept).iter().all(|&b| b == 0x5a), "{size}");
            p.write_bytes(0x5a, size);
            let large = zk_nalloc::stats().live_bytes() - before;
            assert_eq!(
                large,
                if size >= from { size } else { 0 },
                "{size} from {from}: {}",
                small(&allocator)
            );
        }
        allocator.dealloc(p, layout);
        assert_eq!(zk_nalloc::stats().live_bytes(), before);
    }
}

impl std::fmt::Debug for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes small", self.0.load(Ordering::Relaxed))
    }
}

/// One test: the large side's count of bytes is the process's.
#[test]
fn a_block_crosses_the_border_both_ways() {
    for from in [0, 4 * KIB, 5000, 16 * KIB, 64 * KIB, 300 * KIB, 3 << 20, usize::MAX] {
        let at = from.clamp(4 * KIB, 8 << 20);
        for align in [1, 16, 4096] {
            walk(from, align, &[at - 1, at, at - 1, at + 1, 2 * at, at / 2, 3 * at, at, 1, at + 4096, 7]);
        }
    }
    small_buffers_are_served_and_kept_apart_at_every_length();
}

fn small_buffers_are_served_and_kept_apart_at_every_length() {
    static ALLOCATOR: NAlloc = NAlloc::with_config(Config::new().large_from(4 * KIB));
    let mut blocks = Vec::new();
    for round in 0..3_u8 {
        for size in (4 * KIB..80 * KIB).step_by(1021) {
            let layout = Layout::from_size_align(size, 1 << (size % 8)).unwrap();
            // SAFETY: the block is as long as it was asked for.
            let p = unsafe {
                let p = ALLOCATOR.alloc(layout);
                assert!(!p.is_null() && p.addr().is_multiple_of(layout.align()));
                p.write_bytes(round ^ size as u8, size);
                p
            };
            blocks.push((p, layout, round ^ size as u8));
        }
        // Every other one, so that lengths mix.
        for i in (0..blocks.len()).rev().step_by(2) {
            let (p, layout, byte) = blocks.swap_remove(i);
            // SAFETY: the block is ours, and was allocated with this layout.
            unsafe {
                assert!(std::slice::from_raw_parts(p, layout.size()).iter().all(|&b| b == byte));
                ALLOCATOR.dealloc(p, layout);
            }
        }
    }
    for (p, layout, byte) in blocks {
        // SAFETY: as above.
        unsafe {
            assert!(std::slice::from_raw_parts(p, layout.size()).iter().all(|&b| b == byte));
            ALLOCATOR.dealloc(p, layout);
        }
    }
}
