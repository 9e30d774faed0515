//! Who owns an arena's own window: a tag for each thread, never used twice, and the test for it.
//!
//! Why it is here: `&Arena` allocates from any thread, yet a single thread must not pay for an atomic exchange. So
//! the first thread that allocates becomes the owner and bumps a window of its own; all others find a tag that is
//! not theirs and take the shared way.
//!
//! A test of its own for the tag would be one load more on the hot path than the best arenas of one thread have, and
//! that shows. So tag and limit are one number, the [`Key`]: `limit ^ tag of the owner`. Whoever wants a block that
//! ends at `end` computes `(key ^ tag) - end`. For the owner this is what is left behind the block. For anybody else
//! some bits from [`SPACING`] on are wrong, which changes it by a multiple of the spacing other than zero, and no arena
//! and no block is large enough to make up for that.
//!
//! Invariants (docs/SAFETY.md): R7, no two threads ever have the same tag, and none has that of [`NOBODY`]; R8, the
//! key test passes for the owner alone. Never here: anything that allocates or has a destructor; it works in
//! destructors of thread-locals too.

use crate::sync::atomic::AtomicU64;
use core::cell::Cell;
// A tag for the life of the process has no place in a model of one execution.
use crate::sync::process::{AtomicU64 as ProcessU64, Ordering};

/// How far tags are apart. Larger: larger arenas. Smaller: more threads, here two million in the life of a process;
/// those that come later own no window and take the shared way.
pub(super) const SPACING: u64 = 1 << 43;

/// The largest arena, in bytes, of which the key test can be passed.
pub(super) const ARENA_MAX: usize = 1 << 41;

/// The largest size plus alignment, in bytes, for which the key test may be asked.
pub(super) const BLOCK_MAX: usize = 1 << 40;

/// What the key test demands: that less than this remain.
const LEFT_BELOW: u64 = 1 << 42;

// For another than the owner, `(key ^ tag) - end` is some multiple of the spacing, not zero, plus `limit - end`, of
// which the two may be from different moments: at least `SPACING - ARENA_MAX - BLOCK_MAX`, and well below 2^64.
const _: () =
    assert!(SPACING - ARENA_MAX as u64 - BLOCK_MAX as u64 >= LEFT_BELOW && ARENA_MAX as u64 <= SPACING);
// For the owner it is `limit - end`.
const _: () = assert!((ARENA_MAX as u64) < LEFT_BELOW);

/// The tag of an arena that no thread has claimed.
pub(super) const NOBODY: u64 = u64::MAX / SPACING * SPACING;

/// The tag of a thread that has not asked for one, or came too late; no arena ever has it.
pub(super) const NEW: u64 = 0;

thread_local! {
    static TAG: Cell<u64> = const { Cell::new(NEW) };
}

/// This thread's tag.
#[inline(always)]
pub(super) fn current() -> u64 {
    TAG.get()
}

/// This thread's tag, which it is given now if it has none and there is one.
pub(super) fn assigned() -> u64 {
    static LAST: ProcessU64 = ProcessU64::new(0);
    if current() == NEW {
        // Relaxed: only uniqueness matters. The counter cannot wrap around in the life of a process.
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        if number < NOBODY / SPACING {
            TAG.set(number * SPACING);
        }
    }
    current()
}

/// The limit of a window, readable by its owner alone.
#[derive(Debug)]
pub(super) struct Key(AtomicU64);

impl Key {
    /// A key that fits nobody, for a window at `limit`, an address of the arena.
    pub(super) fn unfit(limit: usize) -> Self {
        Self(AtomicU64::new(NOBODY ^ limit as u64))
    }

    /// Makes this a key that fits nobody; `within` is an address of the arena. Any thread may do so at any time.
    pub(super) fn close(&self, within: usize) {
        // Relaxed: it opens nothing.
        self.0.store(NOBODY ^ within as u64, Ordering::Relaxed);
    }

    /// Makes this the key of `owner` for a window of a `capacity`-byte arena that ends at `limit`.
    #[inline]
    pub(super) fn set(&self, owner: u64, limit: usize, capacity: usize) {
        let owner = if capacity <= ARENA_MAX { owner } else { NOBODY };
        // Relaxed: only for the owner does the value mean anything, and it is its own.
        self.0.store(owner ^ limit as u64, Ordering::Relaxed);
    }

    /// Whether this thread is the owner and a block that ends at `end` ends before the limit. `end` is at most
    /// [`BLOCK_MAX`] behind an address that is, or was, in the arena.
    #[inline(always)]
    pub(super) fn fits(&self, end: usize) -> bool {
        // Relaxed: see `set`.
        let left = (self.0.load(Ordering::Relaxed) ^ current()).wrapping_sub(end as u64);
        left < LEFT_BELOW
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn threads_have_tags_of_their_own() {
        let mine = assigned();
        assert_eq!((mine, current()), (assigned(), mine));
        let others: Vec<u64> = (0..4).map(|_| std::thread::spawn(assigned).join().unwrap()).collect();
        assert!(others.iter().all(|&other| other != mine && other != NEW && other != NOBODY));
        assert!(others.iter().all(|&other| other.is_multiple_of(SPACING)));
    }

    #[test]
    fn the_key_fits_its_owner_up_to_the_limit() {
        let start = 1 << 46;
        let key = Key::unfit(start);
        assert!(!key.fits(start));
        key.set(assigned(), start + 100, 1 << 20);
        assert!(key.fits(start) && key.fits(start + 100) && !key.fits(start + 101));
        assert!(!key.fits(start + 100 + BLOCK_MAX));
        key.set(assigned(), start + ARENA_MAX, ARENA_MAX);
        assert!(key.fits(start));
        key.set(assigned(), start + ARENA_MAX, ARENA_MAX + 1);
        assert!(!key.fits(start), "too large an arena to tell");
        key.set(assigned(), start + 100, 1 << 20);
        key.close(start);
        assert!(!key.fits(start) && !key.fits(start + 1));
    }

    #[test]
    fn the_key_fits_nobody_else_whatever_cursor_they_saw() {
        let mine = assigned();
        for start in [1 << 16, 1 << 46, 0x7fff_0000_0000, 1 << 56] {
            fits_no_other(mine, start);
        }
    }

    fn fits_no_other(mine: u64, start: usize) {
        for owner in [mine - SPACING, mine + SPACING, mine + 2 * SPACING, SPACING, NOBODY - SPACING, NOBODY] {
            if owner == mine || owner == NEW {
                continue;
            }
            for limit in [0, ARENA_MAX / 2, ARENA_MAX] {
                let key = Key::unfit(start);
                key.set(owner, start + limit, ARENA_MAX);
                for end in [0, 1, ARENA_MAX / 2, ARENA_MAX, ARENA_MAX + BLOCK_MAX] {
                    assert!(!key.fits(start + end), "owner {owner:x} limit {limit:x} end {end:x}");
                }
            }
        }
    }
}
