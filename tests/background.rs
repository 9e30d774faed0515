//! The thread that `Config::background` asks for: when there is one, what it is like, and what a fork and an exit make
//! of it.

use std::hint::black_box;
use std::time::Duration;

use zk_nalloc::{Config, NAlloc};

#[path = "secret_support/child.rs"]
mod child;
#[path = "secret_support/fork.rs"]
mod fork;

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::with_config(Config::new().background(true));

const MIB: usize = 1 << 20;

/// The directories in `/proc` of the threads of ours.
fn keepers() -> Vec<std::path::PathBuf> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().map(|entry| entry.unwrap().path());
    threads
        .filter(|t| std::fs::read_to_string(t.join("comm")).is_ok_and(|name| name == "zk-nalloc\n"))
        .collect()
}

/// Waits until `done`, for a minute at most.
fn wait_until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: not within a minute");
}

fn allocate_much() {
    for _ in 0..40 {
        black_box(vec![1_u8; 4 * MIB]);
    }
}

#[test]
fn one_thread_that_no_signal_reaches_and_no_fork_copies() {
    let test = "one_thread_that_no_signal_reaches_and_no_fork_copies";
    let body = || {
        black_box(vec![1_u8; 4 * MIB]);
        assert_eq!(keepers().len(), 0, "a process that allocates little needs none");
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(allocate_much))));
        allocate_much();
        wait_until("the thread starts", || keepers().len() == 1);
        let status = std::fs::read_to_string(keepers()[0].join("status")).unwrap();
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap().trim().to_owned();
        let blocked = u64::from_str_radix(&blocked, 16).unwrap();
        // All but SIGKILL and SIGSTOP, which nobody can block, and the two that libc keeps to itself.
        assert_eq!(blocked.count_ones(), 60, "{blocked:x}");
        for _ in 0..20 {
            let code = fork::forked(|| {
                if !keepers().is_empty() {
                    return 1;
                }
                allocate_much();
                // It has one of its own now, or soon; and leaves without waiting for it.
                2
            });
            assert_eq!(code, 2);
            allocate_much();
        }
        assert_eq!(keepers().len(), 1);
        // And out, whatever the thread is at.
    };
    child::child(test, "", body, |output| assert!(output.status.success(), "{output:?}"));
}

#[test]
fn a_forked_child_gets_one_of_its_own() {
    let test = "a_forked_child_gets_one_of_its_own";
    let body = || {
        allocate_much();
        wait_until("the thread starts", || keepers().len() == 1);
        let code = fork::forked(|| {
            allocate_much();
            wait_until("the child's thread starts", || keepers().len() == 1);
            zk_nalloc::release_cache();
            allocate_much();
            0
        });
        assert_eq!(code, 0);
    };
    child::child(test, "", body, |output| assert!(output.status.success(), "{output:?}"));
}

#[test]
fn the_environment_turns_it_off() {
    if std::env::var_os("ZK_NALLOC_BACKGROUND").is_some() {
        allocate_much();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(keepers().len(), 0);
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_environment_turns_it_off", "--test-threads=1"])
        .env("ZK_NALLOC_BACKGROUND", "0")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}
