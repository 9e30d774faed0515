//! A table of programs, what is said about each, and what is not.

use super::*;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// A warm prover on a quiet host, about which there is nothing to say but that it computes.
const QUIET: Seen = Seen {
    user: 100.0,
    kernel: 0.5,
    zeroing: 0.0,
    faulting: 0.3,
    faults: 4000,
    our_faults: 3000,
    fault_cost: 1.0e-6,
    avoided: 100_000,
    allocated: 50 * GIB,
    live_max: 2 * GIB,
    fresh: 2 * GIB,
    purged: 0,
    copied: 0,
    refused: 0,
    over_budget: 0,
    ceiling: None,
    shards: 1,
    resident_max: 2 * GIB + 100 * MIB,
    limit: Some(32 * GIB),
    huge: Huge::Share(Some(0.99)),
    moves: Moves::Work,
};

/// Each with a part of what is to be said, in this order, and nothing else.
#[test]
fn each_program_gets_its_advice_and_no_other() {
    let fault_bound = Seen { avoided: 20_000_000, ..QUIET };
    let again = Seen { fresh: 30 * GIB, purged: 28 * GIB, kernel: 20.0, faulting: 15.0, ..QUIET };
    let cases: &[(&str, Seen, &[&str])] = &[
        ("compute-bound", QUIET, &["Compute-bound: 0 % of the time goes into page faults"]),
        (
            "fault-bound",
            fault_bound,
            &[
                "The allocator matters here: under the C library's about 20000000 page faults more would have taken 20.0 s at least, 17 %",
            ],
        ),
        ("in between", Seen { avoided: 3_000_000, ..QUIET }, &["A little to gain"]),
        ("nothing happened", Seen { allocated: MIB, ..QUIET }, &["Too little has happened"]),
        ("no time passed", Seen { user: 0.01, kernel: 0.01, ..QUIET }, &["Too little has happened"]),
        (
            "a ceiling under the peak",
            Seen { ceiling: Some(256 * MIB), ..again },
            &[
                "17 % of the time is the kernel's",
                "Raise the ceiling from 256 MiB to 2112 MiB: 28.0 GiB had to be faulted in again because it had been given back. ZK_NALLOC_CACHE_BYTES=2112M, or unset it.",
            ],
        ),
        (
            "a ceiling of the peak, of which threads have a part",
            Seen { ceiling: Some(2 * GIB), shards: 8, ..again },
            &[
                "17 % of the time is the kernel's",
                "Raise the ceiling from 2048 MiB to 2240 MiB: 28.0 GiB had to be faulted in again because it had been given back. ZK_NALLOC_CACHE_BYTES=2240M, or unset it.",
            ],
        ),
        (
            "forgotten peaks, and what a promise leaves to threads",
            Seen { shards: 8, ..again },
            &["17 % of the time is the kernel's", "Promise it: ZK_NALLOC_CACHE_BYTES=2240M"],
        ),
        (
            "a ceiling that keeps less than a lower one would",
            Seen {
                ceiling: Some(600 * MIB),
                shards: 32,
                live_max: 250 * MIB,
                resident_max: 2 * GIB,
                ..again
            },
            &["17 % of the time is the kernel's", "Raise the ceiling from 600 MiB to 768 MiB"],
        ),
        (
            "a ceiling that keeps enough, as its shares are small",
            Seen { ceiling: Some(4 * GIB), shards: 512, ..again },
            &["17 % of the time is the kernel's"],
        ),
        (
            "a ceiling that is not the reason",
            Seen { ceiling: Some(4 * GIB), ..again },
            &["17 % of the time is the kernel's"],
        ),
        (
            "forgotten peaks",
            again,
            &["17 % of the time is the kernel's", "Promise it: ZK_NALLOC_CACHE_BYTES=2112M"],
        ),
        (
            "a promise too high for its container",
            Seen { ceiling: Some(8 * GIB), limit: Some(8 * GIB), resident_max: 7 * GIB + 900 * MIB, ..QUIET },
            &[
                "Compute-bound",
                "Memory is nearly used up: 8068 MiB at its highest, of 8192 MiB. Lower the ceiling: ZK_NALLOC_CACHE_BYTES=5324M.",
            ],
        ),
        (
            "a program too large for its container",
            Seen { limit: Some(2 * GIB + 200 * MIB), ..QUIET },
            &["Compute-bound", "The program itself needs 2048 MiB: raise the limit"],
        ),
        (
            "a container full of others",
            Seen { limit: Some(8 * GIB), resident_max: 7 * GIB + 900 * MIB, ..QUIET },
            &[
                "Compute-bound",
                "Call release_cache() between stages that share nothing, or set ZK_NALLOC_CACHE_BYTES=5324M.",
            ],
        ),
        ("no limit is known", Seen { limit: None, ..QUIET }, &["Compute-bound"]),
        (
            "no huge pages on the host",
            Seen { huge: Huge::OffOnHost, ..fault_bound },
            &["matters", "echo madvise | sudo tee"],
        ),
        (
            "no huge pages by choice, and it does not matter",
            Seen { huge: Huge::OffByUs, ..QUIET },
            &["Compute-bound"],
        ),
        (
            "no huge pages by choice, and it does",
            Seen { huge: Huge::OffByUs, kernel: 4.0, faulting: 3.0, ..QUIET },
            &["Compute-bound", "try without ZK_NALLOC_THP=never"],
        ),
        (
            "fragmented",
            Seen { huge: Huge::Share(Some(0.2)), ..QUIET },
            &["Compute-bound", "Only 20 % of the allocator's memory"],
        ),
        ("too little to tell", Seen { huge: Huge::Share(None), ..QUIET }, &["Compute-bound"]),
        (
            "one cold proof",
            Seen { user: 2.0, kernel: 0.6, faulting: 0.4, ..QUIET },
            &["15 % of the time still goes", "first touches, 2048 MiB in all: prefault(2147483648)"],
        ),
        (
            "one cold proof beside address space",
            Seen { user: 2.0, kernel: 0.6, faulting: 0.4, live_max: 16 << 40, fresh: 16 << 40, ..QUIET },
            &["15 % of the time still goes", "first touches, 2148 MiB in all: prefault(2252341248)"],
        ),
        (
            "faults of others",
            Seen { kernel: 12.0, faulting: 10.0, faults: 10_000_000, ..QUIET },
            &[
                "9 % of the time still goes",
                "9997000 page faults, about 9 % of the time, are not the large side's",
            ],
        ),
        (
            "a cold start on a slow host",
            Seen { user: 10.0, kernel: 4.6, faulting: 0.2, ..fault_bound },
            &["The allocator matters", "first touches"],
        ),
        (
            "zeros that all threads have made, and faults for them",
            Seen { kernel: 12.0, zeroing: 11.5, faults: 50_000, our_faults: 49_000, ..QUIET },
            &["Compute-bound"],
        ),
        (
            "a kernel that is busy otherwise",
            Seen { kernel: 20.0, faulting: 0.2, fresh: 4 * GIB, ..QUIET },
            &["17 % of the time is the kernel's, of which page faults explain 0 % at least"],
        ),
        ("refusals", Seen { refused: 3, ..QUIET }, &["Compute-bound", "The kernel refused 3 large requests"]),
        ("too many mappings", Seen { over_budget: 9, ..QUIET }, &["Compute-bound", "not moved 9 times"]),
        (
            "growth by copying",
            Seen { moves: Moves::Unsafe, copied: 9 * GIB, ..QUIET },
            &["Compute-bound", "Update the kernel"],
        ),
        ("moves that nobody misses", Seen { moves: Moves::Unsafe, ..QUIET }, &["Compute-bound"]),
    ];
    for (name, seen, expected) in cases {
        let said = advise(seen);
        assert_eq!(said.len(), expected.len(), "{name}: {said:#?}");
        for (sentence, part) in said.iter().zip(*expected) {
            assert!(sentence.contains(part), "{name}: {sentence:?} does not say {part:?}");
            assert!(sentence.ends_with('.') && !sentence.contains('\n'), "{name}: {sentence:?}");
        }
    }
}

#[test]
fn whatever_was_seen_something_is_said_and_nothing_panics() {
    let numbers = [0, 1, 64 << 20, u64::MAX / 2, u64::MAX];
    for a in numbers {
        for b in numbers {
            for time in [0.0, 1e-9, 1e9] {
                let seen = Seen {
                    user: time,
                    kernel: time,
                    zeroing: time / 2.0,
                    faulting: time,
                    faults: b,
                    our_faults: a / 4,
                    avoided: b,
                    allocated: a,
                    live_max: b / 8,
                    fresh: a,
                    purged: a,
                    resident_max: b,
                    limit: Some(a),
                    ceiling: Some(b),
                    shards: a as usize % 513,
                    refused: b,
                    copied: a,
                    ..QUIET
                };
                assert!(!advise(&seen).is_empty());
            }
        }
    }
}
