//! What this kernel can do, tried out on a scratch mapping of seven pages.
//!
//! Why tried and not looked up: sandboxes and emulators answer to Linux's system calls and do something else
//! (gVisor refuses `MREMAP_DONTUNMAP` and `MADV_FREE` and calls every page resident; older user-mode emulators
//! accept `MADV_DONTNEED` and keep the content).
//!
//! Invariants: only the scratch mapping is touched; its pages stand between inaccessible ones, so that no
//! VMA of anybody merges with them, nothing faults in beside them, and the kernels with a fault in merging
//! (see [`unsafe_moves`]) have nothing to merge; a page is read only after it is known to be mapped.

#![expect(unsafe_code, reason = "system calls, and the bytes of the scratch mapping")]

use super::Linux;
use super::sys::ptr;
use super::text;
use crate::os::{Huge, Os};
use crate::sync::process::{AtomicU8, Ordering};

/// What was found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Abilities {
    /// `mremap` with `MREMAP_DONTUNMAP` moves the content and leaves zeros.
    pub(super) moves: bool,
    /// It moves a source of several VMAs, or some of it.
    pub(super) moves_several: bool,
    /// `mincore` tells a touched page from an untouched one.
    pub(super) residency: bool,
    /// `MADV_FREE` is accepted.
    pub(super) soften: bool,
}

/// Whether `MADV_DONTNEED` was seen to keep content; [`UNTRIED`] at first. Apart from the rest: an arena purges where no
/// allocator has ever started.
static PURGE_KEEPS: AtomicU8 = AtomicU8::new(UNTRIED);
const UNTRIED: u8 = 2;

impl Abilities {
    /// Of a kernel that does not even map a scratch page.
    const NONE: Self = Self { moves: false, moves_several: true, residency: false, soften: false };
}

/// Where the pages of the scratch mapping are.
struct Scratch {
    base: usize,
    page: usize,
}

/// Two pages, and two that they are moved to, each pair between inaccessible ones.
const SCRATCH_PAGES: usize = 7;
const MARK: u8 = 0xa5;

impl Scratch {
    fn new(page: usize) -> Option<Self> {
        let base = Linux.reserve(SCRATCH_PAGES * page, page).ok()?;
        let scratch = Self { base, page };
        if scratch.open_all().is_none() {
            let _ = Linux.unmap(base, SCRATCH_PAGES * page);
            return None;
        }
        Some(scratch)
    }

    /// The page that is touched, and moved away.
    fn first(&self) -> usize {
        self.base + self.page
    }

    /// The page that is not, and is moved to.
    fn second(&self) -> usize {
        self.base + 4 * self.page
    }

    fn open_all(&self) -> Option<()> {
        for at in [self.first(), self.second()] {
            Linux.open(at, 2 * self.page).ok()?;
            // A 64 KiB page is no huge page, but a huge page of several of them might be had.
            let _ = Linux.advise(at, 2 * self.page, Huge::Forbid);
        }
        Some(())
    }

    /// Gives all of it back after a refused move of `pages` to the second place. That may have unmapped its target, and somebody
    /// may have mapped it since: only what we can plug is ours. Otherwise so many pages of address space are left behind.
    fn give_up(&self, pages: usize) {
        let (second, len) = (self.second(), pages * self.page);
        let _ = Linux.unmap(self.base, second - self.base);
        let _ = Linux.unmap(second + len, self.base + SCRATCH_PAGES * self.page - second - len);
        if Linux.plug(second, len, Huge::Leave).is_ok() {
            let _ = Linux.unmap(second, len);
        }
    }
}

fn write(addr: usize, byte: u8) {
    // SAFETY: an open page of the scratch mapping, which nobody else knows of (O2). Volatile: what the kernel
    // does to the page is not seen by the compiler.
    unsafe { ptr(addr).cast::<u8>().write_volatile(byte) }
}

fn read(addr: usize) -> u8 {
    // SAFETY: as in `write`.
    unsafe { ptr(addr).cast::<u8>().read_volatile() }
}

/// Finds out what the kernel can do.
pub(super) fn abilities(page: usize) -> Abilities {
    let Some(scratch) = Scratch::new(page) else { return Abilities::NONE };
    let (first, second) = (scratch.first(), scratch.second());
    write(first, MARK);
    // Where all memory is locked, it was resident as soon as it was opened.
    let _ = Linux.madvise_dontneed(second, page);
    let residency = Linux.resident(first, page) == Some(page) && Linux.resident(second, page) == Some(0);
    write(second, MARK);
    note_whether_purged(second, page);
    let soften = Linux.soften(second, page).is_ok();
    let moves = moves(&scratch);
    // Whoever does not know what a failing call leaves expects the worst.
    let moves_several = !moves || Scratch::new(page).is_none_or(|scratch| moves_several(&scratch));
    Abilities { moves, moves_several, residency, soften }
}

/// Whether `MADV_DONTNEED` is accepted here, and leaves the content: then purging maps afresh.
pub(super) fn purge_keeps() -> bool {
    // Relaxed, here and below: one flag of the host, the same whoever finds it out.
    if PURGE_KEEPS.load(Ordering::Relaxed) == UNTRIED {
        let page = super::host::page();
        if let Some(scratch) = Scratch::new(page) {
            write(scratch.first(), MARK);
            note_whether_purged(scratch.first(), page);
            let _ = Linux.unmap(scratch.base, SCRATCH_PAGES * page);
        }
    }
    PURGE_KEEPS.load(Ordering::Relaxed) == 1
}

/// Purges a page that holds the mark, and remembers what became of it.
fn note_whether_purged(at: usize, page: usize) {
    let keeps = Linux.madvise_dontneed(at, page).is_ok() && read(at) != 0;
    PURGE_KEEPS.store(u8::from(keeps), Ordering::Relaxed);
}

/// Tries a move, and gives the scratch mapping back.
fn moves(scratch: &Scratch) -> bool {
    let (first, second, page) = (scratch.first(), scratch.second(), scratch.page);
    if Linux.move_pages(first, second, page).is_ok() {
        let moved = Linux.mapped(first, page)
            && Linux.mapped(second, page)
            && read(second) == MARK
            && read(first) == 0;
        let _ = Linux.unmap(scratch.base, SCRATCH_PAGES * page);
        return moved;
    }
    scratch.give_up(1);
    false
}

/// Tries a move of two pages that are a VMA each, and gives the scratch mapping back. What the two differ in keeps them from
/// becoming one where they are moved to, too.
fn moves_several(scratch: &Scratch) -> bool {
    let (first, second, page) = (scratch.first(), scratch.second(), scratch.page);
    if Linux::madvise(first + page, page, libc::MADV_DONTDUMP).is_err() {
        let _ = Linux.unmap(scratch.base, SCRATCH_PAGES * page);
        return true;
    }
    write(first, MARK);
    write(first + page, MARK);
    if Linux.move_pages(first, second, 2 * page).is_ok() {
        let _ = Linux.unmap(scratch.base, SCRATCH_PAGES * page);
        return true;
    }
    // The source stays mapped, whatever was moved.
    let is_whole = Linux.mapped(first, 2 * page) && read(first) == MARK && read(first + page) == MARK;
    scratch.give_up(2);
    !is_whole
}

/// Whether this kernel release has the use-after-free in `mremap`.
///
/// Linux 6.16 began to merge moved anonymous VMAs with unfaulted neighbours (879bca0a2c4f, "mm/vma: fix
/// incorrectly disallowed anonymous VMA merges") and got the lifetime of their `anon_vma` wrong; "mm/vma: fix
/// anon_vma UAF on mremap() faulted, unfaulted merge" (CVE-2026-23077) mends it in 6.18.9 and 6.19. Release
/// candidates of 6.19 may be without it. A distribution that took the fix to an older release is not
/// recognised, and nothing is moved there.
pub(super) fn unsafe_moves(release: &[u8]) -> bool {
    let Some(version) = text::release(release) else { return false };
    let candidate = release.windows(3).any(|w| w == b"-rc");
    ([6, 16, 0]..[6, 18, 9]).contains(&version) || (version == [6, 19, 0] && candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_with_the_use_after_free() {
        for (release, expected) in [
            ("5.7.0", false),
            ("6.15.11-arch1", false),
            ("6.16.0", true),
            ("6.16.0-rc1", true),
            ("6.16-rc1", true),
            ("6.17.13-generic", true),
            ("6.18.0", true),
            ("6.18.8-200.fc43.x86_64", true),
            ("6.18.9", false),
            ("6.18.44-fc-v669", false),
            ("6.19.0-rc5", true),
            ("6.19.0", false),
            ("6.19.1-rc1", false),
            ("7.0.0-rc1", false),
            ("", false),
            ("gVisor", false),
        ] {
            assert_eq!(unsafe_moves(release.as_bytes()), expected, "{release}");
        }
    }

    /// An arena was told that its memory was zero by a host that was never tried.
    #[test]
    fn whoever_purges_first_tries_out_whether_that_works() {
        PURGE_KEEPS.store(UNTRIED, Ordering::Relaxed);
        let page = super::super::host::page();
        let at = Linux.map(page, page).unwrap();
        write(at, MARK);
        Linux.purge(at, page).unwrap();
        assert_eq!(read(at), 0);
        assert_ne!(PURGE_KEEPS.load(Ordering::Relaxed), UNTRIED);
        Linux.unmap(at, page).unwrap();
    }

    #[test]
    fn probing_leaves_nothing_behind() {
        let page = Linux.facts().page;
        let first = abilities(page);
        for _ in 0..1000 {
            assert_eq!(abilities(page), first);
        }
    }
}
