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
    /// The secret has the standard protection, as from [`new`](Self::new). Its [`status`](Self::status) shows as refused what was
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
    pub fn read_to_end(mut reader: impl Read, at_most: usize) -> io::Result<Self> {
        // One byte more than allowed tells the end of the input from an input that is too long.
        let most = at_most.saturating_add(1);
        let mut secret = Self::new(most.min(READ_FIRST))?;
        let mut len = 0;
        loop {
            let room = &mut secret.as_mut_slice()[len..];
            let most_now = room.len();
            match if room.is_empty() { Ok(0) } else { reader.read(room) } {
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

    /// A secret of `len` bytes that begins with the first `keep` of this one.
    fn resized(self, len: usize, keep: usize) -> Result<Self, MapFailed> {
        let mut other = Self::new(len)?;
        other.as_mut_slice()[..keep].copy_from_slice(&self.as_slice()[..keep]);
        other.succeed(self, keep > 0);
        Ok(other)
    }
}

/// What [`SecretBuf::read_to_end`] begins with, in bytes: keys and small witnesses fit, and it locks little.
const READ_FIRST: usize = 16 << 10;
