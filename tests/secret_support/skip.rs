//! What this host cannot show is said, never passed over: one line on standard error, past the harness that
//! would keep it. Skips are counted by counting these lines.

use std::io::Write;

/// Says that a part of a test did not run here, and why.
pub(crate) fn skip(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}
