//! The record of large requests, of whole processes: what is in the file is what happened, in an order in which it can
//! have happened.
//!
//! Processes of their own, because a process has one trace, which ends with it.

#![expect(unsafe_code, reason = "ends a forked child by `exit`")]

#[path = "secret_support/fork.rs"]
mod fork;
#[expect(dead_code, reason = "no test uses all that the tests share")]
#[path = "support/limit.rs"]
mod limit;
#[expect(dead_code, reason = "no test uses all that the tests share")]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::thread;

use fork::forked;
use support::load::{LIGHT, load};
use support::pattern::Patterned;
use support::{alone, tell};
use zk_nalloc::NAlloc;

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

/// A file in the folder for temporary ones, named after the process that the child's parent is.
fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("zk-nalloc-trace-{name}-{}", std::process::id()))
}

/// What a trace comes to.
#[derive(Debug, Default)]
struct Seen {
    taken: usize,
    freed: usize,
    resized: usize,
    threads: BTreeSet<u64>,
    live: BTreeMap<u64, u64>,
    peak: u64,
    samples: usize,
    /// Phases begun, and those of them that ended.
    begun: BTreeSet<u64>,
    ended: BTreeSet<u64>,
}

/// Reads a trace and plays it through: no block is handed out that somebody has, and none freed that nobody has.
fn played(path: &Path) -> Seen {
    let bytes = std::fs::read(path).unwrap();
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    assert_eq!(&bytes[..8], b"zknalloc");
    let (head, slots) = words.split_at(16);
    assert_eq!((head[1], head[8], head[9], head[10]), (1, 1, slots.len() as u64 / 4, 0), "{head:?}");
    let mut seen = Seen::default();
    let mut between = BTreeMap::new();
    for slot in slots.chunks_exact(4) {
        let (thread, p, size) = (slot[0] & 0xffff, slot[1] & !63, slot[2]);
        seen.threads.insert(thread);
        match slot[1] & 63 {
            1 => {
                seen.taken += 1;
                assert_eq!(seen.live.insert(p, size), None, "handed out twice");
            }
            2 => {
                seen.freed += 1;
                assert_eq!(seen.live.remove(&p), Some(size), "freed as it was taken");
            }
            4 => {
                assert_eq!(seen.live.remove(&p), Some(size), "resized as it was taken");
                assert_eq!(between.insert(thread, p), None);
            }
            5 => {
                seen.resized += 1;
                let from = between.remove(&thread).unwrap();
                assert_eq!(slot[3] == 1, from == p, "in place or not");
                assert_eq!(seen.live.insert(p, size), None, "handed out twice");
            }
            6 => seen.samples += 1,
            8 => _ = seen.begun.insert(slot[2]),
            10 => _ = seen.ended.insert(slot[2]),
            3 | 7 | 9 | 12 => {}
            kind => panic!("an event of kind {kind}"),
        }
        seen.peak = seen.peak.max(seen.live.values().map(|size| size >> 8).sum());
    }
    assert!(between.is_empty());
    std::fs::remove_file(path).unwrap();
    seen
}

#[test]
fn what_threads_did_is_in_the_file_in_order() {
    const TEST: &str = "what_threads_did_is_in_the_file_in_order";
    let path = file("order");
    let body = || {
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| load(&LIGHT, 300));
            }
        });
        zk_nalloc::phase_named("commit", || zk_nalloc::phase(|| drop(Patterned::new(2, 1 << 20))));
        zk_nalloc::begin_phase_named("open");
        zk_nalloc::end_phase();
        let kept = Patterned::new(1, 9 << 20);
        tell("allocations", zk_nalloc::stats().allocations());
        tell("frees", zk_nalloc::stats().frees());
        std::mem::forget(kept);
    };
    let environment = [("ZK_NALLOC_TRACE", path.to_str().unwrap())];
    let Some(ended) = alone(TEST, "traced", &environment, body) else { return };
    let seen = played(&path);
    assert_eq!(ended.said(), "");
    // The harness of tests ends after the body, with blocks of its own.
    let (allocations, frees) = (ended.told("allocations") as usize, ended.told("frees") as usize);
    assert!((allocations..allocations + 5).contains(&seen.taken), "{} of {allocations}", seen.taken);
    assert!((frees..frees + 5).contains(&seen.freed), "{} of {frees}", seen.freed);
    assert_eq!((seen.begun.len(), &seen.ended), (3, &seen.begun));
    assert!(seen.resized > 0 && seen.threads.len() >= 3 && seen.samples > 0);
    assert!(seen.live.values().any(|size| size >> 8 == 9 << 20) && seen.peak >= 9 << 20);
}

#[test]
fn checked_and_wiping_processes_are_traced_too() {
    const TEST: &str = "checked_and_wiping_processes_are_traced_too";
    for variable in ["ZK_NALLOC_CHECKED", "ZK_NALLOC_WIPE_ON_FREE"] {
        let path = file(variable);
        let environment = [("ZK_NALLOC_TRACE", path.to_str().unwrap()), (variable, "1")];
        if alone(TEST, variable, &environment, || load(&LIGHT, 50)).is_some() {
            assert!(played(&path).freed > 50);
        }
    }
}

#[test]
fn forked_children_leave_the_file_alone() {
    const TEST: &str = "forked_children_leave_the_file_alone";
    let path = file("fork");
    let body = || {
        load(&LIGHT, 20);
        for _ in 0..3 {
            let code = forked(|| {
                load(&LIGHT, 2_000);
                // SAFETY: runs what is registered for the exit, in the only thread there is.
                unsafe { libc::exit(7) }
            });
            assert_eq!(code, 7);
        }
        load(&LIGHT, 20);
    };
    let environment = [("ZK_NALLOC_TRACE", path.to_str().unwrap())];
    if alone(TEST, "forks", &environment, body).is_some() {
        assert!(played(&path).freed > 20);
    }
}

#[test]
fn the_number_of_the_process_stands_in_the_name() {
    const TEST: &str = "the_number_of_the_process_stands_in_the_name";
    let path = file("number-%p");
    let body = || {
        tell("process", std::process::id().into());
        load(&LIGHT, 5);
    };
    let environment = [("ZK_NALLOC_TRACE", path.to_str().unwrap())];
    let Some(ended) = alone(TEST, "number", &environment, body) else { return };
    let name = path.to_str().unwrap().replace("%p", &ended.told("process").to_string());
    assert!(played(Path::new(&name)).freed > 0);
}

/// The kernel ends a process that writes beyond that limit.
#[test]
fn a_file_as_long_as_is_allowed_ends_the_trace_and_not_the_process() {
    const TEST: &str = "a_file_as_long_as_is_allowed_ends_the_trace_and_not_the_process";
    let path = file("long");
    let body = || {
        drop(Patterned::new(1, 1 << 20));
        limit::set_limit(libc::RLIMIT_FSIZE, 1 << 10);
        for _ in 0..2_000 {
            drop(Patterned::new(1, 100 << 10));
        }
    };
    let environment = [("ZK_NALLOC_TRACE", path.to_str().unwrap())];
    let Some(ended) = alone(TEST, "long", &environment, body) else { return };
    assert!(ended.said().contains("cannot be written to any more"), "{}", ended.said());
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_file_that_cannot_be_opened_is_one_line() {
    const TEST: &str = "a_file_that_cannot_be_opened_is_one_line";
    for (path, why) in [
        ("/no/such/folder/trace", "in no directory"),
        ("/dev/null", "no regular file"),
        ("/", "is a directory"),
    ] {
        let environment = [("ZK_NALLOC_TRACE", path)];
        let Some(ended) = alone(TEST, path, &environment, || load(&LIGHT, 20)) else { continue };
        let lines: Vec<_> = ended.said().lines().map(str::to_owned).collect();
        let names_all = |line: &str| ["ZK_NALLOC_TRACE", path, why].iter().all(|part| line.contains(part));
        assert!(lines.len() == 1 && names_all(&lines[0]), "{lines:?}");
    }
}
