//! What can be seen from inside alone: the pages between the wipe and the unmapping.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Protection, Secret, SecretBuf, SecretPool};
use crate::MapFailed;
use crate::os::private::page_size;

thread_local! {
    /// For each frame that was wiped: its length, and whether all of it was zero.
    static WIPED: RefCell<Vec<(usize, bool)>> = const { RefCell::new(Vec::new()) };
}

/// Called by drop with the whole frame, after the wipe and while it is still mapped.
pub(super) fn see_wiped(frame: &[u8]) {
    WIPED.with_borrow_mut(|seen| seen.push((frame.len(), frame.iter().all(|&b| b == 0))));
}

/// The frames wiped since the last call.
fn wiped() -> Vec<(usize, bool)> {
    WIPED.take()
}

#[test]
fn all_pages_are_zero_between_wipe_and_unmapping() {
    let page = page_size();
    for len in [0, 1, page - 1, page, page + 1, 100_000] {
        for protection in
            [Protection::standard(), Protection::sealed(), Protection::sealed().with_memfd_secret()]
        {
            let mut secret = SecretBuf::with_protection(len, protection).unwrap();
            secret.expose_mut(|bytes| bytes.fill(0xa5));
            drop(secret);
            assert_eq!(wiped(), [(len.max(1).next_multiple_of(page), true)]);
        }
    }
}

#[test]
fn an_initialiser_that_fails_or_unwinds_leaves_zeros() {
    let page = page_size();
    let failing = SecretBuf::try_new_with(5, |bytes| {
        bytes.fill(0xa5);
        Err::<(), _>(MapFailed::absurd(5))
    });
    assert!(failing.is_err());
    assert_eq!(wiped(), [(page, true)]);

    let unwinding = catch_unwind(|| {
        let _ = SecretBuf::new_with(page + 1, |bytes| {
            bytes.fill(0xa5);
            panic!("while the secret is half made");
        });
    });
    assert!(unwinding.is_err());
    assert_eq!(wiped(), [(2 * page, true)]);

    let unwinding = catch_unwind(|| {
        let _ = Secret::<[u64]>::new_with(3, |words| {
            words.fill(0xa5);
            panic!("while the secret is half made");
        });
    });
    assert!(unwinding.is_err());
    assert_eq!(wiped(), [(page, true)]);
}

#[test]
fn a_slot_is_zero_before_it_is_free() {
    for protection in [Protection::standard(), Protection::sealed()] {
        let pool = SecretPool::with_protection(protection);
        let mut secret = pool.secret(32).unwrap();
        let unwinding = catch_unwind(AssertUnwindSafe(|| {
            secret.expose_mut(|bytes| {
                bytes.fill(0xa5);
                panic!("while the secret is half made");
            });
        }));
        assert!(unwinding.is_err());
        drop(secret);
        assert_eq!(wiped(), [(64, true)]);
        assert!(pool.secret(32).unwrap().expose(|bytes| bytes.iter().all(|&b| b == 0)));
        let _ = wiped();
    }
}
