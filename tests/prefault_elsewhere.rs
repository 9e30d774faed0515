//! Memory asked for ahead of need where another allocator is installed.

#![expect(unsafe_code, reason = "a global allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use zk_nalloc::prefault;

struct Watched;

#[global_allocator]
static GLOBAL: Watched = Watched;

/// The longest block that was ever asked for, in bytes.
static LONGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does all of it.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LONGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: as our caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(p, layout) }
    }
}

/// Blocks of up to 1 GiB were asked for and freed, by which glibc learns to keep such ones for good.
#[test]
fn the_other_allocator_sees_no_long_block() {
    assert_eq!(prefault(1 << 30), 0);
    assert!(LONGEST.load(Ordering::Relaxed) < 64 << 10, "{LONGEST:?}");
}
