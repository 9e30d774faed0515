//! Short blocks whose alignment is long: what they touch is resident, and nothing that their alignment leaves between them.

#[expect(dead_code, reason = "no test uses all that the tests share")]
mod support;

use std::alloc::{Layout, alloc, dealloc};

use support::{in_both_modes, proc};
use zk_nalloc::NAlloc;

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

/// Each made a huge page resident.
#[test]
#[expect(unsafe_code, reason = "blocks of an alignment")]
fn they_take_no_more_memory_than_they_touch() {
    in_both_modes("they_take_no_more_memory_than_they_touch", || {
        for (kib, align_kib) in [(128, 2048), (128, 1024), (64, 256)] {
            let layout = Layout::from_size_align(kib << 10, align_kib << 10).unwrap();
            let before = proc::resident();
            for round in 0..3 {
                let blocks: Vec<*mut u8> = (0..400)
                    .map(|_| {
                        // SAFETY: the layout is not of size 0; what is written is the block.
                        unsafe {
                            let p = alloc(layout);
                            assert!(!p.is_null() && p.addr().is_multiple_of(layout.align()));
                            p.write_bytes(1, layout.size());
                            p
                        }
                    })
                    .collect();
                let grown = proc::resident().saturating_sub(before);
                assert!(
                    grown <= 400 * layout.size() + (16 << 20),
                    "{kib} {align_kib} {round}: {} MiB",
                    grown >> 20
                );
                // SAFETY: each goes back once, with its layout.
                blocks.into_iter().for_each(|p| unsafe { dealloc(p, layout) });
            }
        }
    });
}
