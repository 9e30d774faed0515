//! The address space that the heap has mapped, and where the kernel's VMAs end in it.
//!
//! A reserved region keeps a word per chunk: how far the chunk's pages have been moved from where the
//! kernel first saw them (its VMA's page offset less its own). Neighbouring chunks with one such shift can share a VMA;
//! where it changes there is a seam. Seams are counted, because each costs `fork` 5 to 15 µs and a process has 65,530 VMAs.
//! Plain regions (where no reservation was to be had) know no shifts: in them nothing is moved.

#![expect(unsafe_code, reason = "the words per chunk live in memory mapped by the os layer")]

use core::sync::atomic::{AtomicI32, Ordering};

use super::pieces::Span;
use crate::os::{CHUNK, GRANULE, Os};

/// Where a region's memory came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Reserved inaccessible, opened in steps.
    Reserved,
    /// Mapped accessible at once; what is free of it is unmapped.
    Plain,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) span: Span,
    pub(crate) kind: Kind,
    /// Address of an `AtomicI32` for each chunk; 0 in a plain region.
    shifts: usize,
}

/// How many regions there can be. A reservation is one; plain regions grow with what is mapped, by an eighth, and are cut as long
/// as they are few.
const REGIONS_MAX: usize = 512;

/// Plain regions beyond which none is cut any more: what a block in use leaves of one that is cut stays a region for as long,
/// and each next one that is mapped is another. Whole, it serves the next blocks.
const FEW: usize = REGIONS_MAX / 4;

pub(crate) struct Regions {
    /// Sorted by address.
    list: [Region; REGIONS_MAX],
    count: usize,
    seams: usize,
    /// Bytes of the regions that are lost and could not be cut out.
    holes: usize,
}

const NONE: Region = Region { span: Span::new(0, 0), kind: Kind::Plain, shifts: 0 };

impl Regions {
    pub(crate) const fn new() -> Self {
        Self { list: [NONE; REGIONS_MAX], count: 0, seams: 0, holes: 0 }
    }

    pub(crate) fn all(&self) -> &[Region] {
        &self.list[..self.count]
    }

    /// Whether none can be added. With a hole in a region none is, since it might come to lie in there.
    pub(crate) const fn is_full(&self) -> bool {
        self.count == REGIONS_MAX || self.holes > 0
    }

    /// Bytes that are lost and still in a region.
    #[cfg(any(test, zk_nalloc_proof))]
    pub(crate) const fn holes(&self) -> usize {
        self.holes
    }

    /// Whether plain regions may be cut.
    pub(crate) const fn are_few(&self) -> bool {
        self.count <= FEW
    }

    /// Whether a plain region may lose its front, or what lies between its blocks, which makes two of it for as long as it has any.
    pub(crate) const fn may_lose(&self, is_front: bool) -> bool {
        self.count <= if is_front { FEW } else { FEW / 2 }
    }

    /// Places where neighbouring chunks cannot share a VMA.
    pub(crate) const fn seams(&self) -> usize {
        self.seams
    }

    /// Adds a region; a reserved one gets its words, or `false` if the kernel refuses memory for them.
    pub(crate) fn add<O: Os>(&mut self, span: Span, kind: Kind, os: &O) -> bool {
        if self.is_full() {
            return false;
        }
        let mut shifts = 0;
        if kind == Kind::Reserved {
            let bytes = (span.len / CHUNK * size_of::<AtomicI32>()).next_multiple_of(GRANULE << 4);
            match os.map(bytes, GRANULE) {
                Ok(address) => shifts = address,
                Err(_) => return false,
            }
        }
        let at = self.all().partition_point(|r| r.span.start < span.start);
        self.list.copy_within(at..self.count, at + 1);
        self.list[at] = Region { span, kind, shifts };
        self.count += 1;
        true
    }

    /// Whether two regions touch: at a multiple of a chunk, where all of them begin and end.
    pub(crate) fn any_touch(&self) -> bool {
        self.all().windows(2).any(|pair| pair[0].span.end() == pair[1].span.start)
    }

    /// Forgets a plain region, which its caller unmaps.
    pub(crate) fn forget(&mut self, start: usize) {
        if let Some(at) = self.all().iter().position(|r| r.span.start == start) {
            self.list.copy_within(at + 1..self.count, at);
            self.count -= 1;
        }
    }

    /// Cuts a range, whole chunks, out of its region: one that is lost for ever, or of a plain region what its caller unmaps. Somebody else
    /// may be mapped there then, and so may what we map next.
    pub(crate) fn lose(&mut self, span: Span) {
        let region = self.of(span.start);
        if self.count == REGIONS_MAX {
            self.holes += span.len;
            return;
        }
        self.seams -= self.seams_around(&region, span);
        let Some(at) = self.all().iter().position(|r| r.span.start == region.span.start) else { return };
        let words = (span.end() - region.span.start) / CHUNK * size_of::<AtomicI32>();
        let shifts = if region.shifts == 0 { 0 } else { region.shifts + words };
        self.list[at].span = Span::between(region.span.start, span.start);
        self.list.copy_within(at + 1..self.count, at + 2);
        self.list[at + 1] = Region { span: Span::between(span.end(), region.span.end()), shifts, ..region };
        self.count += 1;
        // Either may be nothing.
        for at in [at + 1, at] {
            if self.list[at].span.is_empty() {
                self.list.copy_within(at + 1..self.count, at);
                self.count -= 1;
            }
        }
    }

    /// The region that holds `address`.
    pub(crate) fn of(&self, address: usize) -> Region {
        let at = self.all().partition_point(|r| r.span.start <= address);
        match at.checked_sub(1).map(|i| self.list[i]) {
            Some(region) if address < region.span.end() => region,
            _ => crate::invariant::broken("H1: an address that is in no region of the heap"),
        }
    }

    /// The shift of the chunk that holds `address`.
    pub(crate) fn shift(&self, address: usize) -> i32 {
        let region = self.of(address);
        // Relaxed: read and written under the heap's lock, which orders it.
        self.word(&region, address).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// How much of `span`, which begins on a chunk, has one shift from its start on.
    pub(crate) fn same_shift(&self, span: Span) -> Span {
        let region = self.of(span.start);
        let shift = self.shift(span.start);
        let mut end = span.start + CHUNK;
        while end < span.end() && self.word(&region, end).map_or(0, |w| w.load(Ordering::Relaxed)) == shift {
            end += CHUNK;
        }
        Span::between(span.start, end.min(span.end()))
    }

    /// Notes that the chunks of `span` now have `shift`.
    pub(crate) fn set_shift(&mut self, span: Span, shift: i32) {
        let region = self.of(span.start);
        if region.kind == Kind::Plain {
            return;
        }
        let before = self.seams_around(&region, span);
        for address in (span.start..span.end()).step_by(CHUNK) {
            if let Some(word) = self.word(&region, address) {
                // Relaxed: as in `shift`.
                word.store(shift, Ordering::Relaxed);
            }
        }
        self.seams = self.seams + self.seams_around(&region, span) - before;
    }

    /// The shift that pages have at `to` whose shift at `from` was `shift`.
    pub(crate) fn moved_shift(shift: i32, from: usize, to: usize) -> i32 {
        (shift as isize + (from as isize - to as isize) / CHUNK as isize) as i32
    }

    /// Seams in `span` and at its two ends.
    fn seams_around(&self, region: &Region, span: Span) -> usize {
        let mut seams = 0;
        let mut last: Option<i32> = None;
        let mut address = span.start.saturating_sub(CHUNK).max(region.span.start);
        while address <= span.end() && address < region.span.end() {
            let shift = self.word(region, address).map_or(0, |w| w.load(Ordering::Relaxed));
            seams += usize::from(last.is_some_and(|l| l != shift));
            last = Some(shift);
            address += CHUNK;
        }
        seams
    }

    fn word(&self, region: &Region, address: usize) -> Option<&AtomicI32> {
        if region.shifts == 0 {
            return None;
        }
        let base: *const AtomicI32 = core::ptr::with_exposed_provenance(region.shifts);
        // SAFETY: `add` mapped a zeroed word for each chunk of the region, for ever, and `address` lies in
        // the region (H1); the words are only ever used as atomics.
        Some(unsafe { &*base.add((address - region.span.start) / CHUNK) })
    }
}
