//! Telling whether this process is a fork of the one that made something.
//!
//! Why it is here: `MADV_WIPEONFORK` zeroes secrets and their canaries in a child, memory locks are not
//! inherited, and a lock that another thread held stays held for ever; whoever keeps such things must know
//! that it woke up in a child. The kernel itself tells: one page that it zeroes in every child. Reading it is
//! an atomic load; a process identifier is a system call, and is reused, so it stands in only where there is no such page:
//! for good where the kernel does not wipe, and until there is one where it had no memory.
//!
//! Invariants: [`mark`] gives one value for the whole life of a process, and a different one than any
//! that it had inherited when it was forked, unless that was made of a process identifier that has come back since.
//! Never here: allocation, locks, and registering handlers (`pthread_atfork` is not told of `clone`).

#![expect(unsafe_code, reason = "maps the page and reads it")]

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::linux::sys::{KeepErrno, errno};

static MARKS: Marks = Marks::new();
/// What [`Marks::page`] points to where no page is wiped. Its content is never used, nor is that of the next.
static NOT_WIPED: AtomicU64 = AtomicU64::new(0);
/// What it points to where there was no memory for a page when it was asked for.
static NOT_YET: AtomicU64 = AtomicU64::new(0);
/// Set in marks made of a process identifier, so that they never equal a counted one.
const BY_PROCESS: u64 = 1 << 63;

/// The mark of this process.
pub(crate) fn mark() -> u64 {
    MARKS.mark(map)
}

struct Marks {
    /// The page, once mapped; null before it was asked for; or [`NOT_WIPED`] or [`NOT_YET`].
    page: AtomicPtr<AtomicU64>,
    /// The next mark. Ordinary memory: a child counts on from where its parent stood.
    next: AtomicU64,
}

/// What came of asking for a page.
enum Mapped {
    Page(*mut AtomicU64),
    /// This kernel does not wipe.
    NotWiped,
    /// There was no memory, which may change.
    NotYet,
}

impl Marks {
    const fn new() -> Self {
        Self { page: AtomicPtr::new(null_mut()), next: AtomicU64::new(1) }
    }

    fn mark(&self, map: impl FnOnce() -> Mapped) -> u64 {
        // Acquire: pairs with the release in `map_slow`; the page was mapped before its address was published.
        let mut page = self.page.load(Ordering::Acquire).cast_const();
        if page.is_null() || page == &raw const NOT_YET {
            page = self.map_slow(page, map);
        }
        if page == &raw const NOT_WIPED || page == &raw const NOT_YET {
            return by_process();
        }
        // SAFETY: a page published here stays mapped for the life of the process, and of its children (X10).
        let page = unsafe { &*page };
        // Relaxed, here and below: the value stands for itself; nothing else is read on the strength of it.
        match page.load(Ordering::Relaxed) {
            0 => {
                let fresh = self.next.fetch_add(1, Ordering::Relaxed);
                page.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed)
                    .map_or_else(|m| m, |_| fresh)
            }
            mark => mark,
        }
    }

    /// Asks for a page where `before`, null or [`NOT_YET`], stands for it, and says what stands there now.
    #[cold]
    fn map_slow(&self, before: *const AtomicU64, map: impl FnOnce() -> Mapped) -> *const AtomicU64 {
        let (page, is_ours) = match map() {
            Mapped::Page(page) => (page.cast_const(), true),
            Mapped::NotWiped => (&raw const NOT_WIPED, false),
            Mapped::NotYet => (&raw const NOT_YET, false),
        };
        if is_ours && before == &raw const NOT_YET {
            // This process may have marked things by its identifier meanwhile, and has one mark for life.
            // Relaxed: published by the release below.
            // SAFETY: the page is mapped, and nobody else knows of it.
            unsafe { &*page }.store(by_process(), Ordering::Relaxed);
        }
        let (before, after) = (before.cast_mut(), page.cast_mut());
        // Release: see `mark`. Acquire: a page that another thread published is used instead of ours.
        match self.page.compare_exchange(before, after, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => page,
            Err(theirs) => {
                if is_ours {
                    unmap(after);
                }
                theirs
            }
        }
    }
}

fn by_process() -> u64 {
    // SAFETY: getpid reads and writes no memory.
    BY_PROCESS | u64::from(unsafe { libc::getpid() }.cast_unsigned())
}

/// Maps a page that the kernel zeroes in every child.
fn map() -> Mapped {
    let _keep = KeepErrno::new();
    let len = super::private::page_size();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: maps a fresh page wherever the kernel likes; nothing else is touched.
    let p = unsafe { libc::mmap(null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if p == libc::MAP_FAILED {
        return Mapped::NotYet;
    }
    // SAFETY: the page is mapped.
    let hears = unsafe { super::private::hears_advice(p) };
    // SAFETY: the page is ours; the advice changes what a child sees alone.
    if hears && unsafe { libc::madvise(p, len, libc::MADV_WIPEONFORK) } == 0 {
        return Mapped::Page(p.cast());
    }
    // The advice makes a mapping of its own of the page, for which there may be no memory either.
    let refused = if hears && matches!(errno(), libc::ENOMEM | libc::EAGAIN) {
        Mapped::NotYet
    } else {
        Mapped::NotWiped
    };
    unmap(p.cast());
    refused
}

/// Gives a page back that was not published.
fn unmap(page: *mut AtomicU64) {
    let _keep = KeepErrno::new();
    // SAFETY: the page was not published, so nobody else knows of it.
    unsafe { libc::munmap(page.cast(), super::private::page_size()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_mark_for_all_threads_of_a_process() {
        let here = mark();
        assert_ne!(here, 0);
        let there: Vec<u64> = std::thread::scope(|s| {
            let threads: Vec<_> = (0..8).map(|_| s.spawn(mark)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(there.iter().all(|&m| m == here));
    }

    /// One refusal had the process identifier tell processes apart in all that came of this one.
    #[test]
    fn a_page_is_asked_for_until_there_is_memory_and_the_mark_stays() {
        let marks = Marks::new();
        let page = AtomicU64::new(0);
        let before = marks.mark(|| Mapped::NotYet);
        assert_eq!(marks.mark(|| Mapped::NotYet), before);
        assert_eq!(marks.mark(|| Mapped::Page((&raw const page).cast_mut())), before);
        assert_eq!(marks.mark(|| unreachable!("there is a page")), before);
        // What the kernel does in a child.
        page.store(0, Ordering::Relaxed);
        let child = marks.mark(|| unreachable!("there is a page"));
        assert_eq!(child & BY_PROCESS, 0);
        assert_eq!(marks.mark(|| unreachable!("there is a page")), child);
    }

    #[test]
    fn a_kernel_that_does_not_wipe_is_asked_once() {
        let marks = Marks::new();
        let mark = marks.mark(|| Mapped::NotWiped);
        assert_eq!(marks.mark(|| unreachable!("it does not wipe")), mark);
        assert_eq!(mark, by_process());
    }
}
