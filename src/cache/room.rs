//! Room for vectors that are pushed to: how long they get is learned, and the next one begins where it can get as long in
//! place.
//!
//! Why it is here: `Vec` asks for twice as much each time it is full. Where nothing free lies behind it, it is copied, and what
//! it leaves and what it goes to are other memory than a vector of the last round had. glibc has the end of its heap behind
//! whatever is pushed to. Here a vector that comes over from the small side, which only `realloc` brings, begins at the front of
//! a hot run as long as vectors of its thread get, if resident memory is free for that without asking others for theirs. A block that
//! cannot grow where it lies, whatever it began as, goes where there is room for as much as such blocks get to.

use core::alloc::Layout;

use super::counters::Counts;
use super::grow::COPIED_FIRST_MAX;
use super::hot::{HOT_BLOCK_MAX, HOT_MAX, Hot, TOKENS};
use super::runs::{Leaving, whole_blocks};
use super::shard::{Shard, Stacks};
use super::{Cache, count::add};
use crate::geometry::Block;
use crate::heap::{End, Span};
use crate::os::{GRANULE, Os};
use crate::sync::atomic::Ordering;

/// The longest room that is made, in bytes: so much a thread keeps from others while its vector grows. Of vectors from twice that
/// on, pages are moved.
const ROOM_MAX: usize = (32 << 20) + (64 << 10);

/// The shortest, in bytes: up to here a vector is copied into what its shard has at hand, which costs less than to look for
/// memory in one piece (measured: where each is of 128 KiB, among 600 MiB of others, that took a fifth longer).
const ROOM_MIN: usize = COPIED_FIRST_MAX;

/// Doublings of length that are told apart: from 64 KiB on, and the last is all beyond `ROOM_MAX`.
const LEVELS: usize = 11;

/// After so many beginnings all counts are halved, and after so many that grew to one doubling theirs. Of columns that are pushed to in
/// turn none has grown when the last of them begins, so this is twice as many as there may be of those.
const HALVED_AFTER: u16 = 512;

/// Vectors have stopped growing when more have begun since one grew last than this and twice as many as began before one grew
/// at earlier times together, as columns do that are pushed to in turn.
const SILENT_AT_LEAST: u16 = 8;

/// How many rooms are denied once gaps were seen to cost memory: the first time, and at most. Two hundred vectors that are pushed to in turn
/// until they are of 20 KB to 4 MB ask for some 500.
const DENIED_MIN: u32 = 1 << 14;
const DENIED_MAX: u32 = 1 << 24;

/// Where so much is free in gaps, they cost more than they gain: this part of what is in use, as a divisor, and this in bytes. A program
/// that has little goes on with what it has after a few rounds.
const GAPS_SHARE: u64 = 4;
const GAPS_MIN: u64 = 32 << 20;

/// The doubling that a length belongs to.
fn level_of(len: usize) -> usize {
    if len > ROOM_MAX { LEVELS - 1 } else { (((len >> 16) | 1).ilog2() as usize).min(LEVELS - 2) }
}

/// How long the vectors of a shard get that came over from the small side: of each doubling, how many got to it lately; of all blocks
/// that grew, how many did; and how long that was at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    /// How many have begun.
    begun: u16,
    counts: [u16; LEVELS],
    longest: [usize; LEVELS],
    /// How many blocks grew to each doubling lately, or over it, from the one before or from further below, wherever they began.
    grown: [u16; LEVELS],
    /// How many were cut shorter lately.
    cut: u16,
    /// So many have begun since one grew last, and so many did at most before.
    silent: u16,
    silent_max: u16,
    /// For so many more no room is made, …
    denied: u32,
    /// … and the last time for so many.
    denied_last: u32,
}

impl Growth {
    pub(super) const NONE: Self = Self {
        begun: 0,
        counts: [0; LEVELS],
        longest: [0; LEVELS],
        grown: [0; LEVELS],
        cut: 0,
        silent: 0,
        silent_max: 0,
        denied: 0,
        denied_last: 0,
    };

    /// Notes that memory was faulted in while much was free: in the gaps that rooms leave, if any are made. For a while none are, and for
    /// four times as long the next time.
    fn note_gaps(&mut self) {
        if self.denied == 0 {
            self.denied_last = (4 * self.denied_last).clamp(DENIED_MIN, DENIED_MAX);
            self.denied = self.denied_last;
        }
    }

    /// Whether room is made for the next one that wants some.
    fn grants(&mut self) -> bool {
        let grants = self.denied == 0;
        self.denied = self.denied.saturating_sub(1);
        grants
    }

    /// Notes that a vector came over from the small side.
    fn begin(&mut self) {
        self.begun += 1;
        self.silent = (self.silent + 1).min(2 * HALVED_AFTER);
        if self.begun == HALVED_AFTER {
            self.begun /= 2;
            self.cut /= 2;
            self.silent_max /= 2;
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.forget_longest();
        }
    }

    /// Notes that a block was cut shorter.
    pub(super) fn note_cut(&mut self) {
        self.cut = (self.cut + 1).min(self.begun);
    }

    /// Whether half of the vectors are cut shorter in the end.
    const fn are_cut(&self) -> bool {
        self.cut > 0 && 2 * self.cut >= self.begun
    }

    /// Forgets how long those got that are forgotten.
    fn forget_longest(&mut self) {
        for ((count, grown), longest) in self.counts.iter().zip(&self.grown).zip(&mut self.longest) {
            if *count == 0 && *grown == 0 {
                *longest = 0;
            }
        }
    }

    /// Notes that a block of `len` bytes was made `longer`. Each doubling counts once, however many steps there are to it, and no
    /// more blocks than vectors have begun: what is long from the beginning tells nothing of those.
    pub(super) fn note(&mut self, len: usize, longer: usize) {
        let level = level_of(longer);
        if level_of(len) < level {
            self.counts[level] = (self.counts[level] + 1).min(self.begun);
            let crossed = level_of(len) + 1..=level;
            self.grown[crossed.clone()].iter_mut().for_each(|grown| *grown += 1);
            if self.grown[crossed].contains(&HALVED_AFTER) {
                self.grown.iter_mut().for_each(|grown| *grown /= 2);
                self.forget_longest();
            }
            self.silent_max = self.silent_max.max(self.silent);
            self.silent = 0;
        }
        self.longest[level] = self.longest[level].max(longer);
    }

    /// How long half of them get, in bytes, the one that begins now among those that do not; 0 where that is not known, or is more than there
    /// is room made for, or where they seem to have stopped growing.
    fn usual(&self) -> usize {
        if self.silent > 2 * self.silent_max + SILENT_AT_LEAST {
            return 0;
        }
        let usual = |level: &usize| self.counts[*level] > 0 && 2 * self.counts[*level] >= self.begun;
        match (0..LEVELS).rev().find(usual) {
            Some(level) if level < LEVELS - 1 => self.longest[level],
            _ => 0,
        }
    }

    /// How long more than a quarter of the blocks get, in bytes, that grow to the doubling of `len`, wherever they began; 0 where that is more
    /// than there is room made for. From doubling to doubling: what began further up tells nothing.
    fn usual_from(&self, len: usize) -> usize {
        let from = level_of(len);
        let few = self.grown[from] / 4;
        let above = self.grown[from..].iter().skip(1).take_while(|&&grown| grown > few).count();
        let level = from + above;
        if level < LEVELS - 1 { self.longest[level] } else { 0 }
    }
}

/// As much as is made of room at once, where that can be had: for several vectors, if they are short.
const fn several(room: usize) -> usize {
    if room > HOT_MAX { room } else { whole_blocks(HOT_MAX, room) }
}

impl<O: Os> Cache<O> {
    /// To be called when a block has grown into fresh memory: if much is free all the same, that lies in gaps, and this thread makes no
    /// room for vectors for a while.
    pub(super) fn see_gaps(&self) {
        let Some(shard) = self.shard_with_runs() else { return };
        let free = (self.heap.level().dirty + self.stacked()) as u64;
        if free >= (self.live() / GAPS_SHARE).max(GAPS_MIN) {
            shard.lock(self.os()).growth.note_gaps();
        }
    }

    /// To be called before `layout` is served for a vector that comes over from the small side, and is going to be pushed to:
    /// this thread's shard has room for as much as such vectors usually get, if that can be had.
    pub(crate) fn expect_growth(&self, layout: Layout) {
        let (Some(shard), Some(block)) = (self.shard_with_runs(), Block::of(layout)) else { return };
        self.begin_if_new(shard);
        if block.align > GRANULE || block.len.bytes() > HOT_BLOCK_MAX {
            return;
        }
        let mut stacks = shard.lock(self.os());
        stacks.growth.begin();
        let room = stacks.growth.usual();
        let wants = room > block.len.bytes().max(ROOM_MIN) && stacks.growth.grants();
        drop(stacks);
        if !wants || !self.pay(shard) {
            return;
        }
        let mut out = Leaving::NOTHING;
        let mut stacks = shard.lock(self.os());
        self.see_regions(&mut stacks);
        let is_free = stacks.leave_room(room, &mut out, &shard.counts);
        self.keep_to_limit(&mut stacks, &mut out, &shard.counts);
        drop(stacks);
        self.give_leaving(&out);
        if self.find_room(shard, room, is_free) {
            shard.lock(self.os()).mark_begun(block.len.bytes());
        }
    }

    /// Takes a block of `len` bytes for the content of one that got too long for its place, if such blocks usually get
    /// longer still, with room for that.
    pub(super) fn cut_with_room(&self, len: usize) -> Option<usize> {
        let shard = self.shard_with_runs()?;
        let mut stacks = shard.lock(self.os());
        let room = stacks.growth.usual().max(stacks.growth.usual_from(len));
        let wants = room > len.max(ROOM_MIN) && stacks.growth.grants();
        drop(stacks);
        if !wants || !self.pay(shard) || !self.find_room(shard, room, true) {
            return None;
        }
        let start = shard.lock(self.os()).cut_long(len, &shard.counts)?;
        add(&self.tally.runs, 1);
        Some(start)
    }

    /// Sees to it that a shard has nodes for a block and a run more.
    pub(super) fn pay(&self, shard: &Shard) -> bool {
        if shard.lock(self.os()).can_cut() {
            return true;
        }
        let held = self.heap.hold_nodes(TOKENS);
        shard.lock(self.os()).tokens += if held { TOKENS } else { 0 };
        held
    }

    /// Sees to it that a shard's hot run has so much room, if resident memory is free for that; another one than now, unless the
    /// front of that `is_free`.
    fn find_room(&self, shard: &Shard, room: usize, is_free: bool) -> bool {
        // Relaxed: set once, before the shards were published. Under a ceiling there is no place for longer ones.
        if room > HOT_MAX && self.dirty_max.load(Ordering::Relaxed) < usize::MAX {
            return false;
        }
        let mut out = Leaving::NOTHING;
        let mut stacks = shard.lock(self.os());
        if is_free && stacks.hot.rest().len >= room {
            return true;
        }
        self.see_regions(&mut stacks);
        let mut found = stacks.begin_room(room, &mut out, &shard.counts);
        if !found && stacks.bytes() - stacks.hot.rest().len >= room {
            stacks.merge(&mut out, &shard.counts);
            found = stacks.begin_room(room, &mut out, &shard.counts);
        }
        self.keep_to_limit(&mut stacks, &mut out, &shard.counts);
        let are_cut = stacks.growth.are_cut();
        drop(stacks);
        let end = || match are_cut {
            // What is cut off merges with what lies behind it, and the next one begins there; from the other end on, each would leave a
            // gap that is too short for the next.
            true => {
                self.drain_hot(shard);
                End::Low
            }
            false => self.end_for_long(0),
        };
        if !found && let Some(run) = self.heap.take_room(room, several(room), end()) {
            self.note_home(shard, run);
            let mut stacks = shard.lock(self.os());
            self.see_regions(&mut stacks);
            stacks.begin_hot(run, &mut out, &shard.counts);
            found = true;
            self.keep_to_limit(&mut stacks, &mut out, &shard.counts);
            stacks.let_tokens_go_alone(&mut out);
        }
        self.give_leaving(&out);
        found
    }
}

impl Stacks {
    /// Notes that the next block of `len` bytes that is cut from the hot run is the beginning of a vector.
    fn mark_begun(&mut self, len: usize) {
        let start = self.hot.rest().start;
        self.last_begun = Span::new(start, len);
    }

    /// Leaves a vector its room that has begun and did not grow before the next one begins: they are pushed to in turn. What lies
    /// behind it becomes a run of the shard's, or of the heap if it is too long for that, into which it goes on. Gives whether the
    /// next one may begin at the front of the hot run.
    fn leave_room(&mut self, room: usize, out: &mut Leaving, counts: &Counts) -> bool {
        let rest = self.hot.rest();
        let gap = Span::between(rest.start, (self.last_begun.start + room).max(rest.start));
        if self.last_begun.end() != rest.start || gap.is_empty() {
            return true;
        }
        if rest.len < gap.len + room || !self.can_cut() {
            return false;
        }
        let _it_is_as_long = self.hot.cut(gap.len);
        self.keep_of_hot(gap, out, counts);
        true
    }

    /// Makes the end of one of the shard's own runs the hot run, if one is as long as `room`: whole ones, so that what lies in front
    /// of it keeps the rest.
    fn begin_room(&mut self, room: usize, out: &mut Leaving, counts: &Counts) -> bool {
        if !self.can_cut() {
            return false;
        }
        let Some(run) = self.runs.cut_end(room, several(room)) else { return false };
        // It has the node of the run, or one of those that `can_cut` saw; what the old one had for its rest, that brings.
        let old = core::mem::replace(&mut self.hot, Hot::of(run)).rest();
        self.note_runs(0, 0, counts);
        if !old.is_empty() {
            self.keep_of_hot(old, out, counts);
        }
        true
    }

    /// Keeps what was cut off the hot run, or was free of the last one, as a free run; it has a node already.
    pub(super) fn keep_of_hot(&mut self, span: Span, out: &mut Leaving, counts: &Counts) {
        self.note_free(span.len, 0, counts);
        self.tokens -= 1;
        self.keep(span, out, counts);
    }
}

#[cfg(test)]
mod tests;
