//! How often a freed block is looked at, and that few looks learn what many would.

use std::alloc::Layout;

use super::fake;
use super::model::Model;
use super::ops::finish;
use crate::config::Config;
use crate::heap::Span;
use crate::os::fake::{Call, Fake};

const MIB: usize = 1 << 20;

/// Takes a block, touches `part` of it and frees it. Gives whether it was one of small pages, and how often the kernel
/// was asked what is resident when it was freed.
fn pass(model: &Model<Fake>, size: usize, zeroed: bool, part: Span) -> (bool, usize) {
    let (layout, config) = (Layout::from_size_align(size, 8).unwrap(), Config::new());
    let p = match zeroed {
        true => model.cache.allocate_zeroed(layout, &config, |_| ()),
        false => model.cache.allocate(layout, &config, |_| ()),
    };
    assert!(!p.is_null());
    model.os().touch(p.addr() + part.start, part.len);
    let looks = model.os().calls(Call::Resident);
    let is_thin = model.cache.is_thin(Span::new(p.addr(), size));
    model.cache.deallocate(p, layout);
    (is_thin, model.os().calls(Call::Resident) - looks)
}

#[test]
fn a_dozen_looks_tell_where_a_half_used_block_was_touched_no_more() {
    let model = Model::new(fake(4 << 30), 256 * MIB, Config::new());
    let (_, looks) = pass(&model, 64 * MIB, false, Span::new(0, 32 * MIB));
    assert!(looks <= 13, "{looks}");
    let reach = model.cache.zeroing.reach(64 * MIB);
    assert!((32 * MIB..=34 * MIB).contains(&reach), "{} KiB", reach >> 10);
    finish(&model, Vec::new(), true);
}

/// A model that has learned that zeroed blocks of 48 MiB are hardly touched.
fn with_thin_blocks() -> Model<Fake> {
    let model = Model::new(fake(4 << 30), 256 * MIB, Config::new());
    for _ in 0..8 {
        pass(&model, 48 * MIB, true, Span::new(7 * MIB, 1));
    }
    model
}

#[test]
fn a_block_in_small_pages_is_looked_at_in_part_and_now_and_then() {
    let model = with_thin_blocks();
    let looks = (0..160).map(|_| {
        let (is_thin, looks) = pass(&model, 48 * MIB, true, Span::new(7 * MIB, 1));
        assert!(is_thin);
        looks
    });
    assert_eq!(looks.sum::<usize>(), 20);
    finish(&model, Vec::new(), true);
}

#[test]
fn a_part_with_much_in_it_has_all_of_its_block_looked_at() {
    let model = with_thin_blocks();
    // Each part has its turn, and one of them is half touched: a fortieth of all.
    let looks = (0..160).map(|_| {
        let (is_thin, looks) = pass(&model, 48 * MIB, true, Span::new(7 * MIB, MIB));
        assert!(is_thin, "still cheapest in small pages");
        looks
    });
    assert!((21..25).contains(&looks.sum::<usize>()));
    // Whichever part is looked at, it is touched all over.
    let thin = (0..20).filter(|_| pass(&model, 48 * MIB, true, Span::new(0, 48 * MIB)).0);
    assert!(thin.count() <= 8, "one of eight is looked at");
    finish(&model, Vec::new(), true);
}
