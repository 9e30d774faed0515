//! What a [`TypedArena`](super::TypedArena) owns, with the type of its values taken away.
//!
//! Why it is here: a generic `Drop` impl would make the compiler demand that `T` outlive the arena strictly, and so
//! forbid values that refer to one another. Here nothing is generic: the type is remembered as a function that
//! drops a run of its values. What a destructor may see is decided by the fields of `TypedArena` instead; the proof
//! is in docs/SAFETY.md, R12.
//!
//! Invariants: R13, the bytes from the base to the cursor are initialised values, `stride` apart, and nothing else
//! is; of a type without size, `counted` values are there. Never here: a `&T`.

#![expect(unsafe_code, reason = "drops values whose type it does not know")]

use core::alloc::Layout;
use core::cell::Cell;

use super::Exhausted;
use super::mapping::Mapping;

/// Drops `len` values from `first` on.
pub(super) type DropAll = unsafe fn(first: *mut u8, len: usize);

#[derive(Debug)]
pub(super) struct Erased {
    /// Where the next value goes.
    pub(super) cursor: Cell<*mut u8>,
    /// Where no value may reach beyond, for now.
    pub(super) limit: Cell<*mut u8>,
    /// The value of highest address that was ever there ends here.
    dirty: Cell<usize>,
    /// `None` where values need no dropping.
    drop_all: Option<DropAll>,
    /// What one value takes; 0 for a type without size, whose values are counted instead.
    stride: usize,
    counted: Cell<usize>,
    map: Mapping,
}

impl Erased {
    /// `stride` and `drop_all` are those of the type that will be put in here.
    pub(super) fn new(map: Mapping, stride: usize, drop_all: Option<DropAll>) -> Self {
        let base = map.base().as_ptr();
        let limit = map.at(map.opened());
        let dirty = Cell::new(map.start());
        let counted = Cell::new(0);
        Self { cursor: Cell::new(base), limit: Cell::new(limit), dirty, drop_all, stride, counted, map }
    }

    pub(super) fn base(&self) -> *mut u8 {
        self.map.base().as_ptr()
    }

    /// Bytes in use.
    pub(super) fn used(&self) -> usize {
        self.cursor.get().addr() - self.map.start()
    }

    pub(super) fn len(&self) -> usize {
        self.used().checked_div(self.stride).unwrap_or(self.counted.get())
    }

    /// Counts `n` more values of a type without size.
    pub(super) fn count(&self, n: usize) {
        self.counted.set(self.counted.get().checked_add(n).expect("no more than usize::MAX values"));
    }

    pub(super) fn capacity(&self) -> usize {
        self.map.capacity().checked_div(self.stride).unwrap_or(usize::MAX)
    }

    /// Sees to it that `len` more bytes fit below the limit.
    #[cold]
    #[inline(never)]
    pub(super) fn open_slow(&self, requested: Layout) -> Result<(), Exhausted> {
        let remaining = self.map.capacity() - self.used();
        let why = if requested.size() > remaining {
            None
        } else {
            match self.map.ready(self.cursor.get().addr() + requested.size()) {
                Ok(()) => {
                    self.limit.set(self.map.at(self.map.opened()));
                    return Ok(());
                }
                Err(refused) => Some(refused),
            }
        };
        Err(Exhausted::new(requested, remaining, why))
    }

    /// Forgets all values and says how many there were.
    pub(super) fn forget_all(&self) -> usize {
        let len = self.len();
        self.dirty.set(self.dirty.get().max(self.cursor.get().addr()));
        self.cursor.set(self.base());
        self.counted.set(0);
        len
    }

    /// Drops all values. No reference to any of them may be left that is used again.
    ///
    /// If a destructor unwinds, the others run all the same, and none runs twice.
    pub(super) fn drop_all(&self) {
        let len = self.forget_all();
        if let Some(drop_all) = self.drop_all {
            // SAFETY: the first `len` values are initialised (R13), are of the type that `drop_all` is for (the
            // constructor), and were forgotten above, so that nobody drops them again.
            unsafe { drop_all(self.base(), len) };
        }
    }

    /// Drops all values and overwrites all that was ever there with zeros, also if a destructor unwinds.
    pub(super) fn wipe(&mut self) {
        struct Last<'a>(&'a mut Erased);

        impl Drop for Last<'_> {
            fn drop(&mut self) {
                let Erased { map, dirty, .. } = &mut *self.0;
                // SAFETY: values lie below `opened` (R2); they were forgotten, and the exclusive borrow says that none came since.
                unsafe { map.wipe(dirty.get()) };
                dirty.set(map.start());
            }
        }

        Last(self).0.drop_all();
    }

    /// Gives the pages of a forgotten range back to the kernel.
    pub(super) fn release(&mut self) -> usize {
        let end = self.dirty.get();
        if self.used() != 0 || !self.map.purge(end) {
            return 0;
        }
        self.dirty.set(self.map.start());
        end - self.map.start()
    }
}

impl Drop for Erased {
    fn drop(&mut self) {
        // The mapping goes after this, also if a destructor unwinds.
        self.drop_all();
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::super::raw;
    use super::*;

    #[test]
    fn a_wipe_faults_nothing_in() {
        const LEN: usize = 256 << 20;
        let mut erased = Erased::new(Mapping::reserved(2 * LEN).unwrap(), 1, None);
        erased.open_slow(Layout::array::<u8>(LEN).unwrap()).unwrap();
        let end = erased.map.at(erased.map.start() + LEN);
        erased.cursor.set(end);
        let middle = erased.map.at(erased.map.start() + LEN / 2);
        // SAFETY: the byte is below `opened` (R2).
        unsafe { middle.write(0xAA) };
        erased.wipe();
        // SAFETY: as above; it was written.
        assert_eq!((unsafe { middle.read() }, erased.used(), erased.dirty.get()), (0, 0, erased.map.start()));
        assert!(raw::resident(erased.base(), LEN).unwrap() <= 2 << 20);
    }
}
