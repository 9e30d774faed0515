//! Small objects: one allocation after another, each written. The same functions serve the clock and callgrind.

use std::hint::black_box;

use crate::harness::{Scale, Table, Way, seconds};
use crate::peers::Peer;

/// The sizes compared, in bytes.
pub const SIZES: [usize; 8] = [8, 16, 24, 32, 48, 64, 128, 256];

/// How many addresses are kept: 2 KiB of them.
const KEPT: usize = 256;

/// The addresses of the last objects.
pub type Kept = [*mut u8; KEPT];

/// No addresses.
pub const NONE: Kept = [std::ptr::null_mut(); KEPT];

/// Allocates `n` objects of `8 * WORDS` bytes and keeps where they are, as whoever wants to use them must. `black_box` on
/// each would store the address in one slot of the stack, and where that lies relative to the arena's cursor makes
/// up to 30 % of the time. Not inlined, so that the code measured is this and nothing else.
#[inline(never)]
pub fn fill<P: Peer, const WORDS: usize>(arena: &P, n: usize, kept: &mut Kept) {
    for i in 0..n {
        kept[i % KEPT] = std::ptr::from_mut(arena.value([i as u64; WORDS])).cast();
    }
    black_box(kept);
}

/// Allocates `n` slices of `words` words each.
#[inline(never)]
pub fn fill_slices<P: Peer>(arena: &P, values: &[u64], n: usize) {
    for _ in 0..n {
        black_box(arena.copy(black_box(values)));
    }
}

/// [`fill`] for a size that is known at run time only.
pub fn of_size<P: Peer>(size: usize) -> fn(&P, usize, &mut Kept) {
    match size {
        8 => fill::<P, 1>,
        16 => fill::<P, 2>,
        24 => fill::<P, 3>,
        32 => fill::<P, 4>,
        48 => fill::<P, 6>,
        64 => fill::<P, 8>,
        128 => fill::<P, 16>,
        256 => fill::<P, 32>,
        other => panic!("no objects of {other} bytes"),
    }
}

/// Bytes allocated between two resets: what stays in the second-level cache, so that the arena is measured, not memory.
const FILL: usize = 256 << 10;

/// Fills between two readings of the clock.
const FILLS: usize = 40;

fn way<'a, P: Peer + 'a>(size: usize) -> Way<'a> {
    let mut arena = P::with_capacity(8 * FILL);
    let (n, fill) = (FILL / size, of_size::<P>(size));
    let mut kept = NONE;
    let time = move || {
        seconds(|| {
            for _ in 0..FILLS {
                fill(&arena, n, &mut kept);
                arena.reset();
            }
        })
    };
    (P::NAME, Box::new(time))
}

pub fn run(scale: Scale) {
    let table = Table::new(scale, "objects: one allocation with its write", "ns", "bumpalo");
    for size in SIZES {
        let allocations = FILL / size * FILLS;
        let mut ways = [
            way::<zk_nalloc::Arena>(size),
            way::<bumpalo::Bump>(size),
            way::<bump_scope::Bump>(size),
            way::<blink_alloc::Blink>(size),
        ];
        table.row(&format!("{size} B"), 1e9 / allocations as f64, 41, &mut ways);
    }
}
