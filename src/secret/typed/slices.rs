//! Secrets of many elements: as those of one, with a length.

use core::marker::PhantomData;

use super::{ALIGN_MAX, Secret};
use crate::MapFailed;
use crate::secret::buf::SecretBuf;
use crate::secret::plain::PlainData;
use crate::secret::pool::{FRONT, SecretPool};
use crate::secret::protection::Protection;

impl<T: PlainData> Secret<[T]> {
    /// Makes a secret of `len` elements whose bytes are zero.
    ///
    /// # Errors
    /// As [`SecretBuf::new`].
    ///
    /// ```
    /// use zk_nalloc::Secret;
    /// assert_eq!(Secret::<[u64]>::new(3)?.get(), [0; 3]);
    /// assert!(Secret::<[u64]>::new(usize::MAX / 4).is_err());
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn new(len: usize) -> Result<Self, MapFailed> {
        Self::with_protection(len, Protection::standard())
    }

    /// Makes a secret of `len` elements whose bytes are zero, with a protection of choice.
    ///
    /// # Errors
    /// As [`SecretBuf::with_protection`].
    ///
    /// ```
    /// use zk_nalloc::{Secret, secret::Protection};
    /// let key = Secret::<[u64]>::with_protection(3, Protection::sealed())?;
    /// assert_eq!(key.expose(|words| words.len()), 3);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn with_protection(len: usize, protection: Protection) -> Result<Self, MapFailed> {
        Ok(Self::of(SecretBuf::with_protection(Self::bytes(len)?, protection)?))
    }

    /// Makes a secret of `len` elements whose bytes are zero, in a pool. What is too large for it, or wants an alignment of
    /// more than 16 bytes, gets pages of its own with the protection of the pool.
    ///
    /// # Errors
    /// As [`SecretPool::secret`].
    ///
    /// ```
    /// use zk_nalloc::{Secret, SecretPool};
    /// let pool = SecretPool::new();
    /// let shares = Secret::<[u64]>::in_pool(&pool, 5)?;
    /// assert_eq!((shares.len(), pool.live()), (5, 1));
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn in_pool(pool: &SecretPool, len: usize) -> Result<Self, MapFailed> {
        if align_of::<T>() > FRONT {
            return Self::with_protection(len, pool.protection());
        }
        Ok(Self::of(pool.secret(Self::bytes(len)?)?))
    }

    /// Makes a secret of `len` elements of bytes from the kernel's random number generator.
    ///
    /// # Errors
    /// As [`SecretBuf::random`].
    ///
    /// ```
    /// use zk_nalloc::Secret;
    /// assert_ne!(Secret::<[u64]>::random(4)?, Secret::<[u64]>::random(4)?);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn random(len: usize) -> Result<Self, MapFailed> {
        Ok(Self::of(SecretBuf::random(Self::bytes(len)?)?))
    }

    /// Makes a secret of `len` elements and has `fill` write them in place; wiped if `fill` unwinds.
    ///
    /// # Errors
    /// As [`SecretBuf::new`].
    ///
    /// ```
    /// let ones = zk_nalloc::Secret::<[u32]>::new_with(100, |words| words.fill(1))?;
    /// assert_eq!(ones.get().iter().sum::<u32>(), 100);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn new_with(len: usize, fill: impl FnOnce(&mut [T])) -> Result<Self, MapFailed> {
        let mut secret = Self::new(len)?;
        fill(secret.get_mut());
        Ok(secret)
    }

    /// Sees the bytes of a buffer as elements, without a copy.
    ///
    /// # Errors
    /// Gives the buffer back if its length is no whole number of elements, or its bytes are not aligned for
    /// them. On pages of their own they are, if the length fits, up to an alignment of 4,096, beyond which this does not compile; in
    /// a pool up to an alignment of 16.
    ///
    /// ```
    /// use zk_nalloc::{Secret, SecretBuf};
    /// let bytes = SecretBuf::new_with(24, |bytes| bytes[8] = 1)?;
    /// let words = Secret::<[u64]>::from_buf(bytes).unwrap();
    /// assert_eq!(words.get(), [0, 1_u64.to_le(), 0]);
    /// assert!(Secret::<[u64]>::from_buf(SecretBuf::new(25)?).is_err());
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[expect(clippy::result_large_err, reason = "a buffer that does not fit goes back to its owner")]
    pub fn from_buf(buf: SecretBuf) -> Result<Self, SecretBuf> {
        const { assert!(size_of::<T>() != 0, "a slice of nothing has no length in bytes") };
        const { assert!(align_of::<T>() <= ALIGN_MAX, "no secret is aligned to more than a page") };
        // Where it lies by chance says nothing of where a clone will (X9).
        let has_clones_aligned = align_of::<T>() <= FRONT || !buf.is_in_pool();
        let fits = has_clones_aligned
            && buf.len().is_multiple_of(size_of::<T>())
            && buf.address().is_multiple_of(align_of::<T>());
        if fits { Ok(Self { buf, contents: PhantomData }) } else { Err(buf) }
    }

    /// How many elements it holds. Opens no seal.
    ///
    /// ```
    /// use zk_nalloc::{Secret, secret::Protection};
    /// assert_eq!(Secret::<[u64]>::with_protection(3, Protection::sealed())?.len(), 3);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub const fn len(&self) -> usize {
        self.buf.len() / size_of::<T>()
    }

    /// Whether it holds none.
    ///
    /// ```
    /// assert!(zk_nalloc::Secret::<[u64]>::new(0)?.is_empty());
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// So many bytes are `len` elements.
    fn bytes(len: usize) -> Result<usize, MapFailed> {
        len.checked_mul(size_of::<T>()).ok_or(MapFailed::absurd(usize::MAX))
    }

    /// Its bytes are a whole number of elements, aligned as on pages of its own or in a pool (X9).
    const fn of(buf: SecretBuf) -> Self {
        const { assert!(size_of::<T>() != 0, "a slice of nothing has no length in bytes") };
        const { assert!(align_of::<T>() <= ALIGN_MAX, "no secret is aligned to more than a page") };
        Self { buf, contents: PhantomData }
    }
}
