//! The few calls that an arena makes of the kernel, with pointers in place of addresses.
//!
//! Why it is here: everything above it works on pointers that keep their provenance, so that it can be run under
//! Miri, which knows nothing of `madvise`; there the memory comes from the global allocator.
//! Never here: a decision.

use crate::error::MapFailed;

#[cfg(not(miri))]
mod real {
    use super::MapFailed;
    use crate::os::{Asked, Linux, Os, refused};

    fn pointer(addr: usize) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(addr)
    }

    /// Maps `len` writable zero bytes at a multiple of `align`.
    pub(crate) fn map(len: usize, align: usize) -> Result<*mut u8, MapFailed> {
        Linux.map(len, align).map(pointer).map_err(|e| refused(len, e, Asked::Writable))
    }

    /// Sets `len` bytes of address space aside.
    pub(crate) fn reserve(len: usize) -> Result<*mut u8, MapFailed> {
        Linux.reserve(len, crate::os::GRANULE).map(pointer).map_err(|e| refused(len, e, Asked::Reserved))
    }

    /// Makes reserved bytes writable. They are zero.
    pub(crate) fn open(at: *mut u8, len: usize) -> Result<(), MapFailed> {
        Linux.open(at.addr(), len).map_err(|e| refused(len, e, Asked::Writable))
    }

    /// Gives the huge-page advice that is in force. A refusal costs speed alone.
    pub(crate) fn advise(at: *mut u8, len: usize) {
        let _ = Linux.advise(at.addr(), len, crate::os::huge());
    }

    /// Drops pages; says whether the bytes are zero now.
    pub(crate) fn purge(at: *mut u8, len: usize) -> bool {
        Linux.purge(at.addr(), len).is_ok()
    }

    /// How many bytes are resident, a hint; `None` where nobody tells.
    pub(crate) fn resident(at: *mut u8, len: usize) -> Option<usize> {
        Linux.resident(at.addr(), len)
    }

    /// Gives a whole mapping back.
    pub(crate) fn unmap(at: *mut u8, len: usize) {
        // A refusal (too many mappings to split one) leaves address space behind, never a wrong use.
        let _ = Linux.unmap(at.addr(), len);
    }
}

#[cfg(miri)]
mod real {
    #![expect(unsafe_code, reason = "the global allocator stands in for the kernel")]
    use super::MapFailed;
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, 2 << 20).unwrap()
    }

    pub(crate) fn map(len: usize, _align: usize) -> Result<*mut u8, MapFailed> {
        if len > 1 << 30 {
            return Err(MapFailed::absurd(len));
        }
        // SAFETY: `len` is not zero: the callers round up.
        Ok(unsafe { alloc_zeroed(layout(len)) })
    }

    pub(crate) fn reserve(len: usize) -> Result<*mut u8, MapFailed> {
        map(len, 1)
    }

    pub(crate) fn open(_at: *mut u8, _len: usize) -> Result<(), MapFailed> {
        Ok(())
    }

    pub(crate) fn advise(_at: *mut u8, _len: usize) {}

    pub(crate) fn purge(at: *mut u8, len: usize) -> bool {
        // SAFETY: the caller holds the range.
        unsafe { at.write_bytes(0, len) };
        true
    }

    pub(crate) fn resident(_at: *mut u8, _len: usize) -> Option<usize> {
        None
    }

    pub(crate) fn unmap(at: *mut u8, len: usize) {
        // SAFETY: `at` and `len` come from `map`.
        unsafe { dealloc(at, layout(len)) }
    }
}

pub(super) use real::{advise, map, open, purge, reserve, resident, unmap};
