//! What the heap says about itself: its books, and what the limits are about.

use super::pool::State;
use super::{Inner, PageHeap, SEAMS_MAX};
use crate::os::Os;

/// Bytes in each part of the books, and what has been counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Books {
    /// Handed out: to callers and into stacks.
    pub(crate) out: usize,
    pub(crate) zero: usize,
    pub(crate) soft: usize,
    /// Dirty or inherited.
    pub(crate) dirty: usize,
    /// Bytes in the hands of an operation.
    pub(crate) transit: usize,
    pub(crate) retired: usize,
    /// Free pieces.
    pub(crate) pieces: usize,
    /// Places where neighbouring chunks cannot share a VMA.
    pub(crate) seams: usize,
    pub(crate) moved: u64,
    pub(crate) purged: u64,
    pub(crate) softened: u64,
    pub(crate) refused_moves: u64,
    /// Bytes moved from free runs to where they were wanted.
    pub(crate) gathered: u64,
    /// Times that nothing was gathered because the budget of seams was used up.
    pub(crate) over_budget: u64,
    pub(crate) refused_growth: u64,
}

impl Books {
    /// The books of two heaps together.
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            out: self.out + other.out,
            zero: self.zero + other.zero,
            soft: self.soft + other.soft,
            dirty: self.dirty + other.dirty,
            transit: self.transit + other.transit,
            retired: self.retired + other.retired,
            pieces: self.pieces + other.pieces,
            seams: self.seams + other.seams,
            moved: self.moved + other.moved,
            purged: self.purged + other.purged,
            softened: self.softened + other.softened,
            refused_moves: self.refused_moves + other.refused_moves,
            gathered: self.gathered + other.gathered,
            over_budget: self.over_budget + other.over_budget,
            refused_growth: self.refused_growth + other.refused_growth,
        }
    }
}

/// By how much the level of what is handed out was too high for a block, of which that many bytes were expected to be touched and
/// were not: a peak that was noted while it was out was no peak of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overstated {
    pub(crate) bytes: usize,
    /// How often the highest level had been raised when it was taken.
    pub(crate) since: u64,
}

/// How full the heap is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    /// Handed out, less what is expected to stay untouched.
    pub(crate) out: usize,
    /// The most of it in this window.
    pub(crate) out_max: usize,
    /// How often that was raised, and how often it turned out to have been too high.
    pub(crate) raises: u64,
    pub(crate) corrections: u64,
    /// Free and presumed resident.
    pub(crate) dirty: usize,
    /// Of that, what a child shares with its parent, and drops before it hands it out.
    pub(crate) inherited: usize,
    /// Open, free, and known to hold nothing.
    pub(crate) zero: usize,
}

impl<O: Os> PageHeap<O> {
    /// Reads the books.
    pub(crate) fn books(&self) -> Books {
        let inner = self.inner.lock(&self.os);
        let free = |state| inner.pieces.bytes(state);
        Books {
            out: inner.out,
            zero: free(State::Zero),
            soft: free(State::Soft),
            dirty: free(State::Dirty) + free(State::Inherited),
            transit: inner.transit,
            retired: inner.retired,
            pieces: inner.pieces.count(),
            seams: inner.regions.seams(),
            moved: inner.moved,
            purged: inner.purged,
            softened: inner.softened,
            refused_moves: inner.refused_moves,
            gathered: inner.gathered,
            over_budget: inner.over_budget,
            refused_growth: inner.refused_growth,
        }
    }

    /// Whether `address` lies in memory of this heap. For whoever looks at the mappings of the process.
    pub(crate) fn holds(&self, address: usize) -> bool {
        self.inner
            .lock(&self.os)
            .regions
            .all()
            .iter()
            .any(|r| address >= r.span.start && address < r.span.end())
    }

    /// Bytes set aside that hold nothing.
    pub(crate) fn closed(&self) -> usize {
        self.inner.lock(&self.os).pieces.bytes(State::Closed)
    }

    /// Whether half of the budget of seams is used up.
    pub(crate) fn is_seamed(&self) -> bool {
        self.inner.lock(&self.os).regions.seams() > SEAMS_MAX / 2
    }

    /// What the limits are about.
    pub(crate) fn level(&self) -> Level {
        let mut inner = self.inner.lock(&self.os);
        inner.note_peak();
        inner.level()
    }

    /// The same, where a run has just been handed out that was fresh. What could not serve it is as good as handed out: to
    /// forget it would purge, when this run is free again, what it will need next time, and leave the resident peak what it is.
    pub(crate) fn level_of_miss(&self) -> Level {
        let mut inner = self.inner.lock(&self.os);
        let stranded = inner.pieces.stranded(State::Dirty);
        let present = inner.present();
        inner.raise(present + stranded);
        inner.level()
    }

    /// How often the highest level was raised so far.
    pub(crate) fn raises(&self) -> u64 {
        self.inner.lock(&self.os).raises
    }

    /// Bytes handed out, less what is expected to stay untouched, with what the rest of the process holds.
    pub(crate) fn present(&self) -> usize {
        self.inner.lock(&self.os).present()
    }

    /// What the rest of the process held when that was noted last, in bytes.
    pub(crate) fn beside(&self) -> usize {
        self.inner.lock(&self.os).beside
    }

    /// Bytes handed out, less what is expected to stay untouched.
    pub(crate) fn out_presumed_resident(&self) -> usize {
        let inner = self.inner.lock(&self.os);
        inner.out.saturating_sub(inner.absent)
    }

    /// Begins a new window: the highest level is the present one.
    pub(crate) fn begin_window(&self) {
        let mut inner = self.inner.lock(&self.os);
        inner.out_max = inner.present();
        inner.raises += 1;
    }

    /// Notes how many bytes of the process, of `anonymous` in all, are not ours. Of what is handed out `untouched` bytes have
    /// had no time to be touched.
    pub(crate) fn note_beside(&self, anonymous: usize, untouched: usize) {
        let mut inner = self.inner.lock(&self.os);
        // What is opened where all memory is locked is resident at once, and in that sum already.
        let untouched = if inner.eager { 0 } else { untouched };
        let out = inner.out.saturating_sub(inner.absent).saturating_sub(untouched);
        // What was offered to the kernel stays ours until it takes it.
        let ours = out + inner.dirty() + inner.pieces.bytes(State::Soft) + inner.transit;
        inner.beside = anonymous.saturating_sub(ours);
    }

    /// Notes how many of the bytes handed out are expected to stay untouched.
    pub(crate) fn expect_absent(&self, bytes: usize) {
        self.inner.lock(&self.os).absent = bytes;
    }
}

impl Inner {
    fn level(&self) -> Level {
        Level {
            out: self.present(),
            out_max: self.out_max,
            raises: self.raises,
            corrections: self.corrections,
            dirty: self.dirty(),
            inherited: self.pieces.bytes(State::Inherited),
            zero: self.pieces.bytes(State::Zero),
        }
    }
}
