//! A hash table of blocks by address, in a mapping of its own; linear probing, nothing is ever taken out.
//!
//! A block that was freed stays as such until its place is needed: that is how a second free of it is told from a
//! free of what never was a block, and how free memory that was written to is told by the name it had.

#![expect(unsafe_code, reason = "the entries lie in a mapping")]

use core::alloc::Layout;

use crate::os::{GRANULE, Os};

/// Mappings are multiples of this: of the largest page that a kernel has.
const PAGE_MAX: usize = 64 << 10;

/// A block, live or freed. All zero: a place that is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) p: usize,
    pub(super) size: usize,
    align_log2: u8,
    pub(super) live: bool,
    /// Counts births and deaths: when this was the last.
    when: u64,
}

impl Entry {
    pub(super) fn layout(&self) -> Layout {
        Layout::from_size_align(self.size, 1 << self.align_log2).unwrap_or(Layout::new::<u8>())
    }
}

/// Entries of the first table.
const FIRST: usize = 4096;

const fn bytes(places: usize) -> usize {
    (places * size_of::<Entry>()).next_multiple_of(PAGE_MAX)
}

/// A table: an array of zeroed places, a power of two of them.
#[derive(Debug)]
pub(super) struct Table {
    address: usize,
    places: usize,
    /// Places taken, and those of live blocks.
    used: usize,
    live: usize,
    clock: u64,
    /// The thread that is about to fork, or 0.
    pub(super) forking: u64,
}

impl Table {
    pub(super) const fn new() -> Self {
        Self { address: 0, places: 0, used: 0, live: 0, clock: 0, forking: 0 }
    }

    fn entries(&self) -> &[Entry] {
        if self.places == 0 {
            return &[];
        }
        // SAFETY: `address` is a mapping of ours of `places` entries, zeroed when it was mapped, which is an entry;
        // it is reached through `self` alone.
        unsafe { core::slice::from_raw_parts(core::ptr::with_exposed_provenance(self.address), self.places) }
    }

    fn entries_mut(&mut self) -> &mut [Entry] {
        if self.places == 0 {
            return &mut [];
        }
        // SAFETY: as in `entries`, and `&mut self` is the only way there.
        unsafe {
            core::slice::from_raw_parts_mut(core::ptr::with_exposed_provenance_mut(self.address), self.places)
        }
    }

    /// Where `p` is, or the place it would get; `None` in a table without room for it.
    fn place(&self, p: usize) -> Option<usize> {
        let mask = self.places.checked_sub(1)?;
        let first = (p >> 6).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 17;
        let mut freed = None;
        for step in 0..self.places {
            let at = (first + step) & mask;
            let entry = &self.entries()[at];
            if entry.p == p {
                return Some(at);
            }
            if entry.p == 0 {
                return Some(at);
            }
            if !entry.live && freed.is_none() {
                freed = Some(at);
            }
        }
        // Full: whoever comes takes the place of one that was freed.
        freed
    }

    pub(super) fn find(&self, p: usize) -> Option<Entry> {
        let entry = self.entries()[self.place(p)?];
        (entry.p == p).then_some(entry)
    }

    /// Sees to it that half of the table stays free, as far as the kernel lets it; `false` if all of it is live.
    pub(super) fn make_room<O: Os>(&mut self, os: &O) -> bool {
        if (self.used + 1) * 2 <= self.places {
            return true;
        }
        let places = if self.live * 4 >= self.places { (self.places * 2).max(FIRST) } else { self.places };
        let Ok(address) = os.map(bytes(places), GRANULE) else { return self.live < self.places };
        let mut grown = Self { address, places, used: 0, live: 0, clock: self.clock, forking: self.forking };
        // Of those that were freed, the ones that were last: as many as leave three quarters of it free.
        let since = self.clock.saturating_sub(places as u64 / 8);
        for entry in self.entries().iter().filter(|entry| entry.live || (entry.p != 0 && entry.when >= since))
        {
            grown.put(*entry);
        }
        let (old, old_places) = (self.address, self.places);
        *self = grown;
        if old_places > 0 {
            let _ = os.unmap(old, bytes(old_places));
        }
        true
    }

    fn put(&mut self, entry: Entry) -> bool {
        let Some(at) = self.place(entry.p) else { return false };
        let before = self.entries()[at];
        self.used += usize::from(before.p == 0);
        self.live = self.live + usize::from(entry.live) - usize::from(before.live);
        self.entries_mut()[at] = entry;
        true
    }

    /// Puts a live block in; `false` if there is no place.
    pub(super) fn put_live(&mut self, p: usize, layout: Layout) -> bool {
        self.clock += 1;
        let align_log2 = layout.align().ilog2() as u8;
        self.put(Entry { p, size: layout.size(), align_log2, live: true, when: self.clock })
    }

    /// Makes a live block a freed one.
    pub(super) fn put_freed(&mut self, p: usize) {
        self.clock += 1;
        let when = self.clock;
        if let Some(entry) = self.find(p) {
            self.put(Entry { live: false, when, ..entry });
        }
    }

    /// Of the freed blocks that `address` lay in, the one that was freed last.
    pub(super) fn last_freed_around(&self, address: usize) -> Option<Entry> {
        let around = |entry: &&Entry| !entry.live && entry.p <= address && address - entry.p < entry.size;
        self.entries().iter().filter(around).max_by_key(|entry| entry.when).copied()
    }
}
