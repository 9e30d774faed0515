//! What the process has now, as the kernel counts it: mapped, in memory, in huge pages.
//!
//! Read from `/proc/self`, for reports and where memory runs short; never for each request.

use super::{files, host, text};

/// What `/proc/self/statm` tells.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InUse {
    /// All that is mapped.
    AddressSpace = 0,
    /// What is in memory.
    Resident = 1,
    /// Of that, what is of files or shared.
    Shared = 2,
    /// What is private and writable, stacks included.
    Data = 5,
}

impl InUse {
    /// Bytes of it in this process now.
    pub(crate) fn bytes(self) -> Option<usize> {
        let mut buffer = [0_u8; 128];
        let text = files::head(c"/proc/self/statm", &mut buffer)?;
        let pages = text::words(text).nth(self as usize).and_then(text::number)?;
        usize::try_from(pages).ok()?.checked_mul(host::page())
    }
}

/// Whether any memory of this process is locked (`VmLck` of `/proc/self/status`); `false` where nobody tells.
#[cfg(target_env = "gnu")]
pub(super) fn locks_memory() -> bool {
    let mut buffer = [0_u8; 2048];
    files::head(c"/proc/self/status", &mut buffer)
        .is_some_and(|text| text.split(|&b| b == b'\n').any(|line| text::named(line, b"VmLck:") > Some(0)))
}

/// Bytes of huge pages in this process (`AnonHugePages` of `/proc/self/smaps_rollup`).
pub(crate) fn huge_page_bytes() -> Option<usize> {
    let mut buffer = [0_u8; 2048];
    let text = files::head(c"/proc/self/smaps_rollup", &mut buffer)?;
    let kib = text.split(|&b| b == b'\n').find_map(|line| text::named(line, b"AnonHugePages:"))?;
    usize::try_from(kib).ok()?.checked_mul(1 << 10)
}

#[cfg(all(test, not(loom), target_env = "gnu"))]
mod tests {
    use super::*;
    use crate::os::{CHUNK, GRANULE, Linux, Os, lock_pages};

    #[test]
    fn a_process_that_locks_a_page_locks_memory() {
        let start = Linux.map(CHUNK, CHUNK).unwrap();
        lock_pages(start, GRANULE, true).unwrap();
        assert!(locks_memory());
        Linux.unmap(start, CHUNK).unwrap();
    }
}
