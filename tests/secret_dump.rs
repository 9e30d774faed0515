//! A core dump does not hold the secret, and does hold what lies beside it in ordinary memory.

#[path = "secret_support/child.rs"]
mod child;
#[path = "secret_support/skip.rs"]
mod skip;

use std::path::{Path, PathBuf};

use zk_nalloc::secret::{Measure, Protection, State};
use zk_nalloc::{SecretBuf, SecretPool};

/// Writes a pattern that nothing else in the process is likely to hold, without a copy anywhere.
fn write_pattern(seed: u64, into: &mut [u8]) {
    let mut state = seed;
    for byte in into {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *byte = (state >> 56) as u8;
    }
}

fn holds(dump: &[u8], seed: u64) -> bool {
    let mut pattern = [0; 32];
    write_pattern(seed, &mut pattern);
    dump.windows(pattern.len()).any(|window| window == pattern)
}

#[expect(unsafe_code, reason = "sets a limit")]
fn allow_dumps() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is ours.
    unsafe {
        libc::getrlimit(libc::RLIMIT_CORE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_CORE, &limit);
        libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
    }
}

fn dump_in(folder: &Path) -> Option<PathBuf> {
    let mut files = std::fs::read_dir(folder).ok()?.map(|entry| entry.unwrap().path());
    files.find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("core")))
}

const IN_A_VEC: u64 = 1;
const OWN: u64 = 2;
const SEALED: u64 = 3;
const POOLED: u64 = 4;
const KERNELS: u64 = 5;
const DUMPED: u64 = 6;

#[test]
fn a_dump_holds_no_secret() {
    const TEST: &str = "a_dump_holds_no_secret";
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.starts_with(['|', '/']) || !pattern.starts_with("core") {
        return skip::skip(TEST, &format!("this host sends core dumps elsewhere: {}", pattern.trim()));
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("secret_dump");
    let body = || {
        allow_dumps();
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::env::set_current_dir(&folder).unwrap();
        let mut vec = vec![0; 64];
        write_pattern(IN_A_VEC, &mut vec);
        let full = |seed, mut secret: SecretBuf| {
            secret.expose_mut(|bytes| write_pattern(seed, bytes));
            assert!(matches!(secret.status().get(Measure::NoDump), State::InForce | State::NotAskedFor));
            secret
        };
        let dumped = Protection::standard().without(Measure::NoDump);
        let kernels = Protection::standard().with_memfd_secret();
        let secrets = [
            full(OWN, SecretBuf::new(64).unwrap()),
            full(SEALED, SecretBuf::with_protection(64, Protection::sealed()).unwrap()),
            full(POOLED, SecretPool::new().secret(64).unwrap()),
            full(KERNELS, SecretBuf::with_protection(64, kernels).unwrap()),
            full(DUMPED, SecretBuf::with_protection(64, dumped).unwrap()),
        ];
        std::hint::black_box((&vec, &secrets));
        std::process::abort();
    };
    child::child(TEST, "child", body, |output| {
        assert!(!output.status.success(), "{output:?}");
        let Some(path) = dump_in(&folder) else {
            return skip::skip(
                TEST,
                "no core dump was written (RLIMIT_CORE, or a folder that cannot be written)",
            );
        };
        let dump = std::fs::read(path).unwrap();
        let _ = std::fs::remove_dir_all(&folder);
        assert!(holds(&dump, IN_A_VEC), "the search finds what lies in ordinary memory");
        assert!(holds(&dump, DUMPED), "and in a secret that does not ask to be left out");
        for seed in [OWN, SEALED, POOLED, KERNELS] {
            assert!(!holds(&dump, seed), "secret {seed} is in the core dump");
        }
    });
}
