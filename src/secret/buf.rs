//! [`SecretBuf`]: bytes that stay private.
//!
//! Invariants: the address of the bytes never changes; every way to them goes through a scope or needs pages
//! that are not sealed; drop wipes before it gives the memory up, whatever path leads there.
//! Never here: a copy of the bytes that was not asked for by name.

#![expect(unsafe_code, reason = "asks frames for references")]

use core::fmt;

use super::equal::equal;
use super::frame::{Found, Frame};
use super::pool::Slot;
use super::protection::Protection;
use super::region::{Region, Scope};
use super::status::Status;
use crate::MapFailed;
use crate::error::{Errno, Obstacle};
use crate::os::die;
use crate::os::private::{Access, wipe};

/// Bytes that stay private: on pages of their own, wiped when dropped.
///
/// The pages lie between two inaccessible ones, the bytes flush with the second, so that reading or writing
/// one byte too far ends the process; what is left free in front holds a canary, checked on drop. The pages
/// are locked in memory, left out of core dumps, zero in a forked child, and never huge or merged. What this
/// host refuses of that is in [`status`](Self::status); with [`Policy::Strict`](super::Policy::Strict) it is
/// an error. What all of it stops, and what it does not, is said in the [module](super). One that a
/// [`SecretPool`](super::SecretPool) made shares its pages with others: one byte too far is found when it is dropped, by its canary.
///
/// Dropping it ends the process (`abort`), with one line on standard error, if the canary was overwritten, or if the kernel
/// refuses to open sealed pages to be wiped, and to discard them.
///
/// A `SecretBuf` is not cloned (but by [`try_clone`](Self::try_clone)), copied or printed by accident, and `==` takes a time that does not
/// tell where two differ:
///
/// ```compile_fail,E0599
/// zk_nalloc::SecretBuf::new(32).unwrap().clone();
/// ```
/// ```compile_fail,E0277
/// fn is_copy<T: Copy>() {}
/// is_copy::<zk_nalloc::SecretBuf>();
/// ```
/// ```compile_fail,E0614
/// let bytes = *zk_nalloc::SecretBuf::new(32).unwrap();
/// ```
/// ```compile_fail,E0277
/// println!("{}", zk_nalloc::SecretBuf::new(32).unwrap());
/// ```
///
/// Use it so:
///
/// ```
/// use zk_nalloc::SecretBuf;
///
/// let mut key = SecretBuf::new(32)?;
/// key.as_mut_slice()[0] = 7;
/// assert_eq!(key.as_slice()[0], 7);
/// assert_eq!(format!("{key:?}"), "SecretBuf(32 bytes, [secret])");
/// # Ok::<(), zk_nalloc::MapFailed>(())
/// ```
pub struct SecretBuf {
    frame: Frame,
    home: Home,
}

/// Whose pages a frame lies on. Outlives the frame (X3).
enum Home {
    Own(Region),
    Slot(Slot),
}

impl SecretBuf {
    /// Makes a secret of `len` zero bytes on pages of its own.
    pub(super) fn on_own_pages(len: usize, protection: Protection) -> Result<Self, MapFailed> {
        let region = Region::new(len, protection)?;
        let pages = region.len();
        let scope = region.enter(Access::Write).map_err(|errno| not_opened(len, errno))?;
        // SAFETY: the whole of the pages, open inside the scope, mapped and zero (X1, X5), is this frame's
        // until the region goes, which happens after the frame's last use (X3); `len <= pages`.
        let frame = unsafe { Frame::plant(region.start(), pages, pages - len, len) };
        drop(scope);
        Ok(Self { frame, home: Home::Own(region) })
    }

    /// Makes a secret in a slot of a pool.
    pub(super) const fn in_slot(frame: Frame, slot: Slot) -> Self {
        Self { frame, home: Home::Slot(slot) }
    }

    /// Makes a secret of zeros that is as long, as protected and in the same pool.
    pub(super) fn sibling(&self) -> Result<Self, MapFailed> {
        match &self.home {
            Home::Own(region) => Self::on_own_pages(self.len(), region.protection()),
            Home::Slot(slot) => slot.another(self.len()),
        }
    }

    /// Takes the place of `old`, which is dropped, and whose bytes this one has now if `has_bytes`.
    pub(super) fn succeed(&mut self, old: Self, has_bytes: bool) {
        let earlier = old.status();
        drop(old);
        if let Home::Own(region) = &mut self.home {
            region.lock_again();
            if has_bytes {
                region.carry(earlier);
            }
        }
    }

    /// Zeroes the bytes now; the secret stays usable.
    ///
    /// # Panics
    /// When the kernel refuses to open sealed pages.
    ///
    /// ```
    /// use zk_nalloc::SecretBuf;
    /// let mut key = SecretBuf::random(32)?;
    /// key.wipe();
    /// assert_eq!(key.as_slice(), [0; 32]);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn wipe(&mut self) {
        self.expose_mut(wipe);
    }

    /// Calls `read` with the bytes. The way to the bytes that works for every protection.
    ///
    /// Sealed pages are open, for reading alone, until `read` returns or unwinds; scopes may nest, and threads
    /// may be inside at the same time.
    ///
    /// # Panics
    /// When the kernel refuses to open sealed pages.
    ///
    /// ```
    /// use zk_nalloc::SecretBuf;
    /// let key = SecretBuf::new_with(4, |bytes| bytes.fill(2))?;
    /// assert_eq!(key.expose(|bytes| bytes.iter().sum::<u8>()), 8);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn expose<R>(&self, read: impl FnOnce(&[u8]) -> R) -> R {
        let _scope = self.home.enter(Access::Read);
        // SAFETY: the scope holds the pages open for as long as the slice can live.
        read(unsafe { self.frame.secret() })
    }

    /// Calls `write` with the bytes. As [`expose`](Self::expose), for writing.
    ///
    /// # Panics
    /// When the kernel refuses to open sealed pages.
    ///
    /// ```
    /// use zk_nalloc::SecretBuf;
    /// let mut key = SecretBuf::new(4)?;
    /// key.expose_mut(|bytes| bytes.fill(2));
    /// assert_eq!(key.as_slice(), [2; 4]);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn expose_mut<R>(&mut self, write: impl FnOnce(&mut [u8]) -> R) -> R {
        let Self { frame, home } = self;
        let _scope = home.enter(Access::Write);
        // SAFETY: as in `expose`.
        write(unsafe { frame.secret_mut() })
    }

    /// The bytes, of a secret that is not sealed.
    ///
    /// # Panics
    /// If it is sealed: outside of [`expose`](Self::expose) its pages are inaccessible.
    ///
    /// ```
    /// assert_eq!(zk_nalloc::SecretBuf::new(3)?.as_slice(), [0; 3]);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.home.region().assert_open();
        // SAFETY: pages that are not sealed are open for life (X2).
        unsafe { self.frame.secret() }
    }

    /// The bytes, of a secret that is not sealed, for writing.
    ///
    /// # Panics
    /// If it is sealed: outside of [`expose_mut`](Self::expose_mut) its pages are inaccessible.
    ///
    /// ```
    /// let mut key = zk_nalloc::SecretBuf::new(3)?;
    /// key.as_mut_slice().copy_from_slice(b"key");
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.home.region().assert_open();
        // SAFETY: as in `as_slice`.
        unsafe { self.frame.secret_mut() }
    }

    /// How many bytes it holds.
    ///
    /// ```
    /// assert_eq!(zk_nalloc::SecretBuf::new(3)?.len(), 3);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub const fn len(&self) -> usize {
        self.frame.len()
    }

    /// Whether it holds none.
    ///
    /// ```
    /// assert!(zk_nalloc::SecretBuf::new(0)?.is_empty());
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What became of each measure: in force, refused and why, or not asked for.
    ///
    /// ```
    /// use zk_nalloc::SecretBuf;
    /// use zk_nalloc::secret::{Measure, State};
    ///
    /// let status = SecretBuf::new(32)?.status();
    /// assert_eq!(status.get(Measure::GuardPages), State::InForce);
    /// assert_eq!(status.get(Measure::Sealed), State::NotAskedFor);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub fn status(&self) -> Status {
        self.home.region().status()
    }

    /// What was asked for.
    ///
    /// ```
    /// use zk_nalloc::{SecretBuf, secret::Protection};
    /// assert_eq!(SecretBuf::new(32)?.protection(), Protection::standard());
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub fn protection(&self) -> Protection {
        self.home.region().protection()
    }

    /// Whether it lies in a pool.
    pub(super) const fn is_in_pool(&self) -> bool {
        matches!(self.home, Home::Slot(_))
    }

    /// Where the bytes are.
    pub(super) fn address(&self) -> usize {
        self.frame.address()
    }
}

impl Home {
    #[inline]
    fn region(&self) -> &Region {
        match self {
            Self::Own(region) => region,
            Self::Slot(slot) => slot.region(),
        }
    }

    #[inline]
    fn enter(&self, access: Access) -> Scope<'_> {
        match self.region().enter(access) {
            Ok(scope) => scope,
            Err(errno) => refused_to_open(errno),
        }
    }
}

#[cold]
fn refused_to_open(errno: Errno) -> ! {
    panic!("the kernel refused to open sealed pages: {errno}")
}

impl Region {
    fn assert_open(&self) {
        assert!(!self.is_sealed(), "a sealed secret is accessible inside of expose scopes alone");
    }
}

/// Sealed pages that could not be opened to plant a canary.
pub(super) const fn not_opened(len: usize, errno: Errno) -> MapFailed {
    MapFailed::new(len, errno, Obstacle::Measure { call: "mprotect" })
}

impl Drop for SecretBuf {
    fn drop(&mut self) {
        let region = self.home.region();
        if region.belongs_to_parent() {
            return;
        }
        let found = match region.enter(Access::Write) {
            Ok(_scope) => {
                // SAFETY: the scope holds the pages open.
                let found = unsafe { self.frame.check() };
                // SAFETY: as above.
                let wiped = unsafe { self.frame.wipe() };
                #[cfg(test)]
                super::tests::see_wiped(wiped);
                let _ = wiped;
                found
            }
            Err(_) => discard_slow(&self.home, &self.frame),
        };
        match found {
            Found::Intact => {}
            // A child sees zeros where its parent planted the canary.
            Found::Zero if region.is_inherited() => {}
            Found::Zero | Found::Broken => {
                abort("the canary beside a secret was overwritten: something wrote outside of its bounds")
            }
        }
    }
}

/// Gives the pages of a secret back, with all that they hold, where the kernel opens them for reading alone, as it does beyond
/// `RLIMIT_DATA`. Says what was found around it.
#[cold]
fn discard_slow(home: &Home, frame: &Frame) -> Found {
    // In a pool the pages are others' too.
    if let Home::Own(region) = home
        && let Ok(_scope) = region.enter(Access::Read)
    {
        // SAFETY: the scope holds the pages open.
        let found = unsafe { frame.check() };
        // SAFETY: the frame is all that lies on the pages (X3), and nobody has a reference to it: it is being dropped.
        let is_discarded = unsafe { region.discard() }.is_ok();
        // SAFETY: as for the first.
        if is_discarded && unsafe { frame.is_zero() } {
            return found;
        }
    }
    abort("the kernel refused to open the sealed pages of a secret, so it cannot be wiped")
}

#[cold]
fn abort(why: &str) -> ! {
    die(&["zk-nalloc: ", why, "; aborting"])
}

impl fmt::Debug for SecretBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretBuf({} bytes, [secret])", self.len())
    }
}

/// In a time that depends on the lengths alone. Panics if the kernel refuses to open sealed pages.
impl PartialEq for SecretBuf {
    fn eq(&self, other: &Self) -> bool {
        self.expose(|a| other.expose(|b| equal(a, b)))
    }
}

impl Eq for SecretBuf {}

/// In a time that depends on the lengths alone. Panics if the kernel refuses to open sealed pages.
impl PartialEq<[u8]> for SecretBuf {
    fn eq(&self, other: &[u8]) -> bool {
        self.expose(|a| equal(a, other))
    }
}
