//! Homes: of which shard a block was, when it was handed out, so that it goes back there whoever frees it.
//!
//! Why it is here: where threads free what others took, each would go on with memory that was written by another processor, and lies
//! in that one's caches (measured: zeroed blocks of 16 KiB to 1.4 MiB on two processors took up to a half longer so;
//! docs/EXPERIMENTS.md, "Blocks that others free"). Other allocators give such blocks back to the heap that they are of, too.
//!
//! A table in place of a header: for each 64 KiB of addresses, modulo 32 GiB, who had the memory last in which a block begins there. It is
//! written where memory comes to a shard, not for each block, and read by frees. A hint, which nobody waits for: where it is stale, another
//! shard is given the block, whose it is from then on. Never here: what a shard does with it.

use super::shard::Shard;
use super::{Cache, SHARDS_MAX};
use crate::heap::Span;
use crate::os::Os;
// Hints of a process, not what loom is to try the orders of.
use crate::sync::process::{AtomicU32, Ordering};

/// Addresses of so many bytes have one place in the table: blocks of at least as many, which begin with a granule for their colour,
/// never share one. Where the large side begins sooner, some do.
const UNIT: usize = 64 << 10;

/// Places: 2 MiB, of which what stands for memory that no block of a class lay in is never touched: a page for 64 MiB of memory.
const PLACES: usize = 1 << 19;

/// A place has the number of a shard in its low bits, and above them which of the units is meant that share it.
const NUMBER_BITS: u32 = (SHARDS_MAX + 1).next_power_of_two().trailing_zeros();

pub(super) struct Homes([AtomicU32; PLACES]);

/// What the place of the unit that `address` lies in says, if it is the shard's of that number.
const fn said(address: usize, number: u32) -> u32 {
    ((address / UNIT / PLACES) as u32) << NUMBER_BITS | number
}

impl Homes {
    /// Bytes to be mapped for it. Zeros are a table that knows nothing.
    pub(super) const BYTES: usize = size_of::<Self>();

    #[inline]
    fn place(&self, address: usize) -> &AtomicU32 {
        &self.0[address / UNIT % PLACES]
    }

    /// Whether what begins at `start` is probably of the shard of that number. Where it is not said to be, [`Homes::of`] tells more.
    #[inline]
    pub(super) fn is_of(&self, start: usize, number: u32) -> bool {
        // Relaxed, as everywhere here: a hint. Whose unit is meant is not looked at: at worst the block stays where it is freed.
        (self.place(start).load(Ordering::Relaxed) ^ number) & ((1 << NUMBER_BITS) - 1) == 0
    }

    /// The number of the shard that had the memory last in which what begins at `start` lies; `None` where that is not known.
    pub(super) fn of(&self, start: usize) -> Option<u32> {
        let number = self.place(start).load(Ordering::Relaxed) ^ said(start, 0);
        (1..1 << NUMBER_BITS).contains(&number).then_some(number)
    }

    /// Notes that a range is the shard's of that number: for each unit in which a block of it can begin that has one to itself.
    fn note(&self, span: Span, number: u32) {
        let last = span.end().saturating_sub(UNIT).max(span.start);
        for unit in span.start / UNIT..=last / UNIT {
            let (place, is) = (self.place(unit * UNIT), said(unit * UNIT, number));
            // Mostly it is, and others need not lose the line.
            if place.load(Ordering::Relaxed) != is {
                place.store(is, Ordering::Relaxed);
            }
        }
    }
}

impl<O: Os> Cache<O> {
    /// Notes that a range has come to a shard.
    pub(super) fn note_home(&self, shard: &Shard, span: Span) {
        self.homes(shard).note(span, shard.number);
    }

    /// The same for the calling thread's shard, if it has one.
    pub(super) fn note_home_here(&self, span: Span) {
        if let Some(shard) = self.shard_slow() {
            self.note_home(shard, span);
        }
    }

    /// The shard that had last what begins at `start`, as far as that is known, whoever uses it now.
    pub(super) fn last_home_of(&self, start: usize, seen: &Shard) -> Option<&Shard> {
        self.shards().get(self.homes(seen).of(start)? as usize - 1)
    }

    /// The shard that a block is to go back to which is freed through `here`, if it is another one, and a thread lives that uses it, as
    /// far as that is known.
    pub(super) fn home_of(&self, start: usize, here: &Shard) -> Option<&Shard> {
        let number = self.homes(here).of(start).filter(|&number| number != here.number)? as usize;
        let is_used = |_: &&Shard| self.given.has(number) || self.has_in_turn();
        self.shards().get(number - 1).filter(is_used)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const fn nothing() -> Homes {
        Homes([const { AtomicU32::new(0) }; PLACES])
    }

    #[test]
    fn what_a_range_is_cut_into_is_of_the_shard_that_has_it_and_what_lies_beside_it_is_not() {
        static HOMES: Homes = nothing();
        let (start, len) = (7 * UNIT + 4096, 10 * UNIT);
        HOMES.note(Span::new(start - 3 * UNIT, 3 * UNIT), 2);
        HOMES.note(Span::new(start + len, 3 * UNIT), 3);
        HOMES.note(Span::new(start, len), 1);
        let shortest = UNIT + 4096;
        for from in (0..=len - shortest).step_by(4096) {
            assert!(HOMES.of(start + from) == Some(1) && HOMES.is_of(start + from, 1), "{from}");
        }
        assert_eq!([start - shortest, start + len].map(|start| HOMES.of(start)), [Some(2), Some(3)]);
        assert!(!HOMES.is_of(start + len, 1) && HOMES.of(64 * UNIT).is_none() && !HOMES.is_of(64 * UNIT, 1));
    }

    /// The last shard of as many as there may be, and addresses as high as they get.
    #[test]
    fn who_had_other_memory_with_the_same_place_is_not_taken_for_its_home() {
        static HOMES: Homes = nothing();
        let (there, again) = (Span::new((1 << 47) - 2 * UNIT, UNIT), (1 << 47) - 2 * UNIT - PLACES * UNIT);
        HOMES.note(there, SHARDS_MAX as u32);
        assert_eq!([HOMES.of(there.start), HOMES.of(again)], [Some(SHARDS_MAX as u32), None]);
        assert!(!HOMES.is_of(there.start, SHARDS_MAX as u32 - 1));
    }
}
