//! A shard's own free runs: what its stacks had no more room for, merged, for blocks of any class.
//!
//! Why it is here: a stack gives back blocks of one class, and the heap any thread's memory to any thread, under one lock.
//! Threads that take and free blocks of many lengths found their stacks empty of most, met at that lock, and wrote memory
//! that was in other processors' caches. So what leaves the stacks stays with the shard for a while: merged with its
//! neighbours, and cut where the next block fits best.
//!
//! Runs are the heap's idea of handed out, as blocks in stacks are (C1). Each needs a node when it comes back, and so does
//! each block that is cut off one (H6): they are paid for as `Stacks::tokens`, of which a block that comes in brings its
//! own.

use super::hot::{HOT_BLOCK_MAX, HOT_MAX, Hot, TOKENS, is_wanted};
use super::shard::{Counts, SHED, Stacks};
use crate::geometry::SizeClass;
use crate::heap::Span;
use crate::os::CHUNK;
use crate::sync::atomic::Ordering;

/// The most runs that a shard keeps: all are looked at for each block that comes or goes by them.
const RUNS_MAX: usize = 64;

/// Of what a shard may hold, its stacks hold this part at most, as a divisor: in blocks that serve one class each.
const STACKED_SHARE: usize = 3;

/// The most ranges that leave a shard at once.
const LEAVING_MAX: usize = 2 * SHED;

/// How much a shard may hold, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// In all.
    pub(super) bytes: usize,
    /// In its stacks: less, where what leaves them stays with the shard.
    pub(super) stacked: usize,
}

impl Bounds {
    /// Those of a shard that holds so much in all; and has free runs, if that is enough for any and `merges`.
    pub(super) const fn of(bytes: usize, merges: bool) -> Self {
        let stacked = if merges && is_wanted(bytes) { bytes / STACKED_SHARE } else { bytes };
        Self { bytes, stacked }
    }

    pub(super) const fn merges(self) -> bool {
        self.stacked < self.bytes
    }
}

#[derive(Debug)]
pub(super) struct Runs {
    count: usize,
    bytes: usize,
    /// Whether two regions of the heap may touch, which they do at the border of two chunks. A run lies in one (H1).
    pub(super) borders: bool,
    /// Of the first `count`, in no order. No two of them touch, but at such a border.
    starts: [usize; RUNS_MAX],
    ends: [usize; RUNS_MAX],
}

impl Runs {
    pub(super) const EMPTY: Self =
        Self { count: 0, bytes: 0, borders: false, starts: [0; RUNS_MAX], ends: [0; RUNS_MAX] };

    /// How many there are.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Free bytes in all of them.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn span(&self, nth: usize) -> Span {
        Span::between(self.starts[nth], self.ends[nth])
    }

    fn lengths(&self) -> impl Iterator<Item = usize> {
        (0..self.count).map(|nth| self.span(nth).len)
    }

    #[cfg(any(test, proof))]
    pub(super) fn all(&self) -> impl Iterator<Item = Span> {
        (0..self.count).map(|nth| self.span(nth))
    }

    /// Whether ranges that touch at an address are one run.
    pub(super) const fn merges_at(&self, address: usize) -> bool {
        !self.borders || !address.is_multiple_of(CHUNK)
    }

    /// Puts a range in, merged with those that it touches; `false` if it touches none and there is no place left.
    #[must_use]
    fn insert(&mut self, span: Span) -> bool {
        if span.is_empty() {
            return true;
        }
        let (mut before, mut behind) = (None, None);
        for nth in 0..self.count {
            if self.ends[nth] == span.start {
                before = Some(nth);
            }
            if self.starts[nth] == span.end() {
                behind = Some(nth);
            }
        }
        let before = before.filter(|_| self.merges_at(span.start));
        let behind = behind.filter(|_| self.merges_at(span.end()));
        match (before, behind) {
            (Some(before), Some(behind)) => {
                self.ends[before] = self.ends[behind];
                self.forget(behind);
            }
            (Some(before), None) => self.ends[before] = span.end(),
            (None, Some(behind)) => self.starts[behind] = span.start,
            (None, None) if self.count == RUNS_MAX => return false,
            (None, None) => {
                (self.starts[self.count], self.ends[self.count]) = (span.start, span.end());
                self.count += 1;
            }
        }
        self.bytes += span.len;
        true
    }

    /// The shortest run of at least `len` bytes.
    fn shortest_from(&self, len: usize) -> Option<usize> {
        let fits = self.lengths().enumerate().filter(|&(_, bytes)| bytes >= len);
        fits.min_by_key(|&(_, bytes)| bytes).map(|(nth, _)| nth)
    }

    fn longest(&self) -> Option<usize> {
        self.lengths().enumerate().max_by_key(|&(_, bytes)| bytes).map(|(nth, _)| nth)
    }

    /// Cuts as much as `len` bytes off the front of a run.
    fn cut(&mut self, nth: usize, len: usize) -> Span {
        let front = Span::new(self.starts[nth], len.min(self.span(nth).len));
        self.starts[nth] = front.end();
        self.bytes -= front.len;
        if self.starts[nth] == self.ends[nth] {
            self.forget(nth);
        }
        front
    }

    /// Forgets a run; the last one takes its place.
    fn forget(&mut self, nth: usize) {
        self.count -= 1;
        self.starts[nth] = self.starts[self.count];
        self.ends[nth] = self.ends[self.count];
    }
}

/// What leaves a shard for the heap.
pub(super) struct Leaving {
    spans: [Span; LEAVING_MAX],
    count: usize,
    /// Nodes that the shard does without from now on, beside one for each range.
    pub(super) tokens: usize,
}

impl Leaving {
    pub(super) const NOTHING: Self = Self { spans: [Span::new(0, 0); LEAVING_MAX], count: 0, tokens: 0 };

    pub(super) fn spans(&self) -> &[Span] {
        &self.spans[..self.count]
    }

    fn push(&mut self, span: Span) {
        self.spans[self.count] = span;
        self.count += 1;
    }

    /// How many more there is a place for.
    const fn room(&self) -> usize {
        LEAVING_MAX - self.count
    }
}

impl Stacks {
    /// Makes room for one more block of a class in a shard of `bytes_max`: the older half of its stack leaves if that is
    /// full, else half of what is in all stacks, or more if that is not enough; nothing if not even all would be enough. They
    /// become free runs, where the shard has any; of those what is too much leaves it.
    pub(super) fn make_room(&mut self, class: SizeClass, bounds: Bounds, out: &mut Leaving, counts: &Counts) {
        let len = class.len().bytes();
        let mut spans = [Span::default(); SHED];
        let count = if self.is_full(class) {
            self.flush(class, &mut spans, counts)
        } else {
            let hot = self.hot.rest().len;
            let Some(room) = bounds.bytes.checked_sub(hot + len) else { return };
            let beside = hot + self.runs.bytes();
            self.shed(beside + room.min((self.bytes() - beside) / 2), &mut spans, counts)
        };
        for &span in &spans[..count] {
            if bounds.merges() {
                self.keep(span, out, counts);
            } else {
                out.push(span);
            }
        }
        if self.bytes() + len > bounds.bytes {
            // A quarter at once: the heap's lock is taken once for all of it.
            self.let_go(bounds.bytes / 4 * 3, out, counts);
        }
        self.let_tokens_go(out);
    }

    /// Lets the longest runs go until the shard holds no more than `most`, or there are none, or no place for more.
    pub(super) fn let_go(&mut self, most: usize, out: &mut Leaving, counts: &Counts) {
        // One place is left for the block that room is made for.
        while self.bytes() > most
            && out.room() > 1
            && let Some(nth) = self.runs.longest()
        {
            self.let_run_go(nth, out, counts);
        }
    }

    fn let_run_go(&mut self, nth: usize, out: &mut Leaving, counts: &Counts) {
        let span = self.runs.cut(nth, usize::MAX);
        self.tokens -= 1;
        self.note_runs(span.len, 0, counts);
        out.push(span);
    }

    /// Lets those nodes go which runs and the blocks of a while do not need; with what leaves, or not at all.
    fn let_tokens_go(&mut self, out: &mut Leaving) {
        let needed = self.runs.count() + 1 + TOKENS;
        if out.count > 0 && self.tokens > needed + TOKENS {
            out.tokens = self.tokens - needed;
            self.tokens = needed;
        }
    }

    /// Puts a freed block that found no room on a stack where else it may stay; `false` if that is nowhere.
    pub(super) fn keep_block(
        &mut self,
        span: Span,
        bounds: Bounds,
        out: &mut Leaving,
        counts: &Counts,
    ) -> bool {
        if bounds.merges() {
            self.keep(span, out, counts);
        }
        bounds.merges()
    }

    /// Keeps a range, which brings its node, as a free run. If there are too many, the shortest leaves.
    pub(super) fn keep(&mut self, span: Span, out: &mut Leaving, counts: &Counts) {
        if !self.runs.insert(span) {
            if let Some(nth) = self.runs.shortest_from(0) {
                self.let_run_go(nth, out, counts);
            }
            let _there_is_a_place = self.runs.insert(span);
        }
        self.tokens += 1;
        self.note_runs(0, span.len, counts);
    }

    /// Cuts a block of a class from the shard's own runs: from the front of the next hot run, if one is long enough to be
    /// that, or where it fits best.
    #[inline(never)]
    pub(super) fn cut_run(&mut self, class: SizeClass, counts: &Counts) -> Option<usize> {
        let len = class.len().bytes();
        if self.runs.bytes() < len || !self.can_cut() {
            return None;
        }
        if len <= HOT_BLOCK_MAX
            && self.runs.count() < RUNS_MAX
            && let Some(nth) = self.runs.shortest_from(HOT_BLOCK_MAX)
        {
            let run = self.runs.cut(nth, whole_blocks(HOT_MAX, len));
            let old = core::mem::replace(&mut self.hot, Hot::of(run)).rest();
            let _there_is_a_place = self.runs.insert(old);
            self.note_runs(0, 0, counts);
            return self.cut(class, counts);
        }
        self.fit_run(class, counts)
    }

    /// Cuts a block of a class from the shard's own runs, where it fits best.
    pub(super) fn fit_run(&mut self, class: SizeClass, counts: &Counts) -> Option<usize> {
        if !self.can_cut() {
            return None;
        }
        let len = class.len().bytes();
        let start = self.runs.cut(self.runs.shortest_from(len)?, len).start;
        self.tokens -= 1;
        self.note_runs(len, 0, counts);
        Some(start)
    }

    /// Notes that `less` bytes left the runs for elsewhere than the hot run, and `more` came.
    fn note_runs(&mut self, less: usize, more: usize, counts: &Counts) {
        self.note_free(less, more, counts);
        // Relaxed: a hint to thieves, who look again under the lock.
        counts.in_runs.store(self.runs.bytes(), Ordering::Relaxed);
    }

    /// Whether a block may be cut off a run: it takes a node with it, and each run needs one, and so does the rest of the hot
    /// run, and a rest that may become a run by it.
    pub(super) const fn can_cut(&self) -> bool {
        self.tokens > self.runs.count() + 2
    }

    /// Merges what is in the stacks with the free runs; as much of it as there is a place for what leaves.
    pub(super) fn merge(&mut self, out: &mut Leaving, counts: &Counts) {
        let mut spans = [Span::default(); SHED];
        while out.room() >= SHED {
            let beside = self.hot.rest().len + self.runs.bytes();
            let count = self.shed(beside, &mut spans, counts);
            if count == 0 {
                return;
            }
            spans[..count].iter().for_each(|&span| self.keep(span, out, counts));
        }
    }

    /// Lets all leave that is not in the hot run, or as much as there is a place for.
    pub(super) fn leave(&mut self, out: &mut Leaving, counts: &Counts) {
        let beside = self.hot.rest().len + self.runs.bytes();
        let mut spans = [Span::default(); SHED];
        let count = self.shed(beside, &mut spans, counts);
        spans[..count].iter().for_each(|&span| out.push(span));
        self.let_go(self.hot.rest().len, out, counts);
        self.let_tokens_go(out);
    }
}

/// As much of `bytes` as whole blocks of `len` bytes take, or each run would end in a piece that the next block does not fit.
pub(super) const fn whole_blocks(bytes: usize, len: usize) -> usize {
    bytes / len * len
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::shard::Shard;
    use super::super::shard::tests::{MIB, class, pushed, starts};
    use super::*;
    use crate::os::Linux;

    const KIB: usize = 1 << 10;

    fn kib(span: Span) -> (usize, usize) {
        (span.start / KIB, span.end() / KIB)
    }

    fn runs_at(spans: &[(usize, usize)]) -> Runs {
        let mut runs = Runs::EMPTY;
        spans.iter().for_each(|&(start, end)| assert!(runs.insert(Span::between(start * KIB, end * KIB))));
        runs
    }

    fn all(runs: &Runs) -> Vec<(usize, usize)> {
        let mut all: Vec<_> = runs.all().map(kib).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn ranges_merge_with_those_that_they_touch() {
        let mut runs = runs_at(&[(100, 200), (300, 400), (600, 700)]);
        assert!(runs.insert(Span::between(400 * KIB, 500 * KIB)), "behind one");
        assert!(runs.insert(Span::between(250 * KIB, 300 * KIB)), "before one");
        assert_eq!(all(&runs), [(100, 200), (250, 500), (600, 700)]);
        assert!(runs.insert(Span::between(200 * KIB, 250 * KIB)), "between two");
        assert!(runs.insert(Span::default()), "nothing");
        assert_eq!((all(&runs), runs.bytes()), (vec![(100, 500), (600, 700)], 500 * KIB));
    }

    #[test]
    fn nothing_merges_where_two_regions_may_touch() {
        let chunk = CHUNK / KIB;
        let mut runs = runs_at(&[(chunk - 8, chunk), (2 * chunk, 2 * chunk + 8)]);
        runs.borders = true;
        assert!(runs.insert(Span::between(chunk * KIB, 2 * chunk * KIB)));
        assert_eq!(runs.count(), 3);
        assert!(runs.insert(Span::new((2 * chunk + 8) * KIB, 4 * KIB)), "this is within a chunk");
        assert_eq!(all(&runs), [(chunk - 8, chunk), (chunk, 2 * chunk), (2 * chunk, 2 * chunk + 12)]);
    }

    #[test]
    fn blocks_are_cut_where_they_fit_best() {
        let mut runs = runs_at(&[(100, 200), (300, 350), (400, 460), (500, 600)]);
        let nth = runs.shortest_from(55 * KIB).unwrap();
        assert_eq!(kib(runs.cut(nth, 55 * KIB)), (400, 455));
        let nth = runs.shortest_from(50 * KIB).unwrap();
        assert_eq!(kib(runs.cut(nth, 50 * KIB)), (300, 350), "whole");
        assert_eq!((all(&runs), runs.bytes()), (vec![(100, 200), (455, 460), (500, 600)], 205 * KIB));
        assert_eq!(runs.shortest_from(101 * KIB), None);
    }

    #[test]
    fn there_are_no_more_runs_than_there_are_places() {
        let mut runs = Runs::EMPTY;
        let at = |nth: usize| Span::new((1 + 2 * nth) * MIB, MIB);
        assert!((0..RUNS_MAX).all(|nth| runs.insert(at(nth))));
        assert!(!runs.insert(at(RUNS_MAX)) && runs.bytes() == RUNS_MAX * MIB);
        assert!(runs.insert(Span::new(2 * MIB, MIB)), "it fills a gap");
        assert!(runs.insert(at(RUNS_MAX)), "which left a place");
    }

    /// The blocks of `shard` that leave so that one more of a class finds room in `bytes_max`.
    fn made_room(shard: &Shard, bytes: usize, bytes_max: usize, merges: bool) -> Leaving {
        let mut out = Leaving::NOTHING;
        let bounds = Bounds::of(bytes_max, merges);
        shard.lock(&Linux).make_room(class(bytes), bounds, &mut out, &shard.counts);
        out
    }

    #[test]
    fn half_of_what_is_stacked_leaves_at_once() {
        let shard = Shard::new();
        pushed(&mut shard.lock(&Linux), &shard.counts, 12);
        let before = shard.lock(&Linux).bytes();
        let out = made_room(&shard, MIB, before, false);
        assert_eq!(starts(out.spans()), (0..6).map(|nth| 1 + 4 * nth).collect::<Vec<_>>());
        assert_eq!(
            shard.lock(&Linux).bytes(),
            before - out.spans().iter().map(|span| span.len).sum::<usize>()
        );
    }

    #[test]
    fn what_leaves_the_stacks_stays_as_runs_within_the_limit() {
        let shard = Shard::new();
        pushed(&mut shard.lock(&Linux), &shard.counts, 12);
        let before = shard.lock(&Linux).bytes();
        let out = made_room(&shard, MIB, before + 2 * MIB, true);
        assert!(out.spans().is_empty(), "all of it may stay");
        let stacks = shard.lock(&Linux);
        assert_eq!((stacks.bytes(), stacks.runs.count(), stacks.tokens), (before, 6, 6));
        drop(stacks);
        // The longest runs leave, until a quarter of the limit is free.
        let out = made_room(&shard, MIB, before, true);
        assert_eq!(starts(out.spans())[0] % 12, 9, "a block of 2 MiB");
        let stacks = shard.lock(&Linux);
        assert!(stacks.bytes() <= before / 4 * 3 && stacks.tokens == stacks.runs.count());
    }

    #[test]
    fn room_is_made_beside_a_hot_run_and_not_where_there_can_be_none() {
        let shard = Shard::new();
        let mut stacks = shard.lock(&Linux);
        pushed(&mut stacks, &shard.counts, 8);
        let stacked = stacks.bytes();
        stacks.hot = Hot::of(Span::new(1 << 40, 4 * MIB));
        stacks.note_free(0, 4 * MIB, &shard.counts);
        drop(stacks);
        // The block and the run take more than there may be: whatever left would leave for nothing.
        let len = class(2 * MIB).len().bytes();
        assert!(made_room(&shard, 2 * MIB, 4 * MIB + len - 1, false).spans().is_empty());
        assert_eq!(shard.lock(&Linux).bytes(), stacked + 4 * MIB);
        // Half of what is stacked would not be enough.
        let bytes_max = 4 * MIB + len + stacked / 4;
        assert!(!made_room(&shard, 2 * MIB, bytes_max, false).spans().is_empty());
        assert!(shard.lock(&Linux).bytes() + len <= bytes_max);
    }

    #[test]
    fn a_full_stack_gives_its_older_half_and_no_other_class_loses_any() {
        let shard = Shard::new();
        let mut stacks = shard.lock(&Linux);
        for nth in 0..=8 {
            let class = if nth == 8 { class(2 * MIB) } else { class(MIB) };
            assert!(stacks.push(class, (1 + 4 * nth) * MIB, Bounds::of(64 * MIB, false), &shard.counts));
        }
        drop(stacks);
        assert_eq!(starts(made_room(&shard, MIB, 64 * MIB, false).spans()), [1, 5, 9, 13]);
        let mut stacks = shard.lock(&Linux);
        assert_eq!(stacks.bytes(), 4 * class(MIB).len().bytes() + class(2 * MIB).len().bytes());
        assert_eq!(stacks.pop(class(MIB), &shard.counts), Some(29 * MIB));
    }

    #[test]
    fn no_more_blocks_are_cut_than_were_paid_for() {
        let shard = Shard::new();
        let mut stacks = shard.lock(&Linux);
        let (mut out, short) = (Leaving::NOTHING, class(64 * KIB));
        stacks.keep(Span::new(MIB, MIB), &mut out, &shard.counts);
        assert_eq!(stacks.cut_run(short, &shard.counts), None, "the run needs its node");
        stacks.tokens += 2;
        assert_eq!(stacks.fit_run(short, &shard.counts), None, "a rest may become a run");
        stacks.tokens += 1;
        assert_eq!(stacks.cut_run(short, &shard.counts), Some(MIB));
        stacks.hot = Hot::of(Span::new(1 << 40, MIB));
        stacks.note_free(0, MIB, &shard.counts);
        assert_eq!((stacks.tokens, stacks.runs.count()), (3, 1));
        assert!(stacks.cut(short, &shard.counts).is_some());
        assert_eq!(stacks.cut(short, &shard.counts), None, "one is for the run, one for the rest");
    }

    #[test]
    fn the_next_hot_run_begins_in_a_run_that_is_long_enough() {
        let shard = Shard::new();
        let mut stacks = shard.lock(&Linux);
        let (mut out, short) = (Leaving::NOTHING, class(64 * KIB));
        stacks.hot = Hot::of(Span::new(64 * MIB, 4 * KIB));
        stacks.note_free(0, 4 * KIB, &shard.counts);
        stacks.tokens = 10;
        stacks.keep(Span::new(MIB, HOT_BLOCK_MAX / 4096 * 4096), &mut out, &shard.counts);
        stacks.keep(Span::new(16 * MIB, 6 * MIB), &mut out, &shard.counts);
        let before = stacks.bytes();
        assert_eq!(stacks.cut_run(short, &shard.counts), Some(16 * MIB));
        assert_eq!(stacks.hot.rest().end(), 16 * MIB + whole_blocks(HOT_MAX, short.len().bytes()));
        let rest = (64 * MIB / KIB, 64 * MIB / KIB + 4);
        assert!(all(&stacks.runs).contains(&rest), "the old one's rest is a run");
        assert_eq!(stacks.bytes(), before - short.len().bytes());
    }

    #[test]
    fn all_leave_with_their_nodes_and_the_others_beyond_a_few() {
        let shard = Shard::new();
        let mut stacks = shard.lock(&Linux);
        let mut out = Leaving::NOTHING;
        pushed(&mut stacks, &shard.counts, 9);
        (0..40).for_each(|nth| stacks.keep(Span::new((100 + 2 * nth) * MIB, MIB), &mut out, &shard.counts));
        stacks.tokens += 5 * TOKENS;
        let (mut left, mut tokens) = (0, 0);
        while stacks.bytes() > 0 {
            let mut out = Leaving::NOTHING;
            stacks.leave(&mut out, &shard.counts);
            (left, tokens) = (left + out.spans().len(), tokens + out.tokens);
        }
        assert_eq!((left, stacks.runs.count()), (49, 0));
        assert_eq!(tokens + stacks.tokens, 5 * TOKENS);
        assert!(stacks.tokens <= 2 * TOKENS + 1);
    }
}
