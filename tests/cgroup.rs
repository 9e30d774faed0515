//! In a small container whose other memory grows, the cache makes room before the kernel kills.
//!
//! The test makes a memory cgroup, which takes root; elsewhere it says that it skips. Both versions are tried.

use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use zk_nalloc::NAlloc;

#[path = "secret_support/skip.rs"]
mod skip;

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

const MIB: usize = 1 << 20;
const LIMIT: usize = 256 * MIB;
const CHILD: &str = "ZK_NALLOC_TEST_CGROUP";
const TEST: &str = "the_cache_makes_room_for_what_grows_beside_it";

/// A cgroup that is removed at the end.
struct Group(PathBuf);

impl Group {
    /// Makes one with the limit, where this host lets us.
    fn new() -> Option<Self> {
        let name = format!("zk-nalloc-test-{}", std::process::id());
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let of = |found: &dyn Fn(&str) -> bool| {
            own.lines()
                .find(|line| found(line))
                .and_then(|line| line.splitn(3, ':').nth(2))
                .map(str::to_owned)
        };
        let v1 = of(&|line| line.split(':').nth(1).is_some_and(|c| c.split(',').any(|c| c == "memory")))
            .map(|path| (Path::new("/sys/fs/cgroup/memory").join(&path[1..]), "memory.limit_in_bytes"));
        // No process may be where a controller is handed down, so ours gets a place beside us.
        let v2 = of(&|line| line.starts_with("0::"))
            .and_then(|path| Path::new("/sys/fs/cgroup").join(&path[1..]).parent().map(Path::to_owned))
            .map(|parent| (parent, "memory.max"));
        [v1, v2].into_iter().flatten().find_map(|(parent, limit)| {
            let group = parent.join(&name);
            std::fs::create_dir(&group).ok()?;
            let made = Self(group);
            std::fs::write(made.0.join(limit), LIMIT.to_string()).ok()?;
            // Swap would take what is to be given up.
            let _ = std::fs::write(made.0.join("memory.swap.max"), "0");
            let _ = std::fs::write(made.0.join("memory.swappiness"), "0");
            Some(made)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Fills the cache to three quarters of the limit, then grows beside it, with time for a look after each step.
fn load(group: &str) {
    std::fs::write(Path::new(group).join("cgroup.procs"), std::process::id().to_string()).unwrap();
    drop(black_box(vec![1_u8; LIMIT / 4 * 3]));
    let full = zk_nalloc::cached_bytes();
    let mut beside: Vec<Box<[u8]>> = Vec::new();
    // Short enough for the small side, which is not ours.
    let piece = 32 << 10;
    let step = LIMIT / 32;
    while beside.len() * piece < LIMIT * 5 / 8 {
        beside.extend((0..step / piece).map(|_| vec![2; piece].into_boxed_slice()));
        std::thread::sleep(Duration::from_millis(260));
        for _ in 0..70 {
            black_box(vec![3_u8; MIB]);
        }
    }
    println!("\ncached {} then {}", full / MIB, zk_nalloc::cached_bytes() / MIB);
    assert!(full >= LIMIT / 2 && zk_nalloc::cached_bytes() < full * 3 / 4);
}

#[test]
fn the_cache_makes_room_for_what_grows_beside_it() {
    if let Ok(group) = std::env::var(CHILD) {
        return load(&group);
    }
    let Some(group) = Group::new() else {
        return skip::skip(TEST, "no memory cgroup can be made here");
    };
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", TEST, "--nocapture", "--test-threads=1"])
        .env(CHILD, &group.0)
        .output()
        .unwrap();
    assert_ne!(output.status.signal(), Some(libc::SIGKILL), "killed for memory: {output:?}");
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("cached "), "{output:?}");
}
