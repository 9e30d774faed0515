//! The memory for the bodies of arenas, and some of those that are gone, kept for the next.
//!
//! Why it is here: an arena for each task is made and dropped often, and mapping, touching and unmapping its body would cost
//! twice as much as the rest of that. What is kept are at most [`KEPT`] bodies, of each a page or two.
//!
//! Invariant: what is kept belongs to nobody, and its seats are unused: a body comes out as it was mapped, but for its parts,
//! which are not a value. Never here: what is in a body.

#![expect(unsafe_code, reason = "hands memory on by address")]

use core::ptr::{NonNull, null_mut};

use super::mapping::PAGE_MAX;
use super::parts::Body;
use super::raw;
use crate::error::MapFailed;
// What is kept for the life of the process has no place in a model of one execution.
use crate::sync::process::{AtomicPtr, Ordering};

/// How many bodies are kept.
const KEPT: usize = 16;

/// The length of the mapping for a body. Resident is what is used of it: a page for the first 24 threads or so, and one for
/// each 32 more.
const BYTES: usize = size_of::<Body>().next_multiple_of(PAGE_MAX);

static SPARE: [AtomicPtr<Body>; KEPT] = [const { AtomicPtr::new(null_mut()) }; KEPT];

/// Gives the memory for a body, all of which can be written and whose seats are unused: it is the caller's alone.
pub(super) fn take() -> Result<NonNull<Body>, MapFailed> {
    for spare in &SPARE {
        // Relaxed: a guess, which spares an exchange. Acquire: pairs with the release in `give`.
        if !spare.load(Ordering::Relaxed).is_null()
            && let Some(body) = NonNull::new(spare.swap(null_mut(), Ordering::Acquire))
        {
            return Ok(body);
        }
    }
    // Zeros: seats that nobody has used.
    let mapped = raw::map(BYTES, crate::os::GRANULE)?.cast::<Body>();
    #[cfg(all(test, loom))]
    // SAFETY: the mapping is as long as a body. Under loom, zeros are no value of its seats.
    unsafe {
        (&raw mut (*mapped).seats).write(super::seats::Seats::new());
    }
    Ok(NonNull::new(mapped).expect("the kernel maps nothing at address zero"))
}

/// Takes the memory of a body back.
///
/// # Safety
/// It came from [`take`], nobody uses it any more, its seats are unused, and its parts were dropped.
pub(super) unsafe fn give(body: NonNull<Body>) {
    for spare in &SPARE {
        // Relaxed: as above. Release: what was done with the body happens before it is taken again.
        let kept = spare.load(Ordering::Relaxed).is_null()
            && spare
                .compare_exchange(null_mut(), body.as_ptr(), Ordering::Release, Ordering::Relaxed)
                .is_ok();
        if kept {
            return;
        }
    }
    raw::unmap(body.as_ptr().cast(), BYTES);
}
