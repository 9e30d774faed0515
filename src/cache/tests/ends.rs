//! Blocks of several lengths with more room than content, whose ends nobody touches: what the books hold as resident is.

use std::alloc::Layout;

use super::fake;
use super::model::Model;
use super::ops::finish;
use super::pattern::mix;
use crate::config::Config;
use crate::os::fake::Fake;

const MIB: usize = 1 << 20;

/// So much room is live at once, in bytes.
const ROOM: usize = 80 * MIB;

/// A program that takes blocks of some lengths in an order that differs each round, fills half of each, and frees them together.
struct HalfUsed {
    model: Model<Fake>,
    seed: u64,
}

impl HalfUsed {
    const LENGTHS: [usize; 3] = [4 * MIB, 8 * MIB, 16 * MIB];

    fn new(seed: u64) -> Self {
        Self { model: Model::new(fake(8 << 30), 4 << 30, Config::new()), seed }
    }

    /// Passes a round. Gives how many bytes the books held as resident while all blocks were out, and were not.
    fn pass(&mut self) -> usize {
        let Model { cache, .. } = &self.model;
        let mut room = 0;
        let mut blocks = Vec::new();
        while room < ROOM {
            self.seed = mix(self.seed);
            let length = Self::LENGTHS[(self.seed >> 33) as usize % Self::LENGTHS.len()];
            let layout = Layout::from_size_align(length, 8).unwrap();
            let p = cache.allocate(layout, &Config::new(), |_| ());
            assert!(!p.is_null());
            self.model.os().touch(p.addr(), length / 2);
            room += length;
            blocks.push((p, layout));
        }
        let level = cache.heap.level();
        let overstated = (level.out + level.dirty).saturating_sub(self.model.os().resident_bytes());
        blocks.into_iter().for_each(|(p, layout)| cache.deallocate(p, layout));
        overstated
    }
}

/// An end that lay beside pages that had been moved in was booked as resident while its block was out, and when it was freed, so that
/// as much as seemed too much was purged elsewhere and faulted in again.
#[test]
fn untouched_ends_beside_pages_that_were_moved_in_are_booked_as_absent() {
    for seed in 0..3 {
        let mut program = HalfUsed::new(seed);
        for _ in 0..20 {
            program.pass();
        }
        for round in 0..20 {
            let overstated = program.pass();
            assert!(overstated <= MIB, "seed {seed}, round {round}: {} KiB", overstated >> 10);
        }
        let books = program.model.cache.heap.books();
        assert!(books.gathered > 0, "seed {seed}: no pages are moved in");
        let resident = program.model.os().resident_bytes();
        assert!(resident <= ROOM, "seed {seed}: {} KiB resident", resident >> 10);
        finish(&program.model, Vec::new(), true);
    }
}
