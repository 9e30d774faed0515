//! Limits and refusals of the kernel: allocation fails where it must, loses nothing, and works again afterwards.
//!
//! Processes of their own, because limits, filters and locked memory are for good.

#[expect(dead_code, reason = "no test uses all that the tests share")]
mod support;

#[path = "support/limit.rs"]
mod limit;
#[path = "secret_support/seccomp.rs"]
mod seccomp;
#[path = "secret_support/smaps.rs"]
mod smaps;

use limit::{lock_all, set_limit, without_huge_pages};
use seccomp::refuse;
use support::load::{LIGHT, load};
use support::pattern::Patterned;
use support::{in_both_modes, proc, skip};
use zk_nalloc::NAlloc;

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

const BLOCK: usize = 8 << 20;

/// Takes blocks until no more can be had, or `most` bytes, and writes the first `written` bytes
/// of each. Under a limit nothing small can be had for sure, so `held`
/// has its capacity.
fn exhaust(held: &mut Vec<Vec<u8>>, most: usize, written: usize) -> usize {
    let before = held.len();
    while held.len() < held.capacity() && (held.len() - before) * BLOCK < most {
        let mut block: Vec<u8> = Vec::new();
        if block.try_reserve_exact(BLOCK).is_err() {
            break;
        }
        while block.len() < written {
            block.extend_from_slice(&[held.len() as u8; 4096]);
        }
        held.push(block);
    }
    (held.len() - before) * BLOCK
}

/// Exhausts `room` bytes, fails in every way, frees, and does it again.
fn live_under_a_limit(room: usize) {
    let mut held: Vec<Vec<u8>> = Vec::with_capacity(2 * room / BLOCK);
    for round in 0..3 {
        let got = exhaust(&mut held, usize::MAX, 4096);
        assert!(got >= room / 2 && got <= room, "round {round}: {got} of {room} bytes");
        assert!(Vec::<u64>::new().try_reserve_exact(room / 8).is_err(), "there is nothing left");
        // What fails to grow stays as it was, and what shrinks needs nothing.
        for block in &mut held {
            assert!(block.try_reserve_exact(room).is_err());
            assert_eq!(block.capacity(), BLOCK);
        }
        for (n, block) in held.iter_mut().enumerate() {
            assert!(block.iter().all(|&byte| byte == n as u8), "block {n} is not whole");
            block.shrink_to(BLOCK / 4 * 3);
        }
        drop(held.split_off(1));
        // What was many blocks serves a long one.
        let mut long: Vec<u8> = Vec::new();
        assert!(long.try_reserve_exact(room / 4).is_ok(), "round {round}: room for a long block");
        drop(long);
        held.clear();
        if round == 1 {
            zk_nalloc::release_cache();
        }
    }
}

/// Runs `live_under_a_limit` with limits of several sizes, set before the allocator starts.
fn under_limits(test: &str, resource: u32, field: &str) {
    for (mode, environment) in support::MODES {
        for room in [192 << 20, 600 << 20, 2 << 30] {
            let body = || {
                set_limit(resource, proc::status(field) + room);
                live_under_a_limit(room);
            };
            support::alone(test, &format!("{mode}/{room}"), environment, body);
        }
    }
}

#[test]
fn a_limit_of_address_space() {
    under_limits("a_limit_of_address_space", libc::RLIMIT_AS, "VmSize");
}

#[test]
fn a_limit_of_data() {
    under_limits("a_limit_of_data", libc::RLIMIT_DATA, "VmData");
}

#[test]
fn limits_that_come_after_the_first_request() {
    const TEST: &str = "limits_that_come_after_the_first_request";
    for (resource, field) in [(libc::RLIMIT_AS, "VmSize"), (libc::RLIMIT_DATA, "VmData")] {
        let body = || {
            let early = Patterned::new(1, 50 << 20);
            set_limit(resource, proc::status(field) + (200 << 20));
            let mut held: Vec<Vec<u8>> = Vec::with_capacity(100);
            // Address space was set aside before, so that a limit of it may not show.
            let got = exhaust(&mut held, 400 << 20, BLOCK);
            assert!(got >= 100 << 20, "{got} bytes");
            early.check("a block from before the limit");
            held.clear();
            drop(early);
            let again = exhaust(&mut held, 400 << 20, BLOCK);
            held.clear();
            assert!(again >= got, "{again} bytes where {got} were free");
        };
        support::alone(TEST, field, &[], body);
    }
}

/// What blocks that are barely touched had opened for themselves was given back to nobody who asked for something else.
#[test]
fn what_is_free_in_small_pages_makes_room_under_a_limit() {
    const TEST: &str = "what_is_free_in_small_pages_makes_room_under_a_limit";
    let body = || {
        set_limit(libc::RLIMIT_DATA, proc::status("VmData") + (1536 << 20));
        for _ in 0..4 {
            let mut block = std::hint::black_box(vec![0_u8; 600 << 20]);
            block[0] = 1;
        }
        let mut block: Vec<u8> = Vec::new();
        assert!(block.try_reserve_exact(1000 << 20).is_ok(), "nothing is live");
    };
    support::alone(TEST, "data", &[], body);
}

/// Whether so many bytes can be had.
fn can_have(bytes: usize) -> bool {
    std::hint::black_box(Vec::<u8>::new()).try_reserve_exact(bytes).is_ok()
}

/// Whether the C library can have 240 MiB in short blocks.
fn can_have_many() -> bool {
    let mut small: Vec<Vec<u8>> = Vec::with_capacity(4096);
    (0..4096).all(|_| {
        small.push(Vec::new());
        small.last_mut().is_some_and(|block| block.try_reserve_exact(60 << 10).is_ok())
    })
}

/// Gaps of less than 32 MiB stayed open, and charged, and requests were refused with half of the limit free, small ones too.
#[test]
fn gaps_between_blocks_make_room_under_a_limit_of_data() {
    const TEST: &str = "gaps_between_blocks_make_room_under_a_limit_of_data";
    let large: fn() -> bool = || can_have(480 << 20);
    for (label, can_have) in [("large", large), ("small", can_have_many)] {
        let body = || {
            set_limit(libc::RLIMIT_DATA, proc::status("VmData") + (1200 << 20));
            let mut blocks: Vec<_> = (0..128).map(|_| Vec::<u8>::with_capacity(BLOCK)).collect();
            let mut nth = 0;
            blocks.retain(|_| {
                nth += 1;
                nth % 2 == 0
            });
            assert!(can_have(), "512 MiB are live of 1200");
            drop(blocks);
        };
        support::alone(TEST, label, &[], body);
    }
}

/// One that lay at the end of a mapping kept all of it, where address space is not reserved, and requests were refused.
#[test]
fn a_block_that_stays_keeps_nothing_but_itself_under_a_limit_of_address_space() {
    const TEST: &str = "a_block_that_stays_keeps_nothing_but_itself_under_a_limit_of_address_space";
    let body = || {
        set_limit(libc::RLIMIT_AS, proc::status("VmSize") + (1600 << 20));
        assert!(can_have(1000 << 20));
        let key = Patterned::new(1, 64 << 20);
        assert!(can_have(1000 << 20), "64 MiB are live of 1600");
        key.check("the block that stays");
    };
    support::alone(TEST, "as", &[], body);
}

/// Asserts that hardly more than `asked` bytes became resident.
fn assert_grown(before: usize, asked: usize) {
    let grown = proc::resident() - before;
    assert!(grown <= asked + (12 << 20), "{} MiB for {} are resident", grown >> 20, asked >> 20);
}

#[test]
fn locked_memory_is_not_swollen() {
    const TEST: &str = "locked_memory_is_not_swollen";
    for early in [true, false] {
        let body = || {
            let first = (!early).then(|| Patterned::new(9, 1 << 20));
            if !lock_all() {
                return skip(TEST, "memory cannot be locked here");
            }
            let before = proc::resident();
            let one = Patterned::new(1, 1 << 20);
            assert_grown(before, 1 << 20);
            let mut blocks: Vec<_> = (0..8).map(|seed| Patterned::new(seed, 1 << 20)).collect();
            blocks.extend((8..12).map(|seed| Patterned::new(seed, 100 << 20)));
            assert_grown(before, 409 << 20);
            blocks.iter().for_each(|block| block.check("a locked block"));
            drop((first, one, blocks));
            zk_nalloc::release_cache();
            let left = proc::resident().saturating_sub(before);
            assert!(left < 64 << 20, "{} MiB stay resident", left >> 20);
            load(&LIGHT, 30);
        };
        support::alone(TEST, if early { "early" } else { "late" }, &[], body);
    }
}

/// The kernel unlocks the mapping from which pages are moved, and most of the heap is one: a chunk that was gathered unlocked all that
/// was live.
#[test]
fn locked_memory_stays_locked() {
    const TEST: &str = "locked_memory_stays_locked";
    let body = || {
        if !lock_all() {
            return skip(TEST, "memory cannot be locked here");
        }
        let mut blocks: Vec<_> = (0..16).map(|seed| Patterned::new(seed, 24 << 20)).collect();
        let mut nth = 0;
        blocks.retain(|_| {
            nth += 1;
            nth % 2 == 0
        });
        // Longer than what is free anywhere, and one that grows to such a length.
        blocks.push(Patterned::new(20, 100 << 20));
        blocks[0].resize(60 << 20);
        for block in &blocks {
            block.check("a locked block");
            let flags = smaps::flags(block.bytes.as_ptr().addr());
            assert!(flags.iter().any(|flag| flag == "lo"), "{} MiB: {flags:?}", block.bytes.len() >> 20);
        }
        assert_eq!(zk_nalloc::stats().moved_bytes(), 0);
    };
    support::alone(TEST, "locked", &[], body);
}

/// What had just been opened was resident and counted as such; it was also taken for the rest of the process's, so that the peak
/// that may stay rose with each block.
#[test]
fn locked_memory_stays_within_its_peak() {
    const TEST: &str = "locked_memory_stays_within_its_peak";
    let body = || {
        if !lock_all() {
            return skip(TEST, "memory cannot be locked here");
        }
        let before = proc::resident();
        drop(std::hint::black_box(vec![1_u8; 300 << 20]));
        for mib in [32, 64, 100, 24, 48, 150] {
            for _ in 0..3 {
                let mut blocks: Vec<Vec<u8>> = (0..256 / mib).map(|_| vec![0; mib << 20]).collect();
                blocks.iter_mut().flat_map(|block| block.iter_mut().step_by(4096)).for_each(|byte| *byte = 1);
                assert_grown(before, 320 << 20);
            }
        }
    };
    support::alone(TEST, "locked", &[], body);
}

#[test]
fn no_huge_pages_for_this_process() {
    const TEST: &str = "no_huge_pages_for_this_process";
    in_both_modes(TEST, || {
        if !without_huge_pages() {
            return skip(TEST, "PR_SET_THP_DISABLE is refused");
        }
        load(&LIGHT, 50);
        let block = Patterned::new(1, 64 << 20);
        assert_eq!(proc::huge_pages(), 0);
        block.check("a block");
    });
}

#[test]
fn calls_that_are_refused() {
    const TEST: &str = "calls_that_are_refused";
    for (name, call) in
        [("madvise", libc::SYS_madvise), ("mremap", libc::SYS_mremap), ("mincore", libc::SYS_mincore)]
    {
        for errno in [libc::EPERM, libc::ENOSYS] {
            for early in [true, false] {
                let body = || {
                    if !early {
                        load(&LIGHT, 10);
                    }
                    if !refuse(call, &[], errno) {
                        return skip(TEST, "filters are refused");
                    }
                    load(&LIGHT, 40);
                    zk_nalloc::soften_cache();
                    zk_nalloc::release_cache();
                    load(&LIGHT, 20);
                };
                support::alone(TEST, &format!("{name}/{errno}/{early}"), &[], body);
            }
        }
    }
}
