//! Operations drawn by proptest, which shrinks what fails.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config as Runs, RngAlgorithm, TestRng, TestRunner};

use super::ops::Op;
use super::pattern::mix;
use crate::os::fake::{Call, MoveFailure, PurgeFailure, RemapFailure, When};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Every manner in which a move can fail.
pub(super) const MOVES: [MoveFailure; 4] =
    [MoveFailure::Clean, MoveFailure::UnmapsTarget, MoveFailure::MovesFirstPart, MoveFailure::LetsForeignIn];

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
        2 => (0..8_usize).prop_map(|shard| Op::As { shard }),
        1 => Just(Op::Keep),
        1 => (0..20_000_000_000_u64).prop_map(|nanoseconds| Op::Pass { nanoseconds }),
    ]
}

/// The same, over a kernel that refuses now and then, in every manner.
pub(super) fn failing_ops(max: usize, align_max: usize) -> impl Strategy<Value = Op> + Clone {
    let call = prop::option::weighted(0.7, prop::sample::select(Call::FAILING.to_vec()));
    let when = prop_oneof![
        (1..12_usize).prop_map(When::Nth),
        (2..12_usize).prop_map(When::Every),
        (1..40_usize).prop_map(When::From),
    ];
    let moves = prop::sample::select(MOVES.to_vec());
    prop_oneof![
        24 => ops(max, align_max, true),
        2 => (call, when).prop_map(|(call, when)| Op::Fail { call, when }),
        1 => (moves, any::<[bool; 3]>()).prop_map(|(moves, [remaps, purges, one_vma])| Op::Manner {
            moves,
            remaps: if remaps { RemapFailure::Unmaps } else { RemapFailure::Clean },
            purges: if purges { PurgeFailure::Halfway } else { PurgeFailure::Keeps },
            one_vma,
        }),
        1 => (1..80_usize).prop_map(|max| Op::Vmas { max }),
        1 => (0..1_usize << 30).prop_map(|left| Op::Press { left }),
        3 => Just(Op::Relent),
    ]
}

/// A sequence of operations that is the same each time.
pub(super) fn drawn(seed: u64, len: usize, max: usize) -> Vec<Op> {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[mix(seed).to_le_bytes(); 4].concat());
    let mut runner = TestRunner::new_with_rng(Runs::default(), rng);
    let strategy = prop::collection::vec(ops(max, 4 * MIB, false), len);
    strategy.new_tree(&mut runner).expect("nothing is filtered").current()
}
