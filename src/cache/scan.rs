//! What of a freed block was touched, as the kernel tells it, in a few calls.
//!
//! Never here: what is learned of it, and where it goes then (`learn`).

use super::Cache;
use crate::heap::Span;
use crate::os::{CHUNK, Os};

/// Untouched parts of a block that are told apart when it is freed.
const ABSENT_PARTS: usize = 7;

/// Into how many steps a block is cut to see what of it was touched.
const STEPS: usize = 64;

/// Of these, so many are asked about in one call at first: 8 MiB of a block of 64 to 128, which is what a call takes.
const SCANNED_AT_ONCE: usize = 4;

/// What was seen of a block.
pub(super) struct Scan {
    /// Bytes resident, of so many that were looked at, up to `end`.
    pub(super) resident: usize,
    pub(super) seen: usize,
    pub(super) end: usize,
    /// Parts with next to nothing in them, ascending.
    parts: [Span; ABSENT_PARTS],
    count: usize,
}

impl Scan {
    pub(super) const NOTHING: Self =
        Self { resident: 0, seen: 0, end: 0, parts: [Span::new(0, 0); ABSENT_PARTS], count: 0 };

    /// What is taken for seen of a block that nobody looked at: that all of it is resident.
    pub(super) const fn all_of(span: Span) -> Self {
        Self { resident: span.len, seen: span.len, ..Self::NOTHING }
    }

    pub(super) fn absent(&self) -> &[Span] {
        &self.parts[..self.count]
    }

    /// How many bytes are resident, about, of how many that were looked at in a part of the block.
    pub(super) fn within(&self, part: Span) -> (usize, usize) {
        let seen = part.inner(CHUNK);
        let absent: usize = self.absent().iter().map(|absent| absent.common(seen).len).sum();
        (seen.len - absent, seen.len)
    }

    /// Notes that of the next part so many bytes are resident.
    fn note(&mut self, part: Span, resident: usize) {
        self.resident += resident;
        // A part with little in it is purged too: it costs as little as it saves.
        if resident <= part.len / 4 {
            self.push(part);
        }
    }

    /// Adds a part behind those there are, if there is a place for it.
    fn push(&mut self, part: Span) {
        match self.count.checked_sub(1).map(|i| &mut self.parts[i]).filter(|last| last.end() == part.start) {
            Some(last) => last.len += part.len,
            None if self.count < ABSENT_PARTS => {
                self.parts[self.count] = part;
                self.count += 1;
            }
            None => {}
        }
    }
}

/// The length of the steps in which a block is looked at.
pub(super) fn step_of(span: Span) -> usize {
    (span.len / STEPS).next_multiple_of(CHUNK).max(CHUNK)
}

impl<O: Os> Cache<O> {
    /// What [`Cache::scan`] would see of a block whose first `warm` bytes are resident, in one call or two, if nothing behind the chunk
    /// in which those end is. `None` if something is, or the kernel does not tell.
    pub(super) fn scan_behind(&self, span: Span, warm: usize) -> Option<Scan> {
        let chunks = span.inner(CHUNK);
        let behind =
            Span::between((span.start + warm).next_multiple_of(CHUNK).max(chunks.start), chunks.end());
        if behind.is_empty() {
            return None;
        }
        let all = Span::between(behind.start, self.end_of_pages(span));
        let there = self.os().resident(all.start, all.len)?;
        let end = all.len - behind.len;
        // What lies behind the last whole chunk shares a huge page with others.
        if there > end || there > 0 && self.os().resident(behind.start, behind.len)? > 0 {
            return None;
        }
        let resident = behind.start - chunks.start;
        let mut scan = Scan { resident, seen: chunks.len, end: chunks.end(), ..Scan::NOTHING };
        scan.push(if there == 0 { all } else { behind });
        Some(scan)
    }

    /// Where the last of the kernel's pages ends that lies in a block as a whole.
    fn end_of_pages(&self, span: Span) -> usize {
        span.end() & !(self.page() - 1)
    }

    /// Sees whether the end of a block behind its last whole chunk is untouched as well, where that is: booked as resident, a granule would
    /// keep what is zero on either side of it apart.
    fn see_end(&self, span: Span, scan: &mut Scan) {
        let end = Span::between(scan.end, self.end_of_pages(span));
        let is_behind = scan.absent().last().is_some_and(|last| last.end() == end.start);
        if is_behind && !end.is_empty() && self.os().resident(end.start, end.len) == Some(0) {
            scan.push(end);
        }
    }

    /// Sees what of a block's whole chunks is resident. `None` where the kernel does not tell.
    pub(super) fn scan(&self, span: Span) -> Option<Scan> {
        // Its ends share huge pages with others and tell nothing.
        let chunks = span.inner(CHUNK);
        let step = step_of(span);
        let mut scan = Scan { seen: chunks.len, end: chunks.end(), ..Scan::NOTHING };
        if chunks.is_empty() {
            return None;
        }
        let mut at = chunks.start;
        let mut seen_to = at;
        while at < chunks.end() {
            let part = Span::between(at, (at + step).min(chunks.end()));
            if at >= seen_to {
                // Several steps at once: most blocks are touched up to somewhere, and not beyond.
                let some = Span::between(at, (at + SCANNED_AT_ONCE * step).min(chunks.end()));
                let bytes = self.os().resident(some.start, some.len)?;
                seen_to = some.end();
                if bytes == 0 || bytes == some.len {
                    scan.note(some, bytes);
                    at = some.end();
                    continue;
                }
            }
            at = part.end();
            let bytes = self.os().resident(part.start, part.len)?;
            // Where what is touched ends within the step: to call the rest of it resident would let what is free and
            // not there grow with each block.
            let cut = part.end().min((part.start + bytes).next_multiple_of(CHUNK));
            let tail = Span::between(cut, part.end());
            if tail.is_empty() || bytes == 0 || self.os().resident(tail.start, tail.len)? > 0 {
                scan.note(part, bytes);
            } else {
                scan.note(Span::between(part.start, cut), bytes);
                scan.note(tail, 0);
            }
        }
        self.see_end(span, &mut scan);
        Some(scan)
    }
}
