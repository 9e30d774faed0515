//! A range that is written once and asked for by anybody, without a lock.

use super::Span;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// Nothing at first.
pub(super) struct Bounds {
    start: AtomicUsize,
    end: AtomicUsize,
}

impl Bounds {
    crate::sync::constant! {
        pub(super) const fn new() -> Self {
            Self { start: AtomicUsize::new(0), end: AtomicUsize::new(0) }
        }
    }

    /// Says what it is: once, if anybody asks.
    pub(super) fn set(&self, span: Span) {
        // Relaxed: the next store publishes it.
        self.start.store(span.start, Ordering::Relaxed);
        // Release: pairs with the acquire in `holds`.
        self.end.store(span.end(), Ordering::Release);
    }

    /// Whether `address` lies in it; not while it is nothing.
    #[inline]
    pub(super) fn holds(&self, address: usize) -> bool {
        // Acquire: pairs with the release in `set`, so that whoever sees an end sees where it begins. The other way round an
        // address before it might be found under an end that was written in between.
        address < self.end.load(Ordering::Acquire) && address >= self.start.load(Ordering::Relaxed)
    }
}

/// Run with `RUSTFLAGS="--cfg loom" cargo test -p zk-nalloc --release --lib loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// It was asked for its start first, which was 0, and then for an end that had been written meanwhile.
    #[test]
    fn an_address_before_it_never_lies_in_it() {
        loom::model(|| {
            let bounds = Arc::new(Bounds::new());
            let writer = {
                let bounds = Arc::clone(&bounds);
                thread::spawn(move || bounds.set(Span::new(0x2000, 0x1000)))
            };
            assert!(!bounds.holds(0x1000));
            writer.join().expect("it does not panic");
            assert!(bounds.holds(0x2000) && bounds.holds(0x2fff) && !bounds.holds(0x3000));
        });
    }
}
