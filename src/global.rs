//! The global allocator. (First form: passes everything on.)

#![expect(unsafe_code, reason = "GlobalAlloc")]

use std::alloc::{GlobalAlloc, Layout, System};

/// The allocator.
#[derive(Debug)]
pub struct NAlloc<S = System> {
    small: S,
}

impl NAlloc {
    /// Makes the allocator with `System` for small requests.
    #[must_use]
    pub const fn new() -> Self {
        Self { small: System }
    }
}

impl Default for NAlloc {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: passes on to `System`.
unsafe impl<S: GlobalAlloc> GlobalAlloc for NAlloc<S> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as our caller promised.
        unsafe { self.small.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as our caller promised.
        unsafe { self.small.dealloc(ptr, layout) }
    }
}
