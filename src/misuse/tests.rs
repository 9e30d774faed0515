//! The table against a map, over the fake kernel.

use std::alloc::Layout;
use std::collections::BTreeMap;

use super::*;
use crate::os::fake::{Call, Fake, When, errno};

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 64).unwrap()
}

/// A mixed-up number.
fn mix(n: usize) -> usize {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 7
}

#[test]
fn blocks_by_the_ten_thousand_are_found_as_they_are() {
    let os = Fake::new(64 << 20);
    let misuse = Misuse::new();
    let mut live = BTreeMap::new();
    for turn in 0..60_000_usize {
        let p = (1 << 30) + mix(turn) % 20_000 * 4096 + 64;
        if let Some(size) = live.remove(&p) {
            misuse.dies(&os, p, layout(size), Deed::Freed);
        } else {
            assert!(misuse.born(&os, p, layout(turn + 1)));
            live.insert(p, turn + 1);
        }
    }
    let table = misuse.table.lock(&os);
    for (&p, &size) in &live {
        let entry = table.find(p).unwrap();
        assert!(entry.live && entry.layout() == layout(size));
    }
    drop(table);
    // One mapping at a time.
    assert_eq!(os.calls(Call::Map), os.calls(Call::Unmap) + 1);
}

#[test]
fn a_table_that_cannot_grow_refuses_and_still_knows_what_it_has() {
    let os = Fake::new(64 << 20);
    let misuse = Misuse::new();
    assert!(misuse.born(&os, 64, layout(1)));
    os.fail(Call::Map, When::From(1), errno::ENOMEM);
    let born = (1..10_000).take_while(|&n| misuse.born(&os, 64 + n * 4096, layout(n + 1))).count();
    assert!((2_000..10_000).contains(&born), "{born}");
    // A block that is resized is always found a place, even in a full table.
    misuse.dies(&os, 64 + 4096, layout(2), Deed::Resized);
    misuse.reborn(&os, 1 << 40, layout(9));
    misuse.dies(&os, 1 << 40, layout(9), Deed::Freed);
    for n in 2..=born {
        misuse.dies(&os, 64 + n * 4096, layout(n + 1), Deed::Freed);
    }
}

fn line_of(deed: impl FnOnce() + std::panic::UnwindSafe) -> String {
    *std::panic::catch_unwind(deed).unwrap_err().downcast::<String>().unwrap()
}

#[test]
fn each_misuse_has_its_line() {
    let says = |deed: fn(&Fake, &Misuse)| {
        line_of(move || {
            let (os, misuse) = (Fake::new(64 << 20), Misuse::new());
            misuse.born(&os, 0x7f00_0000_1040, layout(65_536));
            deed(&os, &misuse);
        })
    };
    let p = 0x7f00_0000_1040_usize;
    assert_eq!(
        says(|os, misuse| {
            misuse.dies(os, 0x7f00_0000_1040, layout(65_536), Deed::Freed);
            misuse.dies(os, 0x7f00_0000_1040, layout(65_536), Deed::Freed);
        }),
        format!("zk-nalloc: misuse, aborting: block {p:#x} of 65536 bytes was freed after it had been freed")
    );
    assert_eq!(
        says(|os, misuse| misuse.dies(os, 0x7f00_0000_1040, layout(70_000), Deed::Resized)),
        format!(
            "zk-nalloc: misuse, aborting: block {p:#x} of 65536 bytes and alignment 64 was resized as one of 70000 \
             bytes and alignment 64"
        )
    );
    assert_eq!(
        says(|os, misuse| misuse.dies(os, 0x1040, layout(70_000), Deed::Freed)),
        "zk-nalloc: misuse, aborting: block 0x1040 of 70000 bytes was freed, and no block was ever handed out there"
    );
}
