//! What was offered to the kernel: it stays ours, and nobody's excess, until the kernel takes it.

use super::fake;
use super::model::{Live, Model};
use super::ops::finish;
use super::peaks::touched;
use super::runs::take;
use crate::config::Config;
use crate::heap::{Keep, Unit};
use crate::os::fake::Fake;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// It was taken for the rest of the process's, and for handed out as well once it was: the peak that the limits remember was
/// nearly twice as high as any.
#[test]
fn what_was_offered_is_not_counted_beside_what_it_becomes() {
    let os = fake(4 << 30);
    os.pass(1_000_000_000);
    os.set_beside(Some(0));
    let model = Model::new(os, 2 << 30, Config::new());
    let round = |model: &Model<Fake>| {
        let blocks: Vec<Live> = (0..8).map(|_| touched(model, 64 * MIB)).collect();
        blocks.into_iter().for_each(|live| model.free(live));
    };
    for _ in 0..3 {
        model.os().pass(10_000_000);
        round(&model);
    }
    let before = model.cache.heap.level().out_max;
    assert!(model.cache.soften() >= 256 * MIB);
    // Time stands still while the blocks of the next round are taken.
    model.os().pass(10_000_000_000);
    round(&model);
    assert!(model.cache.heap.level().out_max < before + 64 * MIB);
    finish(&model, Vec::new(), true);
}

/// It went for parts of chunks, which a purge of whole ones cannot have.
#[test]
fn an_excess_takes_nothing_that_was_offered() {
    let model = Model::new(fake(4 << 30), 2 << 30, Config::new());
    let block = touched(&model, 64 * MIB);
    model.free(block);
    model.cache.soften();
    // Next to nothing of what is free between them is a whole chunk.
    let mut held: Vec<Live> = (0..40).map(|_| take(&model, 1400 * KIB)).collect();
    for nth in (0..held.len()).rev().step_by(2) {
        let block = held.swap_remove(nth);
        model.free(block);
    }
    model.cache.drain();
    let before = model.cache.heap.books();
    assert!(before.soft > 0 && before.dirty > 8 * MIB);
    for _ in 0..20 {
        model.cache.heap.purge_to(Keep::Dirty(0), 8 * MIB, Unit::Chunks);
    }
    assert_eq!(model.cache.heap.books().soft, before.soft);
    assert!(model.cache.heap.purge(usize::MAX, Unit::Pages) > before.soft, "whoever wants all has it");
    finish(&model, held, true);
}
