//! Under `RLIMIT_AS` and `RLIMIT_DATA`, what is cached stands in nobody's way: the small side gets it when it is refused. Arenas
//! that set aside more than a limit allows make do with less, or name the limit.

#![expect(unsafe_code, reason = "sets limits of the process")]

use std::hint::black_box;

use zk_nalloc::{Arena, NAlloc, TypedArena};

#[path = "secret_support/child.rs"]
mod child;
#[path = "secret_support/memlock.rs"]
mod memlock;
#[path = "secret_support/privilege.rs"]
mod privilege;

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

const MIB: usize = 1 << 20;

/// What of this process counts against a limit: the number of a line of `/proc/self/status`, in bytes.
fn used(line: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix(line)).unwrap();
    line.split_whitespace().next().unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn what_is_cached_makes_room_for_small_blocks() {
    for (label, limit, line) in [("as", libc::RLIMIT_AS, "VmSize:"), ("data", libc::RLIMIT_DATA, "VmData:")] {
        let body = || {
            let count = 300 * MIB / (48 << 10);
            let most = (used(line) + 560 * MIB) as libc::rlim_t;
            let rlimit = libc::rlimit { rlim_cur: most, rlim_max: most };
            // SAFETY: the limit is valid, and this child's own.
            let set = unsafe { libc::setrlimit(limit, &rlimit) };
            assert_eq!(set, 0);
            for _ in 0..2 {
                drop(black_box(vec![1_u8; 400 * MIB]));
                assert!(zk_nalloc::cached_bytes() >= 390 * MIB);
                // A large block itself, which takes the front of what is cached: its end can be given back all the same.
                let mut small: Vec<Box<[u8]>> = Vec::with_capacity(count);
                small.extend((0..count).map(|_| vec![2; 48 << 10].into_boxed_slice()));
                assert!(small.iter().all(|block| block[0] == 2));
                drop(small);
                // SAFETY: gives the C library's free memory back, which is not what is tested here.
                #[cfg(target_env = "gnu")]
                unsafe {
                    libc::malloc_trim(0);
                }
            }
        };
        child::child("what_is_cached_makes_room_for_small_blocks", label, body, |output| {
            assert!(output.status.success(), "{label}: {output:?}");
        });
    }
}

/// It panicked, where the host allows less than a terabyte.
#[test]
fn an_arena_of_values_sets_aside_what_the_limit_allows() {
    const TEST: &str = "an_arena_of_values_sets_aside_what_the_limit_allows";
    let body = || {
        let most = (used("VmSize:") + (6 << 30)) as libc::rlim_t;
        let rlimit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: the limit is valid, and this child's own.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &rlimit) }, 0);
        let (arena, next) = (TypedArena::new(), TypedArena::new());
        assert_eq!((*arena.alloc(7_u64), *next.alloc(8_u64)), (7, 8));
        assert_eq!((arena.capacity(), next.capacity()), ((4 << 30) / 8, (1 << 30) / 8));
    };
    child::child(TEST, "child", body, |output| assert!(output.status.success(), "{output:?}"));
}

/// What is free was closed by a mapping over it, which counts as locked, and is refused before anything has happened: each release
/// lost what it was to close, and address space was opened anew for the next block.
#[test]
fn releases_where_more_may_not_be_locked_lose_nothing() {
    let body = || {
        let round = || {
            drop(black_box(vec![1_u8; 256 * MIB]));
            zk_nalloc::release_cache();
        };
        round();
        privilege::give_up_privilege();
        // SAFETY: changes no content.
        if !memlock::limit_locked_memory(8 << 20) || unsafe { libc::mlockall(libc::MCL_FUTURE) } != 0 {
            return eprintln!("skipped: this host does not let us lock what is to come");
        }
        round();
        let before = used("VmData:");
        (0..6).for_each(|_| round());
        assert!(used("VmData:") < before + 256 * MIB, "{before} {}", used("VmData:"));
    };
    let check = |output: &std::process::Output| assert!(output.status.success(), "{output:?}");
    child::child("releases_where_more_may_not_be_locked_lose_nothing", "child", body, check);
}

/// "Resource temporarily unavailable", and nothing about which.
#[test]
fn locked_memory_that_refuses_address_space_is_named() {
    let body = || {
        privilege::give_up_privilege();
        let limit = used("VmSize:") as u64 + (2 << 30);
        // SAFETY: changes no content.
        if !memlock::limit_locked_memory(limit) || unsafe { libc::mlockall(libc::MCL_FUTURE) } != 0 {
            return eprintln!("skipped: this host does not let us lock what is to come");
        }
        let refused = Arena::reserve(1 << 40).unwrap_err();
        assert_eq!(refused.os_error(), libc::EAGAIN);
        assert!(refused.to_string().contains(&format!("allowed {limit};")), "{refused}");
        assert_eq!(TypedArena::<u64>::new().capacity(), (1 << 30) / 8);
    };
    let check = |output: &std::process::Output| assert!(output.status.success(), "{output:?}");
    child::child("locked_memory_that_refuses_address_space_is_named", "child", body, check);
}
