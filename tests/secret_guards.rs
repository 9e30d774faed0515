//! One byte too far ends the process, and so does writing where only a canary is.

#[path = "secret_support/child.rs"]
mod child;
#[path = "secret_support/page.rs"]
mod page;
#[path = "secret_support/raw.rs"]
mod raw;

use page::page;
use std::os::unix::process::ExitStatusExt;
use std::process::Output;

use zk_nalloc::secret::Protection;
use zk_nalloc::{SecretBuf, SecretPool};

fn address(secret: &SecretBuf) -> usize {
    secret.expose(|bytes| bytes.as_ptr().expose_provenance())
}

/// The child said nothing after `ready` but what was expected of its death.
fn died_of(output: &Output, signal: i32, last_words: &str) {
    assert_eq!(output.status.signal(), Some(signal), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let after = stderr.split("ready\n").nth(1).expect("the child got as far as it should");
    assert_eq!(after, last_words);
}

#[test]
fn a_byte_behind_is_not_there() {
    const TEST: &str = "a_byte_behind_is_not_there";
    for len in [0, 1, page() - 1, page(), page() + 1] {
        for (what, protection) in
            [("plain", Protection::standard()), ("secret", Protection::standard().with_memfd_secret())]
        {
            child::child(
                TEST,
                &format!("read {what} {len}"),
                || {
                    let secret = SecretBuf::with_protection(len, protection).unwrap();
                    eprintln!("ready");
                    raw::read(address(&secret) + len);
                },
                |out| died_of(out, libc::SIGSEGV, ""),
            );
            child::child(
                TEST,
                &format!("write {what} {len}"),
                || {
                    let secret = SecretBuf::with_protection(len, protection).unwrap();
                    eprintln!("ready");
                    raw::write(address(&secret) + len, 1);
                },
                |out| died_of(out, libc::SIGSEGV, ""),
            );
        }
    }
}

#[test]
fn a_byte_before_the_pages_is_not_there() {
    const TEST: &str = "a_byte_before_the_pages_is_not_there";
    for len in [0, 1, page(), page() + 1, 2 * page()] {
        for write in [false, true] {
            child::child(
                TEST,
                &format!("{write} {len}"),
                || {
                    let secret = SecretBuf::new(len).unwrap();
                    // Where the pages begin; for whole pages that is where the secret begins.
                    let first = address(&secret) + len - len.max(1).next_multiple_of(page());
                    raw::read(first);
                    eprintln!("ready");
                    if write {
                        raw::write(first - 1, 1)
                    } else {
                        let _ = raw::read(first - 1);
                    }
                },
                |out| died_of(out, libc::SIGSEGV, ""),
            );
        }
    }
}

const CANARY: &str = "zk-nalloc: the canary beside a secret was overwritten: something wrote outside of its \
                      bounds; aborting\n";

#[test]
fn an_overwritten_canary_is_one_line_and_the_end() {
    const TEST: &str = "an_overwritten_canary_is_one_line_and_the_end";
    // The byte before the secret, and the first byte of its page; zeros are not mistaken for a fork.
    for (len, back) in [(1, 1), (1, page() - 1), (page() - 1, 1), (page() + 1, 1), (0, 1), (0, page())] {
        for byte in [0, 0x5a] {
            child::child(
                TEST,
                &format!("{len} {back} {byte}"),
                || {
                    let secret = SecretBuf::new(len).unwrap();
                    raw::write(address(&secret) - back, byte);
                    eprintln!("ready");
                    drop(secret);
                },
                |out| died_of(out, libc::SIGABRT, CANARY),
            );
        }
    }
}

#[test]
fn zeros_all_over_the_canary_are_no_fork() {
    child::child(
        "zeros_all_over_the_canary_are_no_fork",
        "child",
        || {
            let secret = SecretBuf::new(page() - 8).unwrap();
            (1..=8).for_each(|back| raw::write(address(&secret) - back, 0));
            eprintln!("ready");
            drop(secret);
        },
        |out| died_of(out, libc::SIGABRT, CANARY),
    );
}

#[test]
fn pooled_neighbours_have_canaries_between_them() {
    const TEST: &str = "pooled_neighbours_have_canaries_between_them";
    for len in [0, 1, 24, 32, 40, 2024] {
        for after in [false, true] {
            child::child(
                TEST,
                &format!("{len} {after}"),
                || {
                    let pool = SecretPool::new();
                    let secrets = [pool.secret(len).unwrap(), pool.secret(len).unwrap()];
                    let at = address(&secrets[usize::from(!after)]);
                    raw::write(if after { at + len } else { at - 1 }, 0);
                    eprintln!("ready");
                    drop(secrets);
                },
                |out| died_of(out, libc::SIGABRT, CANARY),
            );
        }
    }
}

#[test]
fn the_canary_is_new_for_each_secret() {
    let canaries: std::collections::HashSet<[u8; 8]> = (0..100)
        .map(|_| {
            let secret = SecretBuf::new(8).unwrap();
            core::array::from_fn(|n| raw::read(address(&secret) - 8 + n))
        })
        .collect();
    assert_eq!(canaries.len(), 100);
    assert!(canaries.iter().flatten().all(|&byte| byte != 0));
}
