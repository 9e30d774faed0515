//! Slots for events, given out in order, in pieces that are written to the file one by one.
//!
//! The order of the slots is the order of the events: whoever records that a block goes back does so before anybody can be
//! handed it, and whoever is handed it records that afterwards. A place in the order is one exchange of one word; a piece
//! is full when as many slots of it were filled as it has, in whatever order.
//!
//! Invariants: T1 and T2 of `docs/SAFETY.md`. Nobody waits: a thread that stops in the middle of an event keeps its piece
//! from being written, and the others go on until they have come round to it; from there on events are lost, and counted.

#![expect(unsafe_code, reason = "the slots lie in a mapping")]

use super::record::{SLOT_BYTES, WORDS};
use crate::sync::process::{AtomicPtr, AtomicU64, Ordering};

/// Slots in a piece. A write of 64 KiB takes a system call and some ten microseconds; what a process that is killed has
/// not written is less than that.
pub(super) const PIECE: u64 = 2048;

/// Bytes of a piece.
pub(super) const PIECE_BYTES: usize = PIECE as usize * SLOT_BYTES;

/// Pieces in the ring: 64 thousand events may be under way while one piece is being written.
const PIECES: usize = 32;

/// Bytes of all slots.
pub(super) const RING_BYTES: usize = PIECES * PIECE_BYTES;

/// Set in `next` when no more slots are given out.
const CLOSED: u64 = 1 << 63;

struct Piece {
    /// Slots filled in this lap.
    filled: AtomicU64,
    /// How often it was written.
    written: AtomicU64,
    /// How often its slots were made free after that: the lap that they are free for.
    lap: AtomicU64,
}

pub(super) struct Ring {
    slots: AtomicPtr<AtomicU64>,
    /// The next slot, counted from the first that was ever given out.
    next: AtomicU64,
    pieces: [Piece; PIECES],
    lost: AtomicU64,
}

impl Ring {
    pub(super) const fn new() -> Self {
        Self {
            slots: AtomicPtr::new(core::ptr::null_mut()),
            next: AtomicU64::new(0),
            pieces: [const {
                Piece { filled: AtomicU64::new(0), written: AtomicU64::new(0), lap: AtomicU64::new(0) }
            }; PIECES],
            lost: AtomicU64::new(0),
        }
    }

    /// Gives the ring its slots.
    ///
    /// # Safety
    /// `address` is a zeroed mapping of [`RING_BYTES`] that is nobody else's, and stays.
    pub(super) unsafe fn begin(&self, address: usize) {
        // Release: pairs with the acquire in `word`.
        self.slots.store(core::ptr::with_exposed_provenance_mut(address), Ordering::Release);
    }

    /// The piece, of all that ever were, that a slot lies in; its place in the ring, and the lap.
    const fn piece_of(slot: u64) -> (u64, usize, u64) {
        let piece = slot / PIECE;
        (piece, (piece % PIECES as u64) as usize, piece / PIECES as u64)
    }

    fn word(&self, slot: u64, word: usize) -> Option<&AtomicU64> {
        // Acquire: pairs with the release in `begin`.
        let slots = self.slots.load(Ordering::Acquire);
        if slots.is_null() {
            return None;
        }
        let at = (slot % (PIECE * PIECES as u64)) as usize * WORDS + word;
        // SAFETY: a mapping of so many words, for ever, of which all is reached as atomics (T1); `at` is under that.
        Some(unsafe { &*slots.add(at) })
    }

    /// The next slot; `None`, and counted, if it is not free; `None` after the end.
    fn claim(&self) -> Option<u64> {
        let mut slot = self.next.load(Ordering::Relaxed);
        loop {
            if slot & CLOSED != 0 {
                return None;
            }
            let (_, at, lap) = Self::piece_of(slot);
            // Acquire: pairs with the release in `written`, so that what was in the slots is in the file, and they are
            // zero again.
            let free_for = self.pieces[at].lap.load(Ordering::Acquire);
            if free_for < lap {
                self.lost.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            // Relaxed: the slot is the caller's by this exchange alone. Where the lap is a later one, another thread has
            // taken this slot long since, and the exchange fails.
            match self.next.compare_exchange_weak(slot, slot + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(slot),
                Err(now) => slot = now,
            }
        }
    }

    /// Puts an event into the next slot. Gives the piece that this fills, which is then the caller's to write.
    pub(super) fn put(&self, words: [u64; WORDS]) -> Option<u64> {
        let slot = self.claim()?;
        for (index, value) in words.into_iter().enumerate() {
            // Relaxed: published by the addition below.
            self.word(slot, index)?.store(value, Ordering::Relaxed);
        }
        let (piece, at, _) = Self::piece_of(slot);
        // Release: what was stored is seen by whoever fills the piece; acquire: that one sees what all others stored.
        let filled = self.pieces[at].filled.fetch_add(1, Ordering::AcqRel) + 1;
        (filled == PIECE).then_some(piece)
    }

    /// Where the slots of a piece before `end` lie, and how many bytes those are.
    pub(super) fn bytes_of(&self, piece: u64, end: u64) -> (usize, usize) {
        let first = piece * PIECE;
        let slots = PIECE.min(end.saturating_sub(first));
        let address = self.word(first, 0).map_or(0, |word| core::ptr::from_ref(word).expose_provenance());
        (address, slots as usize * SLOT_BYTES)
    }

    /// Makes the slots of a piece that was written free again. Called by whoever filled it. Once no more are given out they are
    /// left as they are: the end of the process may have lost patience and be writing the piece itself.
    pub(super) fn written(&self, piece: u64) {
        let (_, at, lap) = Self::piece_of(piece * PIECE);
        // Release: pairs with the acquire in `is_written`, so that what is said to be in the file is.
        self.pieces[at].written.store(lap + 1, Ordering::Release);
        // Relaxed: who closes afterwards finds it written.
        let is_closed = self.next.load(Ordering::Relaxed) & CLOSED != 0;
        let slots = if is_closed { 0..0 } else { piece * PIECE..(piece + 1) * PIECE };
        for slot in slots {
            for word in 0..WORDS {
                if let Some(word) = self.word(slot, word) {
                    // Relaxed: published below.
                    word.store(0, Ordering::Relaxed);
                }
            }
        }
        self.pieces[at].filled.store(0, Ordering::Relaxed);
        // Release: pairs with the acquire in `claim`.
        self.pieces[at].lap.store(lap + 1, Ordering::Release);
    }

    /// Gives out no more slots, and says how many there were.
    pub(super) fn close(&self) -> u64 {
        self.next.fetch_or(CLOSED, Ordering::AcqRel) & !CLOSED
    }

    /// The pieces that may not have been written when `end` slots were given out.
    pub(super) fn pieces_before(end: u64) -> core::ops::Range<u64> {
        let last = end.div_ceil(PIECE);
        last.saturating_sub(PIECES as u64)..last
    }

    /// Whether a piece was written.
    pub(super) fn is_written(&self, piece: u64) -> bool {
        let (_, at, lap) = Self::piece_of(piece * PIECE);
        // Acquire: pairs with the release in `written`.
        self.pieces[at].written.load(Ordering::Acquire) > lap
    }

    /// Whether a piece was written, or is the last one, of which all slots before `end` are filled.
    pub(super) fn is_complete(&self, piece: u64, end: u64) -> bool {
        let (_, at, _) = Self::piece_of(piece * PIECE);
        let slots = end.saturating_sub(piece * PIECE);
        // Acquire: pairs with the release in `put`.
        self.is_written(piece) || (slots < PIECE && self.pieces[at].filled.load(Ordering::Acquire) == slots)
    }

    /// Slots given out so far.
    pub(super) fn claimed(&self) -> u64 {
        self.next.load(Ordering::Relaxed) & !CLOSED
    }

    /// Events for which there was no slot.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}
