//! Blocks of several lengths with more room than content, whose ends nobody touches: what is resident serves their fronts, round after
//! round.

use std::alloc::Layout;

use super::fake;
use super::model::Model;
use super::ops::finish;
use crate::config::Config;
use crate::os::fake::Fake;

const MIB: usize = 1 << 20;

/// So much room is live at once, in bytes.
const ROOM: usize = 80 * MIB;

/// A program that takes blocks of some lengths in an order that differs each round, fills half of each, and frees them together.
struct HalfUsed {
    model: Model<Fake>,
    lengths: [usize; 3],
    word: u64,
}

impl HalfUsed {
    fn new(lengths: [usize; 3]) -> Self {
        Self { model: Model::new(fake(8 << 30), 4 << 30, Config::new()), lengths, word: 1 }
    }

    fn next_length(&mut self) -> usize {
        // The generator of Knuth's MMIX.
        self.word = self.word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.lengths[(self.word >> 33) as usize % self.lengths.len()]
    }

    /// Passes a round. Gives how many bytes became resident because they were touched.
    fn pass(&mut self) -> usize {
        let (mut room, mut faulted) = (0, 0);
        let mut blocks = Vec::new();
        while room < ROOM {
            let layout = Layout::from_size_align(self.next_length(), 8).unwrap();
            let p = self.model.cache.allocate(layout, &Config::new(), |_| ());
            assert!(!p.is_null());
            let resident = self.model.os().resident_bytes();
            self.model.os().touch(p.addr(), layout.size() / 2);
            faulted += self.model.os().resident_bytes() - resident;
            room += layout.size();
            blocks.push((p, layout));
        }
        blocks.into_iter().for_each(|(p, layout)| self.model.cache.deallocate(p, layout));
        faulted
    }
}

/// An end that lay beside pages that had been moved in was booked as resident while its block was out and when it was freed, so that
/// as much as seemed too much was purged elsewhere and faulted in again; and one that begins where a huge page does was taken to begin
/// a little behind that, in the next.
#[test]
fn what_the_last_round_left_resident_serves_blocks_whose_ends_nobody_touches() {
    for lengths in [[8, 1, 8], [2, 8, 2]] {
        let mut program = HalfUsed::new(lengths.map(|mib| mib * MIB));
        for _ in 0..20 {
            program.pass();
        }
        let faulted: usize = (0..40).map(|_| program.pass()).sum();
        // Of 1.6 GiB that are touched.
        assert!(faulted <= 20 * MIB, "{lengths:?} MiB: {} KiB", faulted >> 10);
        let resident = program.model.os().resident_bytes();
        assert!(resident <= ROOM + ROOM / 2, "{lengths:?} MiB: {} KiB resident", resident >> 10);
        finish(&program.model, Vec::new(), true);
    }
}
