//! What happens when a window has no room: the owner's and the workers' way to more memory, and everybody else's.
//!
//! Why it is here: everything in this file is off the hot path, once for some 64 KiB or for a block as large.
//! Never here: waiting. The one lock on this way is that of opening more of a reserved mapping.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::place::Source;
use super::shared::{Refused, Want};
use super::window::{Window, footprint};
use super::{Arena, Exhausted, owner};
use crate::error::MapFailed;
use crate::sync::atomic::Ordering::Relaxed;

/// A request above this share of a window's growth does not replace a window: it is taken from the counter alone.
const LARGE_SHARE: usize = 4;

/// Chunks of two threads share no pair of cache lines.
pub(super) const CHUNK_ALIGN: usize = 128;

impl Arena {
    /// Hands out a block from `window`, after having got it more memory: right behind it where that is free, else
    /// elsewhere, about `chunk` bytes at a multiple of `align`.
    pub(super) fn refill_slow(
        &self,
        window: &Window,
        chunk: usize,
        align: usize,
        layout: Layout,
    ) -> Result<NonNull<u8>, Exhausted> {
        if let Some(block) = window.bump(layout) {
            return Ok(block);
        }
        let (cursor, limit) = window.get();
        let ready = |end| self.map.ready(end);
        let mut want = Want { least: layout, most: chunk, end: self.map.end() };
        let grown = self.shared.0.extend(cursor.addr(), limit.addr(), want, ready);
        match grown.map_err(|why| self.exhausted(layout, why))? {
            Some(end) => window.set(cursor, self.map.at(end)),
            None if footprint(layout.size()) > chunk / LARGE_SHARE => return self.take_slow(layout),
            None => {
                want.least = layout.align_to(align).unwrap_or(layout);
                let range = self.shared.0.take(want, ready).map_err(|why| self.exhausted(layout, why))?;
                window.set(self.map.at(range.start), self.map.at(range.end));
            }
        }
        Ok(window.bump(layout).expect("the window was made large enough"))
    }

    /// Hands out a block for which the stripe of this thread, if there is one, has no room; from the counter where it can
    /// have none. `owner` says whether the arena's own window is this thread's.
    fn stripe_slow(&self, me: u64, owner: bool, layout: Layout) -> Result<NonNull<u8>, Exhausted> {
        // Everybody reads the line of the arena's own window in vain before coming here, which costs little unless
        // the owner keeps writing to it. A closed key sends the owner here too, where it moves to a stripe.
        if self.stripes.share() {
            self.window.0.1.close(self.map.start());
        }
        let stripe = match self.stripes.mine(me) {
            Some(stripe) => stripe,
            None => match self.stripes.claim_slow(me) {
                Some(stripe) => stripe,
                None => return self.take_slow(layout),
            },
        };
        if owner {
            self.hand_over(&stripe.window);
        }
        self.refill_slow(&stripe.window, stripe.next_step(self.chunk), CHUNK_ALIGN, layout)
    }

    /// Moves the arena's own window, which is this thread's, to `stripe`, which is too, if there is more in it.
    fn hand_over(&self, stripe: &Window) {
        let window = &self.window.0.0;
        if window.room() > stripe.room() {
            let (cursor, limit) = window.get();
            stripe.set(cursor, limit);
            // Empty, at an address where no block ends.
            window.set(self.map.at(self.map.start()), self.map.at(self.map.start()));
            // Closes it: we may have set it for the window that has gone just after another thread had closed it.
            self.set_key();
        }
    }

    /// Hands out a block from the shared counter.
    pub(super) fn take_slow(&self, layout: Layout) -> Result<NonNull<u8>, Exhausted> {
        let want = Want { least: layout, most: 0, end: self.map.end() };
        match self.shared.0.take(want, |end| self.map.ready(end)) {
            Ok(range) => Ok(NonNull::new(self.map.at(range.start)).expect("no arena lies at address zero")),
            Err(why) => Err(self.exhausted(layout, why)),
        }
    }

    #[cold]
    fn exhausted(&self, layout: Layout, why: Refused<MapFailed>) -> Exhausted {
        match why {
            Refused::Full { left } => Exhausted::new(layout, left, None),
            Refused::NotReady(refused) => Exhausted::new(layout, self.remaining(), Some(refused)),
        }
    }
}

impl Source for Arena {
    #[inline(always)]
    fn arena(&self) -> &Arena {
        self
    }

    #[inline(always)]
    fn window(&self) -> Option<&Window> {
        // Relaxed: the tag is ours only if we wrote it, or who held the arena exclusively before us (R7).
        (self.owner.load(Relaxed) == owner::current()).then_some(&self.window.0.0)
    }

    #[inline(always)]
    fn bump_fixed(&self, layout: Layout) -> Option<NonNull<u8>> {
        // Both are known when this is compiled.
        if layout.size() > owner::BLOCK_MAX / 2 || layout.align() > owner::BLOCK_MAX / 2 {
            return None;
        }
        let (window, key) = &self.window.0;
        window.bump_if(layout, |end| key.fits(end))
    }

    #[inline(always)]
    fn bump_elsewhere(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.stripes.mine(owner::current())?.window.bump(layout)
    }

    #[cfg(any(feature = "allocator-api2", feature = "nightly"))]
    fn any_window(&self) -> Option<&Window> {
        self.stripes.mine(owner::current()).map(|stripe| &stripe.window).or_else(|| self.window())
    }

    #[cfg(any(feature = "allocator-api2", feature = "nightly"))]
    fn window_moved(&self) {
        if self.owner.load(Relaxed) == owner::current() {
            self.set_key();
        }
    }

    fn find_slow(&self, layout: Layout) -> Result<NonNull<u8>, Exhausted> {
        let me = owner::assigned();
        // Looked at before it is claimed: an exchange that fails would still take the cache line from everybody.
        // Relaxed: the window was last written by who held the arena exclusively, which happened before (R8).
        let mut owner = self.owner.load(Relaxed);
        if owner == owner::NOBODY && me != owner::NEW {
            owner = self
                .owner
                .compare_exchange(owner::NOBODY, me, Relaxed, Relaxed)
                .map_or_else(|now| now, |_| me);
        }
        if owner != me || self.stripes.shared() {
            return self.stripe_slow(me, owner == me, layout);
        }
        let block = self.refill_slow(&self.window.0.0, self.refill, 1, layout);
        self.set_key();
        block
    }
}
