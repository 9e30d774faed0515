//! What is done to the bytes of blocks: zeroed, copied, looked at.
//!
//! Why it is here and not where it is wanted: these are the only places above the system calls at which the engine
//! touches the memory that it manages, so a test's kernel that answers them itself need not have that memory.

#![expect(unsafe_code, reason = "memory by address")]

use super::GRANULE;

/// Writes zeros over a range that its caller owns (O2).
#[inline]
pub(super) fn zero(addr: usize, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if super::streamed::is_faster(len) {
        return super::streamed::zero(addr, len);
    }
    write(addr, len);
}

/// The same through the caches.
#[inline]
pub(super) fn write(addr: usize, len: usize) {
    let to: *mut u8 = core::ptr::with_exposed_provenance_mut(addr);
    // SAFETY: the caller owns the range, which is accessible, and nobody has a reference into it (O2).
    unsafe { to.write_bytes(0, len) };
}

/// Copies between two ranges that their caller owns (O2) and that do not overlap.
#[inline]
pub(super) fn copy(from: usize, to: usize, len: usize) {
    let from: *const u8 = core::ptr::with_exposed_provenance(from);
    let to: *mut u8 = core::ptr::with_exposed_provenance_mut(to);
    // SAFETY: the caller owns both ranges, which are accessible and do not overlap (O2).
    unsafe { to.copy_from_nonoverlapping(from, len) };
}

/// Whether a granule that its caller owns (O2) reads as zero, all of it.
pub(super) fn is_zero(addr: usize) -> bool {
    debug_assert!(addr.is_multiple_of(GRANULE));
    let words: *const u64 = core::ptr::with_exposed_provenance(addr);
    // SAFETY: the caller owns the granule, which is readable (O2) and aligned for words.
    let words = unsafe { core::slice::from_raw_parts(words, GRANULE / 8) };
    words.chunks_exact(8).all(|line| line.iter().fold(0, |all, word| all | word) == 0)
}
