//! What a forked child sees: zeros, and nothing that waits for threads that it does not have.

#[path = "secret_support/child.rs"]
mod child;
#[path = "secret_support/fork.rs"]
mod fork;
#[path = "secret_support/page.rs"]
mod page;
#[path = "secret_support/skip.rs"]
mod skip;
#[path = "secret_support/succeeded.rs"]
mod succeeded;

use page::page;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fork::forked;
use zk_nalloc::secret::{Measure, Protection, State};
use zk_nalloc::{SecretBuf, SecretPool};

fn full(len: usize, protection: Protection) -> SecretBuf {
    let mut secret = SecretBuf::with_protection(len, protection).unwrap();
    secret.expose_mut(|bytes| bytes.fill(0xa5));
    secret
}

/// Runs `body` where no other test of this process forks or maps at the same time.
fn alone(test: &str, body: impl FnOnce()) {
    child::child(test, "alone", body, succeeded::succeeded);
}

#[test]
fn a_child_reads_zeros_and_may_use_and_drop_what_it_inherited() {
    alone("a_child_reads_zeros_and_may_use_and_drop_what_it_inherited", || {
        for protection in [Protection::standard(), Protection::sealed()] {
            let pool = SecretPool::with_protection(protection);
            for len in [0, 1, page() - 8, page(), page() + 1, 100_000] {
                let mut own = Some(full(len, protection));
                let mut pooled = Some(pool.secret(len).unwrap());
                pooled.as_mut().unwrap().expose_mut(|bytes| bytes.fill(0xa5));
                let code = forked(|| {
                    for secret in [&mut own, &mut pooled] {
                        let mut secret = secret.take().unwrap();
                        let zero = secret.expose(|bytes| bytes.iter().all(|&b| b == 0));
                        secret.expose_mut(|bytes| bytes.fill(1));
                        if !zero || !secret.expose(|bytes| bytes.iter().all(|&b| b == 1)) {
                            return 1;
                        }
                    }
                    0
                });
                assert_eq!(code, 0, "{len} bytes");
                for secret in [own, pooled] {
                    let whole = secret.unwrap().expose(|bytes| bytes.iter().all(|&b| b == 0xa5));
                    assert!(whole, "the parent's bytes are not the child's to change");
                }
            }
        }
    });
}

#[test]
fn a_child_of_a_child_too() {
    alone("a_child_of_a_child_too", || {
        let mut secret = Some(full(40, Protection::standard()));
        let code = forked(|| {
            let mut between = Some(full(40, Protection::standard()));
            let code = forked(|| {
                drop(secret.take());
                let zero = between.take().unwrap().as_slice() == [0; 40];
                u8::from(!zero || full(40, Protection::standard()).as_slice() != [0xa5; 40])
            });
            if between.is_none_or(|secret| secret.as_slice() != [0xa5; 40]) { 50 } else { code as u8 }
        });
        assert_eq!(code, 0);
    });
}

#[test]
fn a_childs_status_says_what_the_fork_took() {
    alone("a_childs_status_says_what_the_fork_took", || {
        let secret = full(40, Protection::sealed());
        if secret.status().get(Measure::MemoryLock) != State::InForce {
            return skip::skip("lock", "this host lets nothing be locked");
        }
        let code = forked(|| {
            let status = secret.status();
            let lost = [Measure::MemoryLock, Measure::Sealed].map(|m| status.get(m) == State::LostInFork);
            u8::from(lost != [true; 2] || status.get(Measure::WipeOnFork) != State::InForce)
        });
        assert_eq!(code, 0);
        assert!(secret.status().all_in_force());
    });
}

#[test]
fn a_child_gets_pooled_secrets_of_its_own() {
    alone("a_child_gets_pooled_secrets_of_its_own", || {
        let pool = SecretPool::new();
        let secret = pool.random(32).unwrap();
        let code = forked(|| {
            let fresh = pool.random(32).unwrap();
            let locked = fresh.status().get(Measure::MemoryLock) == secret_lock(&secret);
            let pages = fresh.as_slice().as_ptr().addr() & !(page() - 1);
            u8::from(pages == secret.as_slice().as_ptr().addr() & !(page() - 1) || locked)
        });
        assert_eq!(code, 0);
        assert_eq!(pool.live(), 1);
    });
}

fn secret_lock(secret: &SecretBuf) -> State {
    secret.status().get(Measure::MemoryLock)
}

/// Forks while other threads hold every lock and every scope there is.
#[test]
fn forks_of_a_busy_process_neither_wait_nor_abort() {
    alone("forks_of_a_busy_process_neither_wait_nor_abort", || {
        let pool = SecretPool::with_protection(Protection::sealed());
        let shared = full(40, Protection::sealed());
        let pooled = pool.random(32).unwrap();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        assert!(shared.expose(|bytes| pooled.expose(|_| bytes.iter().all(|&b| b == 0xa5))));
                        drop(pool.random(32).unwrap());
                        drop(full(page() + 1, Protection::standard()));
                    }
                });
            }
            for n in 0..300 {
                let code = forked(|| {
                    // A child that waits for a thread of its parent is ended by the alarm.
                    rest_in(20);
                    let zero = |bytes: &[u8]| bytes.iter().all(|&b| b == 0);
                    let zeros = shared.expose(zero) && pooled.expose(zero);
                    let own = pool.random(32).unwrap();
                    u8::from(!zeros || own.expose(zero))
                });
                assert_eq!(code, 0, "fork {n}");
            }
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(pool.live(), 1, "no slot was lost");
    });
}

#[expect(unsafe_code, reason = "sets an alarm")]
fn rest_in(seconds: u32) {
    // SAFETY: touches no memory.
    unsafe { libc::alarm(seconds) };
}

#[test]
fn a_fork_inside_of_a_scope() {
    alone("a_fork_inside_of_a_scope", || {
        let secret = full(40, Protection::sealed());
        let code =
            secret.expose(|_| forked(|| u8::from(!secret.expose(|bytes| bytes.iter().all(|&b| b == 0)))));
        assert_eq!(code, 0);
        assert!(secret.expose(|bytes| bytes.iter().all(|&b| b == 0xa5)));
    });
}

#[test]
fn a_child_leaves_shared_memory_to_its_parent() {
    const TEST: &str = "a_child_leaves_shared_memory_to_its_parent";
    alone(TEST, || {
        for protection in [Protection::standard(), Protection::sealed()].map(Protection::with_memfd_secret) {
            let pool = SecretPool::with_protection(protection);
            let mut secrets =
                Some([full(40, protection), full(page(), protection), pool.random(32).unwrap()]);
            let [own, _, pooled] = secrets.as_ref().unwrap();
            if own.status().get(Measure::MemfdSecret) != State::InForce {
                return skip::skip(TEST, "memfd_secret is refused");
            }
            let twin = pooled.try_clone().unwrap();
            assert_eq!(
                forked(|| {
                    drop(secrets.take());
                    0
                }),
                0
            );
            let [own, page, pooled] = secrets.unwrap();
            assert!(own.expose(|bytes| bytes.iter().all(|&b| b == 0xa5)));
            assert!(page.expose(|bytes| bytes.iter().all(|&b| b == 0xa5)));
            assert_eq!(pooled, twin);
        }
    });
}
