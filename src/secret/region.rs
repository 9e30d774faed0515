//! Guarded pages with their measures, and the scopes in which sealed pages are open.
//!
//! Invariants (X1, X2, X8 of `docs/SAFETY.md`): the pages are accessible whenever a [`Scope`] says so; sealed
//! pages are closed when the last scope ends, also on unwind. In a forked child nothing waits and nothing is
//! closed: the count and its lock may be those of threads that do not exist there.
//! Never here: the bytes themselves.

#![expect(unsafe_code, reason = "opens and closes pages")]

use core::panic::RefUnwindSafe;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicI32, Ordering};

use super::protection::{Measure, Policy, Protection};
use super::status::{State, Status};
use crate::MapFailed;
use crate::error::{Errno, Obstacle};
use crate::os::private::{Access, Advice, Backing, Guarded, page_size, why_not_locked};
use crate::os::{Asked, why_not_mapped};
use crate::os::{Linux, fork};
use crate::sync::Lock;

/// Pages for one secret, or for the slots of a pool.
pub(super) struct Region {
    map: Guarded,
    /// What was asked for in bytes, for messages.
    requested: usize,
    protection: Protection,
    status: Status,
    seal: Option<Seal>,
    /// The process that made it ([`fork::mark`]).
    mark: u64,
    /// Whether children share the pages.
    shared: bool,
}

/// Who uses sealed pages.
struct Seal {
    users: Lock<Users>,
    /// The `errno` of the last call that should have closed the pages; 0 if it did.
    refused: AtomicI32,
}

/// Nothing that happens while the count is held can panic, so no unwinding leaves it half done.
impl RefUnwindSafe for Seal {}

#[derive(Default)]
struct Users {
    readers: usize,
    writers: usize,
}

impl Users {
    fn count(&mut self, access: Access) -> &mut usize {
        if access == Access::Write { &mut self.writers } else { &mut self.readers }
    }

    /// What the pages have to let through for all of them.
    fn need(&self) -> Access {
        match (self.writers, self.readers) {
            (0, 0) => Access::Nothing,
            (0, _) => Access::Read,
            _ => Access::Write,
        }
    }
}

impl Region {
    /// Maps at least `bytes` bytes, rounded up to pages, and puts the measures in force.
    pub(super) fn new(bytes: usize, protection: Protection) -> Result<Self, MapFailed> {
        let page = page_size();
        let data = bytes.max(1).checked_next_multiple_of(page).filter(|&data| data <= isize::MAX as usize);
        let data = data.ok_or(MapFailed::absurd(bytes))?;
        let mut status = Status::asked(protection);
        let (map, backing) = Self::map(data, protection, &mut status)
            .map_err(|(errno, obstacle)| MapFailed::new(bytes, errno, obstacle))?;
        let mut region = Self {
            map,
            requested: bytes,
            protection,
            status,
            seal: None,
            mark: fork::mark(),
            shared: backing == Backing::MemfdSecret,
        };
        region.protect(backing)?;
        Ok(region)
    }

    fn map(
        data: usize,
        protection: Protection,
        status: &mut Status,
    ) -> Result<(Guarded, Backing), (Errno, Obstacle)> {
        if protection.asks_for(Measure::MemfdSecret) {
            match Guarded::map(data, Backing::MemfdSecret) {
                Ok(map) => return Ok((map, Backing::MemfdSecret)),
                Err(errno) => {
                    let obstacle = match why_not_locked(data + 2 * page_size()) {
                        limit @ Obstacle::LockedMemory { .. } => limit,
                        _ => Obstacle::Measure { call: Measure::MemfdSecret.call() },
                    };
                    if protection.policy() == Policy::Strict {
                        return Err((errno, obstacle));
                    }
                    status.refuse(Measure::MemfdSecret, errno, obstacle);
                }
            }
        }
        let map = Guarded::map(data, Backing::Anonymous);
        map.map(|map| (map, Backing::Anonymous))
            .map_err(|errno| (errno, why_not_mapped(data, Asked::Writable)))
    }

    /// Puts every measure in force that is asked for, the lock after the advices: locking faults pages in,
    /// and they shall be small ones.
    fn protect(&mut self, backing: Backing) -> Result<(), MapFailed> {
        const ADVICES: [(Measure, Advice); 4] = [
            (Measure::NoDump, Advice::NoDump),
            (Measure::WipeOnFork, Advice::WipeOnFork),
            (Measure::NoHugePages, Advice::NoHugePages),
            (Measure::NoMerging, Advice::NoMerging),
        ];
        /// A kernel without huge pages, or without merging, knows no advice against them: the effect holds.
        const EINVAL: Errno = Errno(22);
        for (measure, advice) in ADVICES {
            if self.protection.asks_for(measure) {
                match self.map.advise(advice) {
                    Err(EINVAL) if measure != Measure::WipeOnFork && measure != Measure::NoDump => {}
                    Err(errno) => self.refused(measure, errno, Obstacle::Measure { call: measure.call() })?,
                    Ok(()) => {}
                }
            }
        }
        // Secret memory is locked by its nature, and mlock, which wants to pin its pages, would fail.
        if self.protection.asks_for(Measure::MemoryLock)
            && backing == Backing::Anonymous
            && let Err(errno) = self.map.lock()
        {
            self.refused(Measure::MemoryLock, errno, why_not_locked(self.map.len()))?;
        }
        if self.protection.asks_for(Measure::Sealed) {
            self.seal = Some(Seal { users: Lock::new(Users::default()), refused: AtomicI32::new(0) });
            // SAFETY: nobody has a reference into a mapping made just now.
            if let Err(errno) = unsafe { self.map.protect(Access::Nothing) } {
                self.refused(Measure::Sealed, errno, Obstacle::Measure { call: Measure::Sealed.call() })?;
            }
        }
        Ok(())
    }

    fn refused(&mut self, measure: Measure, errno: Errno, obstacle: Obstacle) -> Result<(), MapFailed> {
        if self.protection.policy() == Policy::Strict {
            return Err(MapFailed::new(self.requested, errno, obstacle));
        }
        self.status.refuse(measure, errno, obstacle);
        Ok(())
    }

    /// Locks pages that were refused it, now that others have let go of theirs.
    pub(super) fn lock_again(&mut self) {
        if !matches!(self.status.get(Measure::MemoryLock), State::Refused(_)) {
            return;
        }
        // In a scope: pages that are sealed cannot be faulted in, for which the kernel calls a lock failed that it has put in force.
        let locked = self.enter(Access::Read).and_then(|_open| self.map.lock());
        if locked.is_ok() {
            self.status.grant(Measure::MemoryLock);
        }
    }

    /// Has the status show what was refused of `earlier` pages of the same bytes.
    pub(super) fn carry(&mut self, earlier: Status) {
        self.status.carry(earlier);
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.map.start()
    }

    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    pub(super) const fn protection(&self) -> Protection {
        self.protection
    }

    pub(super) const fn is_sealed(&self) -> bool {
        self.seal.is_some()
    }

    /// Whether this process is a fork of the one that made the region.
    pub(super) fn is_inherited(&self) -> bool {
        self.mark != fork::mark()
    }

    /// Whether the bytes are also another process's: a child sees those of its parent.
    pub(super) fn belongs_to_parent(&self) -> bool {
        self.shared && self.is_inherited()
    }

    pub(super) fn status(&self) -> Status {
        let mut status = self.status;
        if let Some(seal) = &self.seal {
            // Relaxed: a report of the past, nothing is read on the strength of it.
            match seal.refused.load(Ordering::Relaxed) {
                0 => {}
                errno => status.refuse(Measure::Sealed, Errno(errno), Obstacle::Unknown),
            }
        }
        if self.is_inherited() {
            status.lose(Measure::Sealed);
            if !self.shared {
                status.lose(Measure::MemoryLock);
            }
        }
        status
    }

    /// Opens the pages for at least `access` until the scope is dropped. Costs nothing if they are not sealed.
    #[inline]
    pub(super) fn enter(&self, access: Access) -> Result<Scope<'_>, Errno> {
        match &self.seal {
            None => Ok(Scope { counted: None }),
            Some(seal) => self.enter_slow(seal, access),
        }
    }

    fn enter_slow<'a>(&'a self, seal: &'a Seal, access: Access) -> Result<Scope<'a>, Errno> {
        if self.is_inherited() {
            // SAFETY: access only grows.
            unsafe { self.map.protect(Access::Write) }?;
            return Ok(Scope { counted: None });
        }
        let mut users = seal.users.lock(&Linux);
        let before = users.need();
        *users.count(access) += 1;
        let need = users.need();
        if need != before {
            // SAFETY: needs only grow when a user comes, so access does (X8).
            if let Err(errno) = unsafe { self.map.protect(need) } {
                *users.count(access) -= 1;
                return Err(errno);
            }
        }
        Ok(Scope { counted: Some((self, seal, access)) })
    }

    /// Drops the pages and what they hold; if that succeeds they read as zero, but for those that others share.
    ///
    /// # Safety
    /// Nobody has a reference into the pages.
    pub(super) unsafe fn discard(&self) -> Result<(), Errno> {
        // SAFETY: as our caller promises.
        unsafe { self.map.discard() }
    }

    fn leave_slow(&self, seal: &Seal, access: Access) {
        if self.is_inherited() {
            return;
        }
        let mut users = seal.users.lock(&Linux);
        let before = users.need();
        *users.count(access) -= 1;
        let need = users.need();
        if need != before {
            // SAFETY: references into the pages live inside scopes alone, and `need` is what the scopes that
            // are left need (X8).
            let errno = unsafe { self.map.protect(need) }.map_or_else(|Errno(errno)| errno, |()| 0);
            // Relaxed: read by `status` alone.
            seal.refused.store(errno, Ordering::Relaxed);
        }
    }
}

/// While it lives, the pages of a region are open.
pub(super) struct Scope<'a> {
    counted: Option<(&'a Region, &'a Seal, Access)>,
}

impl Drop for Scope<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some((region, seal, access)) = self.counted {
            region.leave_slow(seal, access);
        }
    }
}
