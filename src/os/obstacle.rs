//! Why the kernel refused to map: the one setting of the host that explains it, where one does.
//!
//! Why it is here: "out of memory" on a machine with memory free sends its reader the wrong way; the limits that
//! cause it can be read. Reads small files into stack buffers and never allocates.
//! Never here: asking before a refusal. A mapping that succeeds pays nothing for this.

use super::private::why_not_locked;
use super::{InUse, Limit, overcommit_mode};
use crate::error::{Errno, MapFailed, Obstacle};

/// What kind of memory was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Address space alone.
    Reserved,
    /// Memory that can be written.
    Writable,
}

/// Makes the error for `requested` bytes that the kernel refused with `errno`.
pub(crate) fn refused(requested: usize, errno: Errno, asked: Asked) -> MapFailed {
    let obstacle = match errno {
        Errno(libc::ENOMEM) => why_not_mapped(requested, asked),
        // All memory to come is locked (`mlockall`), address space as well (mm/mmap.c).
        Errno(libc::EAGAIN) => match why_not_locked(requested) {
            locked @ Obstacle::LockedMemory { .. } => locked,
            _ => Obstacle::Unknown,
        },
        _ => Obstacle::Unknown,
    };
    MapFailed::new(requested, errno, obstacle)
}

/// Says why mapping `len` bytes more was refused, as far as that can be told.
pub(crate) fn why_not_mapped(len: usize, asked: Asked) -> Obstacle {
    let over = |limit: Limit, now: InUse| {
        limit.allowed().filter(|&allowed| now.bytes().unwrap_or(0).saturating_add(len) > allowed)
    };
    if let Some(allowed) = over(Limit::AddressSpace, InUse::AddressSpace) {
        return Obstacle::AddressSpace { allowed };
    }
    if asked == Asked::Writable {
        if let Some(allowed) = over(Limit::Data, InUse::Data) {
            return Obstacle::Data { allowed };
        }
        // Only mode 2 counts what is mapped with MAP_NORESERVE (mm/mmap.c).
        if let Some(mode @ 2) = overcommit_mode() {
            return Obstacle::Overcommit { mode };
        }
    }
    Obstacle::Unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_errors_have_no_obstacle() {
        let failed = refused(1, Errno(libc::EINVAL), Asked::Writable);
        assert_eq!(failed.os_error(), libc::EINVAL);
        assert!(!failed.to_string().contains("RLIMIT"));
    }
}
