//! The memory behind the fake address space: real, lazily zero, from the standard allocator.
//!
//! Blocks can be patterned and checked, and what is resident is what has really been written: the host is
//! asked (`mincore`) and pages are dropped for real (`MADV_DONTNEED`), so that a test of memory measures, and a
//! gigabyte that nobody touches costs nothing. Where the host lacks either (Miri, larger pages) ranges are
//! zeroed by hand and count as resident.

#![expect(unsafe_code, reason = "memory by address")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};

use super::cells::Cells;
use crate::os::{CHUNK, GRANULE, Linux, Os};

/// Bytes that the standard allocator serves from calloc: asked for at a larger alignment they would be zeroed
/// by hand, and so be resident.
const PLAIN_ALIGN: usize = 16;

/// How far from each other the places lie where a space with short content may begin, in bytes: further than any is long.
const PLACE: usize = 1 << 40;
/// How many there are: tests run at the same time, one a thread.
const PLACES: usize = 64;

#[derive(Debug)]
pub(super) struct Memory {
    block: *mut u8,
    layout: Layout,
    range: Range<usize>,
    /// The content, where it is kept in short: then what the bytes hold is nobody's business.
    cells: Option<Cells>,
    /// Whether it was mapped at a place of its own.
    is_mapped: bool,
}

// SAFETY: an allocation of ours alone; whoever reads or writes it through its address synchronises as with any
// other memory.
unsafe impl Send for Memory {}
// SAFETY: as above; the methods take care of ranges that their caller owns.
unsafe impl Sync for Memory {}

impl Memory {
    /// Takes `len` bytes at a multiple of `align`.
    pub(super) fn new(len: usize, align: usize) -> Self {
        let layout = Layout::from_size_align(len + align, PLAIN_ALIGN).expect("a space that can exist");
        // SAFETY: the layout is not of size 0.
        let block = unsafe { alloc_zeroed(layout) };
        if block.is_null() {
            handle_alloc_error(layout);
        }
        let start = block.expose_provenance().next_multiple_of(align);
        let memory = Self { block, layout, range: start..start + len, cells: None, is_mapped: false };
        memory.without_huge_pages();
        memory
    }

    /// The same with its content kept in short, at `start` if that is free, else at one of the next places like it: what depends
    /// on addresses is then the same each time. Real is only what its user maps for its own records.
    pub(super) fn in_short(len: usize, align: usize, start: usize) -> Self {
        let places = (0..PLACES).map(|place| start + place * PLACE);
        let mapped = places.into_iter().find_map(|place| Self::at(len, place));
        let mut memory = mapped.unwrap_or_else(|| Self::new(len, align));
        memory.cells = Some(Cells::new(&memory.range));
        memory
    }

    /// Maps `len` bytes at `start`, if nothing is there.
    fn at(len: usize, start: usize) -> Option<Self> {
        let hint = std::ptr::with_exposed_provenance_mut(start);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: maps over nothing, whatever the kernel makes of the flags.
        let block = unsafe { libc::mmap(hint, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if block == libc::MAP_FAILED {
            return None;
        }
        let layout = Layout::from_size_align(len, PLAIN_ALIGN).ok()?;
        let range = block.expose_provenance()..block.addr() + len;
        let memory = Self { block: block.cast(), layout, range, cells: None, is_mapped: true };
        memory.without_huge_pages();
        // An old kernel takes the address for a hint.
        (block.addr() == start).then_some(memory)
    }

    pub(super) fn cells(&self) -> Option<&Cells> {
        self.cells.as_ref()
    }

    /// Writes zeros, of any length.
    pub(super) fn zero(&self, range: &Range<usize>) {
        match &self.cells {
            Some(cells) => cells.fill(range, 0),
            None => Linux.zero(range.start, range.len()),
        }
    }

    /// Copies bytes, of any length.
    pub(super) fn copy_bytes(&self, from: &Range<usize>, to: usize) {
        match &self.cells {
            Some(cells) => cells.copy(from, to),
            None => Linux.copy(from.start, to, from.len()),
        }
    }

    /// Drops the pages of a range that is not mapped any more.
    pub(super) fn unmap(&self, range: &Range<usize>) {
        if let Some(cells) = &self.cells {
            cells.fill(range, 0);
        }
        self.drop_real_pages(range);
    }

    pub(super) fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    fn ptr(&self, addr: usize) -> *mut u8 {
        assert!(self.range.contains(&addr), "{addr:#x} is not of the fake space");
        std::ptr::with_exposed_provenance_mut(addr)
    }

    /// One byte written must make one page resident, not 512.
    fn without_huge_pages(&self) {
        if !cfg!(miri) {
            // SAFETY: advice about an allocation of ours.
            unsafe {
                libc::madvise(self.ptr(self.range.start).cast(), self.range.len(), libc::MADV_NOHUGEPAGE)
            };
        }
    }

    /// Makes `range` zero, and absent where the host lets us.
    pub(super) fn drop_pages(&self, range: &Range<usize>) {
        match &self.cells {
            Some(cells) => cells.fill(range, 0),
            None => self.drop_real_pages(range),
        }
    }

    fn drop_real_pages(&self, range: &Range<usize>) {
        if range.is_empty() {
            return;
        }
        let ptr = self.ptr(range.start);
        // SAFETY: the range is ours, and its owner has given its content up; dropped pages of private anonymous
        // memory read as zero.
        if cfg!(miri) || unsafe { libc::madvise(ptr.cast(), range.len(), libc::MADV_DONTNEED) } != 0 {
            // SAFETY: as above.
            unsafe { ptr.write_bytes(0, range.len()) };
        }
    }

    /// Makes `range` resident, all of which is about to be touched: whole chunks by huge pages, for a tenth of what
    /// their faults cost. Does nothing but save time, so whatever fails is passed over.
    pub(super) fn populate(&self, range: &Range<usize>) {
        if cfg!(miri) || self.cells.is_some() || host_page() != GRANULE {
            return;
        }
        let within = |unit: usize| range.start.next_multiple_of(unit)..range.end / unit * unit;
        let advise = |range: Range<usize>, advice| {
            if !range.is_empty() {
                // SAFETY: advice about an allocation of ours, which changes no content.
                unsafe { libc::madvise(self.ptr(range.start).cast(), range.len(), advice) };
            }
        };
        advise(within(CHUNK), libc::MADV_HUGEPAGE);
        advise(within(GRANULE), libc::MADV_POPULATE_WRITE);
        advise(within(CHUNK), libc::MADV_NOHUGEPAGE);
    }

    /// Copies what is resident of `from` to `to`, which is zero.
    pub(super) fn copy(&self, from: &Range<usize>, to: usize) {
        if let Some(cells) = &self.cells {
            return cells.copy(from, to);
        }
        self.each_resident(from, |page| {
            let start = to + (page.start - from.start);
            self.populate(&(start..start + page.len()));
            let target = self.ptr(start);
            // SAFETY: both ranges are ours, do not overlap, and nobody uses them during a move.
            unsafe { target.copy_from_nonoverlapping(self.ptr(page.start), page.len()) };
        });
    }

    /// How many bytes of `range` are resident.
    pub(super) fn resident(&self, range: &Range<usize>) -> usize {
        if let Some(cells) = &self.cells {
            return cells.resident(range);
        }
        let mut bytes = 0;
        self.each_resident(range, |page| bytes += page.len());
        bytes
    }

    /// Whether `range` reads as zero; absent memory does.
    pub(super) fn is_zero(&self, range: &Range<usize>) -> bool {
        if let Some(cells) = &self.cells {
            return cells.is_all(range, 0);
        }
        let mut zero = true;
        self.each_resident(range, |page| zero &= self.is_all(&page, 0));
        zero
    }

    /// Calls `each` with every stretch of resident granules of `range`; longer ones come in parts.
    fn each_resident(&self, range: &Range<usize>, mut each: impl FnMut(Range<usize>)) {
        const BATCH: usize = 4096;
        let page = host_page();
        let mut seen = [0_u8; BATCH];
        let end_of = |stretch: &Range<usize>, each: &mut dyn FnMut(Range<usize>)| {
            if !stretch.is_empty() {
                each(stretch.clone());
            }
        };
        let mut at = range.start;
        while at < range.end {
            let part = at..range.end.min(at + BATCH * GRANULE);
            // SAFETY: the vector has a byte for each granule, and a page of the host is a granule or larger.
            let told = !cfg!(miri)
                && unsafe { libc::mincore(self.ptr(at).cast(), part.len(), seen.as_mut_ptr()) } == 0;
            let mut stretch = at..at;
            for granule in part.clone().step_by(GRANULE) {
                if told && seen[(granule - at) / page] & 1 == 0 {
                    continue;
                }
                if stretch.end != granule {
                    end_of(&stretch, &mut each);
                    stretch.start = granule;
                }
                stretch.end = part.end.min(granule + GRANULE);
            }
            end_of(&stretch, &mut each);
            at = part.end;
        }
    }

    /// Makes `range` resident by writing every granule of it back as it is.
    pub(super) fn touch(&self, range: &Range<usize>) {
        if self.cells.is_some() {
            return;
        }
        for at in range.clone().step_by(GRANULE) {
            let byte = self.ptr(at);
            // SAFETY: an open byte of ours; atomic, since another thread may use the block.
            let byte = unsafe { AtomicU8::from_ptr(byte) };
            let before = byte.load(Ordering::Relaxed);
            // An exchange, since adding nothing may be compiled to a mere read. If it fails, somebody has written.
            let _ = byte.compare_exchange(before, before, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Fills `range` with `byte`.
    pub(super) fn fill(&self, range: &Range<usize>, byte: u8) {
        if let Some(cells) = &self.cells {
            return cells.fill(range, byte.into());
        }
        // SAFETY: a range that no block lies in.
        unsafe { self.ptr(range.start).write_bytes(byte, range.len()) };
    }

    /// Whether all of `range` is `byte`.
    pub(super) fn is_all(&self, range: &Range<usize>, byte: u8) -> bool {
        if let Some(cells) = &self.cells {
            return cells.is_all(range, byte.into());
        }
        // SAFETY: a range inside an allocation of ours that nobody writes now.
        let bytes = unsafe { std::slice::from_raw_parts(self.ptr(range.start), range.len()) };
        // Each byte is the one before it: a comparison of memory, quick even where nothing is optimised.
        bytes.split_first().is_none_or(|(&first, rest)| first == byte && *rest == bytes[..rest.len()])
    }
}

/// What lies at an address, anywhere.
pub(super) fn bytes(address: usize, len: usize) -> Vec<u8> {
    // SAFETY: whoever passes a range to a call of `Os` holds it (O2).
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(address), len) }.to_vec()
}

fn host_page() -> usize {
    if cfg!(miri) {
        return GRANULE;
    }
    // SAFETY: sysconf only answers.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(GRANULE)
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped in `at`, or allocated in `new`, with this layout; given back once.
        unsafe {
            if self.is_mapped {
                libc::munmap(self.block.cast(), self.layout.size());
            } else {
                dealloc(self.block, self.layout);
            }
        }
    }
}
