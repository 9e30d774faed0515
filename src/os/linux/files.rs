//! Reading small files without allocating: open, read into a buffer of the caller's, close.
//!
//! Why raw system calls: libc's wrappers are cancellation points (a cancelled thread would unwind out of the
//! allocator) and are replaced by sanitizers and preloaded libraries, which may allocate.
//!
//! Invariants: nothing allocates or panics; a descriptor is closed on every path and never inherited by a
//! program executed meanwhile; a file that cannot be read is `None`, never an error to handle.

#![expect(unsafe_code, reason = "system calls")]

use core::ffi::CStr;
use core::ops::ControlFlow;

use super::sys::{KeepErrno, errno};
use crate::error::Errno;

/// A file opened for reading.
pub(super) struct File(i32);

impl File {
    pub(super) fn open(path: &CStr) -> Option<Self> {
        Self::try_open(path).ok()
    }

    /// The same, with the reason where it cannot be opened.
    pub(super) fn try_open(path: &CStr) -> Result<Self, Errno> {
        let _keep = KeepErrno::new();
        loop {
            let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOCTTY;
            // SAFETY: the path is a C string; the call reads no other memory.
            let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) };
            match i32::try_from(fd) {
                Ok(fd) if fd >= 0 => return Ok(Self(fd)),
                _ if errno() == libc::EINTR => {}
                _ => return Err(Errno(errno())),
            }
        }
    }

    /// The descriptor, for other calls.
    pub(super) fn descriptor(&self) -> i32 {
        self.0
    }

    /// Reads the next bytes; 0 at the end, `None` on an error.
    pub(super) fn read(&self, buffer: &mut [u8]) -> Option<usize> {
        let _keep = KeepErrno::new();
        loop {
            // SAFETY: the kernel writes at most `buffer.len()` bytes to the buffer, which is ours alone.
            let n = unsafe { libc::syscall(libc::SYS_read, self.0, buffer.as_mut_ptr(), buffer.len()) };
            match usize::try_from(n) {
                Ok(n) => return Some(n.min(buffer.len())),
                Err(_) if errno() == libc::EINTR => {}
                Err(_) => return None,
            }
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _keep = KeepErrno::new();
        // SAFETY: the descriptor is ours, and is not used after this.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

/// The first bytes of a file, as many as the buffer takes; `None` if it cannot be read to there.
pub(super) fn head<'a>(path: &CStr, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let file = File::open(path)?;
    let mut len = 0;
    while let Some(rest) = buffer.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match file.read(rest)? {
            0 => break,
            n => len += n,
        }
    }
    buffer.get(..len)
}

/// The longest line that is given whole. Long enough for what the kernel says of a cgroup (a path of a
/// container runtime has 300 bytes) and short enough for a small stack.
pub(super) const LINE_MAX: usize = 1024;

/// Calls `each` with every line of a file, in order, until it breaks; a line longer than [`LINE_MAX`] is left
/// out. `None` if the file cannot be read to where it broke.
pub(super) fn lines(path: &CStr, each: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> Option<()> {
    read(path, Lines::new(Long::LeftOut), each)
}

/// The same; of a longer line, as where a mapping's file has a long path, its beginning.
pub(super) fn beginnings(path: &CStr, each: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> Option<()> {
    read(path, Lines::new(Long::Cut), each)
}

fn read(path: &CStr, mut split: Lines, each: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> Option<()> {
    let file = File::open(path)?;
    let mut piece = [0_u8; 512];
    loop {
        let n = file.read(&mut piece)?;
        if n == 0 {
            let _ = split.finish(each);
            return Some(());
        }
        if split.feed(piece.get(..n)?, each).is_break() {
            return Some(());
        }
    }
}

/// What becomes of a line longer than [`LINE_MAX`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Long {
    LeftOut,
    Cut,
}

/// Cuts a stream of bytes into lines.
struct Lines {
    line: [u8; LINE_MAX],
    len: usize,
    long: Long,
}

impl Lines {
    const fn new(long: Long) -> Self {
        Self { line: [0; LINE_MAX], len: 0, long }
    }

    fn feed(&mut self, piece: &[u8], each: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> ControlFlow<()> {
        for &byte in piece {
            if byte == b'\n' {
                self.finish(each)?;
                continue;
            }
            if let Some(place) = self.line.get_mut(self.len) {
                *place = byte;
            }
            self.len = self.len.saturating_add(1);
        }
        ControlFlow::Continue(())
    }

    /// Ends a line; an empty one is not worth a call.
    fn finish(&mut self, each: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> ControlFlow<()> {
        let len = if self.long == Long::Cut { self.len.min(LINE_MAX) } else { self.len };
        let line = self.line.get(..len).unwrap_or(&[]);
        let flow = if line.is_empty() { ControlFlow::Continue(()) } else { each(line) };
        self.len = 0;
        flow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(content: &[u8], piece: usize, long: Long) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        let mut lines = Lines::new(long);
        let mut each = |line: &[u8]| {
            found.push(line.to_vec());
            ControlFlow::Continue(())
        };
        for piece in content.chunks(piece) {
            assert!(lines.feed(piece, &mut each).is_continue());
        }
        assert!(lines.finish(&mut each).is_continue());
        found
    }

    #[test]
    fn lines_wherever_the_stream_is_cut() {
        for piece in 1..20 {
            let split = |content: &[u8]| split(content, piece, Long::LeftOut);
            assert_eq!(split(b"a b\n\nc\nlast without end"), [&b"a b"[..], b"c", b"last without end"]);
            assert!(split(b"").is_empty());
            assert!(split(b"\n\n").is_empty());
        }
    }

    #[test]
    fn a_line_too_long_is_left_out_or_cut_and_the_next_one_is_not() {
        for (len, expected) in [(LINE_MAX, 2), (LINE_MAX + 1, 1), (3 * LINE_MAX, 1)] {
            let content = [vec![b'x'; len], b"\nnext\n".to_vec()].concat();
            let found = split(&content, 512, Long::LeftOut);
            assert_eq!(found.len(), expected);
            assert_eq!(found.last().unwrap(), b"next");
            assert_eq!(split(&content, 512, Long::Cut), [vec![b'x'; LINE_MAX], b"next".to_vec()]);
        }
    }

    #[test]
    fn a_line_may_end_the_reading() {
        let mut seen = 0;
        lines(c"/proc/self/status", &mut |_| {
            seen += 1;
            if seen == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
        assert_eq!(seen, 3);
    }

    #[test]
    fn a_file_that_is_not_there_leaves_errno_alone() {
        let before = errno();
        assert!(head(c"/proc/self/no-such-file", &mut [0; 8]).is_none());
        assert!(lines(c"/proc", &mut |_| ControlFlow::Continue(())).is_none());
        assert_eq!(errno(), before);
    }

    #[test]
    fn as_much_as_the_buffer_takes() {
        assert_eq!(head(c"/proc/self/comm", &mut [0; 3]).unwrap().len(), 3);
        assert!(head(c"/proc/version", &mut [0; 512]).unwrap().starts_with(b"Linux version"));
    }
}
