//! The one type of operations, how they are drawn, and the driver that does a sequence of them with one thread.

use std::alloc::Layout;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config as Runs, RngAlgorithm, TestRng, TestRunner};

use super::model::{Live, Model, World};
use super::pattern::mix;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// What is done with a cache. Blocks are named by any number, modulo how many there are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Allocate {
        size: usize,
        align: usize,
        zeroed: bool,
    },
    Resize {
        which: usize,
        size: usize,
    },
    /// The block that was got `back` blocks before the last.
    ResizeLast {
        back: usize,
        size: usize,
    },
    /// To so many 256ths of its size, from 64 to 1024.
    Scale {
        which: usize,
        share: usize,
    },
    Free {
        which: usize,
    },
    /// Frees every so many-th block.
    FreeEvery {
        nth: usize,
    },
    Soften,
    /// The kernel takes softened memory.
    Reclaim,
    Release,
    Drain,
    /// The thread forks, and goes on in the parent.
    Fork,
    /// The thread forks, and goes on in the child.
    ForkChild,
}

/// What a kernel can be told to do in the middle of a sequence.
pub(super) trait Hooks: World {
    /// Takes softened memory; `free` says whether a granule is part of no block.
    fn take_softened(&self, free: &mut dyn FnMut(usize) -> bool);
}

impl Hooks for crate::os::Linux {
    fn take_softened(&self, _: &mut dyn FnMut(usize) -> bool) {}
}

impl Hooks for crate::os::fake::Fake {
    fn take_softened(&self, free: &mut dyn FnMut(usize) -> bool) {
        self.reclaim(free);
    }
}

/// Sizes in bytes, mostly short, from 64 KiB on.
pub(super) fn sizes(max: usize) -> impl Strategy<Value = usize> + Clone {
    let within = move |from: usize, to: usize| (from.min(max)..=to.min(max)).boxed();
    // Round sizes are what programs ask for, and where lengths and chunks begin and end.
    let round = (0..16_usize, 1..=4_usize, -1..=1_isize).prop_map(move |(k, n, off)| {
        (n * ((64 * KIB) << k)).saturating_add_signed(off * 4096).clamp(64 * KIB, max)
    });
    prop_oneof![
        6 => within(64 * KIB, 2 * MIB),
        4 => within(2 * MIB, 8 * MIB),
        3 => within(8 * MIB, 64 * MIB),
        1 => within(64 * MIB, 1024 * MIB),
        4 => round,
    ]
}

/// Alignments, mostly those of numbers, up to 2 MiB and rarely up to 1 GiB.
fn aligns(max: usize) -> impl Strategy<Value = usize> + Clone {
    prop_oneof![
        8 => (0..7_u32).prop_map(|k| 1_usize << k),
        4 => (7..22_u32).prop_map(|k| 1_usize << k),
        1 => (22..31_u32).prop_map(move |k| (1_usize << k).min(max)),
    ]
}

/// Operations on blocks of up to `max` bytes.
pub(super) fn ops(max: usize, align_max: usize, fork_child: bool) -> impl Strategy<Value = Op> + Clone {
    let which = any::<u16>().prop_map(usize::from);
    prop_oneof![
        20 => (sizes(max), aligns(align_max), prop::bool::weighted(0.35))
            .prop_map(|(size, align, zeroed)| Op::Allocate { size, align, zeroed }),
        6 => (which.clone(), sizes(max)).prop_map(|(which, size)| Op::Resize { which, size }),
        6 => (which.clone(), 64..1024_usize).prop_map(|(which, share)| Op::Scale { which, share }),
        14 => which.prop_map(|which| Op::Free { which }),
        2 => (1..4_usize).prop_map(|nth| Op::FreeEvery { nth }),
        1 => Just(Op::Soften),
        1 => Just(Op::Reclaim),
        1 => Just(Op::Release),
        1 => Just(Op::Drain),
        1 => Just(Op::Fork),
        1 => Just(if fork_child { Op::ForkChild } else { Op::Fork }),
    ]
}

/// A sequence of operations that is the same each time.
pub(super) fn drawn(seed: u64, len: usize, max: usize) -> Vec<Op> {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[mix(seed).to_le_bytes(); 4].concat());
    let mut runner = TestRunner::new_with_rng(Runs::default(), rng);
    let strategy = prop::collection::vec(ops(max, 4 * MIB, false), len);
    strategy.new_tree(&mut runner).expect("nothing is filtered").current()
}

/// How a sequence is driven.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drive {
    /// Live bytes beyond which blocks are freed, the oldest first.
    pub(super) live_max: usize,
    /// Operations between two audits.
    pub(super) audit_every: usize,
    pub(super) seed: u64,
}

/// Does a sequence of operations. Gives the blocks that are live at its end.
pub(super) fn drive<O: Hooks>(model: &Model<O>, ops: &[Op], how: Drive) -> Vec<Live> {
    let mut blocks: Vec<Live> = Vec::new();
    for (turn, &op) in ops.iter().enumerate() {
        one(model, op, &mut blocks, how.live_max, mix(how.seed ^ turn as u64));
        if (turn + 1).is_multiple_of(how.audit_every) {
            model.audit((turn + 1).is_multiple_of(how.audit_every * 4));
        }
    }
    model.audit(true);
    blocks
}

/// Frees what a sequence has left, and audits the books.
pub(super) fn finish<O: World>(model: &Model<O>, blocks: Vec<Live>, releases: bool) {
    for live in blocks {
        model.free(live);
    }
    model.audit_empty(releases);
}

/// Does one operation.
pub(super) fn one<O: Hooks>(model: &Model<O>, op: Op, blocks: &mut Vec<Live>, live_max: usize, seed: u64) {
    let pick = |which: usize, blocks: &Vec<Live>| (!blocks.is_empty()).then(|| which % blocks.len());
    match op {
        Op::Allocate { size, align, zeroed } => {
            let Ok(layout) = Layout::from_size_align(size, align) else { return };
            make_room(model, blocks, live_max, size);
            blocks.extend(model.allocate(layout, zeroed, seed));
        }
        Op::Resize { which, size } => {
            let Some(at) = pick(which, blocks) else { return };
            let mut live = blocks.swap_remove(at);
            make_room(model, blocks, live_max, size);
            model.resize(&mut live, size, seed);
            blocks.push(live);
        }
        Op::ResizeLast { back, size } => {
            if let Some(which) = blocks.len().checked_sub(1 + back) {
                one(model, Op::Resize { which, size }, blocks, live_max, seed);
                // Back to where it was.
                let last = blocks.len() - 1;
                blocks.swap(which.min(last), last);
            }
        }
        Op::Scale { which, share } => {
            let Some(at) = pick(which, blocks) else { return };
            let size = (blocks[at].layout.size() / 256 * share).clamp(64 * KIB, live_max);
            one(model, Op::Resize { which: at, size }, blocks, live_max, seed);
        }
        Op::Free { which } => {
            if let Some(at) = pick(which, blocks) {
                model.free(blocks.swap_remove(at));
            }
        }
        Op::FreeEvery { nth } => {
            for live in blocks.extract_if(.., {
                let mut at = 0;
                move |_| {
                    at += 1;
                    at % nth == 0
                }
            }) {
                model.free(live);
            }
        }
        Op::Soften => drop(model.cache.soften()),
        Op::Reclaim => {
            let mut spans: Vec<_> = blocks.iter().map(Live::block).collect();
            spans.sort_by_key(|s| s.start);
            model.os().take_softened(&mut |granule| {
                let at = spans.partition_point(|s| s.start <= granule);
                at == 0 || spans[at - 1].end() <= granule
            });
        }
        Op::Release => drop(model.cache.release()),
        Op::Drain => drop(model.cache.drain()),
        Op::Fork => {
            model.cache.before_fork();
            model.cache.after_fork();
        }
        Op::ForkChild => {
            model.cache.before_fork();
            model.cache.after_fork_in_child();
        }
    }
}

/// Frees blocks until `size` more bytes may be live.
fn make_room<O: World>(model: &Model<O>, blocks: &mut Vec<Live>, live_max: usize, size: usize) {
    let mut live: usize = blocks.iter().map(|b| b.layout.size()).sum();
    while live + size > live_max && !blocks.is_empty() {
        let oldest = blocks.remove(0);
        live -= oldest.layout.size();
        model.free(oldest);
    }
}
