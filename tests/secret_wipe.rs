//! What is left of a secret after it is gone: nothing, seen in the shipped code itself. A filter makes the
//! kernel refuse to unmap, so that the memory can still be looked at, as `/proc/self/mem` shows it.

#[path = "secret_support/child.rs"]
mod child;
#[path = "secret_support/page.rs"]
mod page;
#[path = "secret_support/seccomp.rs"]
mod seccomp;
#[path = "secret_support/skip.rs"]
mod skip;
#[path = "secret_support/succeeded.rs"]
mod succeeded;

use page::page;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use zk_nalloc::secret::Protection;
use zk_nalloc::{MapFailed, Secret, SecretBuf, SecretPool};

/// The pages that hold `len` bytes at `address`, as a debugger sees them: sealed or not.
fn pages(address: usize, len: usize) -> Vec<u8> {
    let start = address & !(page() - 1);
    let mut seen = vec![0xff; (address + len.max(1)).next_multiple_of(page()) - start];
    File::open("/proc/self/mem").unwrap().read_exact_at(&mut seen, start as u64).unwrap();
    seen
}

/// Runs `body` in a process that cannot unmap secrets of these lengths. Other lengths it can, or sanitizers
/// would not work.
fn without_unmapping(test: &str, lengths: &[usize], body: impl FnOnce()) {
    let body = || {
        for len in lengths {
            let whole = len.next_multiple_of(page()) + 2 * page();
            let whole = [(1, u32::try_from(whole).unwrap())];
            if !seccomp::refuse(libc::SYS_munmap, &whole, libc::EPERM) {
                return skip::skip(test, "this host lets nobody filter system calls");
            }
        }
        if std::panic::catch_unwind(|| pages(test.as_ptr().addr(), 1)).is_err() {
            return skip::skip(test, "this host does not show /proc/self/mem");
        }
        body();
    };
    child::child(test, "child", body, succeeded::succeeded);
}

/// Even, as no byte of a canary is.
const FILL: u8 = 0xa4;

fn count(bytes: &[u8], byte: u8) -> usize {
    bytes.iter().filter(|&&b| b == byte).count()
}

#[test]
fn dropped_is_wiped() {
    let lengths = [1, 40, page() - 1, page(), page() + 1, 1 << 20];
    without_unmapping("dropped_is_wiped", &lengths, || {
        for protection in [Protection::standard(), Protection::sealed()] {
            for len in lengths {
                let mut secret = SecretBuf::with_protection(len, protection).unwrap();
                secret.expose_mut(|bytes| bytes.fill(FILL));
                let at = secret.expose(|bytes| bytes.as_ptr().addr());
                assert!(count(&pages(at, len), FILL) >= len, "the look itself works");
                drop(secret);
                let seen = pages(at, len);
                assert_eq!(count(&seen, 0), seen.len(), "{len} bytes, canary and all");
            }
        }
    });
}

/// Beyond `RLIMIT_DATA` sealed pages can be opened for reading alone: dropping them ended the process.
#[test]
fn dropped_is_wiped_where_nothing_can_be_opened_for_writing() {
    const TEST: &str = "dropped_is_wiped_where_nothing_can_be_opened_for_writing";
    // Of a size that nobody else opens.
    const LEN: usize = 5 << 16;
    without_unmapping(TEST, &[LEN], || {
        let mut secret = SecretBuf::with_protection(LEN, Protection::sealed()).unwrap();
        secret.expose_mut(|bytes| bytes.fill(FILL));
        let at = secret.expose(|bytes| bytes.as_ptr().addr());
        let writable = (libc::PROT_READ | libc::PROT_WRITE).cast_unsigned();
        if !seccomp::refuse(libc::SYS_mprotect, &[(1, LEN as u32), (2, writable)], libc::ENOMEM) {
            return skip::skip(TEST, "this host lets nobody filter system calls");
        }
        assert!(catch_unwind(AssertUnwindSafe(|| secret.expose_mut(|_| ()))).is_err());
        drop(secret);
        let seen = pages(at, LEN);
        assert_eq!(count(&seen, 0), seen.len());
    });
}

#[test]
fn what_fails_or_unwinds_half_way_is_wiped() {
    without_unmapping("what_fails_or_unwinds_half_way_is_wiped", &[40], || {
        let mut at = 0;
        let mut half = |bytes: &mut [u8]| {
            at = bytes.as_ptr().addr();
            bytes[..20].fill(FILL);
            assert_eq!(count(&pages(at, 40), FILL), 20);
        };
        let failed = SecretBuf::try_new_with(40, |bytes| {
            half(bytes);
            Err::<(), _>(std::io::Error::other("the file ends here"))
        });
        assert!(failed.is_err());
        assert_eq!(count(&pages(at, 40), 0), page());

        let mut at = 0;
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            SecretBuf::new_with(40, |bytes| {
                at = bytes.as_ptr().addr();
                bytes[..20].fill(FILL);
                panic!("half way");
            })
        }));
        assert!(unwound.is_err());
        assert_eq!(count(&pages(at, 40), 0), page());

        let mut at = 0;
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let mut secret = Secret::<[u64; 5]>::with_protection(Protection::sealed())?;
            secret.expose_mut(|words| {
                at = words.as_ptr().addr();
                words.fill(u64::MAX);
                panic!("half way");
            });
            Ok::<_, MapFailed>(())
        }));
        assert!(unwound.is_err());
        assert_eq!(count(&pages(at, 40), 0), page());
    });
}

#[test]
fn outgrown_buffers_of_a_reader_are_wiped() {
    let lengths = [16 << 10, 32 << 10, 64 << 10, 128 << 10];
    without_unmapping("outgrown_buffers_of_a_reader_are_wiped", &lengths, || {
        struct Spy<'a>(&'a mut Vec<usize>, usize);
        impl std::io::Read for Spy<'_> {
            fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
                self.0.push(into.as_ptr().addr());
                let n = into.len().min(self.1);
                self.1 -= n;
                into[..n].fill(FILL);
                Ok(n)
            }
        }
        let mut seen = Vec::new();
        let secret = SecretBuf::read_to_end(Spy(&mut seen, 100_000), 1 << 20).unwrap();
        let own = secret.as_slice().as_ptr_range();
        assert_eq!(count(secret.as_slice(), FILL), 100_000);
        assert!(seen.len() > 3);
        for at in seen {
            assert!(!(own.start.addr()..own.end.addr()).contains(&at));
            assert_eq!(count(&pages(at, 1), 0), page());
        }
    });
}

#[test]
fn a_source_is_wiped_and_a_slot_before_its_next_owner() {
    let mut source = [FILL; 100];
    drop(SecretBuf::from_slice_wiping(&mut source).unwrap());
    assert_eq!(source, [0; 100]);

    for protection in [Protection::standard(), Protection::sealed()] {
        let pool = SecretPool::with_protection(protection);
        for _ in 0..3 {
            let mut secrets: Vec<_> = (0..100).map(|_| pool.secret(32).unwrap()).collect();
            for secret in &mut secrets {
                assert!(secret.expose(|bytes| count(bytes, 0) == 32));
                secret.expose_mut(|bytes| bytes.fill(FILL));
            }
            let at = secrets[0].expose(|bytes| bytes.as_ptr().addr());
            drop(secrets);
            // The chunks of a pool stay.
            let Ok(seen) = catch_unwind(|| pages(at, 32)) else { continue };
            assert_eq!(count(&seen, 0), page(), "no secret, and no canary, is left in the pool");
        }
    }
}
