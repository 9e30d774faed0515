//! Ordered trees over the nodes of a [`Pool`]: treaps (Seidel and Aragon, 1996), whose priorities are a hash
//! of the node's index, so that no order of operations makes them deep and a node needs no room for balance.
//!
//! Two trees use the same nodes: [`Order::Address`] and [`Order::Length`]. All walks are loops: no recursion
//! on a stack that may be a signal handler's.

use super::pool::{Index, NIL, Pool};

/// What a tree is ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Start address.
    Address = 0,
    /// Length, then start address.
    Length = 1,
}

/// A tree; its nodes lie in a pool.
#[derive(Debug)]
pub(crate) struct Tree {
    root: Index,
    order: Order,
}

/// A node's place in an order.
type Key = (usize, usize);

/// Where an index is stored: in the root, or on one side of a node.
#[derive(Clone, Copy)]
struct Slot {
    parent: Index,
    side: usize,
}

const ROOT: Slot = Slot { parent: NIL, side: 0 };

/// The heap order of the treap: a bijective hash (murmur3's finaliser), so that no two nodes are equal.
const fn priority(index: Index) -> u32 {
    let mut x = index ^ 0x9E37_79B9;
    x = (x ^ (x >> 16)).wrapping_mul(0x85EB_CA6B);
    x = (x ^ (x >> 13)).wrapping_mul(0xC2B2_AE35);
    x ^ (x >> 16)
}

impl Tree {
    pub(crate) const fn new(order: Order) -> Self {
        Self { root: NIL, order }
    }

    fn key(&self, pool: &Pool, index: Index) -> Key {
        let node = pool.get(index);
        match self.order {
            Order::Address => (node.start, 0),
            Order::Length => (node.len, node.start),
        }
    }

    fn get(&self, pool: &Pool, slot: Slot) -> Index {
        if slot.parent == NIL {
            self.root
        } else {
            pool.get(slot.parent).links[self.order as usize][slot.side]
        }
    }

    fn set(&mut self, pool: &mut Pool, slot: Slot, index: Index) {
        if slot.parent == NIL {
            self.root = index;
        } else {
            pool.get_mut(slot.parent).links[self.order as usize][slot.side] = index;
        }
    }

    /// Puts a node in, whose key is not in the tree.
    pub(crate) fn insert(&mut self, pool: &mut Pool, new: Index) {
        let key = self.key(pool, new);
        let mut slot = ROOT;
        let mut current = self.get(pool, slot);
        while current != NIL && priority(current) > priority(new) {
            slot = Slot { parent: current, side: usize::from(self.key(pool, current) < key) };
            current = self.get(pool, slot);
        }
        self.set(pool, slot, new);
        // What stood there is split around the key, into the left and the right of the new node.
        let mut less = Slot { parent: new, side: 0 };
        let mut more = Slot { parent: new, side: 1 };
        while current != NIL {
            if self.key(pool, current) < key {
                self.set(pool, less, current);
                less = Slot { parent: current, side: 1 };
                current = self.get(pool, less);
            } else {
                self.set(pool, more, current);
                more = Slot { parent: current, side: 0 };
                current = self.get(pool, more);
            }
        }
        self.set(pool, less, NIL);
        self.set(pool, more, NIL);
    }

    /// Takes a node out. Its key must be what it was when it was put in.
    pub(crate) fn remove(&mut self, pool: &mut Pool, old: Index) {
        let key = self.key(pool, old);
        let mut slot = ROOT;
        loop {
            let current = self.get(pool, slot);
            if current == old {
                break;
            }
            if current == NIL {
                crate::invariant::broken("H4: a piece is missing from its tree");
            }
            slot = Slot { parent: current, side: usize::from(self.key(pool, current) < key) };
        }
        let [mut less, mut more] = pool.get(old).links[self.order as usize];
        while less != NIL && more != NIL {
            if priority(less) > priority(more) {
                self.set(pool, slot, less);
                slot = Slot { parent: less, side: 1 };
                less = self.get(pool, slot);
            } else {
                self.set(pool, slot, more);
                slot = Slot { parent: more, side: 0 };
                more = self.get(pool, slot);
            }
        }
        self.set(pool, slot, if less == NIL { more } else { less });
    }

    /// The last node whose key is less than `key`, and the first whose is not.
    pub(crate) fn around(&self, pool: &Pool, key: Key) -> (Option<Index>, Option<Index>) {
        let mut found = [NIL; 2];
        let mut current = self.root;
        while current != NIL {
            let right = self.key(pool, current) < key;
            found[usize::from(!right)] = current;
            current = self.get(pool, Slot { parent: current, side: usize::from(right) });
        }
        let [before, after] = found.map(|index| (index != NIL).then_some(index));
        (before, after)
    }

    /// The first node whose key is not less than `key`.
    pub(crate) fn at_or_after(&self, pool: &Pool, key: Key) -> Option<Index> {
        self.around(pool, key).1
    }

    /// The last node whose key is less than `key`.
    pub(crate) fn before(&self, pool: &Pool, key: Key) -> Option<Index> {
        self.around(pool, key).0
    }
}

#[cfg(test)]
mod tests {
    use super::super::pool::State;
    use super::*;
    use crate::os::Linux;
    use std::collections::BTreeMap;

    #[test]
    fn behaves_as_a_sorted_map_under_a_million_operations() {
        let (mut pool, mut tree) = (Pool::new(), Tree::new(Order::Length));
        let mut model: BTreeMap<Key, Index> = BTreeMap::new();
        let mut seed = 1_u64;
        let mut random = move |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        for _ in 0..1_000_000 {
            let key = (random(64) as usize, random(64) as usize);
            match model.remove(&key) {
                Some(index) => {
                    tree.remove(&mut pool, index);
                    pool.unmake(index);
                }
                None => {
                    assert!(pool.ensure(1, &Linux));
                    let index = pool.make(key.1, key.0, State::Dirty);
                    tree.insert(&mut pool, index);
                    model.insert(key, index);
                }
            }
            let probe = (random(64) as usize, random(64) as usize);
            assert_eq!(tree.at_or_after(&pool, probe), model.range(probe..).next().map(|(_, &i)| i));
            assert_eq!(tree.before(&pool, probe), model.range(..probe).next_back().map(|(_, &i)| i));
        }
    }
}
