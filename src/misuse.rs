//! Checked mode: which blocks are live, and whether free memory is as it was left.
//!
//! What it is: a table of every block that was handed out, in a mapping of its own, and a pattern that fills free
//! memory, both kept only where the program or the environment asks for it. Why it is here: a double free, a free with
//! another size, or a write after a free is a fault of the program that shows long after, in a block of somebody
//! else; here it ends the process at the first look that can tell, with one line that names the block.
//!
//! Invariants: M1, a block stands in the table as live from before its pointer is handed out until its free begins. M2,
//! while the mode is on, every byte of free memory that the heap books as dirty holds [`PATTERN`]. Nothing here
//! allocates: lines are put together on the stack. Never here: who calls, and what a block is made of.

#![expect(unsafe_code, reason = "free memory is filled and read")]

mod line;
mod table;

use core::alloc::Layout;

use crate::os::Os;
use crate::sync::{
    Guard, Lock,
    atomic::{AtomicBool, Ordering},
};
use line::Number;
use table::{Entry, Table};

/// What free memory is filled with: as an address it is nobody's, as a number it is odd to look at.
pub(crate) const PATTERN: u8 = 0xde;

/// What is done to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Freed,
    Resized,
}

impl Deed {
    const fn word(self) -> &'static str {
        match self {
            Self::Freed => "freed",
            Self::Resized => "resized",
        }
    }
}

pub(crate) struct Misuse {
    on: AtomicBool,
    table: Lock<Table>,
}

impl Misuse {
    crate::sync::constant! {
        pub(crate) const fn new() -> Self {
            Self { on: AtomicBool::new(false), table: Lock::new(Table::new()) }
        }
    }

    /// Turns the mode on, before the first block is handed out.
    pub(crate) fn turn_on(&self) {
        // Relaxed: published with the shards, before any block is.
        self.on.store(true, Ordering::Relaxed);
    }

    /// Whether the mode is on.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        // Relaxed: as in `turn_on`.
        self.on.load(Ordering::Relaxed)
    }

    /// Opens the table, waiting while another thread forks.
    fn enter<'a, O: Os>(&'a self, os: &'a O) -> Guard<'a, Table, O> {
        loop {
            let table = self.table.lock(os);
            if table.forking == 0 || table.forking == os.thread() {
                return table;
            }
            drop(table);
            os.nap();
        }
    }

    /// Notes a block that is about to be handed out; `false` if there is no memory to note it in.
    pub(crate) fn born<O: Os>(&self, os: &O, p: usize, layout: Layout) -> bool {
        let mut table = self.enter(os);
        table.make_room(os) && table.put_live(p, layout)
    }

    /// Notes where the block is now that [`Misuse::dies`] was told was resized: it takes the place of that one.
    pub(crate) fn reborn<O: Os>(&self, os: &O, p: usize, layout: Layout) {
        let mut table = self.enter(os);
        // What it takes the place of is a freed entry, so there is room however that call ends.
        let _ = table.make_room(os);
        let _ = table.put_live(p, layout);
    }

    /// Notes that a block goes back; ends the process if it is not live, or not as long or aligned as `layout` says.
    pub(crate) fn dies<O: Os>(&self, os: &O, p: usize, layout: Layout, deed: Deed) {
        let mut table = self.enter(os);
        let found = table.find(p);
        let wrong = match found {
            Some(entry) if entry.live && entry.layout() == layout => {
                table.put_freed(p);
                return;
            }
            wrong => wrong,
        };
        drop(table);
        let (at, size, align) =
            (Number::hex(p), Number::decimal(layout.size()), Number::decimal(layout.align()));
        let Some(entry) = wrong else {
            line::end(&[
                "block ",
                at.as_str(),
                " of ",
                size.as_str(),
                " bytes was ",
                deed.word(),
                ", and no block was ever handed out there",
            ])
        };
        let (was, was_align) = (Number::decimal(entry.size), Number::decimal(entry.layout().align()));
        if entry.live {
            line::end(&[
                "block ",
                at.as_str(),
                " of ",
                was.as_str(),
                " bytes and alignment ",
                was_align.as_str(),
                " was ",
                deed.word(),
                " as one of ",
                size.as_str(),
                " bytes and alignment ",
                align.as_str(),
            ]);
        }
        line::end(&[
            "block ",
            at.as_str(),
            " of ",
            was.as_str(),
            " bytes was ",
            deed.word(),
            " after it had been freed",
        ]);
    }

    /// Ends the process if a live block begins at `p`, which `what` calls a small one.
    pub(crate) fn is_none_of_ours<O: Os>(&self, os: &O, p: usize, layout: Layout, deed: Deed) {
        let found = self.enter(os).find(p);
        if found.is_some_and(|entry| entry.live) {
            self.dies(os, p, layout, deed);
        }
    }

    /// Fills memory that becomes free.
    pub(crate) fn paint(&self, start: usize, len: usize) {
        let to: *mut u8 = core::ptr::with_exposed_provenance_mut(start);
        // SAFETY: the range is the heap's, in transit or about to be free, and accessible (M2's caller, H1).
        unsafe { to.write_bytes(PATTERN, len) };
    }

    /// Ends the process if free memory is not as it was filled.
    pub(crate) fn check_painted<O: Os>(&self, os: &O, start: usize, len: usize) {
        self.check(os, start, len, PATTERN);
    }

    /// Ends the process if free memory that nobody has touched, or that was purged, is not zero.
    pub(crate) fn check_zero<O: Os>(&self, os: &O, start: usize, len: usize) {
        self.check(os, start, len, 0);
    }

    fn check<O: Os>(&self, os: &O, start: usize, len: usize, byte: u8) {
        let from: *const u8 = core::ptr::with_exposed_provenance(start);
        // SAFETY: the range is the heap's, in transit, and accessible (H1). Whoever writes to it at the same time has
        // no right to: that is what is looked for.
        let bytes = unsafe { core::slice::from_raw_parts(from, len) };
        // A page at a time, so that the common case is a comparison of words.
        let page = bytes.chunks(4096).position(|page| page.iter().fold(0, |all, &b| all | (b ^ byte)) != 0);
        if let Some(page) = page
            && let Some(at) = bytes.iter().skip(page * 4096).position(|&b| b != byte)
        {
            self.written_slow(os, start + page * 4096 + at);
        }
    }

    /// Ends the process: somebody has written to free memory.
    #[cold]
    fn written_slow<O: Os>(&self, os: &O, address: usize) -> ! {
        let found = self.enter(os).last_freed_around(address);
        let at = Number::hex(address);
        match found {
            Some(Entry { p, size, .. }) => {
                let (block, size, offset) =
                    (Number::hex(p), Number::decimal(size), Number::decimal(address - p));
                line::end(&[
                    "block ",
                    block.as_str(),
                    " of ",
                    size.as_str(),
                    " bytes was written to after it had been freed, at byte ",
                    offset.as_str(),
                ])
            }
            None => line::end(&[
                "free memory at ",
                at.as_str(),
                " was written to, beside every block that is remembered",
            ]),
        }
    }

    /// Before a fork: lets no other thread change the table.
    pub(crate) fn before_fork<O: Os>(&self, os: &O) {
        self.enter(os).forking = os.thread();
    }

    /// After a fork, in the parent.
    pub(crate) fn after_fork<O: Os>(&self, os: &O) {
        self.table.lock(os).forking = 0;
    }

    /// After a fork, in the child. Another thread may have held the lock, but only to see that it must wait.
    pub(crate) fn after_fork_in_child<O: Os>(&self, os: &O) {
        self.table.reset_in_child();
        self.table.lock(os).forking = 0;
    }
}

#[cfg(test)]
mod tests;
