//! The one type of operations, and the driver that does a sequence of them with one thread.
//!
//! Where they come from: proptest draws and shrinks them (`draw`), bytes spell them (`spell`), and stories list them.

use std::alloc::Layout;

use super::model::{Live, Model, World};
use super::pattern::mix;
use crate::cache::shards::SHARD;
use crate::os::fake::errno;
use crate::os::fake::{Call, Fake, MoveFailure, PurgeFailure, RemapFailure, When};
use crate::os::{Linux, Room};

const KIB: usize = 1 << 10;

/// Most requests up to this size are those of vectors that come over from the small side.
const BEGINS_MAX: usize = 128 * KIB;

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
    /// What follows is done as by a thread that has this shard.
    As {
        shard: usize,
    },
    /// The background thread looks once.
    Keep,
    /// Time passes.
    Pass {
        nanoseconds: u64,
    },
    /// The host has so many bytes left, of a GiB.
    Press {
        left: usize,
    },
    /// Calls of a kind, or of all, fail: once, or from time to time.
    Fail {
        call: Option<Call>,
        when: When,
    },
    /// How they fail from now on.
    Manner {
        moves: MoveFailure,
        remaps: RemapFailure,
        purges: PurgeFailure,
        one_vma: bool,
    },
    /// The kernel has no more than so many VMAs.
    Vmas {
        max: usize,
    },
    /// The kernel is willing again.
    Relent,
}

/// A kernel that can be told what to do in the middle of a sequence; the real one cannot.
pub(super) trait Hooks: World {
    fn fake(&self) -> Option<&Fake>;
}

impl Hooks for Linux {
    fn fake(&self) -> Option<&Fake> {
        None
    }
}

impl Hooks for Fake {
    fn fake(&self) -> Option<&Fake> {
        Some(self)
    }
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
            if !zeroed && size <= BEGINS_MAX && !mix(seed ^ 5).is_multiple_of(4) {
                model.cache.expect_growth(layout);
            }
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
        Op::As { shard } => SHARD.with(|mine| mine.set(shard + 1)),
        Op::Keep => drop(model.cache.keep_once(&mut model.watch())),
        _ => {
            if let Some(os) = model.os().fake() {
                tell(os, op, blocks);
            }
        }
    }
}

/// Tells a fake kernel what it shall be like.
fn tell(os: &Fake, op: Op, blocks: &[Live]) {
    match op {
        Op::Reclaim => {
            let mut spans: Vec<_> = blocks.iter().map(Live::block).collect();
            spans.sort_by_key(|s| s.start);
            os.reclaim(|granule| {
                let at = spans.partition_point(|s| s.start <= granule);
                at == 0 || spans[at - 1].end() <= granule
            });
        }
        Op::Pass { nanoseconds } => os.pass(nanoseconds),
        Op::Press { left } => os.set_room(Some(Room { limit: 1 << 30, left })),
        Op::Fail { call, when } => os.fail(call, when, errno::ENOMEM),
        Op::Manner { moves, remaps, purges, one_vma } => {
            os.fail_moves_by(moves);
            os.fail_remaps_by(remaps);
            os.fail_purges_by(purges);
            os.refuse_moves_of_several_vmas(one_vma);
        }
        Op::Vmas { max } => os.limit_vmas(max),
        Op::Relent => {
            os.fail_no_more();
            os.limit_vmas(usize::MAX);
            os.set_room(None);
        }
        _ => unreachable!("{op:?} is done with the cache"),
    }
}

/// Frees blocks until `size` more bytes may be live.
fn make_room<O: World>(model: &Model<O>, blocks: &mut Vec<Live>, live_max: usize, size: usize) {
    let mut live: usize = blocks.iter().map(|b| b.layout.size()).sum();
    let mut oldest = 0;
    while live + size > live_max && oldest < blocks.len() {
        live -= blocks[oldest].layout.size();
        oldest += 1;
    }
    for live in blocks.drain(..oldest) {
        model.free(live);
    }
}
