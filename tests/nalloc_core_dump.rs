//! A core dump holds what is resident and little else: not the address space that is set aside.
//!
//! Processes of their own, because they die.

#![expect(unsafe_code, reason = "sets a limit")]

#[path = "support/choice.rs"]
mod choice;
#[expect(dead_code, reason = "no test uses all that the tests share")]
mod support;

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use choice::{Choice, SYSTEM};
use support::pattern::Patterned;
use support::{child, skip};

#[global_allocator]
static GLOBAL: Choice = Choice::new();

const TEST: &str = "what_is_cached_swells_a_dump_no_more_than_what_is_live";

/// What a dump may hold beside what is resident: memory is opened in steps of 32 MiB.
const STEP: u64 = 32 << 20;

/// Where a dump is written.
#[derive(Debug)]
struct Size {
    /// As `ls` shows it.
    apparent: u64,
    /// As `du` shows it.
    on_disk: u64,
}

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

/// Fills 300 MiB, does what `then` says with them, and dies; gives the size of the dump.
fn dump(label: &str, environment: &[(&str, &str)], then: fn(&mut Vec<Patterned>)) -> Option<Size> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nalloc_core_dump").join(label);
    let ended = child(TEST, label, environment, || {
        allow_dumps();
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::env::set_current_dir(&folder).unwrap();
        let mut blocks: Vec<_> = [200 << 20, 96 << 20, 4 << 20].map(|len| Patterned::new(1, len)).into();
        then(&mut blocks);
        std::hint::black_box(&blocks);
        std::process::abort();
    })?;
    assert!(!ended.output.status.success(), "{ended:?}");
    let core = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .find(|entry| entry.file_name().as_encoded_bytes().starts_with(b"core"));
    let size = core.map(|core| {
        let file = core.metadata().unwrap();
        Size { apparent: file.len(), on_disk: file.blocks() * 512 }
    });
    let _ = std::fs::remove_dir_all(&folder);
    size
}

#[test]
fn what_is_cached_swells_a_dump_no_more_than_what_is_live() {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.starts_with(['|', '/']) || !pattern.starts_with("core") {
        return skip(TEST, &format!("this host sends core dumps elsewhere: {}", pattern.trim()));
    }
    let system = dump("system", SYSTEM, |_| {});
    let live = dump("live", &[], |_| {});
    let cached = dump("cached", &[], Vec::clear);
    let released = dump("released", &[], |blocks| {
        blocks.clear();
        zk_nalloc::release_cache();
    });
    let (Some(system), Some(live), Some(cached), Some(released)) = (system, live, cached, released) else {
        return skip(TEST, "no core dump was written (RLIMIT_CORE, or a folder that cannot be written)");
    };
    for (ours, name) in [(live, "live"), (cached, "cached")] {
        assert!(ours.apparent <= system.apparent + 2 * STEP, "{name}: {ours:?}, {system:?} without us");
        // A huge page at each end of each block.
        assert!(ours.on_disk <= system.on_disk + (16 << 20), "{name}: {ours:?}, {system:?} without us");
    }
    assert!(released.apparent <= 2 * STEP && released.on_disk <= 16 << 20, "{released:?}");
}
