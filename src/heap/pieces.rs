//! The set of free pieces: who borders on whom, and which is the best fit.
//!
//! Pure bookkeeping: no system call, no lock, no memory of what is described (H5). It keeps H2 to H4 and
//! counts the free bytes of each state.

use super::pool::{Index, Node, Pool, State};
use super::tree::{Order, Tree};
use crate::os::{CHUNK, GRANULE, Os};

/// Where so much resident memory is free, in bytes, and more than half of it in parts of chunks, it lies in pieces of four megabytes on
/// average, or less: to begin a run in another of them for each block that stays would leave ever more ends.
const SHATTERED_MIN: usize = 32 << 20;

/// What is taken for resident, in the order in which it is looked for: what was offered to the kernel last, since that may have taken it.
pub(super) const RESIDENT: [State; 2] = [State::Dirty, State::Soft];

/// A range of addresses in bytes, both ends on granules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) len: usize,
}

impl Span {
    pub(crate) const fn new(start: usize, len: usize) -> Self {
        Self { start, len }
    }

    pub(crate) const fn between(start: usize, end: usize) -> Self {
        Self { start, len: end.saturating_sub(start) }
    }

    pub(crate) const fn end(self) -> usize {
        self.start + self.len
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The part of both.
    pub(crate) fn common(self, other: Self) -> Self {
        Self::between(self.start.max(other.start), self.end().min(other.end()))
    }

    /// As many times `len` bytes at its end as it has of `most`.
    pub(crate) const fn last_of(self, len: usize, most: usize) -> Self {
        let has = if self.len < most { self.len } else { most };
        let taken = has / len * len;
        Self::new(self.end() - taken, taken)
    }

    /// The largest part that begins and ends at multiples of `unit`.
    pub(crate) fn inner(self, unit: usize) -> Self {
        Self::between(self.start.next_multiple_of(unit), self.end() & !(unit - 1))
    }
}

/// What a run must be: so long, and at an address of this residue modulo a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fit {
    pub(crate) len: usize,
    pub(crate) modulus: usize,
    pub(crate) residue: usize,
}

impl Fit {
    pub(crate) const fn aligned(len: usize, align: usize) -> Self {
        Self { len, modulus: align, residue: 0 }
    }

    /// The first fitting address from `from` on.
    pub(crate) fn first_from(self, from: usize) -> Option<usize> {
        let shift = self.residue.wrapping_sub(from) & (self.modulus - 1);
        from.checked_add(shift)
    }

    /// The last address at which a fitting run begins that ends by `end`.
    pub(crate) fn last_before(self, end: usize) -> Option<usize> {
        let at = end.checked_sub(self.len)?;
        at.checked_sub(at.wrapping_sub(self.residue) & (self.modulus - 1))
    }

    /// Where the run begins that fits lowest into `span`.
    pub(crate) fn lowest_in(self, span: Span) -> Option<usize> {
        let at = self.first_from(span.start)?;
        (at.checked_add(self.len)? <= span.end()).then_some(at)
    }
}

/// How many pieces that are long enough but may not fit are looked at before one is taken that must fit.
const TRIES: usize = 32;

pub(crate) struct Pieces {
    pool: Pool,
    by_address: Tree,
    by_length: [Tree; State::COUNT],
    bytes: [usize; State::COUNT],
    /// Of those, in whole chunks.
    in_chunks: [usize; State::COUNT],
    counts: [usize; State::COUNT],
}

impl Pieces {
    pub(crate) const fn new() -> Self {
        Self {
            pool: Pool::new(),
            by_address: Tree::new(Order::Address),
            by_length: [const { Tree::new(Order::Length) }; State::COUNT],
            bytes: [0; State::COUNT],
            in_chunks: [0; State::COUNT],
            counts: [0; State::COUNT],
        }
    }

    /// Free bytes in a state.
    pub(crate) const fn bytes(&self, state: State) -> usize {
        self.bytes[state as usize]
    }

    /// Free bytes in a state that are parts of chunks: beside them in their chunk something else is.
    pub(crate) const fn stranded(&self, state: State) -> usize {
        self.bytes[state as usize] - self.in_chunks[state as usize]
    }

    /// Whether much of the resident memory that is free is in parts of chunks.
    pub(crate) const fn is_shattered(&self) -> bool {
        let dirty = self.bytes(State::Dirty);
        dirty > SHATTERED_MIN && self.stranded(State::Dirty) > dirty / 2
    }

    /// Of the free bytes in a state, those in whole chunks.
    pub(crate) const fn in_chunks(&self, state: State) -> usize {
        self.in_chunks[state as usize]
    }

    /// How many pieces there are.
    pub(crate) fn count(&self) -> usize {
        self.counts.iter().sum()
    }

    /// How many pieces there are in a state.
    pub(crate) const fn count_of(&self, state: State) -> usize {
        self.counts[state as usize]
    }

    /// Sees to it that `wanted` pieces can be added without memory (H6).
    pub(crate) fn ensure_spare<O: Os>(&mut self, wanted: usize, os: &O) -> bool {
        self.pool.spare() >= wanted || self.pool.ensure(wanted.next_multiple_of(1 << 10), os)
    }

    /// Nodes that can be made without memory.
    #[cfg(any(test, zk_nalloc_proof))]
    pub(crate) const fn spare(&self) -> usize {
        self.pool.spare()
    }

    pub(crate) fn get(&self, index: Index) -> &Node {
        self.pool.get(index)
    }

    pub(crate) fn span(&self, index: Index) -> Span {
        let node = self.pool.get(index);
        Span::new(node.start, node.len)
    }

    /// Adds a free range, merging it with neighbours of its state that lie in `region` (H3).
    pub(crate) fn insert(&mut self, span: Span, state: State, region: Span) {
        if span.is_empty() {
            return;
        }
        let (start, end) = (span.start, span.end());
        let (before, after) = self.by_address.around(&self.pool, (start, 0));
        if before.is_some_and(|b| self.span(b).end() > start)
            || after.is_some_and(|a| self.get(a).start < end)
        {
            crate::invariant::broken("H1: a range was freed twice");
        }
        let before = before.filter(|&b| self.joins(b, state, region) && self.span(b).end() == start);
        let after = after.filter(|&a| self.joins(a, state, region) && self.get(a).start == end);
        match (before, after) {
            (Some(b), Some(a)) => {
                let end = self.remove(a).0.end();
                self.reshape(b, Span::between(self.get(b).start, end));
            }
            (Some(b), None) => self.reshape(b, Span::between(self.get(b).start, end)),
            (None, Some(a)) => self.reshape(a, Span::between(start, self.span(a).end())),
            (None, None) => self.add(span, state),
        }
    }

    /// Makes a piece begin or end elsewhere, between its neighbours: it keeps its node, and its place in the tree by
    /// address (H4).
    fn reshape(&mut self, index: Index, span: Span) {
        let (old, state) = (self.span(index), self.get(index).state);
        let tree = &mut self.by_length[state as usize];
        tree.remove(&mut self.pool, index);
        let node = self.pool.get_mut(index);
        (node.start, node.len) = (span.start, span.len);
        tree.insert(&mut self.pool, index);
        self.bytes[state as usize] = self.bytes[state as usize] + span.len - old.len;
        let in_chunks = &mut self.in_chunks[state as usize];
        *in_chunks = *in_chunks + span.inner(CHUNK).len - old.inner(CHUNK).len;
    }

    fn joins(&self, index: Index, state: State, region: Span) -> bool {
        let node = self.get(index);
        node.state == state && region.start <= node.start && node.start < region.end()
    }

    fn add(&mut self, span: Span, state: State) {
        debug_assert!(span.start.is_multiple_of(GRANULE) && span.len.is_multiple_of(GRANULE));
        if span.is_empty() {
            return;
        }
        let index = self.pool.make(span.start, span.len, state);
        self.by_address.insert(&mut self.pool, index);
        self.by_length[state as usize].insert(&mut self.pool, index);
        self.bytes[state as usize] += span.len;
        self.in_chunks[state as usize] += span.inner(CHUNK).len;
        self.counts[state as usize] += 1;
    }

    /// Takes a whole piece out.
    pub(crate) fn remove(&mut self, index: Index) -> (Span, State) {
        let (span, state) = (self.span(index), self.get(index).state);
        self.by_address.remove(&mut self.pool, index);
        self.by_length[state as usize].remove(&mut self.pool, index);
        self.pool.unmake(index);
        self.bytes[state as usize] -= span.len;
        self.in_chunks[state as usize] -= span.inner(CHUNK).len;
        self.counts[state as usize] -= 1;
        (span, state)
    }

    /// Takes `part` out of a piece that holds it. Uses up to one spare node.
    pub(crate) fn carve(&mut self, index: Index, part: Span) -> State {
        let (whole, state) = (self.span(index), self.get(index).state);
        debug_assert!(whole.start <= part.start && part.end() <= whole.end());
        let (front, back) = (Span::between(whole.start, part.start), Span::between(part.end(), whole.end()));
        match (front.is_empty(), back.is_empty()) {
            (true, true) => {
                self.remove(index);
            }
            (false, true) => self.reshape(index, front),
            (true, false) => self.reshape(index, back),
            (false, false) => {
                self.reshape(index, front);
                self.add(back, state);
            }
        }
        state
    }

    /// The shortest piece of a state that a run fits into, and where in it.
    pub(crate) fn best_fit(&self, state: State, fit: Fit) -> Option<(Index, usize)> {
        let tree = &self.by_length[state as usize];
        let mut key = (fit.len, 0);
        for _ in 0..TRIES {
            let index = tree.at_or_after(&self.pool, key)?;
            let span = self.span(index);
            if let Some(at) = fit.lowest_in(span) {
                return Some((index, at));
            }
            key = (span.len, span.start + 1);
        }
        let index = tree.at_or_after(&self.pool, (fit.len.checked_add(fit.modulus)?, 0))?;
        Some((index, fit.lowest_in(self.span(index))?))
    }

    /// The longest piece of a state that is shorter than `below` (as a key of the order by length).
    pub(crate) fn longest_below(&self, state: State, below: (usize, usize)) -> Option<Index> {
        self.by_length[state as usize].before(&self.pool, below)
    }

    /// The shortest piece of a state of at least `len` bytes.
    pub(crate) fn shortest_from(&self, state: State, len: usize) -> Option<Index> {
        self.by_length[state as usize].at_or_after(&self.pool, (len, 0))
    }

    /// The shortest piece of resident memory of at least the first of `lens` bytes, or else of the next.
    pub(crate) fn shortest_resident(&self, lens: [usize; 2]) -> Option<Index> {
        RESIDENT.into_iter().find_map(|state| lens.into_iter().find_map(|len| self.shortest_from(state, len)))
    }

    /// The piece that holds `address`.
    pub(crate) fn at(&self, address: usize) -> Option<Index> {
        let index = self.by_address.before(&self.pool, (address + 1, 0))?;
        (self.span(index).end() > address).then_some(index)
    }

    /// The dirty piece that holds `address`, and what it has from there on.
    pub(crate) fn dirty_from(&self, address: usize) -> Option<(Index, Span)> {
        let index = self.at(address).filter(|&index| self.get(index).state == State::Dirty)?;
        Some((index, Span::between(address, self.span(index).end())))
    }

    /// The first piece that begins at `address` or later.
    pub(crate) fn next(&self, address: usize) -> Option<Index> {
        self.by_address.at_or_after(&self.pool, (address, 0))
    }

    /// The last piece that begins before `address`.
    pub(crate) fn previous(&self, address: usize) -> Option<Index> {
        self.by_address.before(&self.pool, (address, 0))
    }

    /// Gives every piece of one state another one.
    pub(crate) fn restate(&mut self, from: State, to: State, region_of: impl Fn(usize) -> Span) {
        while let Some(index) = self.longest_below(from, (usize::MAX, usize::MAX)) {
            let (span, _) = self.remove(index);
            self.insert(span, to, region_of(span.start));
        }
    }

    /// Walks all pieces and checks H2 to H4 and the counters; for the heap walker.
    #[cfg(any(test, zk_nalloc_proof))]
    pub(crate) fn walk(&self, mut seen: impl FnMut(Span, State)) {
        let mut bytes = [0; State::COUNT];
        let mut counts = [0; State::COUNT];
        let mut address = 0;
        while let Some(index) = self.next(address) {
            let (span, state) = (self.span(index), self.get(index).state);
            let in_length =
                self.by_length[state as usize].at_or_after(&self.pool, (span.len, span.start)) == Some(index);
            if span.is_empty() || !in_length {
                crate::invariant::broken("H4: a piece does not stand in both trees");
            }
            bytes[state as usize] += span.len;
            counts[state as usize] += 1;
            seen(span, state);
            address = span.end();
        }
        if bytes != self.bytes || counts != self.counts {
            crate::invariant::broken("H8: the counters of free pieces are off");
        }
    }
}
