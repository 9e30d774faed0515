//! Tests in which a process has to die, or to change for good, run part of themselves in a child process.

use std::process::{Command, Output, Stdio};

const LABEL: &str = "ZK_NALLOC_TEST_CHILD";
/// What a child says first, so that one that never ran is not taken for one that did well.
const BEGUN: &str = "the child has begun";

/// Runs `body` in a process of its own and gives `check` what became of it: the same test is started again,
/// and ends here. `test` is the name of the test; `label` tells its children apart.
pub(crate) fn child(test: &str, label: &str, body: impl FnOnce(), check: impl FnOnce(&Output)) {
    let whole = format!("{test}/{label}");
    match std::env::var(LABEL) {
        Ok(here) if here == whole => {
            println!("{BEGUN}");
            body();
            std::process::exit(0);
        }
        // This process is some other child of the test.
        Ok(_) => return,
        Err(_) => {}
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(LABEL, &whole)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let begun = String::from_utf8_lossy(&output.stdout).contains(BEGUN);
    assert!(begun, "there is no test {test}, or it did not get here: {output:?}");
    check(&output);
}
