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

use super::SHARD_BYTES_MAX;
use super::counters::Counts;
use super::hot::{HOT_BLOCK_MAX, HOT_MAX, Hot, TOKENS, is_wanted};
use super::shard::{SHED, Stacks};
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

    /// Whether one is as long.
    pub(super) fn has(&self, len: usize) -> bool {
        self.shortest_from(len).is_some()
    }

    /// Whether one begins there.
    pub(super) fn begins_at(&self, start: usize) -> bool {
        self.starts[..self.count].contains(&start)
    }

    fn lengths(&self) -> impl Iterator<Item = usize> {
        (0..self.count).map(|nth| self.span(nth).len)
    }

    #[cfg(any(test, zk_nalloc_proof))]
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

    /// Where the longest one begins.
    pub(super) fn start_of_longest(&self) -> Option<usize> {
        self.longest().map(|nth| self.starts[nth])
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

    /// Cuts `long` bytes, or at least `len`, off the end of the shortest run that has so many: a whole number of `len`.
    pub(super) fn cut_end(&mut self, len: usize, long: usize) -> Option<Span> {
        let nth = [long, len].into_iter().find_map(|least| self.shortest_from(least))?;
        let cut = self.span(nth).last_of(len, long);
        self.bytes -= cut.len;
        self.ends[nth] = cut.start;
        if self.starts[nth] == cut.start {
            self.forget(nth);
        }
        Some(cut)
    }

    /// Cuts `len` bytes off the front of the run that begins at `start`; `false` if there is none, or it has less.
    fn cut_at(&mut self, start: usize, len: usize) -> bool {
        let Some(nth) = (0..self.count).find(|&nth| self.starts[nth] == start) else { return false };
        let has = self.span(nth).len >= len && self.merges_at(start);
        if has {
            self.cut(nth, len);
        }
        has
    }

    /// Puts a range in before the run that begins at its end, where ranges that touch are one run; `false` if none begins there.
    pub(super) fn lengthen(&mut self, span: Span) -> bool {
        let Some(nth) = (0..self.count).find(|&nth| self.starts[nth] == span.end()) else { return false };
        self.starts[nth] = span.start;
        self.bytes += span.len;
        true
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
    /// Makes room for one more block of a class within `bounds`: the older half of its stack leaves if that is
    /// full, else half of what is in all stacks, or more if that is not enough; nothing if not even all would be enough. They
    /// become free runs, where the shard has any; of those what is too much leaves it.
    pub(super) fn make_room(&mut self, class: SizeClass, bounds: Bounds, out: &mut Leaving, counts: &Counts) {
        let len = class.len().bytes();
        let beyond = self.beyond();
        let mut spans = [Span::default(); SHED];
        let count = if self.is_full(class) {
            self.flush(class, &mut spans, counts)
        } else {
            let hot = self.hot.rest().len;
            let Some(room) = (bounds.bytes + beyond).checked_sub(hot + len) else { return };
            let beside = hot + self.runs.bytes();
            let count = self.shed(beside + room.min((self.bytes() - beside) / 2), &mut spans, counts);
            self.depth.note_full(count, bounds);
            count
        };
        spans[..count].iter().for_each(|&span| self.keep_or_let_go(span, bounds, out, counts));
        if self.bytes() + len > bounds.bytes + beyond {
            // A quarter at once: the heap's lock is taken once for all of it.
            self.let_go(bounds.bytes / 4 * 3 + beyond, out, counts);
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
        if out.count > 0 {
            self.let_tokens_go_alone(out);
        }
    }

    /// The same, whether anything leaves or not.
    pub(super) fn let_tokens_go_alone(&mut self, out: &mut Leaving) {
        let needed = self.runs.count() + 1 + TOKENS;
        if self.tokens > needed + TOKENS {
            out.tokens += self.tokens - needed;
            self.tokens = needed;
        }
    }

    /// Keeps a block that has no place on a stack as a free run, or lets it go where the shard has none.
    pub(super) fn keep_or_let_go(&mut self, span: Span, bounds: Bounds, out: &mut Leaving, counts: &Counts) {
        if bounds.merges() {
            self.keep(span, out, counts);
        } else {
            out.push(span);
        }
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
    /// that and its thread has no more in use than a shard usually holds; or where it fits best, so that a thread that has much in use
    /// goes over as little beside it as it can.
    #[inline(never)]
    pub(super) fn cut_run(&mut self, class: SizeClass, counts: &Counts) -> Option<usize> {
        let len = class.len().bytes();
        if self.runs.bytes() < len || !self.can_cut() {
            return None;
        }
        if len <= HOT_BLOCK_MAX
            && counts.in_use() <= SHARD_BYTES_MAX
            && (self.runs.count() < RUNS_MAX || self.hot.rest().is_empty())
            && let Some(nth) = self.runs.shortest_from(HOT_BLOCK_MAX)
        {
            let run = self.runs.cut(nth, whole_blocks(HOT_MAX, len));
            let old = core::mem::replace(&mut self.hot, Hot::of(run)).rest();
            let _there_is_a_place = self.runs.insert(old);
            self.note_runs(0, 0, counts);
            return self.cut(class, counts);
        }
        // Whoever has one block at a time begins each where the one before began.
        if len <= HOT_BLOCK_MAX
            && counts.in_use() <= len
            && self.hot.rest().is_empty()
            && self.runs.longest().is_some_and(|nth| self.runs.span(nth).len >= len)
        {
            self.begin_short_hot(counts);
            return self.cut(class, counts);
        }
        self.fit_run(len, counts)
    }

    /// Makes the longest run the hot run, for which there is none, where it is too short for [`Stacks::cut_run`] to begin one with:
    /// all that a thread has that has little.
    pub(super) fn begin_short_hot(&mut self, counts: &Counts) {
        if self.runs.shortest_from(HOT_BLOCK_MAX).is_none()
            && let Some(nth) = self.runs.longest()
        {
            // All of it, with its node.
            self.hot = Hot::of(self.runs.cut(nth, HOT_MAX));
            self.note_runs(0, 0, counts);
        }
    }

    /// Cuts a block from the shard's own runs, where it fits best.
    pub(super) fn fit_run(&mut self, len: usize, counts: &Counts) -> Option<usize> {
        if !self.can_cut() {
            return None;
        }
        let nth = self.runs.shortest_from(len)?;
        let start = self.runs.cut(nth, len).start;
        self.tokens -= 1;
        self.note_runs(len, 0, counts);
        Some(start)
    }

    /// Gives what lies at `start` to the block before, if a run begins there and is as long as `more`.
    pub(super) fn extend_into_run(&mut self, start: usize, more: usize, counts: &Counts) -> bool {
        let fits = self.runs.cut_at(start, more);
        if fits {
            self.note_runs(more, 0, counts);
        }
        fits
    }

    /// Notes that `less` bytes left the runs for elsewhere than the hot run, and `more` came.
    pub(super) fn note_runs(&mut self, less: usize, more: usize, counts: &Counts) {
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
        // One place is left for what its caller keeps.
        while out.room() > SHED {
            let beside = self.beside();
            let count = self.shed(beside, &mut spans, counts);
            if count == 0 {
                return;
            }
            spans[..count].iter().for_each(|&span| self.keep(span, out, counts));
        }
    }

    /// Lets all leave that is not in the hot run, or as much as there is a place for.
    pub(super) fn leave(&mut self, out: &mut Leaving, counts: &Counts) {
        let beside = self.beside();
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
mod tests;
