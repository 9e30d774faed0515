//! Short blocks that their alignment keeps far from each other.

use std::alloc::Layout;

use super::fake;
use super::model::{Live, Model};
use super::ops::finish;
use crate::config::Config;
use crate::os::CHUNK;
use crate::os::fake::Fake;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn taken(model: &Model<Fake>, layout: Layout, zeroed: bool) -> Live {
    let live = model.allocate(layout, zeroed, 1).unwrap();
    model.os().touch(live.p, layout.size());
    live
}

/// Each made a huge page resident, which nobody else could use, and which stayed.
#[test]
fn each_makes_resident_what_it_touches() {
    for (size, align) in [(128 * KIB, CHUNK), (128 * KIB, MIB), (64 * KIB, 256 * KIB)] {
        let model = Model::new(fake(4 << 30), 2 << 30, Config::new());
        let layout = Layout::from_size_align(size, align).unwrap();
        for round in 1..4 {
            let blocks: Vec<Live> = (0..200).map(|nth| taken(&model, layout, nth % 3 == 0)).collect();
            assert!(blocks.iter().all(|live| live.p.is_multiple_of(align)));
            assert_eq!(model.cache.snapshot().thin, 200 * round, "{size} {align}: in small pages");
            let resident = model.os().resident_bytes();
            assert!(resident <= 200 * size + 8 * MIB, "{size} {align}: {} KiB", resident / KIB);
            blocks.into_iter().for_each(|live| model.free(live));
        }
        finish(&model, Vec::new(), true);
    }
}

/// What has a class goes to a stack when it is freed, which small pages may not.
#[test]
fn one_that_grows_or_shrinks_keeps_its_content_and_what_has_a_class_is_of_the_heap() {
    let model = Model::new(fake(4 << 30), 2 << 30, Config::new());
    let mut held = Vec::new();
    for sizes in [[128, 128, 900], [128, 900, 2100], [900, 100, 1500], [3000, 128, 600], [128, 3000, 128]] {
        let layout = Layout::from_size_align(sizes[0] * KIB, MIB).unwrap();
        let mut live = taken(&model, layout, false);
        for size in sizes {
            assert!(model.resize(&mut live, size * KIB, 1));
            model.audit(false);
        }
        held.push(live);
    }
    for live in held {
        model.free(live);
        model.audit(false);
    }
    let layout = Layout::from_size_align(128 * KIB, 8).unwrap();
    let short: Vec<Live> = (0..100).map(|_| taken(&model, layout, false)).collect();
    finish(&model, short, true);
}
