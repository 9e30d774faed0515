//! The environment has the last word about checked mode, both ways.

#![expect(unsafe_code, reason = "misuses the allocator on purpose")]

use std::alloc::{GlobalAlloc, Layout};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use zk_nalloc::NAlloc;

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

#[test]
fn the_environment_turns_checked_mode_on() {
    if std::env::var_os("ZK_NALLOC_CHECKED").is_some() {
        let layout = Layout::from_size_align(1 << 20, 8).unwrap();
        // SAFETY: not sound where the block is not looked for; freeing as another length of the same class is harmless.
        unsafe {
            let p = GLOBAL.alloc(layout);
            GLOBAL.dealloc(p, Layout::from_size_align((1 << 20) - 1, 8).unwrap());
        }
        return;
    }
    let child = |checked: &str| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_environment_turns_checked_mode_on", "--nocapture", "--test-threads=1"])
            .env("ZK_NALLOC_CHECKED", checked)
            .output()
            .unwrap()
    };
    let on = child("1");
    assert_eq!(on.status.signal(), Some(libc::SIGABRT), "{on:?}");
    assert!(
        String::from_utf8_lossy(&on.stderr).contains("was freed as one of 1048575 bytes and alignment 8")
    );
    let off = child("0");
    assert!(off.status.success(), "{off:?}");
    let unreadable = child("yes");
    assert!(unreadable.status.success());
    let said = String::from_utf8_lossy(&unreadable.stderr);
    assert_eq!(
        said.matches("ZK_NALLOC_CHECKED=\"yes\" is none of 0, 1; taken instead: 0").count(),
        1,
        "{said}"
    );
}
