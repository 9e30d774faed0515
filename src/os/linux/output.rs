//! A file that is written to while the process goes on, by whoever comes by.
//!
//! Why so careful: the descriptor is kept for the life of the process, and a program may close all descriptors that it
//! does not know and open files of its own under their numbers. So each write first asks whether this is still the file
//! that was opened.
//!
//! Invariants: a file that another process is writing is not touched (`flock`); none is inherited by a program that is
//! executed. Raw system calls, as in `files`.

#![expect(unsafe_code, reason = "system calls")]

use core::ffi::CStr;

use super::limits::Limit;
use super::sys::{KeepErrno, errno, unsignalled};
use crate::error::Errno;
use crate::os::{BUSY, Outcome, Output};

/// Descriptors from here on are rarely closed by their number, or counted on by it.
const HIGH: i32 = 100;

/// Makes the call again while a signal interrupts it.
fn again(call: impl Fn() -> libc::c_long) -> Result<libc::c_long, Errno> {
    loop {
        match call() {
            -1 if errno() == libc::EINTR => {}
            -1 => return Err(Errno(errno())),
            answer => return Ok(answer),
        }
    }
}

/// Opens a file for writing and empties it.
pub(super) fn create(path: &CStr) -> Result<Output, Errno> {
    let _keep = KeepErrno::new();
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
    // SAFETY: the path is a C string; the call reads no other memory.
    let low =
        again(|| unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o644) })?
            as i32;
    // SAFETY: the call takes numbers alone.
    let high = again(|| unsafe { libc::syscall(libc::SYS_fcntl, low, libc::F_DUPFD_CLOEXEC, HIGH) });
    let descriptor = match high {
        Ok(high) => {
            close(low);
            high as i32
        }
        Err(_) => low,
    };
    let ready = || {
        // SAFETY: as above.
        again(|| unsafe { libc::syscall(libc::SYS_flock, descriptor, libc::LOCK_EX | libc::LOCK_NB) })
            .map_err(|errno| if errno == Errno(libc::EWOULDBLOCK) { BUSY } else { errno })?;
        let (device, inode) = regular(descriptor)?;
        // SAFETY: as above.
        again(|| unsafe { libc::syscall(libc::SYS_ftruncate, descriptor, 0) })?;
        Ok(Output { descriptor, device, inode })
    };
    ready().inspect_err(|_| close(descriptor))
}

fn close(descriptor: i32) {
    // SAFETY: the descriptor is ours, and is not used after this.
    unsafe { libc::syscall(libc::SYS_close, descriptor) };
}

/// Which file this is, if it is a regular one.
fn regular(descriptor: i32) -> Result<(u64, u64), Errno> {
    // SAFETY: all-zero is a valid `stat`, and the call writes one there at most (O5); it is no cancellation point.
    let (answer, stat) = unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        (libc::fstat(descriptor, &raw mut stat), stat)
    };
    match answer {
        0 if stat.st_mode & libc::S_IFMT == libc::S_IFREG => Ok((stat.st_dev, stat.st_ino)),
        0 => Err(Errno(libc::EINVAL)),
        _ => Err(Errno(errno())),
    }
}

/// Says why a file could not be created, in words that its name stands before.
pub(crate) const fn why_not_created(errno: Errno) -> &'static str {
    match errno {
        BUSY => " is being written by another process",
        Errno(libc::EINVAL | libc::ENXIO) => " is no regular file",
        Errno(libc::EISDIR) => " is a directory",
        Errno(libc::ENOENT | libc::ENOTDIR) => " is in no directory that there is",
        Errno(libc::EACCES | libc::EPERM) => " cannot be opened for writing: permission denied",
        Errno(libc::EROFS) => " cannot be opened for writing: the file system is read-only",
        Errno(libc::ENOSPC | libc::EDQUOT) => " cannot be opened for writing: there is no space left",
        Errno(libc::EMFILE | libc::ENFILE) => " cannot be opened for writing: too many files are open",
        Errno(libc::ENAMETOOLONG) => " is too long for a path",
        Errno(_) => " cannot be opened for writing",
    }
}

/// Writes all of `bytes` to standard error, as far as that takes them. Waits for no lock: std's may be held by a thread that never lets
/// it go.
pub(crate) fn write_error(bytes: &[u8]) -> Outcome {
    let _keep = KeepErrno::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        // SAFETY: the kernel reads what the slice holds.
        let call =
            || unsafe { libc::syscall(libc::SYS_write, libc::STDERR_FILENO, rest.as_ptr(), rest.len()) };
        let wrote = unsignalled(|| again(call))?;
        // None of them: it would go on so.
        let wrote = usize::try_from(wrote).ok().filter(|&wrote| wrote > 0);
        rest = wrote.and_then(|wrote| rest.get(wrote..)).unwrap_or_default();
    }
    Ok(())
}

/// Closes a file, if it is the one that was opened.
pub(super) fn give_up(file: &Output) {
    let _keep = KeepErrno::new();
    if regular(file.descriptor) == Ok((file.device, file.inode)) {
        close(file.descriptor);
    }
}

/// Writes `len` bytes at `address` into a file, `at` bytes from its beginning, if it is the one that was opened.
pub(super) fn write_at(file: &Output, at: u64, address: usize, len: usize) -> Outcome {
    let _keep = KeepErrno::new();
    if regular(file.descriptor)? != (file.device, file.inode) {
        return Err(Errno(libc::EBADF));
    }
    // The kernel would send SIGXFSZ, which ends the process.
    if Limit::File.allowed().is_some_and(|most| at + len as u64 > most as u64) {
        return Err(Errno(libc::EFBIG));
    }
    let mut done = 0;
    while done < len {
        let to = at as i64 + done as i64;
        // SAFETY: the kernel reads `len - done` bytes that the caller holds (O2).
        let wrote = again(|| unsafe {
            libc::syscall(
                libc::SYS_pwrite64,
                file.descriptor,
                super::sys::ptr(address + done),
                len - done,
                to,
            )
        })?;
        if wrote <= 0 {
            return Err(Errno(libc::EIO));
        }
        done += wrote as usize;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> std::ffi::CString {
        let path = std::env::temp_dir().join(format!("zk-nalloc-{name}-{}", std::process::id()));
        std::ffi::CString::new(path.into_os_string().into_string().unwrap()).unwrap()
    }

    #[test]
    fn what_is_written_is_in_the_file_and_others_stay_away() {
        let path = path("output");
        let name = path.to_str().unwrap();
        std::fs::write(name, [7; 99]).unwrap();
        let file = create(&path).unwrap();
        assert_eq!(create(&path).unwrap_err(), BUSY);
        let text = *b"hello there";
        write_at(&file, 2, text.as_ptr().expose_provenance(), text.len()).unwrap();
        assert_eq!(std::fs::read(name).unwrap(), b"\0\0hello there");
        // Another file under that number.
        close(file.descriptor);
        assert!(write_at(&file, 0, text.as_ptr().expose_provenance(), 1).is_err());
        std::fs::remove_file(name).unwrap();
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let before = errno();
        assert!(create(c"/").is_err() && create(c"/dev/null").is_err() && create(c"").is_err());
        assert!(create(c"/no/such/folder/at/all").is_err());
        assert_eq!(errno(), before);
    }
}
