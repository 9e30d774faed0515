//! What the environment says of the allocator, as it shows from outside.
//!
//! Processes of their own, because the environment is read once, by the first large request.

#[expect(dead_code, reason = "no test uses all that the tests share")]
mod support;

use std::fs::Permissions;
use std::hint::black_box;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use support::load::{LIGHT, load};
use support::pattern::Patterned;
use support::{Ended, alone, proc, skip, tell};
use zk_nalloc::NAlloc;

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

/// Frees a hundred megabytes in blocks of all sizes; tells how much stays.
fn free_a_lot() {
    let before = proc::resident();
    let blocks: Vec<_> =
        [70 << 10, 1 << 20, 3 << 20, 40 << 20, 60 << 20].map(|len| Patterned::new(7, len)).into();
    let full = proc::resident();
    assert!(full > before + (100 << 20));
    drop(blocks);
    tell("kept", proc::resident().saturating_sub(before) as u64);
    tell("cached", zk_nalloc::cached_bytes() as u64);
    load(&LIGHT, 20);
}

/// What the child said on standard error.
fn said(ended: &Ended) -> Vec<String> {
    ended.said().lines().map(str::to_owned).collect()
}

#[test]
fn a_cache_of_nothing_keeps_nothing() {
    let environment = [("ZK_NALLOC_CACHE_BYTES", "0")];
    let Some(ended) = alone("a_cache_of_nothing_keeps_nothing", "0", &environment, free_a_lot) else {
        return;
    };
    assert!(ended.told("kept") < 4 << 20, "{} bytes stay resident", ended.told("kept"));
    assert_eq!(ended.told("cached"), 0);
    assert!(said(&ended).is_empty(), "{:?}", said(&ended));
}

#[test]
fn a_cache_of_so_much_keeps_no_more() {
    let environment = [("ZK_NALLOC_CACHE_BYTES", "48M")];
    let Some(ended) = alone("a_cache_of_so_much_keeps_no_more", "48M", &environment, free_a_lot) else {
        return;
    };
    assert!(ended.told("cached") <= 48 << 20, "{} bytes are cached", ended.told("cached"));
    assert!(ended.told("cached") >= 16 << 20, "{} bytes are cached", ended.told("cached"));
    assert!(ended.told("kept") < 56 << 20, "{} bytes stay resident", ended.told("kept"));
}

#[test]
fn what_cannot_be_read_is_one_line_and_then_as_if_unset() {
    const TEST: &str = "what_cannot_be_read_is_one_line_and_then_as_if_unset";
    let variables = ["ZK_NALLOC_CACHE_BYTES", "ZK_NALLOC_THP", "ZK_NALLOC_MOVES"];
    let Some(unset) = alone(TEST, "unset", &[], free_a_lot) else {
        for variable in variables {
            alone(TEST, variable, &[], free_a_lot);
        }
        return;
    };
    assert!(said(&unset).is_empty(), "{:?}", said(&unset));
    for variable in variables {
        let Some(ended) = alone(TEST, variable, &[(variable, "12cats")], free_a_lot) else { return };
        let lines = said(&ended);
        assert!(lines.len() == 1 && lines[0].contains(variable) && lines[0].contains("12cats"), "{lines:?}");
        // A hundred megabytes were live, and are kept.
        assert!(ended.told("cached") > 90 << 20 && unset.told("cached") > 90 << 20);
    }
}

#[test]
fn huge_pages_are_refused_and_asked_for() {
    const TEST: &str = "huge_pages_are_refused_and_asked_for";
    let body = || {
        let block = Patterned::new(1, 64 << 20);
        tell("huge", proc::huge_pages() as u64);
        block.check("a block");
        load(&LIGHT, 20);
    };
    if let Some(ended) = alone(TEST, "never", &[("ZK_NALLOC_THP", "never")], body) {
        assert_eq!(ended.told("huge"), 0);
    }
    if let Some(ended) = alone(TEST, "always", &[("ZK_NALLOC_THP", "always")], body) {
        let host = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        if ended.told("huge") == 0 {
            skip(TEST, &format!("this host gave no huge page: {}", host.trim()));
        }
    }
}

/// Whoever starts a program with privileges of others could have it write over a file that only these may write.
#[test]
fn a_program_with_privileges_of_others_obeys_nobody() {
    const TEST: &str = "a_program_with_privileges_of_others_obeys_nobody";
    const HERE: &str = "ZK_NALLOC_TEST_PRIVILEGED";
    const NOBODY: u32 = 65_534;
    if std::env::var_os(HERE).is_some() {
        drop(black_box(vec![1_u8; 1 << 20]));
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let users = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
        let users: Vec<&str> = users.split_whitespace().collect();
        // The harness has begun a line.
        println!();
        return tell("privileged", u64::from(users[0] != users[1]));
    }
    let folder = std::env::temp_dir().join(format!("zk-nalloc-privileged-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
    let (program, trace) = (folder.join("program"), folder.join("trace"));
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    // Whether it ran with privileges, and wrote; `None` where programs of this folder cannot be run.
    let run = |mode| {
        std::fs::set_permissions(&program, Permissions::from_mode(mode)).unwrap();
        let mut command = Command::new(&program);
        command.args(["--exact", TEST, "--nocapture", "--test-threads=1"]);
        command.env(HERE, "1").env("ZK_NALLOC_TRACE", &trace);
        let output = loop {
            match command.output() {
                // A child that another test has just forked still has the copy open for writing.
                Err(busy) if busy.kind() == ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
                output => break output.ok()?,
            }
        };
        let ended = Ended { output };
        ended.assert_well();
        Some((ended.told("privileged") == 1, std::fs::remove_file(&trace).is_ok()))
    };
    let ordinary = run(0o755);
    assert!(matches!(ordinary, None | Some((false, true))), "privileged, and a trace written: {ordinary:?}");
    let is_given = std::os::unix::fs::chown(&program, Some(NOBODY), None).is_ok();
    match is_given.then(|| run(0o4755)).flatten() {
        Some((true, is_written)) => assert!(!is_written, "it wrote a file for somebody else"),
        _ => skip(TEST, "no program can be given to another user here, or none has their privileges"),
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
