//! What the kernel says of each mapping of this process (`/proc/self/smaps`).
//!
//! A look walks the page tables: a millisecond for a gigabyte in small pages. So it is for whoever asks, never for a
//! request.

use core::ops::ControlFlow;

use super::files;
use super::text::{cut, hex, named, words};

/// A mapping, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) resident: usize,
    /// In transparent huge pages.
    pub(crate) huge: usize,
    /// Offered by `MADV_FREE`, and not yet taken.
    pub(crate) lazy_free: usize,
    pub(crate) swapped: usize,
}

/// Calls `each` with every mapping. `None` where the kernel does not tell.
pub(crate) fn mappings(each: &mut dyn FnMut(&Mapping)) -> Option<()> {
    let mut scan = Scan { now: None };
    files::beginnings(c"/proc/self/smaps", &mut |line| {
        scan.line(line, each);
        ControlFlow::Continue(())
    })?;
    scan.end(each);
    Some(())
}

/// Reads line by line.
struct Scan {
    now: Option<Mapping>,
}

impl Scan {
    fn line(&mut self, line: &[u8], each: &mut dyn FnMut(&Mapping)) {
        if let Some((start, end)) = head(line) {
            self.end(each);
            self.now = Some(Mapping { start, end, ..Mapping::default() });
            return;
        }
        let Some(now) = &mut self.now else { return };
        for (name, place) in [
            (&b"Rss:"[..], &mut now.resident),
            (b"AnonHugePages:", &mut now.huge),
            (b"LazyFree:", &mut now.lazy_free),
            (b"Swap:", &mut now.swapped),
        ] {
            if let Some(bytes) =
                named(line, name).and_then(|kib| usize::try_from(kib).ok()?.checked_mul(1 << 10))
            {
                *place = bytes;
            }
        }
    }

    fn end(&mut self, each: &mut dyn FnMut(&Mapping)) {
        if let Some(mapping) = self.now.take() {
            each(&mapping);
        }
    }
}

/// The range of a line that begins a mapping.
fn head(line: &[u8]) -> Option<(usize, usize)> {
    let (start, end) = cut(words(line).next()?, b'-')?;
    Some((hex(start)?, hex(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_a_file_and_of_noise() {
        let text = "7f0000000000-7f0000200000 rw-p 00000000 00:00 0 \nSize: 2048 kB\nRss:  2048 kB\n\
            LazyFree: 4 kB\nAnonHugePages:  2048 kB\nSwap:   12 kB\nVmFlags: rd wr mr\n\
            ffffffffff600000-ffffffffff601000 --xp 0 00:00 0 [vsyscall]\nRss: x kB\nRss:\n";
        let mut found = Vec::new();
        let mut scan = Scan { now: None };
        let mut each = |m: &Mapping| found.push(*m);
        scan.line(b"Rss: 8 kB", &mut each);
        text.lines().for_each(|line| scan.line(line.as_bytes(), &mut each));
        scan.end(&mut each);
        let (kib, start) = (1 << 10, 0x7f00_0000_0000);
        assert_eq!(found.len(), 2);
        assert_eq!(
            found[0],
            Mapping {
                start,
                end: start + (2 << 20),
                resident: 2048 * kib,
                huge: 2048 * kib,
                lazy_free: 4 * kib,
                swapped: 12 * kib
            }
        );
        assert_eq!(found[1].resident, 0);
    }

    #[test]
    fn this_process_has_mappings() {
        let (mut count, mut resident, mut stack) = (0, 0, 0_usize);
        let here = (&raw const count).addr();
        let told = mappings(&mut |m| {
            count += 1;
            resident += m.resident;
            stack += usize::from(m.start <= here && here < m.end);
        });
        if told.is_some() {
            assert!(count > 3 && resident > 64 << 10 && stack == 1);
        }
    }
}
