//! Each measure as the kernel shows it on the mapping itself, and on no neighbour of it.

#[path = "secret_support/page.rs"]
mod page;
#[path = "secret_support/skip.rs"]
mod skip;
#[path = "secret_support/smaps.rs"]
mod smaps;

use page::page;
use zk_nalloc::secret::{Measure, Protection, State};
use zk_nalloc::{Secret, SecretBuf, SecretPool};

/// The flag that the kernel shows for a measure.
const FLAGS: [(Measure, &str); 4] = [
    (Measure::MemoryLock, "lo"),
    (Measure::NoDump, "dd"),
    (Measure::WipeOnFork, "wf"),
    (Measure::NoHugePages, "nh"),
];

fn shown(test: &str, secret: &SecretBuf) {
    let address = secret.expose(|bytes| bytes.as_ptr().addr());
    let flags = smaps::flags(address);
    for (measure, flag) in FLAGS {
        let has = flags.iter().any(|f| f == flag);
        match secret.status().get(measure) {
            State::InForce => assert!(has, "{measure:?}: {flags:?}"),
            State::NotAskedFor => assert!(!has || measure == Measure::MemoryLock, "{measure:?}: {flags:?}"),
            refused => skip::skip(test, &format!("{measure:?} {refused}")),
        }
    }
    assert!(!flags.iter().any(|f| f == "mg" || f == "hg"), "merged or huge: {flags:?}");
}

#[test]
fn the_kernel_shows_every_measure_on_the_pages() {
    const TEST: &str = "the_kernel_shows_every_measure_on_the_pages";
    for len in [1, page(), 10 * page() + 1, 4 << 20] {
        for protection in [Protection::standard(), Protection::sealed()] {
            shown(TEST, &SecretBuf::with_protection(len, protection).unwrap());
        }
    }
    shown(TEST, &SecretPool::new().secret(32).unwrap());
    shown(TEST, &Secret::<[u64; 4]>::new().unwrap().into_buf());
}

#[test]
fn what_is_not_asked_for_is_not_there() {
    const TEST: &str = "what_is_not_asked_for_is_not_there";
    for (left_out, _) in FLAGS {
        let protection = Protection::standard().without(left_out);
        let secret = SecretBuf::with_protection(100, protection).unwrap();
        assert_eq!(secret.status().get(left_out), State::NotAskedFor);
        shown(TEST, &secret);
        let flags = smaps::flags(secret.as_slice().as_ptr().addr());
        let (_, flag) = FLAGS.iter().find(|(measure, _)| *measure == left_out).unwrap();
        assert!(!flags.iter().any(|f| f == flag), "{left_out:?}: {flags:?}");
    }
}

#[test]
fn the_pages_are_private_and_anonymous_between_guards() {
    for len in [1, page(), page() + 1] {
        let secret = SecretBuf::new(len).unwrap();
        let end = secret.as_slice().as_ptr().addr() + len;
        let start = end - len.next_multiple_of(page());
        assert_eq!(smaps::flags(start)[0], "rw-p");
        assert_eq!(smaps::flags(end - 1)[0], "rw-p");
        assert_eq!(smaps::flags(end)[0], "---p");
        assert_eq!(smaps::flags(start - 1)[0], "---p");
    }
}

#[test]
fn dropped_secrets_leave_no_mapping() {
    let mappings = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let pool = SecretPool::new();
    let before = mappings();
    let secrets: Vec<_> = (0..500).map(|_| SecretBuf::new(100).unwrap()).collect();
    let pooled: Vec<_> = (0..500).map(|_| pool.secret(100).unwrap()).collect();
    assert!(mappings() > before + 500);
    drop(secrets);
    drop(pool);
    drop(pooled);
    // Other tests of this process map and unmap meanwhile, a few at a time.
    assert!(mappings() < before + 100, "{before}, then {}", mappings());
}

#[test]
fn memory_that_even_a_debugger_cannot_read() {
    use std::os::unix::fs::FileExt;
    const TEST: &str = "memory_that_even_a_debugger_cannot_read";
    let memory = std::fs::File::open("/proc/self/mem").unwrap();
    let peek = |secret: &SecretBuf| {
        let mut seen = [0; 8];
        let at = secret.as_slice().as_ptr().addr() as u64;
        memory.read_exact_at(&mut seen, at).map(|()| seen)
    };
    let mut plain = SecretBuf::new(8).unwrap();
    plain.as_mut_slice().fill(7);
    assert_eq!(peek(&plain).unwrap(), [7; 8], "the look itself works");

    let mut secret = SecretBuf::with_protection(8, Protection::standard().with_memfd_secret()).unwrap();
    let status = secret.status();
    if status.get(Measure::MemfdSecret) != State::InForce {
        return skip::skip(TEST, &format!("memfd_secret {}", status.get(Measure::MemfdSecret)));
    }
    assert!(matches!(status.get(Measure::WipeOnFork), State::Refused(why) if why.os_error() == libc::EINVAL));
    assert!(!status.all_in_force());
    secret.as_mut_slice().fill(7);
    assert!(peek(&secret).is_err());
    // Reading into them by an ordinary call works.
    let mut zeros = std::fs::File::open("/dev/zero").unwrap();
    std::io::Read::read_exact(&mut zeros, secret.as_mut_slice()).unwrap();
    assert_eq!(secret.as_slice(), [0; 8]);
    let protection = Protection::standard().with_memfd_secret().without(Measure::WipeOnFork);
    shown(TEST, &SecretBuf::with_protection(8, protection).unwrap());
}
