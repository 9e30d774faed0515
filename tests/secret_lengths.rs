//! Every length that sits on an edge, for every protection, on pages of its own and in a pool.

#[path = "secret_support/child.rs"]
mod child;
#[path = "secret_support/page.rs"]
mod page;
#[path = "secret_support/privilege.rs"]
mod privilege;
#[path = "secret_support/skip.rs"]
mod skip;
#[path = "secret_support/succeeded.rs"]
mod succeeded;

use page::page;
use zk_nalloc::secret::{Measure, Protection};
use zk_nalloc::{Secret, SecretBuf, SecretPool};

fn fill_and_read(secret: &mut SecretBuf, len: usize) {
    assert_eq!(secret.len(), len);
    assert_eq!(secret.is_empty(), len == 0);
    secret.expose(|bytes| assert!(bytes.len() == len && bytes.iter().all(|&b| b == 0)));
    secret.expose_mut(|bytes| (0_u8..=255).cycle().zip(bytes).for_each(|(n, byte)| *byte = n));
    secret.expose(|bytes| assert!((0_u8..=255).cycle().zip(bytes).all(|(n, &byte)| n == byte)));
    let twin = secret.try_clone().unwrap();
    assert_eq!(twin, *secret);
    if len > 0 {
        secret.expose_mut(|bytes| bytes[len - 1] ^= 1);
        assert_ne!(twin, *secret);
    }
    secret.wipe();
    secret.expose(|bytes| assert!(bytes.iter().all(|&b| b == 0)));
}

#[test]
fn zero_one_and_around_pages() {
    let usual = Protection::standard();
    for protection in [usual, Protection::sealed(), usual.with_memfd_secret()] {
        let pool = SecretPool::with_protection(protection);
        let page = page();
        for len in [0, 1, 7, 8, 31, page - 1, page, page + 1, 2 * page, 65_536, 1 << 20] {
            fill_and_read(&mut SecretBuf::with_protection(len, protection).unwrap(), len);
            fill_and_read(&mut pool.secret(len).unwrap(), len);
        }
        assert_eq!(pool.live(), 0);
    }
}

#[test]
fn sizes_that_cannot_exist_are_errors() {
    let max = usize::MAX;
    for len in
        [max, max - page(), max / 2, max / 2 + 1, max / 2 - page(), max / 2 - 3 * page(), 1 << 60, 1 << 50]
    {
        for protection in [Protection::standard(), Protection::sealed().with_memfd_secret()] {
            let refused = SecretBuf::with_protection(len, protection).unwrap_err();
            assert_eq!(refused.requested(), len);
            assert_eq!(refused.os_error(), libc::ENOMEM, "{refused}");
            assert!(SecretPool::with_protection(protection).secret(len).is_err());
        }
    }
    for len in [max, max / 8, max / 8 + 1] {
        assert!(Secret::<[u64]>::new(len).is_err());
    }
}

#[test]
fn a_gibibyte() {
    const TEST: &str = "a_gibibyte";
    const GIB: usize = 1 << 30;
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = memory.lines().find(|line| line.starts_with("MemAvailable:")).unwrap();
    let available: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    if available << 10 < 3 * GIB {
        return skip::skip(TEST, "less than 3 GiB of memory are left");
    }
    let body = || {
        privilege::give_up_privilege();
        let mut secret = SecretBuf::new(GIB).unwrap();
        secret.as_mut_slice()[GIB - 1] = 7;
        assert_eq!(secret.as_slice()[0], 0);
        eprintln!("{}", secret.status());
        drop(secret);
        let unlocked = Protection::standard().without(Measure::MemoryLock);
        let secret = SecretBuf::with_protection(GIB, unlocked).unwrap();
        assert!(secret.status().all_in_force());
    };
    child::child(TEST, "child", body, succeeded::succeeded);
}
