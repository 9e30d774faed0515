//! The real kernel.
//!
//! Invariants: every method leaves `errno` as it found it; no call is a cancellation point of POSIX threads,
//! which would unwind out of the allocator: those that would be are made without libc's wrapper. Never here:
//! retrying for ever, and any guess about what a refusal means.

#![expect(unsafe_code, reason = "system calls")]

mod cgroup;
mod environ;
mod files;
mod hooks;
mod host;
mod in_use;
mod limits;
mod output;
mod path;
mod probe;
mod quota;
mod room;
#[cfg(not(all(test, loom)))]
mod signals;
mod smaps;
mod strain;
pub(super) mod sys;
mod text;
#[cfg(target_env = "gnu")]
mod tunables;
mod usage;
mod vma;

pub(crate) use hooks::{
    ThreadKey, at_exit, at_fork, at_thread_end, forget_thread_ends, keep_small_top, start_thread,
};
pub(crate) use in_use::{InUse, huge_page_bytes};
pub(crate) use limits::{Limit, overcommit_mode};
pub(crate) use output::{why_not_created, write_error};
#[cfg(not(all(test, loom)))]
pub(crate) use signals::{INTERRUPT, at_signals};
pub(crate) use smaps::mappings;
#[cfg(all(test, not(loom)))]
pub(crate) use sys::lock_pages;
pub(crate) use sys::unsignalled;
pub(crate) use usage::{Usage, fault_costs, since_boot};

use sys::{KeepErrno, errno, outcome, ptr};

use super::{Facts, Huge, Os, Outcome, Output, Room, Strain};
use crate::error::Errno;
use crate::sync::{Park, atomic::AtomicU32};

/// Linux, by system calls through `libc`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Linux;

const PLAIN: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

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
        let page = host::page();
        let len = len.checked_next_multiple_of(page).ok_or(too_large)?;
        let Some(total) = len.checked_add(align).filter(|&total| total <= isize::MAX as usize) else {
            return Err(too_large);
        };
        let base = match Self::anonymous(0, total, prot, 0) {
            Ok(base) => base,
            Err(refused) => return Self::anonymous_by_luck(len, align, prot).ok_or(refused),
        };
        let start = base.next_multiple_of(align);
        let (head, tail) = (start - base, base + total - (start + len));
        // What cannot be trimmed is address space lost, no more.
        if head > 0 {
            let _ = Linux.unmap(base, head);
        }
        if tail > 0 {
            let _ = Linux.unmap(start + len, tail);
        }
        Ok(start)
    }

    /// Maps `len` bytes, in case they come to lie at a multiple of `align`: kernels place large mappings at huge
    /// pages, and a limit may leave room for them and not for their alignment.
    fn anonymous_by_luck(len: usize, align: usize, prot: i32) -> Option<usize> {
        let start = Self::anonymous(0, len, prot, 0).ok()?;
        if start.is_multiple_of(align) {
            return Some(start);
        }
        let _ = Linux.unmap(start, len);
        None
    }

    /// Whether the whole range is mapped, by anybody.
    fn mapped(self, addr: usize, len: usize) -> bool {
        let _keep = KeepErrno::new();
        let page = host::page();
        let start = addr / page * page;
        let Some(len) = addr.checked_add(len).map(|end| end - start) else { return false };
        // MS_ASYNC does nothing but check that the range is mapped (mm/msync.c). libc's wrapper is a cancellation
        // point.
        // SAFETY: msync with MS_ASYNC reads and writes no memory.
        unsafe { libc::syscall(libc::SYS_msync, ptr(start), len, libc::MS_ASYNC) == 0 }
    }

    fn madvise(addr: usize, len: usize, advice: i32) -> Outcome {
        /// How often a kernel that is short of something for the moment is asked again.
        const TRIES: usize = 8;
        let mut result = Ok(());
        for _ in 0..TRIES {
            // SAFETY: the callers hold the range (O2), and no advice used here touches memory outside it.
            result = outcome(unsafe { libc::madvise(ptr(addr), len, advice) });
            if result != Err(Errno(libc::EAGAIN)) && result != Err(Errno(libc::EINTR)) {
                break;
            }
        }
        result
    }

    /// Drops the pages of a range, if this kernel does what it says.
    fn madvise_dontneed(self, addr: usize, len: usize) -> Outcome {
        /// `MADV_DONTNEED` for memory that is locked too (Linux 5.18).
        const DONTNEED_LOCKED: i32 = 24;
        let _keep = KeepErrno::new();
        match Self::madvise(addr, len, libc::MADV_DONTNEED) {
            Err(Errno(libc::EINVAL)) => Self::madvise(addr, len, DONTNEED_LOCKED),
            result => result,
        }
    }

    fn futex(word: &AtomicU32, operation: i32, value: u32, timeout: Option<&libc::timespec>) {
        let _keep = KeepErrno::new();
        // SAFETY: FUTEX_WAIT reads the word, which lives as long as the reference, and FUTEX_WAKE uses its address
        // only; a null pointer is no timeout. Refusals (the word has changed, a signal came) are wake-ups for no
        // reason.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                core::ptr::from_ref(word),
                operation | libc::FUTEX_PRIVATE_FLAG,
                value,
                timeout.map_or(core::ptr::null(), core::ptr::from_ref),
            );
        }
    }
}

impl Park for Linux {
    fn nap(&self) {
        let _keep = KeepErrno::new();
        let t = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
        // SAFETY: `t` is a valid timespec; the remainder is not asked for.
        // libc's wrapper is a cancellation point.
        unsafe { libc::syscall(libc::SYS_nanosleep, &t, core::ptr::null_mut::<libc::timespec>()) };
    }

    fn wait(&self, word: &AtomicU32, expected: u32) {
        Self::futex(word, libc::FUTEX_WAIT, expected, None);
    }

    fn wake_one(&self, word: &AtomicU32) {
        Self::futex(word, libc::FUTEX_WAKE, 1, None);
    }
}

impl Os for Linux {
    fn facts(&self) -> Facts {
        let _keep = KeepErrno::new();
        host::facts()
    }

    fn rooms(&self, reserved: usize) -> (Option<Room>, Option<usize>) {
        let _keep = KeepErrno::new();
        room::rooms(reserved)
    }

    fn spare(&self, reserved: usize, share: usize) -> Option<usize> {
        let _keep = KeepErrno::new();
        room::spare(reserved, share)
    }

    fn host_room(&self) -> Option<Room> {
        let _keep = KeepErrno::new();
        room::of_files()
    }

    fn mapping_room(&self, reserved: usize) -> Option<Room> {
        let _keep = KeepErrno::new();
        room::of_mappings(reserved)
    }

    fn strain(&self) -> Strain {
        let _keep = KeepErrno::new();
        strain::now()
    }

    fn reserve(&self, len: usize, align: usize) -> Result<usize, Errno> {
        let _keep = KeepErrno::new();
        Self::anonymous_aligned(len, align, libc::PROT_NONE)
    }

    fn map(&self, len: usize, align: usize) -> Result<usize, Errno> {
        let _keep = KeepErrno::new();
        Self::anonymous_aligned(len, align, READ_WRITE)
    }

    fn open(&self, addr: usize, len: usize) -> Outcome {
        let _keep = KeepErrno::new();
        // SAFETY: the range is ours (O2). What of it is inaccessible nobody has a reference into; what is open already stays as it is, and
        // whoever uses it meanwhile notices nothing.
        outcome(unsafe { libc::mprotect(ptr(addr), len, READ_WRITE) })
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
        if probe::purge_keeps() {
            // Its advice is gone with it, which costs speed alone.
            return Self::anonymous(addr, len, READ_WRITE, libc::MAP_FIXED).map(drop);
        }
        self.madvise_dontneed(addr, len)
    }

    fn soften(&self, addr: usize, len: usize) -> Outcome {
        let _keep = KeepErrno::new();
        Self::madvise(addr, len, libc::MADV_FREE)
    }

    fn heal(&self, addr: usize, len: usize, huge: Huge) -> Outcome {
        let _keep = KeepErrno::new();
        Self::anonymous(addr, len, READ_WRITE, libc::MAP_FIXED)?;
        // A refused advice costs speed alone.
        let _ = self.advise(addr, len, huge);
        Ok(())
    }

    fn move_pages(&self, from: usize, to: usize, len: usize) -> Outcome {
        const FLAGS: i32 = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        let _keep = KeepErrno::new();
        // SAFETY: both ranges are ours and do not overlap (O2); nobody holds a reference into the target.
        let p = unsafe { libc::mremap(ptr(from), len, len, FLAGS, ptr(to)) };
        match p.addr() {
            at if at == to => Ok(()),
            _ if p == libc::MAP_FAILED => Err(Errno(errno())),
            // Not Linux: the pages are somewhere, and nothing is known of the target.
            _ => Err(Errno(libc::ENOTSUP)),
        }
    }

    fn plug(&self, addr: usize, len: usize, huge: Huge) -> Outcome {
        let _keep = KeepErrno::new();
        let got = Self::anonymous(addr, len, READ_WRITE, libc::MAP_FIXED_NOREPLACE)?;
        if got == addr {
            let _ = self.advise(addr, len, huge);
            return Ok(());
        }
        // A kernel older than the flag took the address as a hint and mapped elsewhere.
        let _ = self.unmap(got, len);
        Err(Errno(libc::EEXIST))
    }

    fn has_mappings_left(&self) -> bool {
        let _keep = KeepErrno::new();
        // Three of them: the kernel wants room for what a call splits, which is two at most.
        let page = host::page();
        let Ok(base) = self.reserve(3 * page, page) else { return false };
        // Read alone, which counts against no other limit.
        // SAFETY: of the range reserved a line above, which has been inaccessible since: no reference into it exists (O2).
        let has = outcome(unsafe { libc::mprotect(ptr(base + page), page, libc::PROT_READ) }).is_ok();
        let _ = self.unmap(base, 3 * page);
        has
    }

    fn vma_end(&self, addr: usize) -> Option<usize> {
        let _keep = KeepErrno::new();
        vma::end(addr)
    }

    fn advise(&self, addr: usize, len: usize, huge: Huge) -> Outcome {
        let _keep = KeepErrno::new();
        match huge {
            Huge::Advise => Self::madvise(addr, len, libc::MADV_HUGEPAGE),
            Huge::Forbid => Self::madvise(addr, len, libc::MADV_NOHUGEPAGE),
            Huge::Leave => Ok(()),
        }
    }

    fn populate(&self, addr: usize, len: usize) -> Outcome {
        let _keep = KeepErrno::new();
        // Linux 5.14: a third of what the traps cost that touching each page takes.
        match Self::madvise(addr, len, libc::MADV_POPULATE_WRITE) {
            Err(Errno(libc::EINVAL)) => {
                touch(addr, len);
                Ok(())
            }
            result => result,
        }
    }

    fn resident(&self, addr: usize, len: usize) -> Option<usize> {
        /// Pages asked about in one call: one buffer on the stack, and 8 MiB of 4 KiB pages.
        const BATCH: usize = 2048;
        let _keep = KeepErrno::new();
        let page = host::page();
        let end = addr.checked_add(len)?;
        let mut seen = [0_u8; BATCH];
        let mut bytes = 0;
        // The kernel counts in its own pages, the range in granules: its ends may lie inside a page.
        let mut at = addr / page * page;
        while at < end {
            let pages = (end - at).div_ceil(page).min(BATCH);
            // SAFETY: `seen` has a byte for each of `pages`.
            if unsafe { libc::mincore(ptr(at), pages * page, seen.as_mut_ptr()) } != 0 {
                return None;
            }
            let seen = &seen[..pages];
            // One loop over bytes alone, which takes a tenth of what looking at each page's place does.
            bytes += page * seen.iter().map(|&byte| usize::from(byte & 1)).sum::<usize>();
            let is_in = |nth: usize| usize::from(seen[nth] & 1);
            bytes -= is_in(0) * addr.saturating_sub(at)
                + is_in(pages - 1) * (at + pages * page).saturating_sub(end);
            at += pages * page;
        }
        Some(bytes)
    }

    fn wait_for(&self, word: &AtomicU32, expected: u32, nanoseconds: u64) {
        const SECOND: u64 = 1_000_000_000;
        let seconds = libc::time_t::try_from(nanoseconds / SECOND).unwrap_or(libc::time_t::MAX);
        let mut timeout = libc::timespec { tv_sec: seconds, tv_nsec: 0 };
        // Under a second, which any of its types holds.
        timeout.tv_nsec = (nanoseconds % SECOND) as _;
        Self::futex(word, libc::FUTEX_WAIT, expected, Some(&timeout));
    }

    fn environment(&self, each: &mut dyn FnMut(&[u8])) {
        environ::stream(each);
    }

    fn trim_library(&self) {
        hooks::trim_library();
    }

    fn keep_library_heaps(&self, keeps: bool) {
        hooks::keep_heaps(keeps);
    }

    fn anonymous(&self) -> Option<usize> {
        let _keep = KeepErrno::new();
        InUse::Resident.bytes()?.checked_sub(InUse::Shared.bytes()?)
    }

    fn resident_in_all(&self) -> Option<usize> {
        let _keep = KeepErrno::new();
        InUse::Resident.bytes()
    }

    fn process(&self) -> u32 {
        // SAFETY: getpid reads and writes no memory.
        unsafe { libc::getpid() }.cast_unsigned()
    }

    fn mark(&self) -> u64 {
        super::fork::mark()
    }

    fn resident_max(&self) -> usize {
        Usage::now().resident_max as usize
    }

    fn faults(&self) -> u64 {
        Usage::but_for_resident_max().minor
    }

    fn own_faults(&self) -> u64 {
        Usage::of_this_thread().minor
    }

    fn threads(&self) -> Option<usize> {
        let _keep = KeepErrno::new();
        host::threads()
    }

    fn create(&self, path: &core::ffi::CStr) -> Result<Output, Errno> {
        output::create(path)
    }

    fn give_up(&self, file: &Output) {
        output::give_up(file);
    }

    fn write_at(&self, file: &Output, at: u64, address: usize, len: usize) -> Outcome {
        output::write_at(file, at, address, len)
    }

    fn now(&self) -> u64 {
        let _keep = KeepErrno::new();
        let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `t` is a valid timespec to write to.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
        t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
    }

    fn thread(&self) -> u64 {
        // The address of errno: one per thread, kept by the thread that survives a fork, and free to ask.
        // SAFETY: libc gives each thread an errno (O1); only its address is used.
        unsafe { libc::__errno_location().addr() as u64 }
    }

    fn say(&self, parts: &[&str]) {
        /// More parts than any line of this crate has; a call takes at least 16 (POSIX).
        const PARTS: usize = 16;
        let _keep = KeepErrno::new();
        let mut pieces = [libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; PARTS];
        for (piece, part) in pieces.iter_mut().zip(parts.iter().take(PARTS - 1).chain(&["\n"])) {
            *piece = libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
        }
        // One call, so that lines of other threads and processes do not mix with this one.
        // SAFETY: each piece is a string slice, or empty; the kernel only reads them.
        unsignalled(|| unsafe {
            libc::syscall(libc::SYS_writev, libc::STDERR_FILENO, pieces.as_ptr(), PARTS)
        });
    }
}

/// Writes zeros over a range that its caller owns, whole, and to which it has no reference.
pub(super) fn wipe(addr: usize, len: usize) {
    let to: *mut u8 = core::ptr::with_exposed_provenance_mut(addr);
    // SAFETY: the caller owns the range, which is accessible (O2).
    let bytes = unsafe { core::slice::from_raw_parts_mut(to, len) };
    super::private::wipe(bytes);
}

/// Writes a zero to every granule of a range that its caller owns, and whose content nobody needs.
pub(super) fn touch(addr: usize, len: usize) {
    for at in (addr..addr + len).step_by(super::GRANULE) {
        let byte: *mut u8 = core::ptr::with_exposed_provenance_mut(at);
        // SAFETY: the caller owns the range, which is accessible, and has no reference into it (O2).
        unsafe { byte.write_volatile(0) };
    }
}

/// Writes one line to standard error and ends the process.
pub(crate) fn die(parts: &[&str]) -> ! {
    Linux.say(parts);
    // SAFETY: abort may be called at any time.
    unsafe { libc::abort() }
}

#[cfg(all(test, not(loom)))]
mod tests;
