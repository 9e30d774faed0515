//! What the process tests of the allocator share: a test started again as a child with an environment of its own, and
//! contents that tell whether memory is whole.

#![expect(unsafe_code, reason = "sets an alarm")]

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

pub(crate) mod load;
pub(crate) mod pattern;
pub(crate) mod proc;

/// Tells a child which one it is.
pub(crate) const LABEL: &str = "ZK_NALLOC_TEST_CHILD";

/// What a child says first, so that one that never ran is not taken for one that did well.
const BEGUN: &str = "the child has begun";

/// The environment in which no page is moved.
pub(crate) const STILL: &[(&str, &str)] = &[("ZK_NALLOC_MOVES", "never")];

/// The default environment, and the one in which no page is moved, each with its name.
pub(crate) const MODES: [(&str, &[(&str, &str)]); 2] = [("default", &[]), ("still", STILL)];

/// How a child ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) output: Output,
}

impl Ended {
    /// What it wrote to standard error.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }
}

/// Runs `body` in a process of its own: the same test is started again, with `environment` in place of what this
/// process was told about the allocator, and ends here. `test` is the name of the test, `label` tells its children
/// apart. `None` in a process that is some other child.
pub(crate) fn child(
    test: &str,
    label: &str,
    environment: &[(&str, &str)],
    body: impl FnOnce(),
) -> Option<Ended> {
    let whole = format!("{test}/{label}");
    match std::env::var(LABEL) {
        Ok(here) if here == whole => {
            println!("{BEGUN}");
            watch();
            body();
            std::process::exit(0);
        }
        Ok(_) => return None,
        Err(_) => {}
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"ZK_NALLOC_") && name != OsStr::new("ZK_NALLOC_TEST_TIMES") {
            command.env_remove(name);
        }
    }
    // A backtrace takes memory, which a child may not have, and its lock, which it then waits for.
    command.env("RUST_BACKTRACE", "0").env(LABEL, &whole).envs(environment.iter().copied());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let begun = String::from_utf8_lossy(&output.stdout).contains(BEGUN);
    assert!(begun, "there is no test {test}, or it did not get here: {output:?}");
    Some(Ended { output })
}

/// Sees to it that a process that waits for ever ends (by SIGALRM), since its parent waits for it.
pub(crate) fn watch() {
    /// No test takes a tenth of it.
    const SECONDS: usize = 150;
    // SAFETY: asks for a signal that nobody handles.
    unsafe { libc::alarm(u32::try_from(SECONDS * times()).unwrap()) };
}

/// As [`child`], and asserts that it ended well.
pub(crate) fn alone(
    test: &str,
    label: &str,
    environment: &[(&str, &str)],
    body: impl FnOnce(),
) -> Option<Ended> {
    let ended = child(test, label, environment, body)?;
    ended.assert_well();
    Some(ended)
}

/// Runs `body` in one process with the default environment, and in one in which no page is moved.
pub(crate) fn in_both_modes(test: &str, body: impl Fn()) {
    for (mode, environment) in MODES {
        alone(test, mode, environment, &body);
    }
}

impl Ended {
    /// Asserts that the child ended well, and passes on what it said that it skipped or counted.
    pub(crate) fn assert_well(&self) {
        let said = String::from_utf8_lossy(&self.output.stderr);
        assert!(
            self.output.status.success(),
            "{:?} (signal {:?})\n{}{said}",
            self.output.status,
            self.output.status.signal(),
            String::from_utf8_lossy(&self.output.stdout),
        );
        let passed_on = |line: &&str| line.starts_with("skipped: ") || line.starts_with("counted: ");
        for line in said.lines().filter(passed_on) {
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }

    /// What the child told under this name.
    pub(crate) fn told(&self, name: &str) -> u64 {
        let said = String::from_utf8_lossy(&self.output.stdout);
        let found = said
            .lines()
            .find_map(|line| line.strip_prefix("told: ")?.strip_prefix(name)?.trim().parse().ok());
        found.unwrap_or_else(|| panic!("the child did not tell {name}: {:?}", self.output))
    }
}

/// Tells the parent a number.
pub(crate) fn tell(name: &str, number: u64) {
    println!("told: {name} {number}");
}

/// Says, past the harness that would keep it, that a part of a test did not run here, and why. Skips are counted by
/// counting these lines.
pub(crate) fn skip(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}

/// Says how much was done, for a record of it.
pub(crate) fn count(what: &str, how_many: usize) {
    let _ = writeln!(std::io::stderr(), "counted: {how_many} {what}");
}

/// How many times a soak is to be longer than usual: `ZK_NALLOC_TEST_TIMES`.
pub(crate) fn times() -> usize {
    std::env::var("ZK_NALLOC_TEST_TIMES").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}
