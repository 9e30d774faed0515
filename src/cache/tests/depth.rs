//! How much lies in the stacks of a thread that replaces its blocks.

use super::homes::draws;
use super::model::Live;
use super::ops::finish;
use super::runs::{as_thread_of, take, with_free};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// It was 2 MiB and more on average, of which one block in ten was asked for again: so much more the thread went over.
#[test]
fn blocks_whose_lengths_hardly_repeat_lie_in_stacks_for_a_moment() {
    const STEPS: usize = 400;
    let model = with_free(64 * MIB);
    let mut held: Vec<Live> = Vec::new();
    let (mut draw, mut sum) = (draws(), 0);
    as_thread_of(0, || {
        for step in 0..2 * STEPS {
            while held.iter().map(|block| block.layout.size()).sum::<usize>() < 12 * MIB {
                held.push(take(&model, (100 << draw(4)) * KIB + draw(99) * KIB));
            }
            model.free(held.remove(0));
            if step >= STEPS {
                sum += model.cache.shards()[0].lock(model.os()).stacked();
            }
        }
    });
    model.audit(true);
    finish(&model, held, true);
    assert!(sum / STEPS <= 768 * KIB, "{} KiB", sum / STEPS / KIB);
}
