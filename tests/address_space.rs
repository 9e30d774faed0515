//! Under `RLIMIT_AS` and `RLIMIT_DATA`, what is cached stands in nobody's way: the small side gets it when it is refused.

#![expect(unsafe_code, reason = "sets limits of the process")]

use std::hint::black_box;

use zk_nalloc::NAlloc;

#[path = "secret_support/child.rs"]
mod child;

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
