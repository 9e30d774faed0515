//! Why the kernel refused to map: the one setting of the host that explains it, where one does.
//!
//! Why it is here: "out of memory" on a machine with memory free sends its reader the wrong way; the limits that
//! cause it can be read. Reads two files into stack buffers and never allocates.
//! Never here: asking before a refusal. A mapping that succeeds pays nothing for this.

#![expect(unsafe_code, reason = "system calls")]

use super::Os;
use super::linux::{KeepErrno, Linux};
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
    let _keep = KeepErrno::new();
    let obstacle = if errno == Errno(libc::ENOMEM) { obstacle(requested, asked) } else { Obstacle::Unknown };
    MapFailed::new(requested, errno, obstacle)
}

fn obstacle(requested: usize, asked: Asked) -> Obstacle {
    let mut text = [0_u8; 128];
    // Sizes in pages: total first, data and stack sixth (proc(5)).
    let page = Linux.facts().page;
    let statm = read(c"/proc/self/statm", &mut text);
    let bytes = |field: usize| number(statm, field).unwrap_or(0).saturating_mul(page);
    let (total, data) = (bytes(0), bytes(5));
    let over =
        |limit: Option<usize>, now: usize| limit.filter(|&allowed| now.saturating_add(requested) > allowed);
    if let Some(allowed) = over(limit(libc::RLIMIT_AS), total) {
        return Obstacle::AddressSpace { allowed };
    }
    if asked == Asked::Writable {
        if let Some(allowed) = over(limit(libc::RLIMIT_DATA), data) {
            return Obstacle::Data { allowed };
        }
        let mode = read(c"/proc/sys/vm/overcommit_memory", &mut text);
        // Only mode 2 counts what is mapped with MAP_NORESERVE (mm/mmap.c).
        if number(mode, 0) == Some(2) {
            return Obstacle::Overcommit { mode: 2 };
        }
    }
    Obstacle::Unknown
}

/// The soft limit, `None` where there is none.
fn limit(resource: libc::__rlimit_resource_t) -> Option<usize> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit to write to.
    unsafe { libc::getrlimit(resource, &mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur as usize)
}

/// As much of a small file as fits `text`; empty where it cannot be read.
fn read<'a>(path: &core::ffi::CStr, text: &'a mut [u8]) -> &'a [u8] {
    // SAFETY: the path is a C string; the descriptor is ours until it is closed; `text` has the length given.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return &[];
        }
        let got = libc::read(fd, text.as_mut_ptr().cast(), text.len());
        libc::close(fd);
        &text[..usize::try_from(got).unwrap_or(0)]
    }
}

/// The decimal number in field `field` of `text`.
fn number(text: &[u8], field: usize) -> Option<usize> {
    let word = text.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty()).nth(field)?;
    core::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_field() {
        assert_eq!(number(b"12 34\t56\n", 2), Some(56));
        assert_eq!(number(b"2\n", 0), Some(2));
        assert_eq!(number(b"", 0), None);
        assert_eq!(number(b"x", 0), None);
    }

    #[test]
    fn other_errors_have_no_obstacle() {
        let failed = refused(1, Errno(libc::EINVAL), Asked::Writable);
        assert_eq!(failed.os_error(), libc::EINVAL);
        assert!(!failed.to_string().contains("RLIMIT"));
    }
}
