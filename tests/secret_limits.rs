//! `RLIMIT_MEMLOCK` in both policies, as an ordinary process meets it.

use std::io::Read;

#[path = "secret_support/child.rs"]
mod child;
#[path = "secret_support/memlock.rs"]
mod memlock;
#[path = "secret_support/page.rs"]
mod page;
#[path = "secret_support/privilege.rs"]
mod privilege;
#[path = "secret_support/skip.rs"]
mod skip;
#[path = "secret_support/succeeded.rs"]
mod succeeded;

use memlock::limit_locked_memory;
use page::page;
use privilege::give_up_privilege;
use zk_nalloc::secret::{Measure, Policy, Protection, State};
use zk_nalloc::{MapFailed, SecretBuf, SecretPool};

const STRICT: Protection = Protection::standard().with_policy(Policy::Strict);

/// Runs `body` in an ordinary process that may lock `bytes` bytes.
fn limited(test: &str, bytes: u64, body: impl FnOnce()) {
    let limited = || {
        give_up_privilege();
        if !limit_locked_memory(bytes) {
            return skip::skip(test, "the hard limit of locked memory is lower");
        }
        body();
    };
    child::child(test, "limited", limited, succeeded::succeeded);
}

fn assert_names_the_limit(refused: &MapFailed, needed: usize, allowed: usize) {
    let text = refused.to_string();
    for part in [
        format!("RLIMIT_MEMLOCK (ulimit -l): needed {needed} bytes, allowed {allowed}"),
        "LimitMEMLOCK=".to_owned(),
        "CAP_IPC_LOCK (AmbientCapabilities=; setcap turns ZK_NALLOC_ variables off)".to_owned(),
    ] {
        assert!(text.contains(&part), "{text}");
    }
}

#[test]
fn nothing_may_be_locked() {
    limited("nothing_may_be_locked", 0, || {
        for len in [0, 1, page(), 100_000] {
            let pages = len.max(1).next_multiple_of(page());
            let refused = SecretBuf::with_protection(len, STRICT).unwrap_err();
            assert_names_the_limit(&refused, pages, 0);
            assert_eq!(refused.os_error(), libc::EPERM);
            assert_eq!(refused.requested(), len);

            let mut secret = SecretBuf::new(len).unwrap();
            secret.as_mut_slice().fill(1);
            let State::Refused(why) = secret.status().get(Measure::MemoryLock) else { panic!("locked") };
            assert_eq!(why.os_error(), libc::EPERM);
            assert_eq!((why.locked_bytes_needed(), why.locked_bytes_allowed()), (Some(pages), Some(0)));
            assert!(why.to_string().contains("RLIMIT_MEMLOCK"), "{why}");
            assert!(!secret.status().all_in_force());
            for (measure, state) in secret.status().iter() {
                assert!(measure == Measure::MemoryLock || !matches!(state, State::Refused(_)), "{measure:?}");
            }

            let unlocked = STRICT.without(Measure::MemoryLock);
            assert!(SecretBuf::with_protection(len, unlocked).unwrap().status().all_in_force());
        }
        let refused = SecretPool::with_protection(STRICT).secret(32).unwrap_err();
        assert_names_the_limit(&refused, page(), 0);
        let pool = SecretPool::new();
        let secrets: Vec<_> = (0..1000).map(|_| pool.random(32).unwrap()).collect();
        assert!(secrets.iter().all(|s| matches!(s.status().get(Measure::MemoryLock), State::Refused(_))));
    });
}

#[test]
fn the_limit_counts_what_is_locked_already() {
    let limit = 16 * page();
    limited("the_limit_counts_what_is_locked_already", limit as u64, || {
        let first = SecretBuf::with_protection(10 * page(), STRICT).unwrap();
        let refused = SecretBuf::with_protection(7 * page(), STRICT).unwrap_err();
        assert_eq!(refused.os_error(), libc::ENOMEM);
        assert_names_the_limit(&refused, 17 * page(), limit);
        let second = SecretBuf::with_protection(6 * page(), STRICT).unwrap();
        drop(first);
        drop(SecretBuf::with_protection(10 * page(), STRICT).unwrap());
        drop(second);
        for _ in 0..100 {
            drop(SecretBuf::with_protection(limit, STRICT).unwrap());
        }
    });
}

#[test]
fn a_limit_that_changes_meanwhile() {
    limited("a_limit_that_changes_meanwhile", 8 * page() as u64, || {
        let early = SecretBuf::with_protection(4 * page(), STRICT).unwrap();
        assert!(limit_locked_memory(0));
        assert!(SecretBuf::with_protection(1, STRICT).is_err());
        assert_eq!(early.status().get(Measure::MemoryLock), State::InForce, "what is locked stays locked");
        assert!(limit_locked_memory(8 * page() as u64));
        assert!(SecretBuf::with_protection(4 * page(), STRICT).unwrap().status().all_in_force());
    });
}

fn read(bytes: u64) -> SecretBuf {
    SecretBuf::read_to_end(std::io::repeat(1).take(bytes), 1 << 30).unwrap()
}

/// The bytes lie on 1 MiB, then on 2, and at last on 1.25.
#[test]
fn the_status_of_what_is_read_is_that_of_all_pages_it_lay_on() {
    const TEST: &str = "the_status_of_what_is_read_is_that_of_all_pages_it_lay_on";
    limited(TEST, 7 << 18, || {
        let secret = read(5 << 18);
        let State::Refused(why) = secret.status().get(Measure::MemoryLock) else { panic!("2 MiB fit") };
        assert_eq!(why.locked_bytes_allowed(), Some(7 << 18));
        assert!(read(0).status().all_in_force(), "no bytes were anywhere");
    });
}

#[test]
fn what_is_read_is_locked_if_the_limit_holds_it_but_not_what_it_outgrew() {
    const TEST: &str = "what_is_read_is_locked_if_the_limit_holds_it_but_not_what_it_outgrew";
    limited(TEST, 13 << 17, || {
        let sealed = SecretBuf::read_to_end_with_protection(
            std::io::repeat(1).take(3 << 18),
            1 << 30,
            Protection::sealed(),
        );
        let status = sealed.unwrap().status();
        assert!(status.all_in_force(), "what is sealed is locked all the same:\n{status}");
        let secret = read(3 << 18);
        assert!(secret.status().all_in_force(), "{}", secret.status());
        assert!(SecretBuf::with_protection(1 << 20, STRICT).is_err(), "the lock is there, and counts");
        assert!(SecretBuf::with_protection(7 << 17, STRICT).is_ok());
        drop(secret);
        assert!(limit_locked_memory(11 << 18));
        let status = read(5 << 18).status();
        assert!(status.all_in_force(), "2 MiB fit once 1 is gone, and 1.25 once 2 are:\n{status}");
    });
}

/// Bytes without end; counts those that were given.
struct Endless(usize);

impl Read for Endless {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        into.fill(1);
        self.0 += into.len();
        Ok(into.len())
    }
}

/// A stream had the standard protection alone, so that bytes had lain unlocked before anybody could look.
#[test]
fn what_is_read_strictly_is_never_on_pages_that_are_not_locked() {
    const TEST: &str = "what_is_read_strictly_is_never_on_pages_that_are_not_locked";
    limited(TEST, 3 << 20, || {
        let strictly =
            |reader: &mut dyn Read| SecretBuf::read_to_end_with_protection(reader, 1 << 30, STRICT);
        for bytes in [0, 1, 100_000, 1 << 20] {
            let secret = strictly(&mut std::io::repeat(1).take(bytes)).unwrap();
            assert!(secret.status().all_in_force(), "{bytes} bytes:\n{}", secret.status());
            assert_eq!(secret.protection(), STRICT);
            assert!(secret.as_slice().iter().all(|&b| b == 1));
        }
        // On 2 MiB beside the 1 that it outgrew; 4 beside 2 are refused.
        let mut endless = Endless(0);
        let refused = strictly(&mut endless).unwrap_err();
        assert_eq!(endless.0, 2 << 20);
        let refused = refused.get_ref().and_then(|e| e.downcast_ref::<MapFailed>()).expect("the limit");
        assert_names_the_limit(refused, 6 << 20, 3 << 20);
        assert!(limit_locked_memory(0));
        let mut endless = Endless(0);
        assert!(strictly(&mut endless).is_err());
        assert_eq!(endless.0, 0, "nothing was read");
    });
}

#[test]
fn ten_thousand_pooled_secrets_under_eight_mebibytes() {
    const LIMIT: usize = 8 << 20;
    limited("ten_thousand_pooled_secrets_under_eight_mebibytes", LIMIT as u64, || {
        for protection in [STRICT, Protection::sealed().with_policy(Policy::Strict)] {
            for len in [16, 32, 64, 500] {
                let pool = SecretPool::with_protection(protection);
                let secrets: Vec<_> = (0..10_000_u32)
                    .map(|n| {
                        let mut secret = pool.secret(len).unwrap();
                        secret.expose_mut(|bytes| bytes[..4].copy_from_slice(&n.to_ne_bytes()));
                        secret
                    })
                    .collect();
                assert!(pool.page_bytes() <= LIMIT);
                assert!((0..10_000_u32).zip(&secrets).all(|(n, s)| s.expose(|b| b[..4] == n.to_ne_bytes())));
                assert!(secrets.iter().all(|secret| secret.status().all_in_force()));
            }
        }
        let own: Vec<_> = (0..).map_while(|_| SecretBuf::with_protection(32, STRICT).ok()).collect();
        assert_eq!(own.len(), LIMIT / page(), "on pages of their own the limit holds far fewer");
    });
}

#[test]
fn a_pool_locks_what_is_left_of_the_limit() {
    // Chunks of 1, 2 and 4 pages; the next one would be 8 and has to do with what is left.
    limited("a_pool_locks_what_is_left_of_the_limit", 10 * page() as u64, || {
        let pool = SecretPool::with_protection(STRICT);
        let secrets: Vec<_> = (0..).map_while(|_| pool.secret(32).ok()).collect();
        assert_eq!(pool.page_bytes(), 10 * page());
        assert_eq!(secrets.len(), 10 * page() / 64);
        drop(secrets);
        assert_eq!((0..1000).map_while(|_| pool.secret(32).ok()).count(), 1000, "dropped ones make room");
    });
}

#[test]
fn secret_memory_of_the_kernel_counts_too() {
    const TEST: &str = "secret_memory_of_the_kernel_counts_too";
    limited(TEST, 4 * page() as u64, || {
        let protection = STRICT.with_memfd_secret().without(Measure::WipeOnFork);
        match SecretBuf::with_protection(page(), protection) {
            Err(refused) if refused.os_error() != libc::EAGAIN => {
                return skip::skip(TEST, &format!("memfd_secret: {refused}"));
            }
            made => drop(made.unwrap()),
        }
        // Two pages more for the guards.
        let refused = SecretBuf::with_protection(3 * page(), protection).unwrap_err();
        assert_names_the_limit(&refused, 5 * page(), 4 * page());
        let best =
            SecretBuf::with_protection(3 * page(), protection.with_policy(Policy::BestEffort)).unwrap();
        assert!(matches!(best.status().get(Measure::MemfdSecret), State::Refused(_)));
        assert_eq!(best.status().get(Measure::MemoryLock), State::InForce, "ordinary pages, locked, instead");
    });
}
