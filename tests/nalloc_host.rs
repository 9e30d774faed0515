//! A host that is short of other things than memory: mappings, and commit charge.
//!
//! Processes of their own, because what they use up they use up for all of the process.

#![expect(unsafe_code, reason = "maps until nothing more can be mapped")]

#[expect(dead_code, reason = "no test uses all that the tests share")]
mod support;

use std::fs;

use support::load::{LIGHT, load};
use support::pattern::Numbers;
use support::{alone, skip};
use zk_nalloc::NAlloc;

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

const OVERCOMMIT: &str = "/proc/sys/vm/overcommit_memory";

fn number(path: &str) -> Option<usize> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Mappings that are in the way, a page each, every other one of another kind.
struct Crowd {
    start: *mut libc::c_void,
    len: usize,
}

impl Crowd {
    const PAGE: usize = 64 << 10;

    /// Leaves about `left` of `most` mappings that a process may have.
    fn new(most: usize, left: usize) -> Self {
        let used = fs::read_to_string("/proc/self/maps").unwrap().lines().count();
        let len = (most - used) * Self::PAGE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh mapping.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        for at in (0..len.saturating_sub(left * Self::PAGE)).step_by(2 * Self::PAGE) {
            // SAFETY: pages of that mapping, which nobody uses.
            if unsafe { libc::mprotect(start.byte_add(at), Self::PAGE, libc::PROT_READ) } != 0 {
                break;
            }
        }
        Self { start, len }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody uses it.
        unsafe { libc::munmap(self.start, self.len) };
    }
}

fn check(block: &[u8]) {
    let first = block.first().copied().unwrap_or_default();
    assert!(block.iter().all(|&byte| byte == first), "a block is not whole");
}

/// Takes, grows and drops what can be had, with one thread; gives how often something could not.
fn get_by(steps: usize, held: &mut Vec<Vec<u8>>) -> usize {
    let mut numbers = Numbers::new(steps as u64);
    let mut refused = 0;
    for step in 0..steps {
        let len = numbers.length(64 << 10, 8 << 20);
        if held.len() == held.capacity() || numbers.below(3) == 0 {
            if let Some(at) = held.len().checked_sub(1) {
                check(&held.swap_remove(numbers.below(at + 1)));
            }
            continue;
        }
        let mut block = Vec::new();
        if block.try_reserve_exact(len).is_err() {
            refused += 1;
            continue;
        }
        block.resize(len, step as u8);
        if block.try_reserve_exact(len / 2).is_ok() {
            block.resize(len + len / 2, step as u8);
        }
        check(&block);
        held.push(block);
    }
    refused
}

#[test]
fn mappings_that_are_nearly_used_up() {
    const TEST: &str = "mappings_that_are_nearly_used_up";
    let most = match number("/proc/sys/vm/max_map_count") {
        Some(most) if most <= 1 << 18 => most,
        most => return skip(TEST, &format!("{most:?} mappings are too many to use up")),
    };
    for early in [true, false] {
        for left in [0, 1, 4, 32] {
            let body = || {
                let mut held: Vec<Vec<u8>> = Vec::with_capacity(12);
                if early {
                    assert_eq!(get_by(200, &mut held), 0);
                }
                let crowd = Crowd::new(most, left);
                let refused = get_by(600, &mut held);
                zk_nalloc::soften_cache();
                zk_nalloc::release_cache();
                get_by(200, &mut held);
                held.iter().for_each(|block| check(block));
                drop(crowd);
                held.clear();
                assert_eq!(get_by(200, &mut held), 0, "{refused} were refused before");
                load(&LIGHT, 10);
            };
            alone(TEST, &format!("{left}/{early}"), &[], body);
        }
    }
}

#[test]
fn strict_overcommit() {
    const TEST: &str = "strict_overcommit";
    /// Puts the host back as it was.
    struct Restore(String);
    impl Drop for Restore {
        fn drop(&mut self) {
            let _ = fs::write(OVERCOMMIT, &self.0);
        }
    }
    let Ok(before) = fs::read_to_string(OVERCOMMIT) else {
        return skip(TEST, "the host does not say how it commits memory");
    };
    let mut restore = None;
    if before.trim() != "2" {
        // For all of the host, so only where somebody says that it is ours.
        if std::env::var_os("ZK_NALLOC_TEST_HOST").is_none() || fs::write(OVERCOMMIT, "2").is_err() {
            return skip(TEST, "the host commits memory otherwise, and is not ours to change");
        }
        restore = Some(Restore(before));
    }
    alone(TEST, "light", &[], || {
        load(&LIGHT, 60);
        zk_nalloc::release_cache();
        load(&LIGHT, 20);
    });
    drop(restore);
}
