//! Stripes under all interleavings: `RUSTFLAGS="--cfg loom" cargo test --release --lib loom`.

use super::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// Stripes, and for each place something that only its user may touch.
struct Model {
    stripes: Stripes,
    windows: [UnsafeCell<u64>; STRIPES],
}

impl Model {
    fn new() -> Self {
        Self { stripes: Stripes::new(), windows: Default::default() }
    }

    /// Uses the stripe of a thread, twice; loom objects if anyone else may be at it. Says which it is.
    fn used(&self, me: u64) -> Option<usize> {
        let stripe: *const Stripe = self.stripes.mine(me).or_else(|| self.stripes.claim_slow(me))?;
        let table = self.stripes.table().unwrap();
        let place = table.iter().position(|Apart(at)| core::ptr::eq(at, stripe)).unwrap();
        for _ in 0..2 {
            assert!(core::ptr::eq(self.stripes.mine(me).unwrap(), stripe));
            // SAFETY: loom checks that nobody else holds the cell.
            self.windows[place].with_mut(|p| unsafe { *p = me });
        }
        Some(place)
    }

    /// Lets two threads whose places are the same use the arena at once, and gives it back.
    fn round(self, threads: [u64; 2]) -> Self {
        let model = Arc::new(self);
        let other = Arc::clone(&model);
        let there = thread::spawn(move || other.used(threads[1] * SPACING));
        let here = model.used(threads[0] * SPACING);
        let there = there.join().unwrap();
        assert!(here.is_some() && there.is_some() && here != there);
        Arc::try_unwrap(model).ok().unwrap()
    }
}

#[test]
fn loom_a_stripe_has_one_user_and_each_user_one_stripe() {
    loom::model(|| _ = Model::new().round([1, 3]));
}

#[test]
fn loom_stripes_of_an_era_that_is_over_are_claimed_once() {
    loom::model(|| {
        let model = Model::new();
        model.used(5 * SPACING);
        model.used(7 * SPACING);
        model.stripes.start_over();
        model.round([1, 3]);
    });
}
