//! A load like a prover's: large vectors of all sizes on four threads, each byte written and checked.
//!
//! A process of its own, because the load has to be all that its allocator sees.

#[expect(dead_code, reason = "no test uses all that the tests share")]
mod support;

use support::load::{LOAD, load};
use support::pattern::Patterned;
use zk_nalloc::NAlloc;

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

#[test]
fn a_prover_s_load_keeps_every_byte() {
    support::in_both_modes("a_prover_s_load_keeps_every_byte", || {
        load(&LOAD, 100 * support::times());
        let stats = zk_nalloc::stats();
        assert!(stats.hits() > 0, "nothing was reused:\n{stats}");
    });
}

#[test]
fn blocks_cross_every_boundary_by_realloc() {
    support::in_both_modes("blocks_cross_every_boundary_by_realloc", || {
        const SMALL: usize = 64 << 10;
        const LONG: usize = 2 << 20;
        // Sizes around where the small side ends, where classes end, and where moving begins to pay.
        let around =
            |boundary: usize| [boundary - 4097, boundary - 1, boundary, boundary + 1, boundary + 4097];
        let sizes: Vec<_> = [SMALL, LONG, 2 * LONG, 16 * LONG].into_iter().flat_map(around).collect();
        for &from in &sizes {
            let mut block = Patterned::new(from as u64, from);
            for &to in &sizes {
                block.resize(to);
                block.resize(from);
            }
        }
    });
}

#[test]
fn vectors_pushed_side_by_side_stay_apart() {
    support::in_both_modes("vectors_pushed_side_by_side_stay_apart", || {
        let mut columns: Vec<_> = (0..16_u64).map(|seed| Patterned::new(seed, 40 << 10)).collect();
        for doubling in 1..10 {
            for column in &mut columns {
                column.resize(40 << (10 + doubling));
            }
        }
        columns.iter().for_each(|column| column.check("a column"));
    });
}
