//! Arrays: allocated without being initialised, then filled; and whole rounds of a prover's size.

use std::hint::black_box;

use crate::harness::{Scale, Table, Way, seconds};
use crate::peers::Peer;

fn write(array: &mut [std::mem::MaybeUninit<u8>]) {
    // SAFETY: the slice is valid to write to.
    unsafe { array.as_mut_ptr().write_bytes(1, array.len()) };
    black_box(array);
}

/// Fills `total` bytes with arrays of `size` bytes and resets.
fn way<'a, P: Peer + 'a>(size: usize, total: usize) -> Way<'a> {
    let mut arena = P::with_capacity(total + (total / size) * 64);
    let time = move || {
        seconds(|| {
            for _ in 0..total / size {
                write(arena.array(size));
            }
            arena.reset();
        })
    };
    (P::NAME, Box::new(time))
}

fn ways<'a>(size: usize, total: usize) -> [Way<'a>; 4] {
    [
        way::<zk_nalloc::Arena>(size, total),
        way::<bumpalo::Bump>(size, total),
        way::<bump_scope::Bump>(size, total),
        way::<blink_alloc::Blink>(size, total),
    ]
}

pub fn run(scale: Scale) {
    let what = "arrays: 64 MiB of them allocated, filled and reset";
    let table = Table::new(scale, what, "ms", "bumpalo");
    for size in [1 << 10, 16 << 10, 256 << 10, 4 << 20, 64 << 20] {
        let label =
            if size < 1 << 20 { format!("{} KiB", size >> 10) } else { format!("{} MiB", size >> 20) };
        table.row(&label, 1e3, 11, &mut ways(size, 64 << 20));
    }
}

pub fn run_rounds(scale: Scale) {
    let table = Table::new(scale, "rounds: 256 MiB in arrays of 1 MiB", "ms", "bumpalo");
    table.row("warm: filled and reset", 1e3, 11, &mut ways(1 << 20, 256 << 20));
    fn first<'a, P: Peer>() -> Way<'a> {
        let time = || {
            seconds(|| {
                let arena = P::with_capacity((256 << 20) + (1 << 16));
                for _ in 0..256 {
                    write(arena.array(1 << 20));
                }
            })
        };
        (P::NAME, Box::new(time))
    }
    let mut ways = [
        first::<zk_nalloc::Arena>(),
        first::<bumpalo::Bump>(),
        first::<bump_scope::Bump>(),
        first::<blink_alloc::Blink>(),
    ];
    table.row("first: made, filled and dropped", 1e3, 5, &mut ways);
}
