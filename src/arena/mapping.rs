//! The memory behind an arena: one mapping, contiguous, that never moves.
//!
//! It comes in two forms. A *whole* one can be written from the start. A *reserved* one is address space that is
//! opened from its start in growing steps, so that a terabyte costs nothing until it is used: it does not count as
//! committed memory, `mlockall` does not make it resident and core dumps do not hold it.
//!
//! Invariants (docs/SAFETY.md): R1, the range is ours from construction to drop; R2, every byte below `opened` can
//! be read and written. Never here: who uses which byte.

#![expect(unsafe_code, reason = "owns memory by address")]

use core::fmt;
use core::ptr::NonNull;

use super::raw;
use crate::error::MapFailed;
use crate::os::CHUNK;
use crate::os::private::wipe_at;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// What capacities are rounded up to: the largest page of any 64-bit Linux.
pub(super) const PAGE_MAX: usize = 64 << 10;

/// How much of a reserved range lies before its first huge page. A small arena lives there, in small pages: the
/// fault of one huge page costs as much as those of several dozen small ones, and all of its 2 MiB.
const HEAD: usize = PAGE_MAX;

/// The longest step in which a reserved range is opened: a step costs microseconds, whatever its length, and what
/// it opens counts as committed under strict overcommit.
const STEP_MAX: usize = 1 << 30;

pub(super) struct Mapping {
    /// The first byte that is handed out.
    base: NonNull<u8>,
    /// Bytes from `base` on; a multiple of `PAGE_MAX`.
    capacity: usize,
    /// The address behind the last byte that can be written.
    opened: AtomicUsize,
    /// What was mapped, which is what will be unmapped.
    mapped: NonNull<u8>,
    mapped_len: usize,
}

// SAFETY: the mapping is owned, and reached from several threads only through addresses.
unsafe impl Send for Mapping {}
// SAFETY: as above; `opened` is atomic.
unsafe impl Sync for Mapping {}

fn rounded(bytes: usize, spare: usize) -> Result<usize, MapFailed> {
    let unit = if bytes >= CHUNK { CHUNK } else { PAGE_MAX };
    bytes
        .max(1)
        .checked_next_multiple_of(unit)
        .filter(|&len| len <= isize::MAX as usize - spare)
        .ok_or(MapFailed::absurd(bytes))
}

fn not_null(at: *mut u8) -> NonNull<u8> {
    NonNull::new(at).expect("the kernel maps nothing at address zero")
}

impl Mapping {
    /// Maps at least `bytes` bytes that can be written at once, in huge pages where they fill one.
    pub(super) fn whole(bytes: usize) -> Result<Self, MapFailed> {
        let len = rounded(bytes, CHUNK)?;
        let align = if len >= CHUNK { CHUNK } else { crate::os::GRANULE };
        let base = not_null(raw::map(len, align)?);
        if len >= CHUNK {
            raw::advise(base.as_ptr(), len);
        }
        Ok(Self::new(base, len, len, base, len))
    }

    /// Sets at least `bytes` bytes of address space aside and opens the head of it.
    pub(super) fn reserved(bytes: usize) -> Result<Self, MapFailed> {
        // The head, the range, and what aligning the end of the head to a huge page may take.
        let len = rounded(bytes, 2 * CHUNK)?;
        let mapped_len = len + 2 * CHUNK;
        let mapped = not_null(raw::reserve(mapped_len)?);
        let lead = mapped.as_ptr().addr().wrapping_neg() % CHUNK;
        let skip = if lead >= HEAD { lead - HEAD } else { lead + CHUNK - HEAD };
        // SAFETY: `skip < CHUNK + HEAD` and `len` more bytes lie inside the `len + 2 * CHUNK` mapped (R1).
        let base = unsafe { mapped.add(skip) };
        let mapping = Self::new(base, len, HEAD, mapped, mapped_len);
        raw::open(base.as_ptr(), HEAD)?;
        Ok(mapping)
    }

    fn new(base: NonNull<u8>, capacity: usize, open: usize, mapped: NonNull<u8>, mapped_len: usize) -> Self {
        let opened = AtomicUsize::new(base.as_ptr().addr() + open);
        Self { base, capacity, opened, mapped, mapped_len }
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The address of the first byte.
    pub(super) fn start(&self) -> usize {
        self.base.as_ptr().addr()
    }

    /// The address behind the last byte.
    pub(super) fn end(&self) -> usize {
        self.start() + self.capacity
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The address behind the last byte that can be written now.
    pub(super) fn opened(&self) -> usize {
        // Acquire: pairs with the release in `open_slow`: whoever sees the address sees the range opened.
        self.opened.load(Ordering::Acquire)
    }

    /// The byte at `addr`, with the provenance of the whole mapping.
    pub(super) fn at(&self, addr: usize) -> *mut u8 {
        debug_assert!((self.start()..=self.end()).contains(&addr), "an address outside the arena");
        self.base.as_ptr().with_addr(addr)
    }

    /// Sees to it that everything below `end`, an address inside the capacity, can be written.
    #[inline]
    pub(super) fn ready(&self, end: usize) -> Result<(), MapFailed> {
        if end <= self.opened() { Ok(()) } else { self.open_slow(end) }
    }

    /// Without a lock, which a thread that waits for the kernel would hold in each child that is forked meanwhile: to open what
    /// another thread has opened changes nothing.
    #[cold]
    fn open_slow(&self, end: usize) -> Result<(), MapFailed> {
        let opened = self.opened();
        if end <= opened {
            return Ok(());
        }
        let tail = self.end() - opened;
        if opened == self.start() + HEAD {
            // One advice for all that follows keeps the opened part and the rest at one mapping each.
            raw::advise(self.at(opened), tail);
        }
        let least = (end - opened).next_multiple_of(CHUNK).min(tail);
        // As much again as there is: the number of steps stays small, and at most half of what is open is unused.
        let step = (opened - self.start()).next_multiple_of(CHUNK).min(STEP_MAX).max(least).min(tail);
        let step = match raw::open(self.at(opened), step) {
            Err(_) if step > least => raw::open(self.at(opened), least).map(|()| least),
            other => other.map(|()| step),
        };
        match step {
            Ok(step) => {
                // Release: see `opened`. The highest: another thread may have opened more.
                self.opened.fetch_max(opened + step, Ordering::Release);
                Ok(())
            }
            Err(_) if end <= self.opened() => Ok(()),
            Err(refused) => Err(refused),
        }
    }

    /// Gives the pages below the address `end` back; says whether all bytes below it are zero now. To be called with the
    /// arena held exclusively.
    pub(super) fn purge(&self, end: usize) -> bool {
        let len = (end - self.start()).next_multiple_of(PAGE_MAX);
        len == 0 || raw::purge(self.base.as_ptr(), len)
    }

    /// Overwrites all below the address `end` with zeros. Steps of which nothing is resident go back to the kernel instead: they
    /// hold nothing, or what was swapped out.
    ///
    /// # Safety
    /// The arena is held exclusively, and everything below `end` was opened.
    pub(super) unsafe fn wipe(&self, end: usize) {
        // SAFETY: as our caller promises.
        unsafe { self.wipe_steps(self.start(), end, CHUNK) };
    }

    /// The same from `at` on, in steps that begin at multiples of their length.
    ///
    /// # Safety
    /// As for [`wipe`](Self::wipe).
    unsafe fn wipe_steps(&self, mut at: usize, end: usize, step: usize) {
        while at < end {
            let len = (step - at % step).min(end - at);
            let here = self.at(at);
            let resident = raw::resident(here, len);
            if resident == Some(0) && len == step && raw::purge(here, len) {
                // It is zero now.
            } else if step > PAGE_MAX && resident.is_some_and(|bytes| bytes < len) {
                // SAFETY: as our caller promised.
                unsafe { self.wipe_steps(at, at + len, PAGE_MAX) };
            } else {
                // SAFETY: the bytes can be written (R2), and the exclusive borrow says that they are no longer in use (R10).
                unsafe { wipe_at(not_null(here), len) };
            }
            at += len;
        }
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping")
            .field("base", &self.base)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        raw::unmap(self.mapped.as_ptr(), self.mapped_len);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn capacities_are_rounded_up_and_absurd_ones_refused() {
        assert_eq!(rounded(0, 0), Ok(PAGE_MAX));
        assert_eq!(rounded(PAGE_MAX + 1, 0), Ok(2 * PAGE_MAX));
        assert_eq!(rounded(CHUNK + 1, 0), Ok(2 * CHUNK));
        assert!(rounded(usize::MAX, 0).is_err());
        assert!(rounded(isize::MAX as usize, CHUNK).is_err());
    }

    #[test]
    fn a_reserved_mapping_opens_as_far_as_asked_and_no_further_than_its_end() {
        let mapping = Mapping::reserved(16 << 20).unwrap();
        assert_eq!(mapping.opened(), mapping.start() + HEAD);
        assert_eq!((mapping.start() + HEAD) % CHUNK, 0, "huge pages start behind the head");
        let mut asked = HEAD + 1;
        while asked < mapping.capacity() {
            mapping.ready(mapping.start() + asked).unwrap();
            assert!(mapping.opened() >= mapping.start() + asked);
            // SAFETY: the byte is below `opened` (R2).
            unsafe { mapping.at(mapping.opened() - 1).write(1) };
            asked += 3 << 20;
        }
        mapping.ready(mapping.end()).unwrap();
        assert_eq!(mapping.opened(), mapping.end());
    }

    #[test]
    fn a_purge_leaves_zeros() {
        let mapping = Mapping::whole(3 * PAGE_MAX).unwrap();
        // SAFETY: the mapping is whole, so its bytes can be written (R2).
        unsafe { mapping.base().write_bytes(1, 3 * PAGE_MAX) };
        assert!(mapping.purge(mapping.start() + PAGE_MAX + 1));
        // SAFETY: as above.
        let bytes = unsafe { core::slice::from_raw_parts(mapping.base().as_ptr(), 3 * PAGE_MAX) };
        assert!(bytes[..2 * PAGE_MAX].iter().all(|&b| b == 0), "whole pages below the end");
        assert!(bytes[2 * PAGE_MAX..].iter().all(|&b| b == 1), "and nothing behind them");
    }
}
