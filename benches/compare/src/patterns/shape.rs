//! Memory whose shape changes: block sizes from phase to phase, sizes that never come again, a few blocks that stay.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::current_num_threads;

use super::{Case, Pattern};
use crate::block::{Random, check_filled, filled};
use crate::scale::{KIB, MIB, Scale};

/// Blocks and MiB a block of four phases, each about 640 MiB.
const PHASES: [(usize, usize); 4] = [(40, 16), (4, 160), (320, 2), (13, 49)];

/// Blocks that a round of sizes that never repeat makes.
const ODD_BLOCKS: usize = 64;

pub(super) fn list() -> Vec<Pattern> {
    vec![
        Pattern::new("phases", "40x16, 4x160, 320x2 and 13x49 MiB, filled and freed in turn", phases),
        Pattern::new("phases-busy", "the phases on one thread while all others compute", phases_busy),
        Pattern::new("phases-all", "the phases on every thread at once, about 640 MiB together", phases_all),
        Pattern::new(
            "odd-sizes",
            "16 live blocks of 1 to 48 MiB, replaced in turn by sizes that never repeat",
            odd,
        ),
        Pattern::new(
            "survivors",
            "1 GiB of 64 to 256 KiB blocks, all but one per 2 MiB freed, then 7x128 MiB",
            survivors,
        ),
    ]
}

/// Fills and frees `blocks` blocks at once and returns what they take.
fn phase(scale: Scale, blocks: usize, bytes: usize, value: u8) -> usize {
    let blocks: Vec<Vec<u8>> = (0..blocks).map(|_| filled(bytes, value)).collect();
    for block in &blocks {
        check_filled(block, value, scale);
    }
    blocks.len() * bytes
}

/// Runs the four phases with the share of `threads` threads and returns the largest.
fn all_phases(scale: Scale, threads: usize, value: u8) -> usize {
    let sizes = PHASES.into_iter().zip(value..);
    let lives = sizes
        .map(|((blocks, mib), value)| phase(scale, blocks.div_ceil(threads), scale.bytes(mib * MIB), value));
    lives.max().unwrap_or(0)
}

fn phases(scale: Scale) -> Case {
    let bytes = PHASES.iter().map(|&(blocks, mib)| blocks * scale.bytes(mib * MIB)).sum();
    Case::new(scale.rounds(6), move |watch| watch.timed(|| all_phases(scale, 1, 11))).handing_out(bytes)
}

fn phases_busy(scale: Scale) -> Case {
    Case::new(scale.rounds(6), move |watch| {
        let over = AtomicBool::new(false);
        let started = Barrier::new(current_num_threads());
        let lives = rayon::broadcast(|context| {
            started.wait();
            if context.index() == 0 {
                let live = watch_on(&over, || all_phases(scale, 1, 12));
                return (live.0, Some(live.1));
            }
            // In registers alone, but running: what matters is that every flush has to interrupt this thread.
            let mut random = Random::new(context.index() as u64);
            while !over.load(Ordering::Relaxed) {
                for _ in 0..1000 {
                    std::hint::black_box(random.next_word());
                }
            }
            (0, None)
        });
        for spent in lives.iter().filter_map(|(_, spent)| spent.as_ref()) {
            watch.add(spent);
        }
        lives.into_iter().map(|(live, _)| live).max().unwrap_or(0)
    })
}

/// Times `work` on a watch of its own and says when it is over, also when it panics.
fn watch_on<R>(over: &AtomicBool, work: impl FnOnce() -> R) -> (R, crate::watch::Watch) {
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let _over = Over(over);
    let mut watch = crate::watch::Watch::default();
    let result = watch.timed(work);
    (result, watch)
}

fn phases_all(scale: Scale) -> Case {
    Case::new(scale.rounds(8), move |watch| {
        watch.timed(|| {
            let threads = current_num_threads();
            rayon::broadcast(|_| all_phases(scale, threads, 13)).into_iter().sum()
        })
    })
}

fn odd(scale: Scale) -> Case {
    let mut random = Random::new(1);
    Case::new(scale.rounds(8), move |watch| {
        watch.timed(|| {
            let mut blocks: Vec<(u8, Vec<u8>)> = Vec::new();
            let (mut live, mut peak) = (0, 0);
            for turn in (0_u8..).take(ODD_BLOCKS) {
                let bytes = random.between(scale.bytes(MIB), scale.bytes(48 * MIB));
                if blocks.len() == 16 {
                    let (value, block) = blocks.swap_remove(random.between(0, 16));
                    check_filled(&block, value, scale);
                    live -= block.len();
                }
                blocks.push((turn, filled(bytes, turn)));
                live += bytes;
                peak = peak.max(live);
            }
            for (value, block) in &blocks {
                check_filled(block, *value, scale);
            }
            peak
        })
    })
    .handing_out(ODD_BLOCKS * (scale.bytes(MIB) + scale.bytes(48 * MIB)) / 2)
}

fn survivors(scale: Scale) -> Case {
    let mut random = Random::new(2);
    let total = scale.bytes(1024 * MIB);
    Case::new(scale.rounds(4), move |watch| {
        watch.timed(|| {
            let mut blocks = Vec::new();
            let mut live = 0;
            while live < total {
                let bytes = random.between(64 * KIB, 256 * KIB);
                blocks.push(filled(bytes, 1));
                live += bytes;
            }
            let peak = live;
            let mut since = 2 * MIB;
            blocks.retain(|block| {
                since += block.len();
                let stays = since >= 2 * MIB;
                if stays {
                    since = 0;
                }
                stays
            });
            let left: usize = blocks.iter().map(Vec::len).sum();
            let large = phase(scale, 7, scale.bytes(128 * MIB), 3);
            for block in &blocks {
                check_filled(block, 1, scale);
            }
            peak.max(left + large)
        })
    })
}
