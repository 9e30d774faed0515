//! Memory that is kept apart: pages of their own between two guard pages, and the calls that protect them.
//!
//! Why it is here: secrets need calls that the allocator must never make (locking, sealing, wiping), on
//! mappings that it must never see. The owner of a mapping is a value, [`Guarded`], and drop unmaps it.
//!
//! Invariants: every call leaves `errno` as it found it; lengths are multiples of the kernel's page; a call
//! that is refused changes nothing that it does not say. System calls that sanitizers replace by doing
//! nothing (`mlock`), or whose wrappers are cancellation points, are made directly.
//! Never here: policy; which refusals matter is for the layer above.

#![expect(unsafe_code, reason = "system calls")]

use core::ptr::{NonNull, null_mut};

use super::linux::sys::{KeepErrno, errno, outcome};
use super::{Limit, Outcome};
use crate::error::{Errno, Obstacle};
use crate::sync::process::{AtomicU8, Ordering};

/// What stands behind the data pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    /// Private anonymous memory: a child gets its own copy, or zeros.
    Anonymous,
    /// `memfd_secret(2)`: taken out of the kernel's own map of memory; locked; shared with every child.
    MemfdSecret,
}

/// An advice about mapped pages. Each is a call of its own: advices cannot be combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// `MADV_DONTDUMP`: left out of core dumps.
    NoDump,
    /// `MADV_WIPEONFORK`: reads as zero in a child.
    WipeOnFork,
    /// `MADV_NOHUGEPAGE`: never part of a transparent huge page.
    NoHugePages,
    /// `MADV_UNMERGEABLE`: never merged with equal pages of others.
    NoMerging,
}

/// What a page lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    Nothing,
    Read,
    Write,
}

/// The kernel's page size in bytes.
pub(crate) fn page_size() -> usize {
    let _keep = KeepErrno::new();
    // SAFETY: sysconf reads a value that the C library keeps.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(page).ok().filter(|p| p.is_power_of_two()).unwrap_or(super::GRANULE)
}

/// Whether this kernel's answer to an advice means anything: an emulator may say yes to whatever it does not know (qemu-user did
/// for years, as s2n-tls and BoringSSL found, which ask likewise). Asked once, of a page that is mapped.
///
/// # Safety
/// `page` is the address of a mapped page.
pub(super) unsafe fn hears_advice(page: *mut core::ffi::c_void) -> bool {
    static HEARS: AtomicU8 = AtomicU8::new(UNKNOWN);
    const UNKNOWN: u8 = 0;
    const YES: u8 = 1;
    const NO: u8 = 2;
    /// No advice has this number.
    const NONSENSE: i32 = -1;
    // Relaxed, both: the value says everything, and whoever asks twice is told the same.
    let mut known = HEARS.load(Ordering::Relaxed);
    if known == UNKNOWN {
        // SAFETY: as our caller promises; no kernel does anything for this.
        let refused = unsafe { libc::madvise(page, page_size(), NONSENSE) } != 0;
        known = if refused { YES } else { NO };
        HEARS.store(known, Ordering::Relaxed);
    }
    known == YES
}

/// Data pages between two inaccessible pages, unmapped when dropped.
///
/// The data pages are zero, readable and writable to begin with, and at the same address for life (X1).
pub(crate) struct Guarded {
    base: NonNull<u8>,
    page: usize,
    data: usize,
}

// SAFETY: it owns its mapping, which has no tie to a thread (X1); no method touches the memory itself.
unsafe impl Send for Guarded {}
// SAFETY: the methods that take `&self` pass numbers to the kernel, which locks; they touch no memory.
unsafe impl Sync for Guarded {}

impl Guarded {
    /// Maps `data` bytes (a multiple of the page, not 0) and a guard page on each side.
    pub(crate) fn map(data: usize, backing: Backing) -> Result<Self, Errno> {
        let _keep = KeepErrno::new();
        let page = page_size();
        let total = data.checked_add(2 * page).filter(|&t| t <= isize::MAX as usize);
        let total = total.filter(|_| data != 0 && data.is_multiple_of(page)).ok_or(Errno(libc::ENOMEM))?;
        let base = match backing {
            Backing::Anonymous => reserve(total, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?,
            Backing::MemfdSecret => reserve_secret(total)?,
        };
        let map = Self { base, page, data };
        // SAFETY: the range was mapped just now, so no reference into it exists.
        unsafe { map.protect(Access::Write) }?;
        Ok(map)
    }

    /// The first data byte. Carries the provenance of the whole mapping.
    pub(crate) fn start(&self) -> NonNull<u8> {
        // SAFETY: the mapping is `page + data + page` bytes long (X1).
        unsafe { self.base.add(self.page) }
    }

    /// The length of the data pages in bytes.
    pub(crate) const fn len(&self) -> usize {
        self.data
    }

    /// Keeps the data pages in memory (`mlock`), faulting them in. A lock is not inherited by a child.
    pub(crate) fn lock(&self) -> Outcome {
        let _keep = KeepErrno::new();
        // SAFETY: the range is ours (X1); locking changes no byte of it. Not by `libc::mlock`, which
        // sanitizers replace by nothing.
        let ret = unsafe { libc::syscall(libc::SYS_mlock, self.start().as_ptr(), self.data) };
        outcome(if ret == 0 { 0 } else { -1 })
    }

    /// Gives one advice about the data pages. None of them changes a byte. Refused where the kernel's answer would mean nothing.
    pub(crate) fn advise(&self, advice: Advice) -> Outcome {
        let _keep = KeepErrno::new();
        let advice = match advice {
            Advice::NoDump => libc::MADV_DONTDUMP,
            Advice::WipeOnFork => libc::MADV_WIPEONFORK,
            Advice::NoHugePages => libc::MADV_NOHUGEPAGE,
            Advice::NoMerging => libc::MADV_UNMERGEABLE,
        };
        // SAFETY: the pages are mapped, and ours (X1).
        if !unsafe { hears_advice(self.start().as_ptr().cast()) } {
            return Err(Errno(libc::ENOSYS));
        }
        // SAFETY: the range is ours (X1), and none of these advices changes its content here.
        outcome(unsafe { libc::madvise(self.start().as_ptr().cast(), self.data, advice) })
    }

    /// Drops the data pages and what they hold, however they are closed: private ones read as zero afterwards, where the kernel's
    /// answer means anything.
    ///
    /// # Safety
    /// Nobody has a reference into the data pages.
    pub(crate) unsafe fn discard(&self) -> Outcome {
        let _keep = KeepErrno::new();
        let start = self.start().as_ptr();
        // Locked pages are not dropped. What is refused here is refused below.
        // SAFETY: the range is ours (X1), and unlocking changes no byte of it. Directly, as in `lock`.
        unsafe { libc::syscall(libc::SYS_munlock, start, self.data) };
        // SAFETY: the range is ours (X1); the caller vouches for the references into it.
        outcome(unsafe { libc::madvise(start.cast(), self.data, libc::MADV_DONTNEED) })
    }

    /// Sets what the data pages let through; their content stays.
    ///
    /// # Safety
    /// No reference into the data pages that needs more than `access` lives until access is given again.
    pub(crate) unsafe fn protect(&self, access: Access) -> Outcome {
        let _keep = KeepErrno::new();
        let prot = match access {
            Access::Nothing => libc::PROT_NONE,
            Access::Read => libc::PROT_READ,
            Access::Write => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: the range is ours (X1); the caller vouches for the references into it.
        outcome(unsafe { libc::mprotect(self.start().as_ptr().cast(), self.data, prot) })
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _keep = KeepErrno::new();
        let total = self.data + 2 * self.page;
        // Unmapping unlocks. A refusal leaks the range, which its owner has wiped.
        // SAFETY: the range is ours, whole (X1), and its owner gives it up.
        unsafe { libc::munmap(self.base.as_ptr().cast(), total) };
    }
}

/// Maps `total` inaccessible bytes anywhere.
fn reserve(total: usize, flags: i32, fd: i32) -> Result<NonNull<u8>, Errno> {
    // SAFETY: without MAP_FIXED the kernel picks addresses that nothing uses.
    let p = unsafe { libc::mmap(null_mut(), total, libc::PROT_NONE, flags, fd, 0) };
    if p == libc::MAP_FAILED {
        return Err(Errno(errno()));
    }
    NonNull::new(p.cast()).ok_or(Errno(libc::ENOMEM))
}

/// The same, of `memfd_secret`. The guards are part of the file: mapping it over a part of a reservation
/// could fail half way and leave a hole there. Pages never touched cost nothing but their share of
/// `RLIMIT_MEMLOCK`.
fn reserve_secret(total: usize) -> Result<NonNull<u8>, Errno> {
    // SAFETY: the call takes a flag alone and touches no memory.
    let fd = unsafe { libc::syscall(libc::SYS_memfd_secret, libc::O_CLOEXEC) };
    let Some(fd) = i32::try_from(fd).ok().filter(|&fd| fd >= 0) else { return Err(Errno(errno())) };
    let size = libc::off_t::try_from(total).map_err(|_| Errno(libc::EFBIG));
    let mapped = size.and_then(|size| {
        // SAFETY: the descriptor is ours.
        outcome(unsafe { libc::ftruncate(fd, size) })?;
        reserve(total, libc::MAP_SHARED, fd)
    });
    // The mapping keeps the file alive.
    // SAFETY: the descriptor is ours, and is not used after this.
    unsafe { libc::syscall(libc::SYS_close, fd) };
    mapped
}

/// Zeroes `bytes` with stores that no compiler may leave out.
pub(crate) fn wipe(bytes: &mut [u8]) {
    // SAFETY: the range is that of a unique slice of bytes, for which zero is a valid value.
    unsafe { wipe_at(NonNull::from(&mut *bytes).cast(), bytes.len()) };
}

/// The same of memory that may hold anything. Not by `explicit_bzero`, which glibc has from 2.25 on: Rust links for 2.17.
///
/// # Safety
/// The range can be written, and nobody else uses it.
pub(crate) unsafe fn wipe_at(base: NonNull<u8>, len: usize) {
    // SAFETY: as the caller promises.
    unsafe { base.write_bytes(0, len) };
    // The block claims to read all memory that the pointer reaches, so that the stores must have happened.
    // SAFETY: it does nothing.
    #[cfg(not(miri))]
    unsafe {
        core::arch::asm!("/* {0} */", in(reg) base.as_ptr(), options(nostack, preserves_flags));
    }
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
}

/// Fills `bytes` from the kernel's random number generator, waiting until it is seeded.
pub(crate) fn fill_random(bytes: &mut [u8]) -> Outcome {
    let _keep = KeepErrno::new();
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        // libc's wrapper is a cancellation point, which would unwind from here.
        // SAFETY: the kernel writes at most `rest.len()` bytes to a slice that is ours alone.
        let n = unsafe { libc::syscall(libc::SYS_getrandom, rest.as_mut_ptr(), rest.len(), 0) };
        match usize::try_from(n) {
            Ok(n) => done += n,
            Err(_) if errno() == libc::EINTR => {}
            Err(_) => return Err(Errno(errno())),
        }
    }
    Ok(())
}

/// Says why locking `len` bytes more was refused, as far as that can be told.
pub(crate) fn why_not_locked(len: usize) -> Obstacle {
    let needed = in_use("VmLck:").saturating_add(len);
    match Limit::Locked.allowed() {
        Some(allowed) if needed > allowed => Obstacle::LockedMemory { needed, allowed },
        _ => Obstacle::Measure { call: "mlock" },
    }
}

/// Bytes that this process uses of something; 0 where nobody tells. Called on refusals only: it allocates.
fn in_use(what: &str) -> usize {
    let _keep = KeepErrno::new();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse().ok()).map_or(0, |kib: usize| kib << 10)
}
