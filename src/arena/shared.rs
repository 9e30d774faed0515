//! The shared counter: the address up to which an arena has been given away.
//!
//! Why it is here: windows and large blocks are cut from one contiguous range by all threads at once; this is the
//! only thing they contend for. It works on addresses alone, so that loom can explore it.
//!
//! Invariants (docs/SAFETY.md): R5, no byte at or above `top` belongs to anyone, and each byte below it was given
//! to exactly one taker; R6, who takes memory sees all that those before did with it.
//! Never here: memory. Nothing is read or written through these addresses.

use core::alloc::Layout;
use core::ops::Range;

use super::window::{aligned, footprint};
use crate::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug)]
pub(super) struct Shared {
    top: AtomicUsize,
}

/// What a taker wants from the counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    /// What must fit, at its alignment.
    pub(super) least: Layout,
    /// How many bytes to take where there are as many; `0` for no more than must be.
    pub(super) most: usize,
    /// The address behind the last byte there is.
    pub(super) end: usize,
}

/// Why nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused<E> {
    /// Only so many bytes are left.
    Full { left: usize },
    /// They are there, but could not be made ready.
    NotReady(E),
}

impl Want {
    /// Where a block taken at `from` starts and ends, and the end that is preferred.
    fn placed<E>(&self, from: usize) -> Result<(usize, usize, usize), Refused<E>> {
        let start = aligned(from, self.least.align());
        let least = start + footprint(self.least.size());
        if least > self.end {
            return Err(Refused::Full { left: self.end - from });
        }
        Ok((start, least, (from + self.most).clamp(least, self.end)))
    }
}

impl Shared {
    pub(super) fn new(top: usize) -> Self {
        Self { top: AtomicUsize::new(top) }
    }

    /// The first address that nobody has; may be out of date.
    #[inline]
    pub(super) fn top(&self) -> usize {
        // Relaxed: a number; whoever acts on it does so by a compare-exchange.
        self.top.load(Ordering::Relaxed)
    }

    /// Takes memory back from everyone: no byte at or above `top` may be in use (R5).
    pub(super) fn rewind(&self, top: usize) {
        // Relaxed: the caller holds the arena exclusively.
        self.top.store(top, Ordering::Relaxed);
    }

    /// Takes memory for `want`; `ready` makes everything below an address usable before it is taken.
    #[inline]
    pub(super) fn take<E>(
        &self,
        want: Want,
        ready: impl Fn(usize) -> Result<(), E>,
    ) -> Result<Range<usize>, Refused<E>> {
        let mut top = self.top();
        loop {
            let (start, least, most) = want.placed(top)?;
            let end = Self::made_ready(least, most, &ready)?;
            match self.exchange(top, end) {
                Ok(()) => return Ok(start..end),
                Err(now) => top = now,
            }
        }
    }

    /// Takes memory right behind `from`, the limit of a window of the caller or the end of its block, whose unused
    /// part begins at `cursor`. Gives the new limit, or `None` where somebody else has that memory.
    #[inline]
    pub(super) fn extend<E>(
        &self,
        cursor: usize,
        from: usize,
        want: Want,
        ready: impl Fn(usize) -> Result<(), E>,
    ) -> Result<Option<usize>, Refused<E>> {
        if self.top() != from {
            return Ok(None);
        }
        let (_, least, _) = want.placed(cursor)?;
        let most = (from + want.most).clamp(least, want.end);
        let end = Self::made_ready(least, most, &ready)?;
        Ok(self.exchange(from, end).is_ok().then_some(end))
    }

    /// Gives back `to..from`, which the caller has alone, if nothing behind it was taken.
    #[inline]
    pub(super) fn give_back(&self, from: usize, to: usize) -> bool {
        self.top() == from && self.exchange(from, to).is_ok()
    }

    #[inline]
    fn made_ready<E>(
        least: usize,
        most: usize,
        ready: &impl Fn(usize) -> Result<(), E>,
    ) -> Result<usize, Refused<E>> {
        match ready(most) {
            Ok(()) => Ok(most),
            Err(_) if most > least => ready(least).map(|()| least).map_err(Refused::NotReady),
            Err(e) => Err(Refused::NotReady(e)),
        }
    }

    #[inline]
    fn exchange(&self, from: usize, to: usize) -> Result<(), usize> {
        // Release: whoever gives memory back has done with it; acquire: whoever takes it sees that (R6). Every
        // change of `top` is an exchange, so each continues the release sequences of those before it.
        self.top.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).map(drop)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn want(size: usize, align: usize, most: usize) -> Want {
        Want { least: Layout::from_size_align(size, align).unwrap(), most, end: 1000 }
    }

    const READY: fn(usize) -> Result<(), ()> = |_| Ok(());

    #[test]
    fn takers_get_disjoint_ranges_up_to_the_end() {
        let shared = Shared::new(8);
        assert_eq!(shared.take(want(10, 1, 0), READY), Ok(8..24));
        assert_eq!(shared.take(want(10, 64, 0), READY), Ok(64..80));
        assert_eq!(shared.take(want(8, 8, 100), READY), Ok(80..180));
        assert_eq!(shared.take(want(8, 8, 10_000), READY), Ok(180..1000));
        assert_eq!(shared.take(want(8, 8, 0), READY), Err(Refused::Full { left: 0 }));
    }

    #[test]
    fn a_window_at_the_top_grows_and_shrinks() {
        let shared = Shared::new(100);
        assert_eq!(shared.extend(90, 100, want(8, 8, 16), READY), Ok(Some(116)));
        assert_eq!(shared.extend(90, 100, want(8, 8, 16), READY), Ok(None), "no longer at the top");
        assert_eq!(shared.extend(90, 116, want(911, 8, 0), READY), Err(Refused::Full { left: 910 }));
        assert!(!shared.give_back(100, 90));
        assert!(shared.give_back(116, 90));
        assert_eq!(shared.top(), 90);
    }

    #[test]
    fn what_cannot_be_made_ready_is_not_taken() {
        let shared = Shared::new(0);
        let up_to = |limit: usize| move |end: usize| if end <= limit { Ok(()) } else { Err(end) };
        assert_eq!(shared.take(want(8, 8, 64), up_to(8)), Ok(0..8), "less than preferred");
        assert_eq!(shared.take(want(8, 8, 64), up_to(8)), Err(Refused::NotReady(16)));
        assert_eq!(shared.top(), 8);
    }
}

/// Run with `RUSTFLAGS="--cfg loom" cargo test -p zk-nalloc --release --lib loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    #![expect(unsafe_code, reason = "writes cells that loom watches")]

    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    const SLOTS: usize = 4;
    const READY: fn(usize) -> Result<(), ()> = |_| Ok(());

    struct Model {
        shared: Shared,
        memory: [UnsafeCell<usize>; SLOTS],
    }

    impl Model {
        fn new() -> Arc<Self> {
            Arc::new(Self { shared: Shared::new(0), memory: Default::default() })
        }

        fn want(slots: usize) -> Want {
            Want { least: Layout::from_size_align(slots * 8, 8).unwrap(), most: 0, end: SLOTS * 8 }
        }

        /// Writes all of a range that was taken; loom objects if anyone else may be at it.
        fn fill(&self, range: Range<usize>, with: usize) {
            for slot in &self.memory[range.start / 8..range.end / 8] {
                // SAFETY: loom checks that nobody else holds the cell.
                slot.with_mut(|p| unsafe { *p = with });
            }
        }
    }

    #[test]
    fn loom_takers_never_share_memory() {
        loom::model(|| {
            let model = Model::new();
            let other = Arc::clone(&model);
            let thread = loom::thread::spawn(move || {
                if let Ok(range) = other.shared.take(Model::want(2), READY) {
                    other.fill(range, 1);
                }
            });
            for _ in 0..2 {
                if let Ok(range) = model.shared.take(Model::want(1), READY) {
                    model.fill(range, 2);
                }
            }
            thread.join().unwrap();
            assert_eq!(model.shared.top(), SLOTS * 8);
        });
    }

    #[test]
    fn loom_memory_given_back_is_seen_as_left() {
        loom::model(|| {
            let model = Model::new();
            let other = Arc::clone(&model);
            let thread = loom::thread::spawn(move || {
                let range = other.shared.take(Model::want(2), READY).unwrap();
                other.fill(range.clone(), 1);
                other.shared.give_back(range.end, range.start);
            });
            let range = model.shared.take(Model::want(2), READY).unwrap();
            model.fill(range, 2);
            thread.join().unwrap();
        });
    }

    #[test]
    fn loom_a_window_grows_only_over_free_memory() {
        loom::model(|| {
            let model = Model::new();
            let other = Arc::clone(&model);
            let thread = loom::thread::spawn(move || {
                let range = other.shared.take(Model::want(1), READY).unwrap();
                other.fill(range.clone(), 1);
                other.shared.give_back(range.end, range.start);
            });
            let first = model.shared.take(Model::want(1), READY).unwrap();
            let grown = model.shared.extend(first.end, first.end, Model::want(1), READY);
            if let Ok(Some(end)) = grown {
                model.fill(first.start..end, 2);
            }
            thread.join().unwrap();
        });
    }
}
