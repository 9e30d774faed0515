//! Making blocks longer and shorter without copying them.

use core::cell::LazyCell;

use super::middling::is_middling;
use super::shard::Shard;
use super::untouched::Noted;
use super::{Cache, count::add, counters};
use crate::geometry::{Block, Granules};
use crate::heap::{Behind, Fit, Found, Relocated, Run, Span, Wish};
use crate::os::{CHUNK, GRANULE, Os};
use crate::sync::atomic::Ordering;
use crate::zeroing::{GROWN_MIN, Kind};

/// Up to this many bytes a block that cannot grow into resident memory is copied into some: faulting as much in
/// costs more (measured: 2.4 GB/s without huge pages and 20 with them, against 20 for a copy that faults nothing).
const COPY_MAX: usize = 16 << 20;

/// Blocks that grow to more than this take what lies behind them from whoever has it at hand, if they cannot grow in place
/// otherwise. Up to here a copy costs less than to take it from all (measured, medians: vectors pushed to 200 KiB on four threads take 12 to
/// 17 ms so, and 11 by copies; 256 columns pushed to 1 MiB on one take 37 ms and 276 MiB so, and 41 and 292 by copies).
/// Half a megabyte, with the room for its colour.
pub(super) const COPIED_FIRST_MAX: usize = (512 << 10) + 4 * GRANULE;

/// Blocks from this length on are grown by moving their pages. A move leaves up to four megabytes of ends
/// behind, two here and two there, which is too much of a shorter block (measured: 8 columns of 32 MiB grown in step
/// peaked at 335 MiB with moves from 16 MiB on, at 289 with moves from 64 on, live 256; four threads pushing to 128 MiB
/// each at 665 and 575).
const MOVE_MIN: usize = 64 << 20;

/// From this length on a block that grows by little goes to where it can get twice as long. Such room is gathered by others, and none
/// would be of shorter ones (measured: 200 columns grown to 2 MiB in steps of 64 KiB peaked at 990 MiB with room from 512 KiB on, at
/// 430 with none).
const ROOM_FOR_LITTLE_MIN: usize = 2 * CHUNK;

/// Whether a block grows by less than a quarter, as what grows by a fixed step does: it will again, and to copy it each time
/// costs the square of its length. `Vec` doubles by itself, which costs twice its length however it is copied.
const fn is_by_little(len: usize, longer: usize) -> bool {
    longer >= ROOM_FOR_LITTLE_MIN && longer - len < len / 4
}

/// What became of a block that should grow.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Grown {
    /// It lies where it lay.
    InPlace,
    /// It has other addresses; what of it did not move is to be copied, then [`Cache::finish_move`] called.
    Moved(Relocated),
    /// The caller has this other block, is to copy everything and give the old one back.
    Copy(usize),
    /// The kernel refuses; the block is as it was.
    Refused,
}

impl<O: Os> Cache<O> {
    /// Notes that the block of a request of `old` bytes now serves one of `new` bytes.
    pub(crate) fn resized(&self, old: usize, new: usize) {
        let more = (new as u64).wrapping_sub(old as u64);
        match self.shard_slow() {
            Some(shard) => {
                let mut stacks = shard.lock(self.os());
                counters::bump(&shard.counts.live, more);
                if new > old {
                    stacks.grew(more);
                }
            }
            None => add(&self.tally.live_in_fork, more),
        }
        if new > old {
            self.note_peaks();
        }
        if new >= old + CHUNK {
            // Relaxed: a statistic.
            self.tally.live_peak.fetch_max(self.live(), Ordering::Relaxed);
        }
    }

    /// Makes a block shorter in place; its end goes back to the heap. `false` if that cannot be booked, and
    /// nothing has changed. `cut` is what of its caller's bytes is given up.
    pub(crate) fn shrink(&self, block: Span, keep: Granules, cut: Span) -> bool {
        self.begin_here();
        if self.spoils() && !self.is_thin(block) {
            let held = self.heap.hold_tail();
            if held {
                if self.wipes() {
                    self.wipe(cut.start, cut.len);
                }
                self.heap.give_tail_held(block, keep.bytes());
                self.forget_untouched(block.start);
                self.given(self.heap.level().dirty);
            }
            return held;
        }
        if self.is_thin(block) {
            return self.shrink_thin(block, keep);
        }
        // What was expected to stay untouched of it may be gone. Where nothing is cut after all, the note is lost: a hint.
        let noted = self.take_note(block.start);
        let done = match noted {
            // Of one that grew and was expected to fill, as of one that nothing is noted of.
            Some(noted) if noted.fresh && (noted.from == 0 || noted.credit > 0) => {
                self.give_noted_tail(block, keep.bytes(), noted)
            }
            _ => {
                let tail = Span::between(block.start + keep.bytes(), block.end());
                self.give_tail_at_hand(tail) || self.heap.give_tail(block, keep.bytes())
            }
        };
        if let Some(noted) = noted {
            self.settle_note(&noted);
        }
        if done {
            self.given(self.heap.level().dirty);
        }
        done
    }

    /// Takes back the end of a block before what is free in this thread's shard: the next block begins there. `false`, and nothing
    /// done, where none of it lies there, or that would be more than a shard may hold.
    fn give_tail_at_hand(&self, tail: Span) -> bool {
        let Some(shard) = self.shard_with_runs() else { return false };
        let bounds = self.bounds();
        let mut stacks = shard.lock(self.os());
        self.see_regions(&mut stacks);
        stacks.growth.note_cut();
        let is_back = stacks.take_tail(tail, bounds, &shard.counts);
        drop(stacks);
        if is_back {
            self.note_home(shard, tail);
        }
        is_back
    }

    /// As [`Cache::begin_if_new`], for the calling thread.
    fn begin_here(&self) {
        if let Some(shard) = self.shard_with_runs() {
            self.begin_if_new(shard);
        }
    }

    pub(super) fn forget_untouched(&self, start: usize) {
        let _ = self.forget(start);
    }

    /// Forgets what was noted of a block, and tells it. Its rank is free.
    pub(super) fn forget(&self, start: usize) -> Option<Noted> {
        let noted = self.take_note(start)?;
        self.settle_note(&noted);
        Some(noted)
    }

    /// What is noted of a block, and stays so.
    pub(super) fn note_of(&self, start: usize) -> Option<Noted> {
        self.untouched.lock(self.os()).of(start)
    }

    /// The first half of forgetting: what was expected to stay untouched of the block is still taken for that, until
    /// [`Cache::settle_note`]. A block that is freed is not handed out as a whole in between.
    pub(super) fn take_note(&self, start: usize) -> Option<Noted> {
        let noted = self.untouched.lock(self.os()).forget(start)?;
        self.zeroing.leave(noted.kind);
        Some(noted)
    }

    pub(super) fn settle_note(&self, noted: &Noted) {
        if noted.credit > 0 {
            let mut untouched = self.untouched.lock(self.os());
            untouched.settle(noted);
            self.heap.expect_absent(untouched.credit());
        }
    }

    /// As [`Cache::grow_somehow`]; whoever grows a block is who writes it, and has it freed where it is then.
    pub(crate) fn grow(&self, block: Span, to: Block) -> Grown {
        let grown = self.grow_somehow(block, to);
        let start = match grown {
            Grown::InPlace => block.start,
            Grown::Copy(start) => start,
            Grown::Moved(_) | Grown::Refused => return grown,
        };
        if to.class.is_some() {
            self.note_home_here(Span::new(start, to.len.bytes()));
        } else if is_middling(to) {
            self.note_home_here(Span::new(start, GRANULE));
        }
        grown
    }

    /// Makes a block longer: into resident memory behind it, the shard's or the heap's, else by copying to where there is room
    /// for what such blocks usually get to, else small ones by copying into resident memory, the shortest of them before
    /// anybody is asked for what he has at hand, else into whatever is behind it, else by moving its pages, else by copying. What
    /// grows by little is copied to where there is room for twice as much.
    fn grow_somehow(&self, block: Span, to: Block) -> Grown {
        self.begin_here();
        let longer = to.len.bytes();
        if self.is_thin(block) {
            // What has a class lies in the heap, since a stack may be where it goes next.
            self.learn_thin_resized(block);
            let grown = to.class.is_none().then(|| self.thin.extend(block, longer, Behind::Any, longer));
            return match grown.flatten() {
                Some(more) => {
                    self.grew_in_place(block, longer);
                    add(&self.tally.fresh_beside, more.found.fresh() as u64);
                    Grown::InPlace
                }
                None => self.elsewhere(to),
            };
        }
        if self.extend_hot(block, longer)
            || self.heap.extend(block, longer, Behind::Resident, longer).is_some()
        {
            self.grew_in_place(block, longer);
            return Grown::InPlace;
        }
        let reach = self.zeroing.reach_grown(block.len, longer);
        // Resident memory elsewhere is wasted on a block whose end is not touched.
        let whole = reach >= longer / 8 * 7;
        if whole
            && longer <= COPY_MAX
            && to.align <= GRANULE
            && let Some(start) = self.cut_with_room(longer)
        {
            return Grown::Copy(start);
        }
        if longer <= COPIED_FIRST_MAX
            && to.align <= GRANULE
            && let Some(start) = to.class.and_then(|class| self.cut_warm(class))
        {
            return Grown::Copy(start);
        }
        let spares = LazyCell::new(|| to.class.is_some() && self.is_little_free());
        let keeps = |shard: &Shard| *spares && self.is_used_by_others(shard);
        let is_copied = whole && longer <= COPY_MAX;
        // What is too long to be copied has all threads give up what they have at hand; by less than a chunk it asks one shard alone, or
        // a block that grows little by little would empty all of them at each step.
        let asks_one = is_copied || whole && longer - block.len < CHUNK;
        if asks_one && self.extend_behind(block, longer)
            || whole
                && !asks_one
                && self.drain_but(keeps) > 0
                && self.heap.extend(block, longer, Behind::Resident, longer).is_some()
        {
            self.grew_in_place(block, longer);
            return Grown::InPlace;
        }
        let fit = Fit::aligned(longer, to.align);
        let by_little = whole && to.align <= CHUNK && is_by_little(block.len, longer);
        if is_copied && let Some(start) = self.take_warm(to, by_little, keeps) {
            return Grown::Copy(start);
        }
        if let Some(more) = self.heap.extend(block, longer, Behind::Any, reach) {
            self.grew_in_place(block, longer);
            let fresh = more.found.fresh();
            add(&self.tally.fresh_beside, fresh as u64);
            let longer = Span::new(block.start, longer);
            let faulted = self.note_grown(longer, block.len, more.unclean.parts(), fresh);
            if faulted > 0 {
                self.fresh_slow(faulted);
                self.see_gaps();
            }
            return Grown::InPlace;
        }
        if block.len >= MOVE_MIN
            && let Some(moved) = self.heap.relocate(block, longer, to.align, reach)
        {
            add(&self.tally.grown_by_moving, 1);
            return Grown::Moved(moved);
        }
        if by_little && let Some(start) = self.take_with_room(fit, block.len, reach) {
            return Grown::Copy(start);
        }
        self.elsewhere_from(to, block.len, reach)
    }

    /// Counts a block that grew where it lay.
    fn grew_in_place(&self, block: Span, longer: usize) {
        self.add_here(|worked| &worked.grown_in_place, 1);
        self.add_here(|worked| &worked.grown_in_place_bytes, longer - block.len);
    }

    /// Takes another block for the content of one.
    pub(crate) fn elsewhere(&self, to: Block) -> Grown {
        self.elsewhere_from(to, to.len.bytes(), to.len.bytes())
    }

    /// Takes another block for the content of one of `from` bytes. Only its leading `reach` bytes are worth resident memory.
    fn elsewhere_from(&self, to: Block, from: usize, reach: usize) -> Grown {
        match self.find(to, Wish::Any, reach, false) {
            Some(run) => Grown::Copy(self.found_elsewhere(&run, from)),
            None => Grown::Refused,
        }
    }

    /// Takes memory for the content of a block of `from` bytes that it can get twice as long in as `fit`: resident, else any.
    fn take_with_room(&self, fit: Fit, from: usize, reach: usize) -> Option<usize> {
        if let Some(run) = self.heap.take_with_room(fit) {
            add(&self.tally.runs, 1);
            return Some(run.span.start);
        }
        let run = self.heap.take_slow_with_room(fit, reach)?;
        self.count_found(run.found);
        Some(self.found_elsewhere(&run, from))
    }

    /// Counts a run for the content of a block of `from` bytes, and gives where it begins.
    fn found_elsewhere(&self, run: &Run, from: usize) -> usize {
        let Span { start, len } = run.span;
        if matches!(run.found, Found::Fresh(_)) {
            add(&self.tally.missed_by_size[counters::size_line(len)], 1);
        }
        let faulted = self.note_grown(run.span, from, run.unclean.parts(), run.found.fresh());
        if faulted > 0 {
            self.fresh_slow(faulted);
            self.see_gaps();
        }
        start
    }

    /// Remembers what the free of a block will tell that has grown from `from` bytes, if huge pages of it are `fresh`; `unclean` is
    /// what was resident of it beside what it was. Gives how much of what is fresh is expected to be touched.
    fn note_grown(&self, block: Span, from: usize, unclean: &[Span], fresh: usize) -> usize {
        // What was handed out as zeros tells more.
        let is_zeroed = || self.note_of(block.start).is_some_and(|noted| noted.zeroed);
        if fresh < CHUNK || from == block.len || block.len < GROWN_MIN || is_zeroed() {
            return fresh;
        }
        if let Some(noted) = self.forget(block.start) {
            self.learn_whole(noted);
        }
        let credit = fresh.min(block.len - self.zeroing.reach_grown(from, block.len));
        // What it ends in shares its huge page with what lies behind.
        let whole = block.inner(CHUNK);
        let last = unclean.iter().rfind(|part| part.start < whole.end());
        let credit = self.credit_for(credit);
        let noted = Noted {
            credit,
            fresh: true,
            warm: last.map_or(from, |part| from.max(part.end() - block.start)),
            warm_whole: unclean.iter().all(|part| part.start <= block.start + from),
            kind: Kind::of(block.len),
            since: self.heap.raises(),
            len: block.len,
            from,
            ..Noted::NOTHING
        };
        self.remember(block.start, noted);
        fresh - credit
    }

    /// Ends a move, once what did not move is copied: the old block's addresses are free.
    pub(crate) fn finish_move(&self, block: Span, moved: Relocated) {
        if let Some(noted) = self.forget(block.start) {
            self.learn_resized(noted, Span::new(moved.span.start, block.len));
            self.learn_whole(noted);
        }
        let grown = moved.span.len - block.len;
        self.heap.finish_relocation(block, moved);
        let fresh = moved.fresh.min(grown);
        add(&self.tally.fresh_beside, fresh as u64);
        let there = Span::new(moved.span.start + block.len, grown - fresh);
        let faulted = self.note_grown(moved.span, block.len, &[there], fresh);
        if faulted > 0 {
            self.fresh_slow(faulted);
        }
    }

    /// Counts a block of which all was copied to resize it.
    pub(crate) fn copied_whole(&self) {
        self.add_here(|worked| &worked.grown_by_copying, 1);
    }

    /// Counts bytes that a growing block had to have copied.
    pub(crate) fn copied(&self, bytes: usize) {
        self.add_here(|worked| &worked.copied, bytes);
    }

    /// Counts a request of `bytes` zeroed ones, of which so many were zeroed by writing them; the others were untouched.
    pub(crate) fn zeroed(&self, bytes: usize, written: usize) {
        self.add_here(|worked| &worked.zeroed_here, written);
        self.add_here(|worked| &worked.zeroed_by_kernel, bytes.saturating_sub(written));
    }
}
