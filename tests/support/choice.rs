//! An allocator that is ours or the system's, as the environment of the process says: for what has to be no worse than
//! without us.

#![expect(unsafe_code, reason = "GlobalAlloc is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU8, Ordering};

use zk_nalloc::NAlloc;

/// The environment of a process that uses the system's.
pub(crate) const SYSTEM: &[(&str, &str)] = &[("ZK_NALLOC_TEST_SYSTEM", "1")];

#[derive(Debug)]
pub(crate) struct Choice {
    ours: NAlloc,
    /// 0 before the first request, then 1 for the system's and 2 for ours.
    chosen: AtomicU8,
}

impl Choice {
    pub(crate) const fn new() -> Self {
        Self { ours: NAlloc::new(), chosen: AtomicU8::new(0) }
    }

    fn is_ours(&self) -> bool {
        // Relaxed: whoever asks first or at once finds the same.
        let mut chosen = self.chosen.load(Ordering::Relaxed);
        if chosen == 0 {
            // SAFETY: the name is a C string, and nobody changes the environment this early.
            let system = !unsafe { libc::getenv(c"ZK_NALLOC_TEST_SYSTEM".as_ptr()) }.is_null();
            chosen = if system { 1 } else { 2 };
            self.chosen.store(chosen, Ordering::Relaxed);
        }
        chosen == 2
    }
}

// SAFETY: all goes to one of two allocators, always the same.
unsafe impl GlobalAlloc for Choice {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as our caller promised.
        if self.is_ours() { unsafe { self.ours.alloc(layout) } } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match self.is_ours() {
            // SAFETY: as our caller promised.
            true => unsafe { self.ours.alloc_zeroed(layout) },
            // SAFETY: as our caller promised.
            false => unsafe { System.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        match self.is_ours() {
            // SAFETY: as our caller promised; it came from there.
            true => unsafe { self.ours.dealloc(p, layout) },
            // SAFETY: as our caller promised; it came from there.
            false => unsafe { System.dealloc(p, layout) },
        }
    }

    unsafe fn realloc(&self, p: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        match self.is_ours() {
            // SAFETY: as our caller promised; it came from there.
            true => unsafe { self.ours.realloc(p, layout, new_size) },
            // SAFETY: as our caller promised; it came from there.
            false => unsafe { System.realloc(p, layout, new_size) },
        }
    }
}
