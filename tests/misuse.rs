//! Checked mode in a process of its own: each misuse ends it with one line that names the block.

#![expect(unsafe_code, reason = "misuses the allocator on purpose")]

#[path = "secret_support/child.rs"]
mod child;

use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;

use zk_nalloc::{Config, NAlloc};

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::with_config(Config::new().checked(true));

const SIZE: usize = 1 << 20;

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).unwrap()
}

/// Runs `misuse` with a block of a MiB in a child, which must end by `abort` with one line that ends like this.
fn ends(test: &str, label: &str, misuse: impl FnOnce(*mut u8), expected: &str) {
    let body = || {
        // SAFETY: the size is not zero; the block is as long.
        let p = unsafe {
            let p = GLOBAL.alloc(layout(SIZE));
            p.write_bytes(1, SIZE);
            p
        };
        println!("the block is {p:p}");
        misuse(p);
    };
    child::child(test, label, body, |output| {
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{label}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = said.lines().filter(|line| line.contains("zk-nalloc")).collect();
        let out = String::from_utf8_lossy(&output.stdout);
        let block = out.split("the block is ").nth(1).unwrap().split_whitespace().next().unwrap();
        assert_eq!(lines, [format!("zk-nalloc: misuse, aborting: block {block} {expected}")], "{label}");
    });
}

#[test]
fn each_misuse_ends_the_process_with_its_line() {
    let test = "each_misuse_ends_the_process_with_its_line";
    // SAFETY: none of these is sound; the child is meant to end.
    unsafe {
        ends(
            test,
            "twice",
            |p| {
                GLOBAL.dealloc(p, layout(SIZE));
                GLOBAL.dealloc(p, layout(SIZE));
            },
            "of 1048576 bytes was freed after it had been freed",
        );
        ends(
            test,
            "size",
            |p| GLOBAL.dealloc(p, layout(SIZE / 2)),
            "of 1048576 bytes and alignment 8 was freed as one of 524288 bytes and alignment 8",
        );
        ends(
            test,
            "small",
            |p| GLOBAL.dealloc(p, layout(100)),
            "of 1048576 bytes and alignment 8 was freed as one of 100 bytes and alignment 8",
        );
        ends(
            test,
            "alignment",
            |p| {
                black_box(GLOBAL.realloc(p, Layout::from_size_align(SIZE, 64).unwrap(), 2 * SIZE));
            },
            "of 1048576 bytes and alignment 8 was resized as one of 1048576 bytes and alignment 64",
        );
        ends(
            test,
            "write",
            |p| {
                GLOBAL.dealloc(p, layout(SIZE));
                p.add(1000).write_volatile(9);
                drop(black_box(vec![1_u8; SIZE]));
            },
            "of 1048576 bytes was written to after it had been freed, at byte 1000",
        );
        ends(
            test,
            "write and release",
            |p| {
                GLOBAL.dealloc(p, layout(SIZE));
                p.write_volatile(9);
                zk_nalloc::release_cache();
            },
            "of 1048576 bytes was written to after it had been freed, at byte 0",
        );
    }
}

#[test]
fn a_program_without_fault_runs_to_its_end() {
    let test = "a_program_without_fault_runs_to_its_end";
    let body = || {
        std::thread::scope(|scope| {
            for t in 0..4_usize {
                scope.spawn(move || {
                    let mut held: Vec<Vec<usize>> = Vec::new();
                    for turn in 0..300 {
                        let len = (9 + turn * (t + 3) % 500) << 10;
                        let mut v = vec![turn; len];
                        v.extend(0..len / 3);
                        v.shrink_to_fit();
                        assert!(v[..len].iter().all(|&x| x == turn));
                        held.push(v);
                        if held.len() > 6 {
                            held.swap_remove(turn % 6);
                        }
                    }
                    drop(vec![0_u64; 5 << 20]);
                });
            }
        });
        zk_nalloc::release_cache();
    };
    child::child(test, "", body, |output| assert!(output.status.success(), "{output:?}"));
}
