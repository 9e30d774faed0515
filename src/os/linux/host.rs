//! What the host is like: page sizes, memory, CPUs, caches.
//!
//! Invariants: what cannot be read has a value that is safe to work with; nothing allocates.

#![expect(unsafe_code, reason = "system calls")]

use core::ffi::CStr;
use core::mem::size_of_val;

use super::path::Path;
use super::text::{chosen, file_number};
use super::{files, probe, quota};
use crate::os::processor::vendor_slow;
use crate::os::{Facts, GRANULE, HugeMode};

/// Reads all of it.
pub(super) fn facts() -> Facts {
    let page = page();
    let huge_page = huge_page(page);
    let abilities = probe::abilities(page);
    let unsafely = abilities.moves && unsafe_moves();
    Facts {
        page,
        huge_page,
        huge_mode: huge_mode(huge_page),
        ram: ram(),
        cpus: cpus(),
        quota: quota::processors(),
        l1_ways: l1_ways(),
        vendor: vendor_slow(),
        moves: abilities.moves && !unsafely,
        moves_unsafely: unsafely,
        moves_several: abilities.moves_several,
        residency: abilities.residency,
        soften: abilities.soften,
    }
}

/// The kernel's page size in bytes.
pub(super) fn page() -> usize {
    // SAFETY: sysconf only answers; both C libraries have this answer at hand.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(page).ok().filter(|page| page.is_power_of_two()).unwrap_or(GRANULE).max(GRANULE)
}

/// Ways of the first-level data cache. glibc asks the processor, and needs no memory for it.
#[cfg(target_env = "gnu")]
fn l1_ways() -> usize {
    // SAFETY: as in `page`.
    let ways = unsafe { libc::sysconf(libc::_SC_LEVEL1_DCACHE_ASSOC) };
    usize::try_from(ways).unwrap_or(0)
}

/// The same: musl has no such question, so the processor is asked here.
#[cfg(not(target_env = "gnu"))]
fn l1_ways() -> usize {
    crate::os::processor::l1_ways_slow()
}

fn read(path: &CStr) -> Option<usize> {
    file_number(files::head(path, &mut [0; 32])?)
}

/// The size of a huge page in bytes, 0 where the kernel has none.
fn huge_page(page: usize) -> usize {
    match read(c"/sys/kernel/mm/transparent_hugepage/hpage_pmd_size") {
        Some(huge) if huge.is_power_of_two() && huge > page => huge,
        _ => 0,
    }
}

/// The setting for `huge_page`, and for this process.
fn huge_mode(huge_page: usize) -> HugeMode {
    if huge_page == 0 {
        return HugeMode::Never;
    }
    let host = mode(c"/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or(HugeMode::Never);
    let of_size = mode_of_size(huge_page).unwrap_or(host);
    /// Since Linux 6.18: only what was advised may be huge.
    const EXCEPT_ADVISED: i32 = 1 << 1;
    // SAFETY: this option only answers; all its other arguments must be 0.
    match (unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) }, of_size) {
        (..=0, mode) => mode,
        (_, HugeMode::Never) => HugeMode::Never,
        (flags, _) if flags & EXCEPT_ADVISED != 0 => HugeMode::Madvise,
        _ => HugeMode::Never,
    }
}

fn mode(path: &CStr) -> Option<HugeMode> {
    mode_from(files::head(path, &mut [0; 64])?)
}

/// `None` for `inherit`, and for anything unknown.
fn mode_from(text: &[u8]) -> Option<HugeMode> {
    match chosen(text)? {
        b"always" => Some(HugeMode::Always),
        b"madvise" => Some(HugeMode::Madvise),
        b"never" => Some(HugeMode::Never),
        _ => None,
    }
}

/// Since Linux 6.8 each size of huge page has a setting of its own, which mostly says `inherit`.
fn mode_of_size(huge_page: usize) -> Option<HugeMode> {
    let mut path = Path::new(b"/sys/kernel/mm/transparent_hugepage/hugepages-")?;
    path.push_number(huge_page >> 10)?;
    path.with(b"kB/enabled", mode)
}

fn ram() -> usize {
    memory().map_or(0, |(total, _)| total)
}

/// Physical memory in bytes, and what of it is free or a buffer: without the page cache, which could be taken back. Without a file.
pub(super) fn memory() -> Option<(usize, usize)> {
    // SAFETY: all-zero is a valid `sysinfo`.
    let mut info: libc::sysinfo = unsafe { core::mem::zeroed() };
    // SAFETY: `info` is a valid place to write to.
    if unsafe { libc::sysinfo(&raw mut info) } != 0 {
        return None;
    }
    #[expect(clippy::useless_conversion, reason = "the fields' types are not the same on every target")]
    let [total, free, buffers, unit] =
        [info.totalram.into(), info.freeram.into(), info.bufferram.into(), u64::from(info.mem_unit).max(1)];
    let bytes = |units: u64| usize::try_from(units.saturating_mul(unit)).unwrap_or(usize::MAX);
    Some((bytes(total), bytes(free).saturating_add(bytes(buffers))))
}

/// How many CPUs we may run on. The calling thread may be pinned to one of them by itself, as workers are, and so may the first
/// thread: the longer of their masks counts.
fn cpus() -> usize {
    // The kernel refuses a mask shorter than its own, so a long one is tried where a usual one will not do.
    let of = |thread| cpus_in::<128>(thread).or_else(|| cpus_in::<512>(thread)).unwrap_or(1);
    // SAFETY: the call only answers.
    let first = unsafe { libc::getpid() };
    of(0).max(of(first))
}

/// Counts the CPUs in a thread's mask of `WORDS` words; `None` if that is too short.
fn cpus_in<const WORDS: usize>(thread: libc::pid_t) -> Option<usize> {
    let mut mask = [0_u64; WORDS];
    // SAFETY: the kernel writes at most as many bytes as the mask has. The raw call takes masks of any length
    // and says how much it has written.
    let len =
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, thread, size_of_val(&mask), mask.as_mut_ptr()) };
    (len > 0).then(|| mask.iter().map(|word| word.count_ones() as usize).sum())
}

/// How many threads this process has: the kernel counts them among the links of the folder that lists them, beside the two
/// that every folder has (`fs/proc/base.c`, `proc_task_getattr`).
pub(super) fn threads() -> Option<usize> {
    // SAFETY: all-zero is a valid `stat`, and the kernel writes one there at most (O5); the path ends with a NUL.
    let folder = unsafe {
        let mut folder: libc::stat = core::mem::zeroed();
        if libc::stat(c"/proc/self/task".as_ptr(), &raw mut folder) != 0 {
            return None;
        }
        folder
    };
    usize::try_from(folder.st_nlink).ok()?.checked_sub(2).filter(|&threads| threads > 0)
}

/// Whether the running kernel is known to move pages unsafely.
fn unsafe_moves() -> bool {
    // SAFETY: all-zero is a valid `utsname`.
    let mut names: libc::utsname = unsafe { core::mem::zeroed() };
    // SAFETY: `names` is a valid place to write to.
    if unsafe { libc::uname(&raw mut names) } != 0 {
        return false;
    }
    // SAFETY: the kernel has ended the string within its array.
    let release = unsafe { CStr::from_ptr(names.release.as_ptr()) };
    probe::unsafe_moves(release.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes() {
        for (text, expected) in [
            ("[always] madvise never\n", Some(HugeMode::Always)),
            ("always [madvise] never\n", Some(HugeMode::Madvise)),
            ("always madvise [never]\n", Some(HugeMode::Never)),
            ("always [inherit] madvise never\n", None),
            ("always inherit madvise [never]\n", Some(HugeMode::Never)),
            ("always [madvise", None),
            ("", None),
            ("[sometimes]", None),
        ] {
            assert_eq!(mode_from(text.as_bytes()), expected, "{text}");
        }
    }

    /// A child has the thread that forked it and no other, whatever other tests do meanwhile.
    #[test]
    fn threads_are_counted() {
        let (quit, waits) = std::sync::mpsc::channel::<()>();
        let second = std::thread::spawn(move || waits.recv());
        assert!(threads().is_some_and(|count| count >= 2));
        // SAFETY: the child makes system calls alone, and ends.
        let child = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(i32::from(threads() != Some(1)));
            }
            child
        };
        let mut status = 1;
        // SAFETY: `status` is a valid place to write to.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        drop(quit);
        assert!(second.join().unwrap().is_err());
    }

    #[test]
    fn this_host_is_like_std_says() {
        let facts = facts();
        assert!(facts.page.is_power_of_two());
        assert!(facts.huge_page == 0 || facts.huge_page > facts.page);
        assert!(facts.ram > 64 << 20);
        assert!(facts.cpus >= std::thread::available_parallelism().unwrap().get());
        assert!(!(facts.moves && facts.moves_unsafely));
    }

    #[test]
    fn a_mask_of_any_length_counts_the_same() {
        assert_eq!(cpus_in::<512>(0), cpus_in::<128>(0));
    }

    #[test]
    fn huge_pages_disabled_for_the_process_are_seen() {
        // In a thread of its own this would still be for the whole process: hence the child.
        // SAFETY: the child only makes system calls and exits.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
                libc::_exit(i32::from(huge_mode(huge_page(page())) != HugeMode::Never));
            }
            let mut status = -1;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert_eq!(status, 0);
        }
    }

    /// Two shards for all, for ever, where a pinned worker made the first request.
    #[test]
    fn a_worker_that_is_pinned_says_nothing_of_the_others() {
        let before = cpus();
        let pinned = std::thread::spawn(|| {
            // SAFETY: all-zero is a valid set of CPUs, which the calls write and read.
            unsafe {
                let mut one: libc::cpu_set_t = core::mem::zeroed();
                libc::CPU_SET(usize::try_from(libc::sched_getcpu()).unwrap(), &mut one);
                assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &raw const one), 0);
            }
            (cpus_in::<128>(0), cpus())
        });
        assert_eq!(pinned.join().unwrap(), (Some(1), before));
    }
}
