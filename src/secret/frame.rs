//! One secret's place: its bytes, and the canary around them.
//!
//! A frame is a run of bytes that belongs to one secret: `before` bytes of canary, the secret, and canary to
//! the end. In pages of its own the secret is flush with the end; in a pool there is canary on both sides.
//!
//! Invariants (X3, X4, X5): the bytes of a frame are its owner's alone, and always initialised; no reference
//! to the secret reaches the canary. No byte of a canary is zero, so that zeros written over it are seen.
//! Never here: opening sealed pages; the callers do.

#![expect(unsafe_code, reason = "makes references into mapped pages")]

use core::ptr::NonNull;
use std::hash::{BuildHasher, RandomState};

use crate::os::private::wipe;

/// The place of one secret.
pub(super) struct Frame {
    outer: NonNull<u8>,
    outer_len: usize,
    before: usize,
    len: usize,
    canary: [u8; 8],
}

// SAFETY: the bytes are the owner's alone (X3), wherever it runs; they have no tie to a thread.
unsafe impl Send for Frame {}
// SAFETY: through `&self` the bytes are only read (X4).
unsafe impl Sync for Frame {}

/// What a look at a canary found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Intact,
    /// All zero: what a forked child sees of wiped pages.
    Zero,
    Broken,
}

impl Frame {
    /// Takes the place and plants its canary.
    ///
    /// # Safety
    /// The `outer_len` bytes at `outer` are initialised, accessible for writing now, nobody else's until the
    /// frame is wiped and dropped, and mapped until then; `before + len <= outer_len`.
    pub(super) unsafe fn plant(outer: NonNull<u8>, outer_len: usize, before: usize, len: usize) -> Self {
        // Keyed by the kernel's random bytes, and a new key each time; no system call and no lock.
        let random = RandomState::new().hash_one(0_u64);
        let canary = (random | 0x0101_0101_0101_0101).to_ne_bytes();
        let mut frame = Self { outer, outer_len, before, len, canary };
        let (front, rear) = frame.slack_mut();
        for slack in [front, rear] {
            for piece in slack.chunks_mut(canary.len()) {
                piece.copy_from_slice(&canary[..piece.len()]);
            }
        }
        frame
    }

    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Where the secret is.
    pub(super) fn address(&self) -> usize {
        self.outer.as_ptr().addr() + self.before
    }

    /// # Safety
    /// The pages are open for reading as long as the slice lives.
    #[inline]
    pub(super) unsafe fn secret(&self) -> &[u8] {
        // SAFETY: inside the frame, initialised and ours (X3, X5); the caller vouches for access.
        unsafe { core::slice::from_raw_parts(self.outer.add(self.before).as_ptr(), self.len) }
    }

    /// # Safety
    /// The pages are open for writing as long as the slice lives.
    #[inline]
    pub(super) unsafe fn secret_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `secret`; `&mut self` makes this the only reference to the secret (X4).
        unsafe { core::slice::from_raw_parts_mut(self.outer.add(self.before).as_ptr(), self.len) }
    }

    /// The slack in front of the secret and behind it.
    fn slack(&self) -> (&[u8], &[u8]) {
        let behind = self.before + self.len;
        // SAFETY: both lie inside the frame and beside the secret (X3, X4), initialised (X5). The callers
        // hold the pages open.
        unsafe {
            (
                core::slice::from_raw_parts(self.outer.as_ptr(), self.before),
                core::slice::from_raw_parts(self.outer.add(behind).as_ptr(), self.outer_len - behind),
            )
        }
    }

    fn slack_mut(&mut self) -> (&mut [u8], &mut [u8]) {
        let behind = self.before + self.len;
        // SAFETY: as in `slack`; the two do not overlap, and `&mut self` makes them the only references.
        unsafe {
            (
                core::slice::from_raw_parts_mut(self.outer.as_ptr(), self.before),
                core::slice::from_raw_parts_mut(self.outer.add(behind).as_ptr(), self.outer_len - behind),
            )
        }
    }

    /// Looks at the canary.
    ///
    /// # Safety
    /// The pages are open for reading.
    pub(super) unsafe fn check(&self) -> Found {
        let (front, rear) = self.slack();
        let intact = |slack: &[u8]| slack.chunks(8).all(|piece| piece == &self.canary[..piece.len()]);
        if intact(front) && intact(rear) {
            Found::Intact
        } else if front.iter().chain(rear).all(|&b| b == 0) {
            Found::Zero
        } else {
            Found::Broken
        }
    }

    /// Whether the secret and its canary are zero.
    ///
    /// # Safety
    /// The pages are open for reading.
    pub(super) unsafe fn is_zero(&self) -> bool {
        // SAFETY: the frame is ours (X3), initialised (X5), and only read while `&self` lives (X4).
        let all = unsafe { core::slice::from_raw_parts(self.outer.as_ptr(), self.outer_len) };
        all.iter().all(|&byte| byte == 0)
    }

    /// Zeroes the secret and its canary, by stores that are not left out.
    ///
    /// # Safety
    /// The pages are open for writing.
    pub(super) unsafe fn wipe(&mut self) -> &[u8] {
        // SAFETY: the frame is ours (X3), initialised (X5), and `&mut self` makes this the only reference.
        let all = unsafe { core::slice::from_raw_parts_mut(self.outer.as_ptr(), self.outer_len) };
        wipe(all);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_slack_is_watched_and_none_of_the_secret() {
        for (before, len, behind) in [(0, 16, 0), (1, 3, 0), (16, 5, 11), (40, 0, 0), (0, 0, 9), (13, 24, 8)]
        {
            let mut memory = vec![0_u8; before + len + behind];
            let outer = NonNull::from(memory.as_mut_slice()).cast();
            for at in 0..memory.len() {
                for value in [0, 1, 0xff] {
                    // SAFETY: the vector is ours, initialised, and outlives the frame.
                    let mut frame = unsafe { Frame::plant(outer, before + len + behind, before, len) };
                    // SAFETY: as above.
                    let byte = unsafe { outer.add(at).as_mut() };
                    let is_secret = (before..before + len).contains(&at);
                    let same = *byte == value;
                    *byte = value;
                    // SAFETY: as above.
                    let found = unsafe { frame.check() };
                    if is_secret || same {
                        assert_eq!(found, Found::Intact, "byte {at} of {before}+{len}+{behind}");
                    } else {
                        assert_ne!(found, Found::Intact, "byte {at} of {before}+{len}+{behind}");
                    }
                    // SAFETY: as above.
                    assert!(unsafe { frame.wipe() }.iter().all(|&b| b == 0));
                    if before + behind > 0 {
                        // SAFETY: as above.
                        assert_eq!(unsafe { frame.check() }, Found::Zero);
                    }
                }
            }
        }
    }
}
