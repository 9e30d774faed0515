//! The shards: where they lie, and which of them a thread uses.
//!
//! One for good, given in turn, with nothing to undo when the thread ends (C1). Never here: what is in a shard.

#![expect(unsafe_code, reason = "the shards live in memory mapped by the os layer")]

use core::cell::Cell;

use super::shard::Shard;
use super::{Cache, SHARDS_MAX};
use crate::os::{GRANULE, Os};
use crate::sync::atomic::Ordering;

#[cfg(all(test, loom))]
loom::thread_local! {
    pub(super) static SHARD: Cell<usize> = Cell::new(0);
}

#[cfg(not(all(test, loom)))]
thread_local! {
    /// Which shard this thread uses, plus one; 0 before it has one. Without a destructor, so that it can be
    /// read while a thread ends; a thread that ends leaves nothing behind (C1).
    pub(super) static SHARD: Cell<usize> = const { Cell::new(0) };
}

/// Which shard a thread uses, if it has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mine(usize);

impl Mine {
    /// The calling thread's. To be asked first of all: in a library compiled for any place in a program it is a call, over which
    /// registers are saved, and the linker replaces that later.
    #[inline]
    pub(crate) fn now() -> Self {
        Self(SHARD.with(Cell::get))
    }
}

/// Maps memory for so many shards and writes them there; `None` if the kernel refuses.
pub(super) fn map<O: Os>(os: &O, page: usize, count: usize) -> Option<*mut Shard> {
    let bytes = (count * size_of::<Shard>()).next_multiple_of(page.max(GRANULE));
    let address = os.map(bytes, GRANULE).ok()?;
    let shards: *mut Shard = core::ptr::with_exposed_provenance_mut(address);
    for i in 0..count {
        // SAFETY: the mapping is fresh, ours, aligned to a page and long enough for `count` shards.
        unsafe { shards.add(i).write(Shard::new()) };
    }
    Some(shards)
}

impl<O: Os> Cache<O> {
    /// The shards, wherever they are kept; null before the first request and while a thread forks.
    pub(super) fn shards_now(&self) -> *mut Shard {
        // Acquire: pairs with the release in `start`, so that the shards and settings are seen whole.
        let shards = self.steady.shards.load(Ordering::Acquire);
        if shards.is_null() { self.shards_careful.load(Ordering::Acquire) } else { shards }
    }

    /// All shards; none before the first request.
    pub(super) fn shards(&self) -> &[Shard] {
        self.all_of(self.shards_now())
    }

    /// All of `shards`, which are all there are, or null.
    pub(super) fn all_of(&self, shards: *mut Shard) -> &[Shard] {
        if shards.is_null() {
            return &[];
        }
        // SAFETY: `map` wrote `shard_count` shards there before `start` published the pointer, for ever; they
        // are shared, and all that changes in them is behind a lock or atomic.
        unsafe { core::slice::from_raw_parts(shards, self.steady.shard_count.load(Ordering::Relaxed)) }
    }

    /// The calling thread's shard, once the cache is ready, unless all have to take the slow path.
    #[inline]
    pub(super) fn shard(&self) -> Option<&Shard> {
        // Acquire: pairs with the release in `start`.
        self.shard_of(self.steady.shards.load(Ordering::Acquire))
    }

    /// As [`Cache::shard`], if the thread has had one before: without a call.
    #[inline]
    pub(super) fn shard_at_hand(&self, mine: Mine) -> Option<&Shard> {
        // Acquire: pairs with the release in `start`.
        let shards = self.steady.shards.load(Ordering::Acquire);
        if mine.0 == 0 || shards.is_null() { None } else { Some(self.nth_of(shards, mine.0)) }
    }

    /// The calling thread's shard, once the cache is ready.
    pub(super) fn shard_slow(&self) -> Option<&Shard> {
        self.shard_of(self.shards_now())
    }

    /// The calling thread's one of `shards`, which are all there are, or null.
    #[inline]
    fn shard_of(&self, shards: *mut Shard) -> Option<&Shard> {
        if shards.is_null() {
            return None;
        }
        let mut mine = SHARD.with(Cell::get);
        if mine == 0 {
            mine = self.assign_slow();
        }
        Some(self.nth_of(shards, mine))
    }

    /// The shard of the thread whose number is `mine`, from one on, among `shards`, which are all there are, and not null.
    #[inline]
    fn nth_of(&self, shards: *mut Shard, mine: usize) -> &Shard {
        // The count is a power of two; another cache, in a test, may have fewer shards.
        let mask = self.steady.shard_count.load(Ordering::Relaxed) - 1;
        // SAFETY: as in `all_of`: both callers have seen that there are any, and the masked index is under the count, whatever
        // `mine` is.
        unsafe { &*shards.add(mine.wrapping_sub(1) & mask) }
    }

    #[cold]
    fn assign_slow(&self) -> usize {
        // Relaxed: any distribution is right, an even one is fast.
        let mine = self.next.fetch_add(1, Ordering::Relaxed) % SHARDS_MAX + 1;
        SHARD.with(|shard| shard.set(mine));
        mine
    }
}
