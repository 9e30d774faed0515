//! [`Secret`]: plain data that stays private, such as an array of field elements.
//!
//! Why: a witness is words, not bytes, and a value that is built elsewhere and moved in leaves copies behind.
//! Invariants (X9): the bytes of the buffer are exactly the content's, aligned for it, and every bit pattern
//! of them is a value. Never here: a way to move the content in or out.

#![expect(unsafe_code, reason = "sees bytes as plain data")]

mod slices;

use core::fmt;
use core::marker::PhantomData;

use super::buf::SecretBuf;
use super::plain::{Contents, PlainData};
use super::pool::{FRONT, SecretPool};
use super::protection::Protection;
use super::status::Status;
use crate::MapFailed;
use crate::os::private::wipe;

/// The alignment that every secret on pages of its own can have: the smallest page of any kernel.
const ALIGN_MAX: usize = 4096;

/// Plain data that stays private: a [`SecretBuf`] seen as `T`, or as a slice of them.
///
/// The data is built in place, never moved: nothing of it passes over the stack on the way. Dropped, it may end the process as
/// a [`SecretBuf`] does.
///
/// ```
/// use zk_nalloc::Secret;
///
/// let key = Secret::<[u32; 8]>::new_with(|words| words.fill(7))?;
/// assert_eq!(key.get().iter().sum::<u32>(), 56);
///
/// let witness = Secret::<[u64]>::new_with(1 << 16, |words| {
///     for (n, word) in (0_u64..).zip(words) {
///         *word = n * n;
///     }
/// })?;
/// assert_eq!(witness.get()[300], 90_000);
/// # Ok::<(), zk_nalloc::MapFailed>(())
/// ```
///
/// Data whose bytes are not all its own, or not all values, is refused:
///
/// ```compile_fail,E0277
/// zk_nalloc::Secret::<[bool; 8]>::new();
/// ```
/// ```compile_fail,E0277
/// zk_nalloc::Secret::<(u8, u32)>::new();
/// ```
/// ```compile_fail,E0599
/// zk_nalloc::Secret::<[u8; 8]>::new().unwrap().clone();
/// ```
pub struct Secret<T: Contents + ?Sized> {
    buf: SecretBuf,
    contents: PhantomData<T>,
}

impl<T: PlainData> Secret<T> {
    /// Makes a secret whose bytes are zero.
    ///
    /// # Errors
    /// As [`SecretBuf::new`].
    ///
    /// ```
    /// assert_eq!(*zk_nalloc::Secret::<u64>::new()?.get(), 0);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn new() -> Result<Self, MapFailed> {
        Self::with_protection(Protection::standard())
    }

    /// Makes a secret whose bytes are zero, with a protection of choice.
    ///
    /// # Errors
    /// As [`SecretBuf::with_protection`].
    ///
    /// ```
    /// use zk_nalloc::{Secret, secret::Protection};
    /// let mut key = Secret::<[u64; 4]>::with_protection(Protection::sealed())?;
    /// key.expose_mut(|words| words[0] = 7);
    /// assert_eq!(key.expose(|words| words[0]), 7);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn with_protection(protection: Protection) -> Result<Self, MapFailed> {
        SecretBuf::with_protection(size_of::<T>(), protection).map(Self::of)
    }

    /// Makes a secret whose bytes are zero, in a pool. What is too large for it, or wants an alignment of
    /// more than 16 bytes, gets pages of its own with the protection of the pool.
    ///
    /// # Errors
    /// As [`SecretPool::secret`].
    ///
    /// ```
    /// use zk_nalloc::{Secret, SecretPool};
    /// let pool = SecretPool::new();
    /// let key = Secret::<[u64; 4]>::in_pool(&pool)?;
    /// assert_eq!(pool.live(), 1);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn in_pool(pool: &SecretPool) -> Result<Self, MapFailed> {
        if align_of::<T>() > FRONT {
            return Self::with_protection(pool.protection());
        }
        pool.secret(size_of::<T>()).map(Self::of)
    }

    /// Makes a secret and has `fill` write it in place; it is wiped if `fill` unwinds.
    ///
    /// # Errors
    /// As [`SecretBuf::new`].
    ///
    /// ```
    /// let key = zk_nalloc::Secret::<[u32; 8]>::new_with(|words| words[7] = 1)?;
    /// assert_eq!(key.get()[7], 1);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn new_with(fill: impl FnOnce(&mut T)) -> Result<Self, MapFailed> {
        let mut secret = Self::new()?;
        fill(secret.get_mut());
        Ok(secret)
    }

    /// Makes a secret of bytes from the kernel's random number generator.
    ///
    /// # Errors
    /// As [`SecretBuf::random`].
    ///
    /// ```
    /// use zk_nalloc::Secret;
    /// assert_ne!(Secret::<[u64; 4]>::random()?, Secret::<[u64; 4]>::random()?);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn random() -> Result<Self, MapFailed> {
        SecretBuf::random(size_of::<T>()).map(Self::of)
    }

    /// Moves a value into a secret: copies it, then wipes `source`.
    ///
    /// # Errors
    /// As [`SecretBuf::new`]; `source` is then as it was.
    ///
    /// ```
    /// let mut words = [7_u64; 4];
    /// let key = zk_nalloc::Secret::from_wiping(&mut words)?;
    /// assert_eq!((*key.get(), words), ([7; 4], [0; 4]));
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn from_wiping(source: &mut T) -> Result<Self, MapFailed> {
        // SAFETY: plain data is its bytes, all of them initialised; the reference to it is unique, and any
        // bytes are a value again.
        let bytes = unsafe { core::slice::from_raw_parts_mut((&raw mut *source).cast(), size_of::<T>()) };
        let mut secret = Self::new()?;
        secret.buf.as_mut_slice().copy_from_slice(bytes);
        wipe(bytes);
        Ok(secret)
    }

    /// On pages of its own the secret ends where the pages end, so its start is aligned as its size is.
    const fn of(buf: SecretBuf) -> Self {
        const { assert!(align_of::<T>() <= ALIGN_MAX, "no secret is aligned to more than a page") };
        Self { buf, contents: PhantomData }
    }
}

impl<T: Contents + ?Sized> Secret<T> {
    /// Calls `read` with the data; see [`SecretBuf::expose`].
    ///
    /// # Panics
    /// When the kernel refuses to open sealed pages.
    ///
    /// ```
    /// let key = zk_nalloc::Secret::<[u32; 8]>::new()?;
    /// assert_eq!(key.expose(|words| words.len()), 8);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn expose<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        // SAFETY: the buffer fits `T` (X9).
        self.buf.expose(|bytes| read(unsafe { T::view(bytes) }))
    }

    /// Calls `write` with the data; see [`SecretBuf::expose_mut`].
    ///
    /// # Panics
    /// When the kernel refuses to open sealed pages.
    ///
    /// ```
    /// let mut key = zk_nalloc::Secret::<[u32; 8]>::new()?;
    /// key.expose_mut(|words| words[0] = 1);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn expose_mut<R>(&mut self, write: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the buffer fits `T` (X9).
        self.buf.expose_mut(|bytes| write(unsafe { T::view_mut(bytes) }))
    }

    /// The data, of a secret that is not sealed.
    ///
    /// # Panics
    /// If it is sealed: see [`SecretBuf::as_slice`].
    ///
    /// ```
    /// assert_eq!(*zk_nalloc::Secret::<u32>::new()?.get(), 0);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub fn get(&self) -> &T {
        // SAFETY: the buffer fits `T` (X9).
        unsafe { T::view(self.buf.as_slice()) }
    }

    /// The data, of a secret that is not sealed, for writing.
    ///
    /// # Panics
    /// If it is sealed: see [`SecretBuf::as_mut_slice`].
    ///
    /// ```
    /// *zk_nalloc::Secret::<u32>::new()?.get_mut() = 7;
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: the buffer fits `T` (X9).
        unsafe { T::view_mut(self.buf.as_mut_slice()) }
    }

    /// Makes a second secret with the same data, protection and pool; see [`SecretBuf::try_clone`].
    ///
    /// # Errors
    /// As [`SecretBuf::with_protection`].
    ///
    /// # Panics
    /// When the kernel refuses to open sealed pages.
    ///
    /// ```
    /// let key = zk_nalloc::Secret::<[u32; 8]>::new_with(|words| words[7] = 1)?;
    /// assert_eq!(key.try_clone()?, key);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn try_clone(&self) -> Result<Self, MapFailed> {
        Ok(Self { buf: self.buf.try_clone()?, contents: PhantomData })
    }

    /// Zeroes the data now; see [`SecretBuf::wipe`].
    ///
    /// # Panics
    /// When the kernel refuses to open sealed pages.
    ///
    /// ```
    /// let mut key = zk_nalloc::Secret::<u32>::new_with(|word| *word = 7)?;
    /// key.wipe();
    /// assert_eq!(*key.get(), 0);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn wipe(&mut self) {
        self.buf.wipe();
    }

    /// What became of each measure; see [`SecretBuf::status`].
    ///
    /// ```
    /// println!("{}", zk_nalloc::Secret::<u32>::new()?.status());
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub fn status(&self) -> Status {
        self.buf.status()
    }

    /// The protection that was asked for; see [`SecretBuf::protection`].
    ///
    /// ```
    /// use zk_nalloc::{Secret, secret::Protection};
    /// assert_eq!(Secret::<u32>::new()?.protection(), Protection::standard());
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub fn protection(&self) -> Protection {
        self.buf.protection()
    }

    /// The secret as bytes, without a copy.
    ///
    /// ```
    /// let bytes = zk_nalloc::Secret::<[u32; 8]>::new()?.into_buf();
    /// assert_eq!(bytes.len(), 32);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub fn into_buf(self) -> SecretBuf {
        self.buf
    }

    /// The same bytes, whatever they are seen as.
    #[cfg(feature = "subtle")]
    pub(super) const fn buf(&self) -> &SecretBuf {
        &self.buf
    }
}

impl<T: Contents + ?Sized> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret<{}>({} bytes, [secret])", core::any::type_name::<T>(), self.buf.len())
    }
}

/// Of the bytes, in a time that depends on the lengths alone. Panics if the kernel refuses to open sealed pages.
impl<T: Contents + ?Sized> PartialEq for Secret<T> {
    fn eq(&self, other: &Self) -> bool {
        self.buf == other.buf
    }
}

impl<T: Contents + ?Sized> Eq for Secret<T> {}
