//! What is expected of most children.

use std::io::Write;
use std::process::Output;

/// Asserts that a child ended well, and passes on what it said that it skipped.
pub(crate) fn succeeded(output: &Output) {
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    for line in said.lines().filter(|line| line.starts_with("skipped: ")) {
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}
