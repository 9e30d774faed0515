//! [`SecretPool`]: many small secrets on few locked pages.
//!
//! Why: a secret on pages of its own locks at least a page, so 2,048 keys exhaust the usual 8 MiB. Here
//! secrets of one size class share *chunks*: guarded regions cut into slots, with canaries between them.
//!
//! Invariants (X6, X7): a slot's bit is set from its claim until its frame is wiped; a free slot is zero;
//! chunks are added, never removed, and live as long as the pool or any secret of it. No lock is held, so
//! that a fork at any moment leaves a usable pool: a child makes chunks of its own.
//! Never here: secrets larger than the largest class; they get pages of their own.

#![expect(unsafe_code, reason = "follows the list of chunks and hands out slots")]

use core::fmt;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Arc;

use super::buf::{SecretBuf, not_opened};
use super::chunk::Chunk;
use super::frame::Frame;
use super::protection::{Measure, Protection};
use super::region::Region;
use super::status::State;
use crate::MapFailed;
use crate::os::private::{Access, page_size};

/// Bytes of canary in front of a secret; also the alignment of every secret in a pool.
pub(super) const FRONT: usize = 16;
/// Bytes of canary at least behind a secret.
const REAR: usize = 8;
/// Bytes from one slot to the next. Two classes for each doubling waste a third at most, and the smallest
/// holds the half of a 256-bit key; the largest lets two secrets share the smallest page.
const STRIDES: [usize; 12] = [48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048];
/// A chunk is twice as large as the one before it, up to this: small pools lock little, large ones have few.
const CHUNK_MAX: usize = 1 << 20;

/// The class whose slots hold `len` bytes; `None` if no class does.
fn class_of(len: usize) -> Option<usize> {
    STRIDES.iter().position(|&stride| len <= stride - FRONT - REAR)
}

/// Packs small secrets of one [`Protection`] into few locked pages.
///
/// The chunks of a pool have guard pages around them; each secret has canaries on both sides, checked when
/// it is dropped. A one-byte overrun inside a pool is therefore seen later than on pages of its own. Sealed
/// secrets of a pool share their seal: while one is exposed, so are its neighbours.
///
/// Secrets of more than [`SLOT_MAX`](Self::SLOT_MAX) bytes get pages of their own. Memory is given back when
/// the pool and all its secrets are gone.
///
/// ```
/// use zk_nalloc::SecretPool;
///
/// let pool = SecretPool::new();
/// let keys: Vec<_> = (0..1000).map(|_| pool.random(32)).collect::<Result<_, _>>()?;
/// assert_eq!(pool.live(), 1000);
/// assert!(pool.page_bytes() < 200 << 10);
/// drop(keys);
/// assert_eq!(pool.live(), 0);
/// # Ok::<(), zk_nalloc::MapFailed>(())
/// ```
pub struct SecretPool(Arc<Inner>);

struct Inner {
    protection: Protection,
    /// The newest chunk of each class.
    heads: [AtomicPtr<Chunk>; STRIDES.len()],
}

impl SecretPool {
    /// The longest secret in bytes that shares pages with others.
    pub const SLOT_MAX: usize = STRIDES[STRIDES.len() - 1] - FRONT - REAR;

    /// Makes a pool with the [standard](Protection::standard) protection. Maps nothing yet.
    ///
    /// ```
    /// assert_eq!(zk_nalloc::SecretPool::new().page_bytes(), 0);
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::with_protection(Protection::standard())
    }

    /// Makes a pool whose secrets all have `protection`. Maps nothing yet.
    ///
    /// ```
    /// use zk_nalloc::SecretPool;
    /// use zk_nalloc::secret::Protection;
    ///
    /// let pool = SecretPool::with_protection(Protection::sealed());
    /// assert!(pool.random(32)?.expose(|key| key.iter().any(|&b| b != 0)));
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub fn with_protection(protection: Protection) -> Self {
        Self(Arc::new(Inner { protection, heads: [const { AtomicPtr::new(null_mut()) }; STRIDES.len()] }))
    }

    /// Makes a secret of `len` zero bytes.
    ///
    /// # Errors
    /// As [`SecretBuf::with_protection`].
    ///
    /// ```
    /// let mut key = zk_nalloc::SecretPool::new().secret(32)?;
    /// key.as_mut_slice().fill(7);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn secret(&self, len: usize) -> Result<SecretBuf, MapFailed> {
        Inner::secret(&self.0, len)
    }

    /// Makes a secret of `len` bytes from the kernel's random number generator.
    ///
    /// # Errors
    /// As [`SecretBuf::with_protection`], and when the kernel gives no random bytes.
    ///
    /// ```
    /// let pool = zk_nalloc::SecretPool::new();
    /// assert_ne!(pool.random(32)?, pool.random(32)?);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn random(&self, len: usize) -> Result<SecretBuf, MapFailed> {
        let mut secret = self.secret(len)?;
        secret.fill_random()?;
        Ok(secret)
    }

    /// How many secrets live in slots of the pool now.
    #[must_use]
    pub fn live(&self) -> usize {
        self.0.chunks().map(Chunk::live).sum()
    }

    /// Bytes of the pages that hold the slots, guard pages aside.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.0.chunks().map(|chunk| chunk.region().len()).sum()
    }

    /// What every secret of the pool asks for.
    #[must_use]
    pub fn protection(&self) -> Protection {
        self.0.protection
    }
}

impl Default for SecretPool {
    /// As [`SecretPool::new`].
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SecretPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretPool({} secrets on {} bytes)", self.live(), self.page_bytes())
    }
}

impl Inner {
    fn secret(this: &Arc<Self>, len: usize) -> Result<SecretBuf, MapFailed> {
        let Some(class) = class_of(len) else { return SecretBuf::with_protection(len, this.protection) };
        let found = this.chunks_of(class).find_map(|chunk| Some((chunk, chunk.take()?)));
        let (chunk, index) = match found {
            Some(found) => found,
            None => (this.grow_slow(class)?, 0),
        };
        // Gives the bit back, should anything below fail.
        let slot = Slot { pool: Arc::clone(this), chunk: NonNull::from(chunk), index };
        let region = slot.region();
        let scope = region.enter(Access::Write).map_err(|errno| not_opened(len, errno))?;
        let stride = STRIDES[class];
        // SAFETY: slot `index` lies inside the chunk's pages, open inside the scope, initialised (X5), and is
        // ours until `slot` gives it back, after the frame was wiped (X6); `FRONT + len + REAR <= stride`.
        let frame = unsafe { Frame::plant(region.start().add(index * stride), stride, FRONT, len) };
        drop(scope);
        Ok(SecretBuf::in_slot(frame, slot))
    }

    /// All chunks, class by class.
    fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        (0..STRIDES.len()).flat_map(|class| self.chunks_of(class))
    }

    /// The chunks of a class, the newest first.
    fn chunks_of(&self, class: usize) -> impl Iterator<Item = &Chunk> {
        // Acquire: pairs with the release that published the chunk, so that it is seen whole.
        let mut at = self.heads[class].load(Ordering::Acquire);
        core::iter::from_fn(move || {
            // SAFETY: a published chunk lives as long as the pool (X7), which `self` borrows.
            let chunk = unsafe { at.as_ref() }?;
            at = chunk.next();
            Some(chunk)
        })
    }

    /// Adds a chunk whose first slot is taken already.
    #[cold]
    fn grow_slow(&self, class: usize) -> Result<&Chunk, MapFailed> {
        let newest = self.chunks_of(class).next().map_or(0, |chunk| chunk.region().len());
        let region = self.region((2 * newest).clamp(page_size(), CHUNK_MAX.max(page_size())))?;
        let chunk = NonNull::from(Box::leak(Box::new(Chunk::new(region, STRIDES[class]))));
        // SAFETY: published chunks live as long as the pool (X7), which `self` borrows; ours is published
        // below before anyone can drop the pool.
        let chunk_ref = unsafe { chunk.as_ref() };
        let head = &self.heads[class];
        // Relaxed: the exchange below is what counts.
        let mut newest = head.load(Ordering::Relaxed);
        loop {
            chunk_ref.set_next(newest);
            // Release: publishes the chunk whole, and with it the list behind it.
            match head.compare_exchange_weak(newest, chunk.as_ptr(), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok(chunk_ref),
                Err(now) => newest = now,
            }
        }
    }

    /// Maps `bytes` bytes, or less where a limit lets less be locked. Where nothing can be locked it is the
    /// policy that decides, and best effort takes the full size.
    fn region(&self, bytes: usize) -> Result<Region, MapFailed> {
        let mut part = bytes;
        loop {
            let region = Region::new(part, self.protection);
            let refused = match &region {
                Ok(region) => matches!(region.status().get(Measure::MemoryLock), State::Refused(_)),
                Err(_) => true,
            };
            if !refused {
                return region;
            }
            if part <= page_size() {
                return if region.is_ok() && part < bytes {
                    Region::new(bytes, self.protection)
                } else {
                    region
                };
            }
            part = (part / 2).next_multiple_of(page_size());
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for head in &mut self.heads {
            let mut at = *head.get_mut();
            while !at.is_null() {
                // SAFETY: nobody has the pool any more, nor a slot, which holds the pool; so nobody has the
                // chunk (X7), and it came from a `Box`.
                let chunk = unsafe { Box::from_raw(at) };
                at = chunk.next();
            }
        }
    }
}

/// A claimed slot; gives it back when dropped, after its frame was wiped.
pub(super) struct Slot {
    pool: Arc<Inner>,
    chunk: NonNull<Chunk>,
    index: usize,
}

// SAFETY: the pool is `Send` and `Sync`, the chunk is reached by `&` alone and is `Sync`, and lives as long
// as the pool (X7).
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    #[inline]
    fn chunk(&self) -> &Chunk {
        // SAFETY: the chunk lives as long as the pool (X7), which the slot holds.
        unsafe { self.chunk.as_ref() }
    }

    #[inline]
    pub(super) fn region(&self) -> &Region {
        self.chunk().region()
    }

    /// Makes another secret of `len` bytes in the same pool.
    pub(super) fn another(&self, len: usize) -> Result<SecretBuf, MapFailed> {
        Inner::secret(&self.pool, len)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.chunk().give(self.index);
    }
}

const _: () = {
    const fn sync<T: Send + Sync>() {}
    sync::<Chunk>();
    sync::<Inner>();
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_has_the_smallest_class_that_holds_it() {
        for len in 0..=SecretPool::SLOT_MAX {
            let class = class_of(len).unwrap();
            assert!(FRONT + len + REAR <= STRIDES[class]);
            assert!(class == 0 || FRONT + len + REAR > STRIDES[class - 1]);
        }
        assert_eq!(class_of(SecretPool::SLOT_MAX + 1), None);
        assert_eq!(class_of(usize::MAX), None);
        assert!(STRIDES.iter().all(|stride| stride % FRONT == 0), "every slot is aligned");
    }
}
