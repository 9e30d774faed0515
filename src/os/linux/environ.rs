//! The environment without std.
//!
//! `/proc/self/environ` is read: the environment as it was at `exec`, kept by the kernel, so that no `setenv`
//! of another thread can pull it away while it is read. The price: what the program sets for itself is not
//! seen, nor, where the program writes its title over the environment, what it has overwritten. Only where there is
//! no such file, as `/proc` is not mounted, is libc's `environ` walked, which is safe before anybody calls `setenv`; the first
//! allocation, when this runs, is nearly always before `main`; what is asked for again later is kept (`tunables::Once`), but for the
//! report's path. Where the file is there and cannot be read (by a process
//! that has made itself undumpable, or has no descriptor left) the program may have run for long, and nothing is seen.

#![expect(unsafe_code, reason = "libc's environ is a pointer to pointers")]

use core::ffi::{CStr, c_char};

use super::files::File;
use crate::error::Errno;

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Bytes of one read: the environment passes through this much stack.
const PIECE: usize = 512;

/// Streams the environment: entries `NAME=VALUE`, a NUL byte after each. Nothing where the program has privileges that who
/// started it lacks (set-user-ID, file capabilities): that one could have files written with them. As glibc does with its own.
pub(super) fn stream(each: &mut dyn FnMut(&[u8])) {
    // SAFETY: the call only answers, from what the kernel told at the start.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return;
    }
    stream_from(c"/proc/self/environ", each);
}

/// The same, where the kernel keeps it in that file.
fn stream_from(file: &CStr, each: &mut dyn FnMut(&[u8])) {
    match File::try_open(file) {
        Ok(file) => kernels(&file, each),
        Err(Errno(libc::ENOENT)) => libcs(each),
        Err(_) => {}
    }
}

/// What the kernel kept, as far as it can be read. Of an entry that is cut there nothing is taken: a NUL byte is missing.
fn kernels(file: &File, each: &mut dyn FnMut(&[u8])) {
    let mut piece = [0_u8; PIECE];
    while let Some(read) = file.read(&mut piece).and_then(|n| piece.get(..n)).filter(|read| !read.is_empty())
    {
        each(read);
    }
}

/// What libc has now.
fn libcs(each: &mut dyn FnMut(&[u8])) {
    // SAFETY: `environ` is null or an array of C strings that a null pointer ends (POSIX). Nobody changes it now, as far as is known:
    // see the head of this file.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            each(CStr::from_ptr(*entry).to_bytes_with_nul());
            entry = entry.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(source: impl FnOnce(&mut dyn FnMut(&[u8]))) -> Vec<Vec<u8>> {
        let mut bytes = Vec::new();
        source(&mut |piece| bytes.extend_from_slice(piece));
        let mut entries: Vec<_> =
            bytes.split(|&b| b == 0).filter(|e| !e.is_empty()).map(<[u8]>::to_vec).collect();
        entries.sort();
        entries
    }

    #[test]
    fn the_kernel_and_libc_say_the_same() {
        let path = entries(stream).into_iter().find(|e| e.starts_with(b"PATH="));
        assert!(path.is_some());
        assert_eq!(entries(stream), entries(libcs));
    }

    /// Any file that could not be opened had libc's walked, while another thread might be in `setenv`.
    #[test]
    fn libcs_is_walked_where_there_is_no_proc_and_nowhere_else() {
        let seen = |file| entries(|each| stream_from(file, each));
        assert_eq!(seen(c"/proc/self/no such file"), entries(libcs));
        assert!(seen(c"/proc/self/environ/no directory").is_empty());
    }
}
