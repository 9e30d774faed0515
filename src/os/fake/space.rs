//! The fake address space: which ranges are mapped, by whom, and in how many VMAs.
//!
//! Follows Linux where the page heap can tell the difference: neighbouring ranges are one VMA exactly if all
//! their attributes agree, the page offset among them (`vma_merge` in mm/vma.c). Two things are left out: every
//! open range counts as faulted, so a moved one always keeps its old offset, and all share one `anon_vma`, so
//! a merge that fails for that reason alone (after a fork, say) is not seen.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::os::Huge;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// `PROT_NONE`.
    Reserved,
    /// Readable and writable.
    Open,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Ours,
    /// Mapped by another part of the program.
    Foreign,
}

/// What the pages of one VMA have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) owner: Owner,
    pub(crate) access: Access,
    pub(crate) huge: Huge,
    /// `mlock`ed.
    pub(crate) locked: bool,
    /// How far the pages are from where they were first mapped: 0 at home, else they cannot merge with what is.
    pub(crate) shift: isize,
}

impl Attributes {
    /// Those of a fresh mapping of ours.
    pub(crate) const fn fresh(access: Access, huge: Huge) -> Self {
        Self { owner: Owner::Ours, access, huge, locked: false, shift: 0 }
    }

    pub(crate) const FOREIGN: Self = Self { owner: Owner::Foreign, ..Self::fresh(Access::Open, Huge::Leave) };
}

/// A VMA, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vma {
    pub(crate) range: Range<usize>,
    pub(crate) attributes: Attributes,
}

/// All VMAs, and the addresses there are.
#[derive(Debug)]
pub(super) struct Space {
    bounds: Range<usize>,
    /// By start: the end, and what it is.
    vmas: BTreeMap<usize, (usize, Attributes)>,
}

impl Space {
    pub(super) fn new(bounds: Range<usize>) -> Self {
        Self { bounds, vmas: BTreeMap::new() }
    }

    pub(super) fn bounds(&self) -> Range<usize> {
        self.bounds.clone()
    }

    /// How many VMAs there are, foreign ones among them.
    pub(super) fn count(&self) -> usize {
        self.vmas.len()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Vma> {
        self.vmas.iter().map(|(&start, &(end, attributes))| Vma { range: start..end, attributes })
    }

    /// The VMAs that lie in `range`, cut to it, by address.
    pub(super) fn pieces(&self, range: &Range<usize>) -> impl Iterator<Item = Vma> {
        let (from, to) = (range.start, range.end);
        let first = self.vmas.range(..=from).next_back().map_or(from, |(&start, _)| start);
        self.vmas
            .range(first..to)
            .map(move |(&start, &(end, attributes))| Vma { range: start.max(from)..end.min(to), attributes })
            .filter(|vma| vma.range.start < vma.range.end)
    }

    /// Whether every byte of `range` is mapped with attributes that `accept` accepts.
    pub(super) fn covered(&self, range: &Range<usize>, accept: impl Fn(&Attributes) -> bool) -> bool {
        let mut at = range.start;
        for vma in self.pieces(range) {
            if vma.range.start != at || !accept(&vma.attributes) {
                return false;
            }
            at = vma.range.end;
        }
        at == range.end
    }

    pub(super) fn empty(&self, range: &Range<usize>) -> bool {
        self.pieces(range).next().is_none()
    }

    /// How many VMAs more there would be if the edges of `range` were edges of VMAs.
    pub(super) fn splits(&self, range: &Range<usize>) -> usize {
        [range.start, range.end].into_iter().filter(|&at| self.inside(at).is_some()).count()
    }

    /// The VMA that has `at` in its middle.
    fn inside(&self, at: usize) -> Option<usize> {
        self.vmas.range(..at).next_back().filter(|&(_, &(end, _))| end > at).map(|(&start, _)| start)
    }

    fn split(&mut self, at: usize) {
        if let Some(start) = self.inside(at)
            && let Some((end, attributes)) =
                self.vmas.get_mut(&start).map(|vma| (std::mem::replace(&mut vma.0, at), vma.1))
        {
            self.vmas.insert(at, (end, attributes));
        }
    }

    /// Unmaps `range`.
    pub(super) fn remove(&mut self, range: &Range<usize>) {
        self.split(range.start);
        self.split(range.end);
        let starts: Vec<usize> = self.vmas.range(range.clone()).map(|(&start, _)| start).collect();
        for start in starts {
            self.vmas.remove(&start);
        }
    }

    /// Maps `range`, over whatever is there.
    pub(super) fn insert(&mut self, range: &Range<usize>, attributes: Attributes) {
        self.remove(range);
        self.vmas.insert(range.start, (range.end, attributes));
        self.merge(range);
    }

    /// Changes what is mapped in `range`.
    pub(super) fn update(&mut self, range: &Range<usize>, change: impl Fn(&mut Attributes)) {
        self.split(range.start);
        self.split(range.end);
        for (_, (_, attributes)) in self.vmas.range_mut(range.clone()) {
            change(attributes);
        }
        self.merge(range);
    }

    /// Merges what can be merged in `range` and at its edges.
    fn merge(&mut self, range: &Range<usize>) {
        let before = self.vmas.range(..range.start).next_back().map(|(&start, _)| start);
        let mut at = before.unwrap_or(range.start);
        while at <= range.end
            && let Some((&start, &(end, attributes))) = self.vmas.range(at..=range.end).next()
        {
            if let Some(&(next_end, next)) = self.vmas.get(&end)
                && next == attributes
            {
                self.vmas.remove(&end);
                self.vmas.insert(start, (next_end, attributes));
                at = start;
            } else {
                at = end;
            }
        }
    }

    /// The lowest free range of `len` bytes at a multiple of `align`.
    pub(super) fn find(&self, len: usize, align: usize) -> Option<usize> {
        let mut at = self.bounds.start.checked_next_multiple_of(align)?;
        for (&start, &(end, _)) in &self.vmas {
            if at.checked_add(len)? <= start {
                break;
            }
            at = at.max(end.checked_next_multiple_of(align)?);
        }
        (at.checked_add(len)? <= self.bounds.end).then_some(at)
    }
}

/// A set of addresses, as ranges.
#[derive(Debug, Default)]
pub(super) struct Ranges(BTreeMap<usize, usize>);

impl Ranges {
    pub(super) fn touches(&self, range: &Range<usize>) -> bool {
        self.0.range(..range.end).next_back().is_some_and(|(_, &end)| end > range.start)
    }

    pub(super) fn holds(&self, range: &Range<usize>) -> bool {
        self.0.range(..=range.start).next_back().is_some_and(|(_, &end)| end >= range.end)
    }

    pub(super) fn insert(&mut self, range: &Range<usize>) {
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&s, &e)) = self.0.range(..=end).next_back().filter(|&(_, &e)| e >= start) {
            self.0.remove(&s);
            (start, end) = (start.min(s), end.max(e));
        }
        self.0.insert(start, end);
    }

    pub(super) fn remove(&mut self, range: &Range<usize>) {
        while let Some((&s, &e)) = self.0.range(..range.end).next_back().filter(|&(_, &e)| e > range.start) {
            self.0.remove(&s);
            if s < range.start {
                self.0.insert(s, range.start);
            }
            if e > range.end {
                self.0.insert(range.end, e);
            }
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Range<usize>> {
        self.0.iter().map(|(&start, &end)| start..end)
    }
}
