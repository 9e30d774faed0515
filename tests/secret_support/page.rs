//! The page size of this kernel; 16 and 64 KiB exist.

#![expect(unsafe_code, reason = "asks the C library")]

/// The page size in bytes.
pub(crate) fn page() -> usize {
    // SAFETY: reads a value that the C library keeps.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap()
}
