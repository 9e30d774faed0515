//! Where long blocks lie of threads that have one at a time.

use super::fake;
use super::model::Model;
use super::ops::finish;
use super::runs::{as_thread_of, take};
use crate::config::Config;
use crate::os::fake::Fake;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const THREADS: usize = 4;

fn model() -> Model<Fake> {
    Model::new(fake(2 << 30), 1 << 30, Config::new())
}

/// Lengths that do not repeat, some of classes that a hot run serves, some beyond all classes.
fn lengths(thread: usize) -> impl Iterator<Item = usize> {
    let mut random = 1 + thread as u64;
    core::iter::repeat_with(move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        [100 * KIB, MIB, 3 * MIB, 5 * MIB, 9 * MIB][(random >> 61) as usize % 5]
            + (random >> 40) as usize % 64 * 4 * KIB
    })
}

/// By best fit the threads went through all that they had free together, and out of their caches.
#[test]
fn threads_that_have_a_block_at_a_time_stay_where_they_are() {
    const LONGEST: usize = 10 * MIB;
    // As much as each has gone over stays: following what is in use, the limits leave less, and threads make do with others'.
    let model = Model::new(fake(2 << 30), 1 << 30, Config::new().cache_bytes(1 << 30));
    let mut lengths: Vec<_> = (0..THREADS).map(lengths).collect();
    let mut held: Vec<_> = (0..THREADS).map(|_| None).collect();
    let mut seen: Vec<Vec<usize>> = vec![Vec::new(); THREADS];
    // All have one of the longest first, so that there is room for each.
    for (thread, held) in held.iter_mut().enumerate() {
        *held = Some(as_thread_of(thread, || take(&model, LONGEST)));
    }
    for round in 0..200 {
        for thread in 0..THREADS {
            as_thread_of(thread, || {
                if let Some(block) = held[thread].take() {
                    model.free(block);
                }
                let block = take(&model, lengths[thread].next().unwrap());
                if round >= 20 {
                    seen[thread].extend([block.block().start, block.block().end()]);
                }
                held[thread] = Some(block);
            });
        }
        model.audit(false);
    }
    for seen in &seen {
        let gone_over = seen.iter().max().unwrap() - seen.iter().min().unwrap();
        assert!(gone_over <= LONGEST + MIB, "{} KiB for blocks of 9.25 MiB at most", gone_over / KIB);
    }
    finish(&model, held.into_iter().flatten().collect(), true);
}

/// Such a thread would cut free memory up where its last block happened to lie.
#[test]
fn whoever_has_much_in_use_or_is_alone_gets_the_best_fit() {
    for (mine, theirs) in [(64 * MIB, MIB), (0, 0)] {
        let model = model();
        let mut held = Vec::new();
        if theirs > 0 {
            held.push(as_thread_of(1, || take(&model, theirs)));
        }
        as_thread_of(0, || {
            if mine > 0 {
                held.push(take(&model, mine));
            }
            let between: Vec<_> = [8, 1, 12, 1].map(|mib| take(&model, mib * MIB)).into();
            let gap = between[0].block().start;
            let (gaps, rest): (Vec<_>, Vec<_>) =
                between.into_iter().partition(|block| block.layout.size() > MIB);
            gaps.into_iter().for_each(|block| model.free(block));
            let block = take(&model, 7 * MIB);
            assert_eq!(block.block().start, gap, "not where the last one was, which is longer");
            held.extend(rest.into_iter().chain([block]));
        });
        finish(&model, held, true);
    }
}
