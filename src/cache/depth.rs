//! How much may lie in a shard's stacks: less, where little of it is asked for again.
//!
//! Why it is here: what lies in a stack serves one class, and merges with nothing. A thread whose blocks are of a few lengths is given
//! back what it freed last; one whose lengths hardly repeat finds a block of the class that it needs in one of ten stacks, and goes over
//! so much more memory, megabytes that would be in its caches else (docs/EXPERIMENTS.md, "What lies in stacks").

use super::runs::Bounds;

/// Where hardly anything is asked for again, so much may lie there all the same, in bytes: some blocks, by which it is seen when that changes.
const LEAST: usize = 512 << 10;

/// What is known of a shard's blocks by the times at which its stacks were full together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depth {
    /// As much as may lie there, unless bounds allow less, in bytes.
    most: usize,
    /// How many blocks were taken from there since they were full last.
    taken: usize,
}

impl Depth {
    pub(super) const WHOLE: Self = Self { most: usize::MAX, taken: 0 };

    /// Notes that a block was taken from a stack.
    #[inline]
    pub(super) const fn note_taken(&mut self) {
        self.taken += 1;
    }

    /// How much may lie in stacks, in bytes.
    #[inline]
    pub(super) const fn within(&self, bounds: Bounds) -> usize {
        if self.most < bounds.stacked { self.most } else { bounds.stacked }
    }

    /// Notes that the stacks were full together, and that so many blocks leave them: half as much is to lie there if fewer were asked for
    /// meanwhile, else twice as much. Not where nothing merges: what leaves is the heap's there.
    pub(super) fn note_full(&mut self, leave: usize, bounds: Bounds) {
        if !bounds.merges() {
            return;
        }
        let now = self.within(bounds);
        // None leaves where a block is longer than may lie there at all. Then more may: of what never lies there nobody would see that it is
        // asked for again.
        let next = if self.taken < leave { now / 2 } else { 2 * now };
        self.most = next.clamp(LEAST.min(bounds.stacked), bounds.stacked);
        self.taken = 0;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::cache::shard::Shard;
    use crate::cache::shard::tests::{MIB, class, pushed};
    use crate::os::Linux;

    /// As much as may lie there after so many times of being full, each time with so many blocks asked for since, and eight that leave.
    fn after(depth: &mut Depth, times: usize, taken: usize, bounds: Bounds) -> usize {
        for _ in 0..times {
            (0..taken).for_each(|_| depth.note_taken());
            depth.note_full(8, bounds);
        }
        depth.within(bounds)
    }

    #[test]
    fn what_is_hardly_asked_for_makes_room_and_what_is_has_it_again() {
        let bounds = Bounds::of(12 * MIB, true);
        let mut depth = Depth::WHOLE;
        let seen = [(1, 7), (1, 7), (5, 7), (1, 8), (2, 8), (5, 8), (1, 0)];
        let mib = seen.map(|(times, taken)| after(&mut depth, times, taken, bounds) as f64 / MIB as f64);
        assert_eq!(mib, [2.0, 1.0, 0.5, 1.0, 4.0, 4.0, 2.0]);
    }

    /// Columns of a megabyte that grow in turn were copied for ever otherwise.
    #[test]
    fn a_block_that_is_longer_than_may_lie_there_makes_room_for_such() {
        let bounds = Bounds::of(12 * MIB, true);
        let mut depth = Depth::WHOLE;
        after(&mut depth, 9, 0, bounds);
        depth.note_full(0, bounds);
        assert_eq!(depth.within(bounds), 2 * LEAST);
    }

    #[test]
    fn bounds_are_kept_to() {
        let small = Bounds { bytes: MIB, stacked: 300 << 10 };
        let mut depth = Depth::WHOLE;
        assert_eq!([0, 9, 0].map(|taken| after(&mut depth, 3, taken, small)), [300 << 10; 3]);
        // All that a shard holds lies in stacks there.
        let apart = Bounds::of(12 * MIB, false);
        assert_eq!(after(&mut depth, 9, 0, apart), 300 << 10);
        let mut whole = Depth::WHOLE;
        assert_eq!(after(&mut whole, 9, 0, apart), 12 * MIB);
    }

    #[test]
    fn a_block_that_is_taken_from_a_stack_counts() {
        let shard = Shard::new(1);
        let mut stacks = shard.lock(&Linux);
        let bounds = Bounds::of(12 * MIB, true);
        pushed(&mut stacks, &shard.counts, 6);
        assert!(
            [64 << 10, 512 << 10].map(class).iter().all(|&class| stacks.pop(class, &shard.counts).is_some())
        );
        stacks.depth.note_full(2, bounds);
        assert_eq!(stacks.depth.within(bounds), 4 * MIB);
        stacks.depth.note_full(1, bounds);
        assert_eq!(stacks.depth.within(bounds), 2 * MIB);
    }
}
