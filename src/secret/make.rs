//! The ways to make a [`SecretBuf`].
//!
//! Invariant: bytes are written in place, on pages that are protected already; whatever fails or unwinds on
//! the way drops, and so wipes, what was made so far.

use std::io::{self, Read};

use super::buf::SecretBuf;
use super::protection::Protection;
use crate::MapFailed;
use crate::error::Obstacle;
use crate::os::private::{fill_random, wipe};

impl SecretBuf {
    /// Makes a secret of `len` zero bytes with the [standard](Protection::standard) protection, best effort.
    ///
    /// # Errors
    /// When the kernel gives no memory, or no address space is that large.
    ///
    /// ```
    /// use zk_nalloc::SecretBuf;
    /// assert_eq!(SecretBuf::new(100)?.as_slice(), [0; 100]);
    /// assert!(SecretBuf::new(usize::MAX).is_err());
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn new(len: usize) -> Result<Self, MapFailed> {
        Self::with_protection(len, Protection::standard())
    }

    /// Makes a secret of `len` zero bytes with a protection of choice.
    ///
    /// # Errors
    /// As [`new`](Self::new); with [`Policy::Strict`](super::Policy::Strict) also when the kernel refuses a
    /// measure. The error then names the call, or the limit and how to raise it.
    ///
    /// ```
    /// use zk_nalloc::SecretBuf;
    /// use zk_nalloc::secret::{Policy, Protection};
    ///
    /// let strict = Protection::standard().with_policy(Policy::Strict);
    /// match SecretBuf::with_protection(32, strict) {
    ///     Ok(key) => assert!(key.status().all_in_force()),
    ///     Err(refused) => eprintln!("{refused}"),
    /// }
    /// ```
    pub fn with_protection(len: usize, protection: Protection) -> Result<Self, MapFailed> {
        Self::on_own_pages(len, protection)
    }

    /// Makes a secret of `len` bytes and has `fill` write them in place.
    ///
    /// The bytes are wiped if `fill` unwinds.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// ```
    /// use zk_nalloc::SecretBuf;
    /// let key = SecretBuf::new_with(32, |bytes| bytes.fill(7))?;
    /// assert_eq!(key.as_slice(), [7; 32]);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn new_with(len: usize, fill: impl FnOnce(&mut [u8])) -> Result<Self, MapFailed> {
        let mut secret = Self::new(len)?;
        fill(secret.as_mut_slice());
        Ok(secret)
    }

    /// Makes a secret of `len` bytes and has `fill` write them in place, or fail.
    ///
    /// The bytes are wiped if `fill` fails or unwinds.
    ///
    /// # Errors
    /// As [`new`](Self::new), and whatever `fill` returns.
    ///
    /// ```
    /// use std::io::{self, Read};
    /// use zk_nalloc::SecretBuf;
    ///
    /// let mut file: &[u8] = b"four and more";
    /// let head = SecretBuf::try_new_with(4, |bytes| file.read_exact(bytes))?;
    /// assert_eq!(head.as_slice(), b"four");
    /// # Ok::<(), io::Error>(())
    /// ```
    pub fn try_new_with<E: From<MapFailed>>(
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut secret = Self::new(len)?;
        fill(secret.as_mut_slice())?;
        Ok(secret)
    }

    /// Makes a secret of `len` bytes from the kernel's random number generator.
    ///
    /// # Errors
    /// As [`new`](Self::new), and when the kernel gives no random bytes.
    ///
    /// ```
    /// use zk_nalloc::SecretBuf;
    /// assert_ne!(SecretBuf::random(32)?, SecretBuf::random(32)?);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn random(len: usize) -> Result<Self, MapFailed> {
        let mut secret = Self::new(len)?;
        secret.fill_random()?;
        Ok(secret)
    }

    /// Moves bytes into a secret: copies them, then wipes `source`.
    ///
    /// Copies that were made of `source` before are not known here, and stay.
    ///
    /// # Errors
    /// As [`new`](Self::new); `source` is then as it was.
    ///
    /// ```
    /// use zk_nalloc::SecretBuf;
    /// let mut password = *b"hunter2";
    /// let secret = SecretBuf::from_slice_wiping(&mut password)?;
    /// assert_eq!(secret.as_slice(), b"hunter2");
    /// assert_eq!(password, [0; 7]);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn from_slice_wiping(source: &mut [u8]) -> Result<Self, MapFailed> {
        let mut secret = Self::new(source.len())?;
        secret.as_mut_slice().copy_from_slice(source);
        wipe(source);
        Ok(secret)
    }

    /// Makes a second secret with the same bytes, protection and pool. A copy, on purpose by name alone.
    ///
    /// # Errors
    /// As [`with_protection`](Self::with_protection).
    ///
    /// # Panics
    /// When the kernel refuses to open sealed pages.
    ///
    /// ```
    /// use zk_nalloc::SecretBuf;
    /// let key = SecretBuf::random(32)?;
    /// assert_eq!(key.try_clone()?, key);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn try_clone(&self) -> Result<Self, MapFailed> {
        let mut twin = self.sibling()?;
        self.expose(|from| twin.expose_mut(|to| to.copy_from_slice(from)));
        Ok(twin)
    }

    /// Overwrites the bytes with random ones from the kernel.
    ///
    /// # Errors
    /// When the kernel gives no random bytes; the secret is then zero.
    ///
    /// # Panics
    /// When the kernel refuses to open sealed pages.
    ///
    /// ```
    /// use zk_nalloc::SecretBuf;
    /// let mut key = SecretBuf::new(32)?;
    /// key.fill_random()?;
    /// assert_ne!(key.as_slice(), [0; 32]);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn fill_random(&mut self) -> Result<(), MapFailed> {
        let len = self.len();
        self.expose_mut(|bytes| {
            fill_random(bytes).map_err(|errno| {
                wipe(bytes);
                MapFailed::new(len, errno, Obstacle::Entropy)
            })
        })
    }

    /// Reads all that `reader` gives into a secret, at most `at_most` bytes.
    ///
    /// The bytes go straight to protected pages, which double as they fill up; each outgrown one is wiped. A
    /// reader that buffers keeps a copy: give it a [`File`](std::fs::File), not a
    /// [`BufReader`](std::io::BufReader) or [`Stdin`](std::io::Stdin), whose descriptor can be had as a
    /// `File` by `stdin().as_fd().try_clone_to_owned()`.
    ///
    /// The secret has the standard protection, as from [`new`](Self::new); for another see
    /// [`read_to_end_with_protection`](Self::read_to_end_with_protection). Its [`status`](Self::status) shows as refused what was
    /// refused for any pages that bytes lay on, but for one copy: where the limit holds the lock of the old pages or of the new ones but
    /// not of both, the new ones are unlocked while the bytes are copied, and locked once the old ones are gone.
    ///
    /// # Errors
    /// What the reader returns; [`FileTooLarge`](io::ErrorKind::FileTooLarge) if it gives more than `at_most`
    /// bytes; and as [`new`](Self::new).
    ///
    /// # Panics
    /// When the reader claims to have read more than it was given room for.
    ///
    /// ```
    /// use zk_nalloc::SecretBuf;
    /// let witness = SecretBuf::read_to_end(&b"private inputs"[..], 1 << 20)?;
    /// assert_eq!(witness.as_slice(), b"private inputs");
    /// assert!(SecretBuf::read_to_end(&b"private inputs"[..], 13).is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn read_to_end(reader: impl Read, at_most: usize) -> io::Result<Self> {
        Self::read_to_end_with_protection(reader, at_most, Protection::standard())
    }

    /// Reads all that `reader` gives into a secret, at most `at_most` bytes, with a protection of choice.
    ///
    /// As [`read_to_end`](Self::read_to_end); all pages that bytes lie on on the way have this protection. With
    /// [`Policy::Strict`](super::Policy::Strict) no byte is read or copied to pages that lack a measure. The limit of locked memory
    /// then has to hold up to three times what is read: the outgrown pages and those that take their place, both. Sealed pages are
    /// open while the reader is at work.
    ///
    /// # Errors
    /// As [`read_to_end`](Self::read_to_end); with [`Policy::Strict`](super::Policy::Strict) also when the kernel refuses a measure,
    /// for the first pages or for larger ones. What had been read is then wiped, and gone for the reader.
    ///
    /// # Panics
    /// As [`read_to_end`](Self::read_to_end), and when the kernel refuses to open sealed pages.
    ///
    /// ```
    /// use zk_nalloc::SecretBuf;
    /// use zk_nalloc::secret::{Policy, Protection};
    ///
    /// let strict = Protection::standard().with_policy(Policy::Strict);
    /// match SecretBuf::read_to_end_with_protection(&b"private inputs"[..], 1 << 20, strict) {
    ///     Ok(witness) => assert!(witness.status().all_in_force()),
    ///     Err(refused) => eprintln!("{refused}"),
    /// }
    /// ```
    pub fn read_to_end_with_protection(
        mut reader: impl Read,
        at_most: usize,
        protection: Protection,
    ) -> io::Result<Self> {
        // One byte more than allowed tells the end of the input from an input that is too long.
        let most = at_most.saturating_add(1);
        let mut secret = Self::with_protection(most.min(READ_FIRST), protection)?;
        let mut len = 0;
        loop {
            let most_now = secret.len() - len;
            let read = |bytes: &mut [u8]| reader.read(&mut bytes[len..]);
            match if most_now == 0 { Ok(0) } else { secret.expose_mut(read) } {
                Ok(0) if len < secret.len() => break,
                Ok(0) if len == most => return Err(io::ErrorKind::FileTooLarge.into()),
                Ok(0) => secret = secret.resized(len.saturating_mul(2).min(most), len)?,
                Ok(n) => {
                    assert!(n <= most_now, "the reader claims {n} bytes, given room for {most_now}");
                    len += n;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(secret.resized(len, len)?)
    }

    /// A secret of `len` bytes that begins with the first `keep` of this one, and is protected as it is.
    fn resized(self, len: usize, keep: usize) -> Result<Self, MapFailed> {
        let mut other = Self::with_protection(len, self.protection())?;
        self.expose(|from| other.expose_mut(|to| to[..keep].copy_from_slice(&from[..keep])));
        other.succeed(self, keep > 0);
        Ok(other)
    }
}

/// What [`SecretBuf::read_to_end`] begins with, in bytes: keys and small witnesses fit, and it locks little.
const READ_FIRST: usize = 16 << 10;
