//! Sealed pages are closed outside of scopes, open inside of them, and scopes nest, overlap and unwind.

#[path = "secret_support/child.rs"]
mod child;
#[path = "secret_support/raw.rs"]
mod raw;
#[path = "secret_support/smaps.rs"]
mod smaps;

use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use zk_nalloc::secret::{Protection, State};
use zk_nalloc::{Secret, SecretBuf, SecretPool};

fn permissions(address: usize) -> String {
    smaps::flags(address).swap_remove(0)
}

fn both() -> (SecretPool, [SecretBuf; 2]) {
    let pool = SecretPool::with_protection(Protection::sealed());
    let secrets = [SecretBuf::with_protection(40, Protection::sealed()).unwrap(), pool.secret(40).unwrap()];
    (pool, secrets)
}

#[test]
fn access_outside_of_a_scope_faults() {
    const TEST: &str = "access_outside_of_a_scope_faults";
    for (n, label) in ["own pages", "a pool"].into_iter().enumerate() {
        let start = || {
            let (pool, mut secrets) = both();
            secrets[n].expose_mut(|bytes| bytes.fill(1));
            let at = secrets[n].expose(|bytes| bytes.as_ptr().expose_provenance());
            eprintln!("ready");
            (pool, secrets, at)
        };
        let check = |output: &std::process::Output| {
            assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{output:?}");
            assert!(output.stderr.ends_with(b"ready\n"), "{output:?}");
        };
        child::child(
            TEST,
            &format!("read {label}"),
            || {
                let (_pool, _secrets, at) = start();
                raw::read(at);
            },
            check,
        );
        child::child(
            TEST,
            &format!("write while reading {label}"),
            || {
                let (_pool, secrets, at) = start();
                secrets[n].expose(|_| raw::write(at, 2));
            },
            check,
        );
    }
}

#[test]
fn the_pages_open_and_close_with_the_scopes() {
    let (_pool, secrets) = both();
    for mut secret in secrets {
        let at = secret.expose(|bytes| bytes.as_ptr().addr());
        assert_eq!(permissions(at), "---p");
        secret.expose(|_| {
            assert_eq!(permissions(at), "r--p");
            secret.expose(|_| assert_eq!(permissions(at), "r--p"));
            assert_eq!(permissions(at), "r--p", "the inner scope leaves the outer one open");
        });
        assert_eq!(permissions(at), "---p");
        secret.expose_mut(|_| assert_eq!(permissions(at), "rw-p"));
        assert_eq!(permissions(at), "---p");
        let unwound = catch_unwind(AssertUnwindSafe(|| secret.expose_mut(|_| panic!("inside"))));
        assert!(unwound.is_err());
        assert_eq!(permissions(at), "---p", "closed on unwind");
        let unwound = catch_unwind(|| secret.expose(|_| secret.expose(|_| panic!("inside"))));
        assert!(unwound.is_err());
        assert_eq!(permissions(at), "---p", "closed on unwind");
        assert!(secret.status().iter().all(|(_, state)| !matches!(state, State::LostInFork)));
    }
}

#[test]
fn neighbours_in_a_pool_share_the_seal() {
    let pool = SecretPool::with_protection(Protection::sealed());
    let (reader, mut writer) = (pool.secret(40).unwrap(), pool.secret(40).unwrap());
    let at = reader.expose(|bytes| {
        let at = bytes.as_ptr().addr();
        writer.expose_mut(|own| {
            own.fill(1);
            assert_eq!(permissions(at), "rw-p");
            // Making and dropping one opens the pages too, and leaves them as they are needed.
            drop(pool.random(40).unwrap());
            assert_eq!(permissions(at), "rw-p");
        });
        assert_eq!(permissions(at), "r--p", "the reader is left");
        at
    });
    assert_eq!(permissions(at), "---p");
    assert!(writer.expose(|bytes| bytes == [1; 40]));
}

#[test]
fn threads_may_be_inside_at_the_same_time() {
    let (pool, secrets) = both();
    for mut secret in secrets {
        secret.expose_mut(|bytes| bytes.fill(0xa5));
        let at = secret.expose(|bytes| bytes.as_ptr().addr());
        let inside = Barrier::new(4);
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    secret.expose(|bytes| {
                        inside.wait();
                        assert_eq!(bytes, [0xa5; 40]);
                    });
                    for _ in 0..2000 {
                        assert!(secret.expose(|bytes| bytes == [0xa5; 40]));
                    }
                    over.store(true, Ordering::Relaxed);
                });
            }
            scope.spawn(|| {
                let mut other = pool.secret(40).unwrap();
                while !over.load(Ordering::Relaxed) {
                    other.expose_mut(|bytes| bytes[0] = bytes[0].wrapping_add(1));
                }
            });
        });
        assert_eq!(permissions(at), "---p", "the last one out closes");
    }
}

#[test]
fn slices_of_sealed_secrets_are_refused() {
    let mut secret = SecretBuf::with_protection(40, Protection::sealed()).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| secret.as_slice().len())).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| secret.as_mut_slice().len())).is_err());
    let mut secret = Secret::<u64>::with_protection(Protection::sealed()).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| *secret.get())).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| *secret.get_mut())).is_err());
    secret.expose_mut(|word| *word = 7);
    assert_eq!(secret.expose(|word| *word), 7);
    assert_eq!(secret.try_clone().unwrap(), secret);
}
