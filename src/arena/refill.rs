//! What happens when a window has no room: the way to more memory.
//!
//! Why it is here: everything in this file is off the hot path, once for some 64 KiB or for a block as large.
//! Never here: waiting. Not even for the opening of more of a reserved mapping.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::parts::Body;
use super::place::Source;
use super::shared::{Refused, Want};
use super::window::{Window, footprint};
use super::{Arena, Exhausted, number};
use crate::error::MapFailed;

/// A request above this share of a window's growth does not replace a window: it is taken from the counter alone.
const LARGE_SHARE: usize = 4;

/// Chunks of two threads share no pair of cache lines.
pub(super) const CHUNK_ALIGN: usize = 128;

impl Body {
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
            Refused::NotReady(refused) => {
                Exhausted::new(layout, self.map.capacity() - self.used(), Some(refused))
            }
        }
    }
}

impl Source for Arena {
    #[inline(always)]
    fn body(&self) -> &Body {
        self.body()
    }

    #[inline(always)]
    fn window(&self) -> &Window {
        self.body().seats.window(number::offset())
    }

    fn find_slow(&self, layout: Layout) -> Result<NonNull<u8>, Exhausted> {
        let (body, me) = (self.body(), number::assigned());
        if me == number::NOBODY {
            return body.take_slow(layout);
        }
        let (seat, alone) = body.seats.taken(me);
        if alone {
            body.refill_slow(&seat.window, body.refill, 1, layout)
        } else {
            body.refill_slow(&seat.window, seat.next_step(body.chunk), CHUNK_ALIGN, layout)
        }
    }
}
