//! What is cached is given up before the small side's refusal becomes the program's.

#![expect(unsafe_code, reason = "implements and calls an allocator by hand")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

use zk_nalloc::NAlloc;

/// A small side that lacks memory as long as the large side caches any.
struct Stingy;

// SAFETY: all that is served is the system's.
unsafe impl GlobalAlloc for Stingy {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as our caller promised, here and below.
        if zk_nalloc::cached_bytes() > 0 { ptr::null_mut() } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(p, layout) }
    }
}

#[test]
fn a_small_request_that_is_refused_gets_what_was_cached() {
    static ALLOCATOR: NAlloc<Stingy> = NAlloc::with_small(Stingy);
    let (large, small) = (Layout::new::<[u8; 3 << 20]>(), Layout::new::<[u64; 100]>());
    let cache = || {
        // SAFETY: a block of its own, freed with its layout.
        unsafe {
            let p = ALLOCATOR.alloc(large);
            p.write_bytes(1, large.size());
            ALLOCATOR.dealloc(p, large);
        }
        assert!(zk_nalloc::cached_bytes() >= large.size());
    };
    // SAFETY: every block is used as long as it is, and freed with the layout that it has.
    unsafe {
        cache();
        let p = ALLOCATOR.alloc(small);
        assert!(!p.is_null());
        p.write_bytes(7, small.size());
        cache();
        let zeroed = ALLOCATOR.alloc_zeroed(small);
        assert!(!zeroed.is_null() && (0..small.size()).all(|i| *zeroed.add(i) == 0));
        cache();
        let p = ALLOCATOR.realloc(p, small, 2 * small.size());
        assert!(!p.is_null() && (0..small.size()).all(|i| *p.add(i) == 7));
        ALLOCATOR.dealloc(p, Layout::new::<[u64; 200]>());
        ALLOCATOR.dealloc(zeroed, small);
        // From the small side to the large one and back.
        cache();
        let p = ALLOCATOR.alloc(large);
        let p = ALLOCATOR.realloc(p, large, 100);
        assert!(!p.is_null());
        ALLOCATOR.dealloc(p, Layout::new::<[u8; 100]>());
    }
}
