//! A file name on the stack.

use core::ffi::CStr;

/// The longest name, its NUL included: room for the cgroup of a container runtime in its mount point. A longer
/// one is treated as unreadable.
const PATH_MAX: usize = 1024;

/// A path that grows and shrinks at its end. What lies behind its end is always zero.
#[derive(Clone)]
pub(super) struct Path {
    bytes: [u8; PATH_MAX],
    len: usize,
}

impl Path {
    pub(super) fn new(start: &[u8]) -> Option<Self> {
        let mut path = Self { bytes: [0; PATH_MAX], len: 0 };
        path.push(start)?;
        Some(path)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Puts more at the end; `None`, and nothing done, if that is too long or holds a NUL.
    pub(super) fn push(&mut self, more: &[u8]) -> Option<()> {
        let end = self.len.checked_add(more.len()).filter(|&end| end < PATH_MAX)?;
        if more.contains(&0) {
            return None;
        }
        self.bytes.get_mut(self.len..end)?.copy_from_slice(more);
        self.len = end;
        Some(())
    }

    /// Puts a number at the end.
    pub(super) fn push_number(&mut self, number: usize) -> Option<()> {
        if number >= 10 {
            self.push_number(number / 10)?;
        }
        let digit = u8::try_from(number % 10).ok()?;
        self.push(&[b'0' + digit])
    }

    /// Cuts the path to its first `len` bytes.
    pub(super) fn truncate(&mut self, len: usize) {
        if let Some(rest) = self.bytes.get_mut(len..self.len) {
            rest.fill(0);
            self.len = len;
        }
    }

    /// Calls `use_it` with the path and `name` behind it.
    pub(super) fn with<T>(&mut self, name: &[u8], use_it: impl FnOnce(&CStr) -> Option<T>) -> Option<T> {
        let len = self.len;
        self.push(name)?;
        let result = CStr::from_bytes_until_nul(&self.bytes).ok().and_then(use_it);
        self.truncate(len);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_and_shrinks() {
        let mut path = Path::new(b"/sys/fs").unwrap();
        path.push(b"/cgroup").unwrap();
        assert_eq!(
            path.with(b"/memory.max", |p| Some(p.to_bytes().to_vec())).unwrap(),
            b"/sys/fs/cgroup/memory.max"
        );
        assert_eq!(path.as_bytes(), b"/sys/fs/cgroup");
        path.truncate(4);
        path.push_number(10_240).unwrap();
        assert_eq!(path.as_bytes(), b"/sys10240");
        path.truncate(100);
        assert_eq!(path.len(), 9);
    }

    #[test]
    fn too_long_or_with_a_nul_is_refused_whole() {
        let mut path = Path::new(&[b'a'; PATH_MAX - 1]).unwrap();
        assert!(path.push(b"b").is_none());
        assert!(path.with(b"/x", |_| Some(())).is_none());
        assert_eq!(path.len(), PATH_MAX - 1);
        assert!(path.with(b"", |p| Some(p.count_bytes())) == Some(PATH_MAX - 1));
        assert!(Path::new(&[b'a'; PATH_MAX]).is_none());
        assert!(Path::new(b"a\0b").is_none());
    }
}
