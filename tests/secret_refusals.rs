//! Each call that protects, refused by the kernel for once: the status shows it, strictness makes it an
//! error, and nothing else changes. A filter (seccomp) makes the kernel refuse.

#[path = "secret_support/child.rs"]
mod child;
#[path = "secret_support/fork.rs"]
mod fork;
#[path = "secret_support/page.rs"]
mod page;
#[path = "secret_support/seccomp.rs"]
mod seccomp;
#[path = "secret_support/skip.rs"]
mod skip;
#[path = "secret_support/succeeded.rs"]
mod succeeded;

use std::sync::Barrier;
use std::thread;

use succeeded::succeeded;
use zk_nalloc::secret::{Measure, Policy, Protection, State};
use zk_nalloc::{Secret, SecretBuf, SecretPool};

/// A call of the kernel and, where one call does several things, the argument that tells.
type Call = (i64, &'static [(u32, u32)]);

macro_rules! advice {
    ($advice:ident) => {
        (libc::SYS_madvise, &[(2, libc::$advice as u32)])
    };
}

/// With 0 for an error: done, and nothing has happened.
const YES_TO_ALL: Call = (libc::SYS_madvise, &[]);

/// Runs `body` in a process in which `call` is refused with `errno`.
fn refusing(test: &str, label: &str, (call, args): Call, errno: i32, body: impl FnOnce()) {
    let refused = || {
        if !seccomp::refuse(call, args, errno) {
            return skip::skip(test, "this host lets nobody filter system calls");
        }
        body();
    };
    child::child(test, label, refused, succeeded);
}

const MEASURES: [(Measure, &str, Call); 6] = [
    (Measure::MemoryLock, "mlock", (libc::SYS_mlock, &[])),
    (Measure::NoDump, "madvise(MADV_DONTDUMP)", advice!(MADV_DONTDUMP)),
    (Measure::WipeOnFork, "madvise(MADV_WIPEONFORK)", advice!(MADV_WIPEONFORK)),
    (Measure::NoHugePages, "madvise(MADV_NOHUGEPAGE)", advice!(MADV_NOHUGEPAGE)),
    (Measure::NoMerging, "madvise(MADV_UNMERGEABLE)", advice!(MADV_UNMERGEABLE)),
    (Measure::MemfdSecret, "memfd_secret", (libc::SYS_memfd_secret, &[])),
];

#[test]
fn a_refusal_is_shown_or_an_error() {
    const TEST: &str = "a_refusal_is_shown_or_an_error";
    for (measure, name, call) in MEASURES {
        refusing(TEST, name, call, libc::EPERM, || {
            let mut asked = Protection::sealed();
            if measure == Measure::MemfdSecret {
                asked = asked.with_memfd_secret();
            }
            let pool = SecretPool::with_protection(asked);
            for mut secret in [SecretBuf::with_protection(40, asked).unwrap(), pool.secret(40).unwrap()] {
                for (other, state) in secret.status().iter() {
                    match state {
                        State::Refused(why) => assert!(other == measure && why.os_error() == libc::EPERM),
                        _ => assert!(other != measure, "{other:?} {state}"),
                    }
                }
                assert!(secret.status().to_string().contains("refused: Operation not permitted"));
                secret.expose_mut(|bytes| bytes.fill(1));
                assert!(secret.expose(|bytes| bytes.iter().all(|&b| b == 1)));
            }
            let strict = asked.with_policy(Policy::Strict);
            let refused = SecretBuf::with_protection(40, strict).unwrap_err();
            assert_eq!(refused.os_error(), libc::EPERM);
            assert!(refused.to_string().starts_with("could not protect "), "{refused}");
            assert!(refused.to_string().contains(&format!("{name} was refused: ")), "{refused}");
            assert_eq!(std::io::Error::from(refused).kind(), std::io::ErrorKind::PermissionDenied);
            assert!(SecretPool::with_protection(strict).secret(40).is_err());

            if measure != Measure::MemfdSecret {
                let without = SecretBuf::with_protection(40, strict.without(measure)).unwrap();
                assert_eq!(without.status().get(measure), State::NotAskedFor);
            }
        });
    }
}

/// Kernels without huge pages or page merging know no advice against them.
#[test]
fn what_the_kernel_does_not_have_needs_no_advice() {
    const TEST: &str = "what_the_kernel_does_not_have_needs_no_advice";
    for (measure, name, call) in MEASURES {
        refusing(TEST, name, call, libc::EINVAL, || {
            let shown = SecretBuf::new(40).unwrap().status().get(measure);
            match measure {
                Measure::NoHugePages | Measure::NoMerging => assert_eq!(shown, State::InForce),
                Measure::MemfdSecret => assert_eq!(shown, State::NotAskedFor),
                _ => assert!(matches!(shown, State::Refused(_)), "{measure:?} {shown}"),
            }
        });
    }
}

/// qemu-user says yes to any advice; secrets were said to be wiped in children that had them in clear.
#[test]
fn a_kernel_that_says_yes_to_nonsense_is_not_believed() {
    refusing("a_kernel_that_says_yes_to_nonsense_is_not_believed", "child", YES_TO_ALL, 0, || {
        let status = SecretBuf::new(40).unwrap().status();
        for measure in [Measure::NoDump, Measure::WipeOnFork, Measure::NoHugePages, Measure::NoMerging] {
            assert!(matches!(status.get(measure), State::Refused(_)), "{measure:?}: {status}");
        }
    });
}

#[test]
fn nothing_is_wiped_in_children_of_an_old_kernel_or_of_one_that_lies() {
    const TEST: &str = "nothing_is_wiped_in_children_of_an_old_kernel_or_of_one_that_lies";
    // The child then has a copy of its own, canary and all, and forks are told by the process identifier.
    let in_child = || {
        let mut secret = Some(SecretBuf::new_with(40, |bytes| bytes.fill(1)).unwrap());
        let pool = SecretPool::with_protection(Protection::sealed());
        let mut pooled = Some(pool.random(40).unwrap());
        let code = fork::forked(|| {
            let status = pooled.as_ref().unwrap().status();
            let lost = status.get(Measure::Sealed) == State::LostInFork;
            let copy = secret.take().is_some_and(|secret| secret.as_slice() == [1; 40]);
            drop(pooled.take());
            u8::from(!copy || !lost || pool.random(40).is_err())
        });
        assert_eq!(code, 0);
        assert_eq!(secret.unwrap().as_slice(), [1; 40]);
    };
    refusing(TEST, "old", advice!(MADV_WIPEONFORK), libc::EINVAL, in_child);
    refusing(TEST, "lies", YES_TO_ALL, 0, in_child);
}

/// The process identifier, which comes back, told forks apart for good after one refusal.
#[test]
fn a_fork_is_told_by_the_kernel_once_there_is_memory_for_it() {
    const TEST: &str = "a_fork_is_told_by_the_kernel_once_there_is_memory_for_it";
    let body = || {
        let refused = "this host lets nobody filter system calls";
        let make = || SecretBuf::with_protection(40, Protection::sealed()).unwrap();
        let is_ours = |secret: &SecretBuf| secret.status().get(Measure::Sealed) == State::InForce;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS).cast_unsigned();
        let page = [(1, page::page() as u32), (2, 3), (3, flags)];
        // A filter holds for the thread that asks for it.
        let limited = || seccomp::refuse(libc::SYS_mmap, &page, libc::ENOMEM).then(make);
        let Some(early) = thread::scope(|scope| scope.spawn(limited).join().unwrap()) else {
            return skip::skip(TEST, refused);
        };
        let late = make();
        assert!(is_ours(&early) && is_ours(&late), "one process, whatever told it");
        if !seccomp::refuse(libc::SYS_getpid, &[], libc::EPERM) {
            return skip::skip(TEST, refused);
        }
        assert!(is_ours(&early) && is_ours(&late), "the identifier is not asked for any more");
        assert_eq!(fork::forked(|| u8::from(is_ours(&early) || is_ours(&late))), 0);
    };
    child::child(TEST, "child", body, succeeded);
}

#[test]
fn no_memory_is_an_error() {
    const TEST: &str = "no_memory_is_an_error";
    refusing(TEST, "guards", (libc::SYS_mprotect, &[(2, 3)]), libc::ENOMEM, || {
        let refused = SecretBuf::new(40).unwrap_err();
        assert_eq!((refused.requested(), refused.os_error()), (40, libc::ENOMEM));
        assert!(SecretPool::new().secret(40).is_err());
    });
}

#[test]
fn pages_that_cannot_be_sealed_are_shown_open() {
    const TEST: &str = "pages_that_cannot_be_sealed_are_shown_open";
    // Of a size that nobody else closes: sanitizers have guard pages too.
    const LEN: usize = 5 << 16;
    const SEALING: &[(u32, u32)] = &[(1, LEN as u32), (2, 0)];
    refusing(TEST, "child", (libc::SYS_mprotect, SEALING), libc::EPERM, || {
        let secret = SecretBuf::with_protection(LEN, Protection::sealed()).unwrap();
        assert!(matches!(secret.status().get(Measure::Sealed), State::Refused(_)));
        assert_eq!(secret.expose(|bytes| bytes.len()), LEN);
        let strict = Protection::sealed().with_policy(Policy::Strict);
        assert!(SecretBuf::with_protection(LEN, strict).is_err());
    });
    let body = || {
        let secret = SecretBuf::with_protection(LEN, Protection::sealed()).unwrap();
        assert_eq!(secret.status().get(Measure::Sealed), State::InForce);
        if !seccomp::refuse(libc::SYS_mprotect, SEALING, libc::EPERM) {
            return skip::skip(TEST, "this host lets nobody filter system calls");
        }
        secret.expose(|_| ());
        assert!(matches!(secret.status().get(Measure::Sealed), State::Refused(_)), "it is open from now on");
    };
    child::child(TEST, "later", body, succeeded);
}

/// The status went on to say that they were open, for good.
#[test]
fn pages_that_are_closed_later_are_shown_closed() {
    const TEST: &str = "pages_that_are_closed_later_are_shown_closed";
    let body = || {
        let pool = SecretPool::with_protection(Protection::sealed());
        let (reader, mut writer) = (pool.secret(40).unwrap(), pool.secret(40).unwrap());
        let (is_in, has_left) = (Barrier::new(2), Barrier::new(2));
        let sealed = || reader.status().get(Measure::Sealed);
        assert_eq!(sealed(), State::InForce);
        // What the reader that is left needs is refused; what nobody needs is not.
        if !seccomp::refuse(libc::SYS_mprotect, &[(2, libc::PROT_READ.cast_unsigned())], libc::EPERM) {
            return skip::skip(TEST, "this host lets nobody filter system calls");
        }
        thread::scope(|scope| {
            writer.expose_mut(|_| {
                scope.spawn(|| {
                    reader.expose(|_| {
                        is_in.wait();
                        has_left.wait();
                        assert!(matches!(sealed(), State::Refused(_)), "{}", sealed());
                    });
                });
                is_in.wait();
            });
            has_left.wait();
        });
        assert_eq!(sealed(), State::InForce);
    };
    child::child(TEST, "child", body, succeeded);
}

#[test]
fn pages_that_cannot_be_opened_are_a_panic_and_never_freed_unwiped() {
    use std::os::unix::process::ExitStatusExt;
    const TEST: &str = "pages_that_cannot_be_opened_are_a_panic_and_never_freed_unwiped";
    let body = || {
        let secret = SecretBuf::with_protection(40, Protection::sealed()).unwrap();
        for access in [libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE] {
            if !seccomp::refuse(libc::SYS_mprotect, &[(2, access.cast_unsigned())], libc::EPERM) {
                return skip::skip(TEST, "this host lets nobody filter system calls");
            }
        }
        let refused = std::panic::catch_unwind(|| secret.expose(|bytes| bytes.len()));
        assert!(refused.is_err());
        eprintln!("ready");
        drop(secret);
    };
    child::child(TEST, "child", body, |output| {
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("skipped: ") {
            return skip::skip(TEST, "this host lets nobody filter system calls");
        }
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
        assert!(said.contains("the kernel refused to open sealed pages: Operation not permitted"));
        let last = "zk-nalloc: the kernel refused to open the sealed pages of a secret, so it cannot be \
                    wiped; aborting\n";
        assert_eq!(said.split("ready\n").nth(1), Some(last));
    });
}

#[test]
fn the_length_of_a_sealed_slice_opens_nothing() {
    const TEST: &str = "the_length_of_a_sealed_slice_opens_nothing";
    let body = || {
        let of = |len| Secret::<[u64]>::with_protection(len, Protection::sealed()).unwrap();
        let (words, none) = (of(5), of(0));
        if !seccomp::refuse(libc::SYS_mprotect, &[(2, libc::PROT_READ.cast_unsigned())], libc::EPERM) {
            return skip::skip(TEST, "this host lets nobody filter system calls");
        }
        assert!(std::panic::catch_unwind(|| words.expose(<[u64]>::len)).is_err());
        assert_eq!((words.len(), words.is_empty()), (5, false));
        assert_eq!((none.len(), none.is_empty()), (0, true));
    };
    child::child(TEST, "child", body, succeeded);
}

#[test]
fn no_random_bytes_is_an_error_and_leaves_zeros() {
    const TEST: &str = "no_random_bytes_is_an_error_and_leaves_zeros";
    let body = || {
        let mut secret = SecretBuf::new_with(40, |bytes| bytes.fill(1)).unwrap();
        if !seccomp::refuse(libc::SYS_getrandom, &[], libc::ENOSYS) {
            return skip::skip(TEST, "this host lets nobody filter system calls");
        }
        assert!(SecretBuf::random(40).is_err());
        let refused = secret.fill_random().unwrap_err();
        assert!(
            refused.to_string().starts_with("could not fill 40 bytes: getrandom gave no bytes: "),
            "{refused}"
        );
        assert_eq!(secret.as_slice(), [0; 40]);
    };
    child::child(TEST, "child", body, succeeded);
}

/// Callers look at `errno` after their own calls, whatever secrets are made and dropped in between.
#[test]
fn errno_is_left_alone() {
    for (_, name, call) in MEASURES {
        refusing("errno_is_left_alone", name, call, libc::EPERM, || {
            std::fs::File::open("/no/such/file").unwrap_err();
            let protection = Protection::sealed().with_memfd_secret();
            let secret = SecretBuf::with_protection(40, protection).unwrap();
            secret.expose(|_| ());
            drop(secret);
            assert!(SecretBuf::with_protection(40, protection.with_policy(Policy::Strict)).is_err());
            drop(SecretPool::new().secret(40));
            assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOENT));
        });
    }
}
