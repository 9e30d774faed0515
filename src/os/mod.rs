//! Everything that the crate asks of the kernel, as a contract.
//!
//! What it is: the trait [`Os`], its real form [`Linux`] and, under test, a fake one that counts, fails on
//! demand and keeps a clock to set. Why it is here: it is the only place of the crate that names `libc`, so
//! every system call has one owner, one contract and one test double.
//!
//! Invariants: every call leaves `errno` as it found it; every length is a multiple of [`GRANULE`] unless
//! said otherwise; what a call promises about zero-ness holds for every kernel, whatever it lacks.
//! Never here: policy. Nothing in this layer decides whether a call is worth making.

use core::ffi::CStr;

use crate::error::Errno;
use crate::sync::{Park, atomic::AtomicU32};

mod bytes;
#[cfg(any(test, zk_nalloc_proof))]
pub(crate) mod fake;
pub(crate) mod fork;
mod linux;
mod obstacle;
pub(crate) mod private;
mod processor;
mod settings;
#[cfg(target_arch = "x86_64")]
mod streamed;

#[cfg(all(test, not(loom)))]
pub(crate) use linux::lock_pages;
#[cfg(not(all(test, loom)))]
pub(crate) use linux::{INTERRUPT, at_signals};
pub(crate) use linux::{
    InUse, Limit, Linux, ThreadKey, Usage, at_exit, at_fork, at_thread_end, die, fault_costs,
    forget_thread_ends, huge_page_bytes, keep_small_top, mappings, overcommit_mode, since_boot, start_thread,
    unsignalled, why_not_created, write_error,
};
pub(crate) use obstacle::{Asked, refused, why_not_mapped};
pub(crate) use processor::Vendor;
#[cfg(test)]
pub(crate) use settings::Reported;
pub(crate) use settings::{REPORTED, huge, set_huge, settings};

/// The unit in which the page heap cuts memory, in bytes: 4 KiB on every kernel, whatever its page size.
pub(crate) const GRANULE: usize = 4 << 10;

/// The unit in which pages are moved and purged, in bytes: a huge page of x86-64 and of aarch64 with 4 KiB pages.
pub(crate) const CHUNK: usize = 2 << 20;

/// What became of a call.
pub(crate) type Outcome = Result<(), Errno>;

/// More would be locked than this process may (`mlockall`), which the kernel asks before it unmaps anything (`do_mmap`,
/// mm/mmap.c).
pub(crate) const NOTHING_DONE: Errno = Errno(libc::EAGAIN);

/// A file that was opened for writing: its descriptor, and which file that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) descriptor: i32,
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// What [`Os::create`] answers where another process is writing the file (`EBUSY`).
pub(crate) const BUSY: Errno = Errno(16);

/// What huge-page advice a mapping gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Huge {
    /// `MADV_HUGEPAGE`.
    Advise,
    /// `MADV_NOHUGEPAGE`.
    Forbid,
    /// No advice: the host's setting alone decides.
    Leave,
}

/// How the host treats transparent huge pages (`/sys/kernel/mm/transparent_hugepage/enabled`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HugeMode {
    Always,
    Madvise,
    /// Off for the host, off for this process (`PR_SET_THP_DISABLE`), or not built in.
    Never,
}

/// What this kernel and host offer. Read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The kernel's page size in bytes.
    pub(crate) page: usize,
    /// The size of a transparent huge page in bytes (`hpage_pmd_size`), 0 where there are none.
    pub(crate) huge_page: usize,
    pub(crate) huge_mode: HugeMode,
    /// Physical memory in bytes.
    pub(crate) ram: usize,
    /// CPUs that this process may run on.
    pub(crate) cpus: usize,
    /// Of so many CPUs its cgroups allow the time, where one has a quota.
    pub(crate) quota: Option<usize>,
    /// Ways of the first-level data cache, 0 where nobody tells.
    pub(crate) l1_ways: usize,
    /// Who made the processor.
    pub(crate) vendor: Vendor,
    /// Whether `mremap` with `MREMAP_DONTUNMAP` works here and is safe on this kernel.
    pub(crate) moves: bool,
    /// Whether it works here, on a kernel with a known bug in it. Never with `moves`.
    pub(crate) moves_unsafely: bool,
    /// Whether a move of several VMAs is done, one after the other, so that one that fails may have moved some of them (Linux
    /// 6.17). Kernels before refuse it with the source whole.
    pub(crate) moves_several: bool,
    /// Whether `mincore` tells resident from absent.
    pub(crate) residency: bool,
    /// Whether `MADV_FREE` works.
    pub(crate) soften: bool,
}

/// How much memory the container or the host lets this process have, and what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// The limit in bytes, of a cgroup of ours up to the root, of RAM, or of the process (`RLIMIT_AS`, `RLIMIT_DATA`),
    /// that has the smallest share left.
    pub(crate) limit: usize,
    /// What is left under it in bytes, counting reclaimable page cache as left.
    pub(crate) left: usize,
}

/// How hard the kernel works for memory: counters, to be compared with what they were. What cannot be read is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Strain {
    /// Microseconds in which some task of our cgroup, and of the host, waited for memory (PSI).
    pub(crate) stalled: [Option<u64>; 2],
    /// How often a cgroup of ours, up to the root, was held back at a limit: `high` and `max` of `memory.events`, or
    /// `memory.failcnt`.
    pub(crate) hits: Option<u64>,
    /// Bytes of this process that are swapped out.
    pub(crate) swapped: Option<usize>,
}

/// The kernel, as far as the allocator needs it.
///
/// Addresses are plain numbers here: the memory behind them belongs to whoever mapped it, and only the
/// layers above turn them into pointers. All calls may be made from any thread at any time.
pub(crate) trait Os: Park + Send + Sync + 'static {
    /// Says what this host offers. Probes on scratch mappings only; a quarter of a millisecond.
    fn facts(&self) -> Facts;

    /// Says how much memory is left, or `None` where nobody tells. `reserved` bytes of our address space are set aside
    /// and hold nothing. Reads files: a quarter of a millisecond.
    fn room(&self, reserved: usize) -> Option<Room> {
        self.rooms(reserved).0
    }

    /// The same, and the least that any limit on resident memory has left, in bytes.
    fn rooms(&self, reserved: usize) -> (Option<Room>, Option<usize>);

    /// How many bytes may be used before any limit has less left than one part in `share` of it; `None` where nobody
    /// tells. `reserved` and the cost are as for [`Os::room`].
    fn spare(&self, reserved: usize, share: usize) -> Option<usize> {
        self.room(reserved).map(|room| room.left.saturating_sub(room.limit / share))
    }

    /// Says how much memory the host has left, whatever we may use of it; `None` where nobody tells. Reads one file.
    fn host_room(&self) -> Option<Room>;

    /// The same as [`Os::room`] of the limits on what the process maps, touched or not.
    fn mapping_room(&self, reserved: usize) -> Option<Room>;

    /// Says how hard the kernel works for memory. Reads files: a quarter of a millisecond.
    fn strain(&self) -> Strain;

    /// Sets `len` bytes of address space aside at a multiple of `align` (a power of two of at least a
    /// granule): inaccessible, without memory or commit charge. Gives its address.
    fn reserve(&self, len: usize, align: usize) -> Result<usize, Errno>;

    /// Maps `len` readable and writable bytes at a multiple of `align`. They are zero.
    fn map(&self, len: usize, align: usize) -> Result<usize, Errno>;

    /// Makes a reserved range readable and writable. It is zero; what of it was open already is as it was. On failure all is as
    /// before.
    fn open(&self, addr: usize, len: usize) -> Outcome;

    /// Takes an opened range back to reserved: pages gone, inaccessible, no commit charge. The range must be
    /// ours, whole; its huge-page advice is gone. After an error but [`NOTHING_DONE`] it counts as unmapped: see [`Os::plug`].
    fn close(&self, addr: usize, len: usize) -> Outcome;

    /// Unmaps a range that is ours, whole.
    fn unmap(&self, addr: usize, len: usize) -> Outcome;

    /// Drops the pages of an accessible range (`MADV_DONTNEED`). After `Ok` it reads as zero and is not
    /// resident; after an error (locked memory, for one) its content is unknown. `addr` and `len` are
    /// multiples of the kernel's page.
    fn purge(&self, addr: usize, len: usize) -> Outcome;

    /// Lets the kernel take the pages of an accessible range when it needs them (`MADV_FREE`). Until it is
    /// written again each page reads as before or as zero.
    fn soften(&self, addr: usize, len: usize) -> Outcome;

    /// Replaces an opened range that is ours by a fresh zero one with `huge` advice, so that it is one VMA
    /// with neighbours of the same advice again. After an error but [`NOTHING_DONE`] it counts as unmapped: see [`Os::plug`].
    fn heal(&self, addr: usize, len: usize, huge: Huge) -> Outcome;

    /// Moves the pages of `from..from + len` under `to..to + len` (`mremap` with `MREMAP_DONTUNMAP`), both
    /// multiples of [`CHUNK`], both ours, not overlapping. What was at `to` is dropped. After `Ok` the source
    /// is still mapped and reads as zero. After an error the source is whole if it lay in one VMA, else some
    /// leading part may have moved; the target counts as unmapped: see [`Os::plug`].
    fn move_pages(&self, from: usize, to: usize, len: usize) -> Outcome;

    /// Maps readable and writable zero pages with `huge` advice at `addr..addr + len` if nothing at all is
    /// mapped there. An error means that something may be: the range must never be touched or mapped over again.
    fn plug(&self, addr: usize, len: usize, huge: Huge) -> Outcome;

    /// Whether this process can have a few mappings more. What has failed for want of them may have left its range unmapped or
    /// not; to ask before spares that. A hint: another thread may take them.
    fn has_mappings_left(&self) -> bool;

    /// Where the VMA that holds `addr` ends (`PROCMAP_QUERY`), or `None` where nobody tells: before Linux 6.11, where
    /// there is no descriptor left, without `/proc`, or in a sandbox.
    fn vma_end(&self, addr: usize) -> Option<usize>;

    /// Gives huge-page advice for a mapped or reserved range.
    fn advise(&self, addr: usize, len: usize, huge: Huge) -> Outcome;

    /// Writes zeros over a range that is ours, of any length, which the compiler may not leave out however soon the range
    /// is forgotten.
    fn wipe(&self, addr: usize, len: usize) {
        linux::wipe(addr, len);
    }

    /// Writes zeros over a range that is ours, of any length.
    #[inline]
    fn zero(&self, addr: usize, len: usize) {
        bytes::zero(addr, len);
    }

    /// Copies `len` bytes from one range of ours to another, of any length. They do not overlap.
    #[inline]
    fn copy(&self, from: usize, to: usize, len: usize) {
        bytes::copy(from, to, len);
    }

    /// Whether the granule at `addr`, which is ours, reads as zero. Makes it resident.
    fn is_zero(&self, addr: usize) -> bool {
        bytes::is_zero(addr)
    }

    /// Makes a range of whole granules resident that is ours, accessible, and whose content nobody needs: it may hold
    /// anything afterwards, but for ranges that read as zero, which still do. An error means that there is no memory for some of it.
    fn populate(&self, addr: usize, len: usize) -> Outcome {
        linux::touch(addr, len);
        Ok(())
    }

    /// How many bytes of the range are resident now, or `None` where the kernel does not tell. A hint about
    /// speed only: resident pages may be zero ones, absent ones may be dirty and swapped.
    fn resident(&self, addr: usize, len: usize) -> Option<usize>;

    /// Streams the environment that this process was started with: entries `NAME=VALUE`, a NUL byte after each,
    /// cut anywhere; nothing where that cannot be read. Safe against a concurrent `setenv` wherever `/proc` is mounted.
    fn environment(&self, each: &mut dyn FnMut(&[u8]));

    /// As [`Park::wait`], for `nanoseconds` at most.
    fn wait_for(&self, word: &AtomicU32, expected: u32, nanoseconds: u64);

    /// How many bytes of the process are in memory and in no file, all mappings together; `None` where nobody tells.
    /// Reads a file: three microseconds.
    fn anonymous(&self) -> Option<usize>;

    /// Has the C library give what its heap keeps free back to the kernel, whole pages of it, where it can be asked. Takes its
    /// locks, so the caller has none of ours; as long as it takes to look at all free blocks of a page and more, and to purge
    /// them.
    fn trim_library(&self);

    /// Has the C library keep the heaps of threads but the first when they are free, where it has such, or as it comes. Takes its
    /// locks, so the caller has none of ours.
    fn keep_library_heaps(&self, keeps: bool);

    /// How many bytes of the process are in memory, all mappings together; `None` where nobody tells. Reads a file: five
    /// microseconds.
    fn resident_in_all(&self) -> Option<usize> {
        None
    }

    /// The most bytes of the process that ever were in memory. A microsecond.
    fn resident_max(&self) -> usize;

    /// The number of this process.
    fn process(&self) -> u32;

    /// A number of this process that no child of it has, never 0. An atomic load, but for the first.
    fn mark(&self) -> u64;

    /// Page faults of this process so far that no device was waited for. A microsecond.
    fn faults(&self) -> u64;

    /// The same of the calling thread alone. A third of a microsecond.
    fn own_faults(&self) -> u64;

    /// Opens a regular file for writing, made where it is missing, and empties it; [`BUSY`] if another process is
    /// writing it so.
    fn create(&self, path: &CStr) -> Result<Output, Errno>;

    /// Closes a file that this process, or the one that forked it, has created, unless the descriptor is another file's by now.
    fn give_up(&self, file: &Output);

    /// Writes `len` readable bytes at `address` into a file, from its byte `at` on. An error means that some of it may
    /// be there, or that the descriptor is another file's by now, which nothing was written to.
    fn write_at(&self, file: &Output, at: u64, address: usize, len: usize) -> Outcome;

    /// How many threads this process has now; `None` where nobody tells. A microsecond.
    fn threads(&self) -> Option<usize>;

    /// Nanoseconds of a clock that never goes back.
    fn now(&self) -> u64;

    /// The calling thread's number, never 0, the same for its life and in a child that it forks.
    fn thread(&self) -> u64;

    /// Writes one line to standard error: the parts one after another, then a newline. Best effort.
    fn say(&self, parts: &[&str]);
}
