//! The real kernel.

#![expect(unsafe_code, reason = "system calls")]

use super::{Facts, Huge, HugeMode, Os, Outcome, Room};
use crate::error::Errno;
use crate::sync::{Park, atomic::AtomicU32};

/// Linux, by system calls through `libc`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Linux;

/// Puts `errno` back when dropped, so that no caller of the allocator sees it change.
pub(super) struct KeepErrno(i32);

impl KeepErrno {
    pub(super) fn new() -> Self {
        Self(errno())
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        // SAFETY: libc gives each thread a valid, writable errno (O1).
        unsafe { *libc::__errno_location() = self.0 }
    }
}

fn errno() -> i32 {
    // SAFETY: libc gives each thread a valid, readable errno (O1).
    unsafe { *libc::__errno_location() }
}

fn outcome(ret: i32) -> Outcome {
    if ret == 0 { Ok(()) } else { Err(Errno(errno())) }
}

fn ptr(addr: usize) -> *mut libc::c_void {
    core::ptr::with_exposed_provenance_mut(addr)
}

const PLAIN: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

impl Linux {
    /// Maps anonymous memory; never over anything unless `flags` says `MAP_FIXED`.
    fn anonymous(addr: usize, len: usize, prot: i32, flags: i32) -> Result<usize, Errno> {
        // SAFETY: without MAP_FIXED the kernel picks unused addresses; with it the callers below hold the
        // whole range (O2).
        let p = unsafe { libc::mmap(ptr(addr), len, prot, PLAIN | flags, -1, 0) };
        if p == libc::MAP_FAILED { Err(Errno(errno())) } else { Ok(p.expose_provenance()) }
    }

    /// Maps `len` bytes at a multiple of `align` by mapping more and trimming both ends.
    fn anonymous_aligned(len: usize, align: usize, prot: i32) -> Result<usize, Errno> {
        let too_large = Errno(libc::ENOMEM);
        if len == 0 || len > isize::MAX as usize {
            return Err(too_large);
        }
        if align <= super::GRANULE {
            return Self::anonymous(0, len, prot, 0);
        }
        let total = len.checked_add(align).filter(|&t| t <= isize::MAX as usize).ok_or(too_large)?;
        let base = Self::anonymous(0, total, prot, 0)?;
        let start = base.next_multiple_of(align);
        let (head, tail) = (start - base, base + total - (start + len));
        if head > 0 {
            let _ = Linux.unmap(base, head);
        }
        if tail > 0 {
            let _ = Linux.unmap(start + len, tail);
        }
        Ok(start)
    }

    fn madvise(addr: usize, len: usize, advice: i32) -> Outcome {
        // SAFETY: the callers hold the range (O2), and no advice used here touches memory outside it.
        outcome(unsafe { libc::madvise(ptr(addr), len, advice) })
    }
}

impl Park for Linux {
    fn wait(&self, word: &AtomicU32, expected: u32) {
        let _keep = KeepErrno::new();
        // SAFETY: FUTEX_WAIT only reads the word, which lives as long as the reference.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                core::ptr::from_ref(word),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                expected,
                core::ptr::null::<libc::timespec>(),
            );
        }
    }

    fn wake_one(&self, word: &AtomicU32) {
        let _keep = KeepErrno::new();
        // SAFETY: FUTEX_WAKE uses the word's address only.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                core::ptr::from_ref(word),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                1,
            );
        }
    }
}

impl Os for Linux {
    fn facts(&self) -> Facts {
        Facts {
            page: 4096,
            huge_page: 2 << 20,
            huge_mode: HugeMode::Madvise,
            ram: 8 << 30,
            cpus: 4,
            last_level_cache: 32 << 20,
            moves: true,
            residency: true,
            soften: true,
        }
    }

    fn room(&self) -> Option<Room> {
        None
    }

    fn reserve(&self, len: usize, align: usize) -> Result<usize, Errno> {
        let _keep = KeepErrno::new();
        Self::anonymous_aligned(len, align, libc::PROT_NONE)
    }

    fn map(&self, len: usize, align: usize) -> Result<usize, Errno> {
        let _keep = KeepErrno::new();
        Self::anonymous_aligned(len, align, libc::PROT_READ | libc::PROT_WRITE)
    }

    fn open(&self, addr: usize, len: usize) -> Outcome {
        let _keep = KeepErrno::new();
        // SAFETY: the range is ours and inaccessible so far, so no reference into it exists (O2).
        outcome(unsafe { libc::mprotect(ptr(addr), len, libc::PROT_READ | libc::PROT_WRITE) })
    }

    fn close(&self, addr: usize, len: usize) -> Outcome {
        let _keep = KeepErrno::new();
        Self::anonymous(addr, len, libc::PROT_NONE, libc::MAP_FIXED).map(drop)
    }

    fn unmap(&self, addr: usize, len: usize) -> Outcome {
        let _keep = KeepErrno::new();
        // SAFETY: the caller holds the whole range and gives it up (O2).
        outcome(unsafe { libc::munmap(ptr(addr), len) })
    }

    fn purge(&self, addr: usize, len: usize) -> Outcome {
        let _keep = KeepErrno::new();
        Self::madvise(addr, len, libc::MADV_DONTNEED)
    }

    fn soften(&self, addr: usize, len: usize) -> Outcome {
        let _keep = KeepErrno::new();
        Self::madvise(addr, len, libc::MADV_FREE)
    }

    fn heal(&self, addr: usize, len: usize, huge: Huge) -> Outcome {
        let _keep = KeepErrno::new();
        Self::anonymous(addr, len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_FIXED)?;
        // A refused advice costs speed alone.
        let _ = self.advise(addr, len, huge);
        Ok(())
    }

    fn move_pages(&self, from: usize, to: usize, len: usize) -> Outcome {
        const FLAGS: i32 = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        let _keep = KeepErrno::new();
        // SAFETY: both ranges are ours and do not overlap (O2); nobody holds a reference into the target.
        let p = unsafe { libc::mremap(ptr(from), len, len, FLAGS, ptr(to)) };
        if p == libc::MAP_FAILED { Err(Errno(errno())) } else { Ok(()) }
    }

    fn plug(&self, addr: usize, len: usize) -> Outcome {
        let _keep = KeepErrno::new();
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let got = Self::anonymous(addr, len, prot, libc::MAP_FIXED_NOREPLACE)?;
        if got == addr {
            return Ok(());
        }
        // A kernel older than the flag took the address as a hint and mapped elsewhere.
        let _ = self.unmap(got, len);
        Err(Errno(libc::EEXIST))
    }

    fn mapped(&self, addr: usize, len: usize) -> bool {
        let _keep = KeepErrno::new();
        // MS_ASYNC does nothing but check that the range is mapped (mm/msync.c).
        // SAFETY: msync with MS_ASYNC reads and writes no memory.
        unsafe { libc::msync(ptr(addr), len, libc::MS_ASYNC) == 0 }
    }

    fn advise(&self, addr: usize, len: usize, huge: Huge) -> Outcome {
        let _keep = KeepErrno::new();
        match huge {
            Huge::Advise => Self::madvise(addr, len, libc::MADV_HUGEPAGE),
            Huge::Forbid => Self::madvise(addr, len, libc::MADV_NOHUGEPAGE),
            Huge::Leave => Ok(()),
        }
    }

    fn resident(&self, addr: usize, len: usize) -> Option<usize> {
        /// Pages asked about in one call: one stack buffer.
        const BATCH: usize = 512;
        let _keep = KeepErrno::new();
        let page = super::GRANULE;
        let mut seen = [0_u8; BATCH];
        let mut count = 0;
        let (mut at, end) = (addr, addr + len);
        while at < end {
            let part = (end - at).min(BATCH * page);
            // SAFETY: `seen` has a byte for each page of `part`.
            if unsafe { libc::mincore(ptr(at), part, seen.as_mut_ptr()) } != 0 {
                return None;
            }
            count += seen[..part / page].iter().filter(|&&b| b & 1 == 1).count();
            at += part;
        }
        Some(count * page)
    }

    fn now(&self) -> u64 {
        let _keep = KeepErrno::new();
        let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `t` is a valid timespec to write to.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
        t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
    }

    fn say(&self, parts: &[&str]) {
        let _keep = KeepErrno::new();
        for part in parts.iter().chain(&["\n"]) {
            // SAFETY: the pointer and length are those of a string slice.
            unsafe { libc::write(2, part.as_ptr().cast(), part.len()) };
        }
    }
}
