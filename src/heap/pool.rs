//! The nodes that free memory is described by, in mappings of their own (H5).
//!
//! A node is named by a 32-bit index. Segments double in length, so a handful of mappings hold any number of
//! nodes and an index never moves. Spare nodes are kept so that giving memory back never needs any (H6).

#![expect(unsafe_code, reason = "nodes live in memory mapped by the os layer")]

use crate::os::{GRANULE, Os};

/// Names a node; [`NIL`] names none.
pub(crate) type Index = u32;

/// No node.
pub(crate) const NIL: Index = u32::MAX;

/// What is known of the memory in a piece (H2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// Reserved address space, inaccessible.
    Closed,
    /// Accessible and known to read as zero.
    Zero,
    /// Given to `MADV_FREE`: reads as before or as zero.
    Soft,
    /// Any content; presumed resident.
    Dirty,
    /// Dirty, in a forked child, and still shared with the parent.
    Inherited,
}

impl State {
    pub(crate) const COUNT: usize = 5;
}

/// A free piece: `start..start + len` bytes, both multiples of a granule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub(crate) start: usize,
    pub(crate) len: usize,
    /// Left and right child in the tree by address and in the tree by length.
    pub(crate) links: [[Index; 2]; 2],
    pub(crate) state: State,
}

/// Nodes in the first segment; segment `k` has this many shifted by `k`.
const FIRST: usize = 1 << 10;

/// Segments: enough for 2^31 nodes.
const SEGMENTS: usize = 21;

pub(crate) struct Pool {
    segments: [usize; SEGMENTS],
    mapped: usize,
    /// Indices below this have been handed out at least once.
    fresh: usize,
    /// Returned nodes, linked through `links[0][0]`.
    free: Index,
    free_count: usize,
}

impl Pool {
    pub(crate) const fn new() -> Self {
        Self { segments: [0; SEGMENTS], mapped: 0, fresh: 0, free: NIL, free_count: 0 }
    }

    /// How many nodes can be made without asking anybody.
    pub(crate) const fn spare(&self) -> usize {
        self.free_count + (self.mapped - self.fresh)
    }

    /// Sees to it that `wanted` nodes can be made; `false` if the kernel refuses the memory for them.
    pub(crate) fn ensure<O: Os>(&mut self, wanted: usize, os: &O) -> bool {
        while self.spare() < wanted {
            let segment = Self::place(self.mapped).0;
            if segment == SEGMENTS {
                return false;
            }
            let nodes = FIRST << segment;
            let bytes = (nodes * size_of::<Node>()).next_multiple_of(GRANULE << 4);
            let Ok(address) = os.map(bytes, GRANULE) else { return false };
            self.segments[segment] = address;
            self.mapped += nodes;
        }
        true
    }

    /// The segment and the place in it of the node `index`.
    const fn place(index: usize) -> (usize, usize) {
        let shifted = index + FIRST;
        let segment = (shifted / FIRST).ilog2() as usize;
        (segment, shifted - (FIRST << segment))
    }

    fn pointer(&self, index: Index) -> *mut Node {
        debug_assert!((index as usize) < self.fresh);
        let (segment, offset) = Self::place(index as usize);
        let base: *mut Node = core::ptr::with_exposed_provenance_mut(self.segments[segment]);
        base.wrapping_add(offset)
    }

    #[inline]
    pub(crate) fn get(&self, index: Index) -> &Node {
        // SAFETY: indices come from `make`, so the node lies in a segment mapped by `ensure`, was written
        // there, and segments are never unmapped (H5); `&self` excludes a `&mut Node` from `get_mut`.
        unsafe { &*self.pointer(index) }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: Index) -> &mut Node {
        // SAFETY: as in `get`; `&mut self` makes the reference unique.
        unsafe { &mut *self.pointer(index) }
    }

    /// Makes a node that is in no tree. `ensure` has made room for it (H6).
    pub(crate) fn make(&mut self, start: usize, len: usize, state: State) -> Index {
        let node = Node { start, len, links: [[NIL; 2]; 2], state };
        if self.free != NIL {
            let index = self.free;
            self.free = self.get(index).links[0][0];
            self.free_count -= 1;
            *self.get_mut(index) = node;
            return index;
        }
        if self.fresh == self.mapped {
            crate::invariant::broken("H6: no spare node");
        }
        let index = self.fresh as Index;
        self.fresh += 1;
        // SAFETY: `fresh < mapped` held, so the place lies in a mapped segment, aligned for a node (mappings
        // start on pages), and is not in use.
        unsafe { self.pointer(index).write(node) };
        index
    }

    /// Takes back a node that is in no tree any more.
    pub(crate) fn unmake(&mut self, index: Index) {
        let free = self.free;
        self.get_mut(index).links[0][0] = free;
        self.free = index;
        self.free_count += 1;
    }
}
