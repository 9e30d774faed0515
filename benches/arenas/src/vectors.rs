//! Vectors that grow inside an arena, by pushing: alone, where the last block can grow in place, and two in turns.

use std::hint::black_box;

use crate::harness::{Scale, Table, Way, seconds};
use crate::peers::Peer;

const WORDS: u64 = 8 << 20;

/// What the arena is given: a vector that is copied at each growth leaves as much behind as it has.
const CAPACITY: usize = 640 << 20;

macro_rules! grow {
    ($arena:ty, $vec:ident, $count:expr, $handle:expr) => {{
        let mut arena = <$arena as Peer>::with_capacity(CAPACITY);
        let time = move || {
            let time = seconds(|| {
                let handle = $handle(&arena);
                let mut vectors: [$vec::vec::Vec<u64, _>; $count] =
                    std::array::from_fn(|_| $vec::vec::Vec::new_in(handle));
                for i in 0..WORDS / $count {
                    for vector in &mut vectors {
                        vector.push(i);
                    }
                }
                black_box(&vectors);
            });
            Peer::reset(&mut arena);
            time
        };
        (<$arena as Peer>::NAME, Box::new(time) as Box<dyn FnMut() -> f64>)
    }};
}

fn same<T>(arena: &T) -> &T {
    arena
}

pub fn run(scale: Scale) {
    let table = Table::new(scale, "vectors: pushed to 64 MiB in all", "ms", "bumpalo");
    let mut one: [Way<'_>; 4] = [
        grow!(zk_nalloc::Arena, allocator_api2, 1, same),
        grow!(bumpalo::Bump, allocator_api2, 1, same),
        grow!(bump_scope::Bump, allocator_api2, 1, same),
        grow!(blink_alloc::Blink, allocator_api2_04, 1, blink_alloc::Blink::allocator),
    ];
    table.row("one", 1e3, 11, &mut one);
    let mut two: [Way<'_>; 4] = [
        grow!(zk_nalloc::Arena, allocator_api2, 2, same),
        grow!(bumpalo::Bump, allocator_api2, 2, same),
        grow!(bump_scope::Bump, allocator_api2, 2, same),
        grow!(blink_alloc::Blink, allocator_api2_04, 2, blink_alloc::Blink::allocator),
    ];
    table.row("two in turns", 1e3, 11, &mut two);
}
