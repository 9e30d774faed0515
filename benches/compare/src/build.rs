//! Builds the child once for each allocator that is asked for.
//!
//! Why the program does this itself: two allocators cannot be global at once and two versions of one C library cannot
//! even be linked together, so there is a program for each; and who cannot be built on this host is left out with a
//! word, instead of stopping all. Builds share the target folder, so all but the first compile little.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use prove_harness::Error;
use prove_harness::machine::Machine;
use serde::Deserialize;

use crate::peers::Peer;

/// A program that can be built around each of several allocators.
#[derive(Clone, Debug)]
pub struct Program {
    /// The package, and its folder.
    pub package: &'static str,
    /// See `package`.
    pub folder: PathBuf,
    /// The name of the program.
    pub name: &'static str,
    /// Whether its functions begin on cache lines.
    pub aligned: bool,
}

impl Program {
    /// Returns a program that is named like its package, as its own commands build it.
    #[must_use]
    pub const fn named(package: &'static str, folder: PathBuf) -> Self {
        Self { package, folder, name: package, aligned: false }
    }

    /// Returns the child of this package. A quick one is for its results alone, not for its times: nothing in it is aligned, so that
    /// it is made of what was compiled already.
    #[must_use]
    pub fn child(quick: bool) -> Self {
        let folder = env!("CARGO_MANIFEST_DIR").into();
        Self { package: env!("CARGO_PKG_NAME"), folder, name: "zk-compare-child", aligned: !quick }
    }
}

/// The children that could be built, by feature (none: the empty name), and a line for each that could not.
#[derive(Debug, Default)]
pub struct Children {
    programs: BTreeMap<&'static str, PathBuf>,
    /// Why someone is missing.
    pub left_out: Vec<String>,
}

impl Children {
    /// Returns the program that has this peer's allocator.
    #[must_use]
    pub fn of(&self, peer: &Peer) -> Option<&Path> {
        self.programs.get(peer.feature.unwrap_or_default()).map(PathBuf::as_path)
    }
}

/// Builds all that these peers need, and calls `starts` with the name of each before it begins.
///
/// # Errors
/// When a program was built but cannot be kept.
pub fn children(
    of: &Program,
    peers: &[&'static Peer],
    starts: &mut dyn FnMut(&str),
) -> Result<Children, Error> {
    let mut children = Children::default();
    for peer in peers {
        let feature = peer.feature.unwrap_or_default();
        let known = children.left_out.iter().any(|line| line.starts_with(&left_out(feature)));
        if known || children.programs.contains_key(feature) {
            continue;
        }
        starts(peer.name);
        match built(of, feature) {
            Ok(program) => {
                children.programs.insert(feature, keep(&program, of.name, feature)?);
            }
            Err(reason) => children.left_out.push(format!("{}{reason}", left_out(feature))),
        }
    }
    Ok(children)
}

fn left_out(feature: &str) -> String {
    format!("left out: {}: ", if feature.is_empty() { "glibc" } else { feature })
}

/// The one message of cargo that is of interest here.
#[derive(Deserialize)]
struct Message {
    executable: Option<PathBuf>,
}

/// Has cargo build a program with a feature and returns where it lies.
///
/// # Errors
/// When it does not build: the first line that says why.
pub fn built(program: &Program, feature: &str) -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["build", "--package", program.package, "--bin", program.name, "--features", feature])
        .args(["--message-format", "json", "--quiet"])
        // Where its own configuration of cargo holds, if it has one.
        .current_dir(&program.folder)
        .stdin(Stdio::null());
    if !cfg!(debug_assertions) {
        command.arg("--release");
        if program.aligned {
            align(&mut command);
        }
        as_rivals_are_released(&mut command, program.aligned);
    }
    let output = command.output().map_err(|cause| format!("cargo did not start: {cause}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = errors.lines().find(|line| line.starts_with("error")).unwrap_or("it did not build");
        return Err(line.into());
    }
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    let executable = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok()?.executable)
        .next_back();
    executable.ok_or_else(|| "cargo did not say where it put the program".into())
}

/// What [`align`] adds.
const ALIGNED: [&str; 2] = ["-Cllvm-args=-align-all-functions=6", "-Cllvm-args=-align-loops=64"];

/// Has every function and every loop begin on a cache line; flags in a configuration of cargo do not count then. The same loop
/// lies elsewhere in the program of each allocator; a loop of a dozen instructions, as one that pushes, took a fifth longer at 16
/// bytes into a line than at 0 or 32 (measured on Zen 5).
fn align(command: &mut Command) {
    let (name, separator) = flags_of_cargo();
    let mut flags = std::env::var_os(name).unwrap_or_default();
    for flag in ALIGNED {
        if !flags.is_empty() {
            flags.push(separator);
        }
        flags.push(flag);
    }
    command.env(name, flags);
}

/// The variable that cargo takes flags for the compiler from, which is the first of these that is set, and what stands between two.
fn flags_of_cargo() -> (&'static str, &'static str) {
    match std::env::var_os("CARGO_ENCODED_RUSTFLAGS") {
        Some(_) => ("CARGO_ENCODED_RUSTFLAGS", "\x1f"),
        None => ("RUSTFLAGS", " "),
    }
}

/// The vectors that patterns' programs are compiled for. This program may have been compiled with other flags than are set while it
/// runs and compiles those.
pub fn vectors() -> Option<&'static str> {
    let (name, separator) = flags_of_cargo();
    let flags = std::env::var(name).unwrap_or_default();
    vectors_with(flags.split(separator).filter(|flag| !flag.is_empty()))
}

/// The same with some flags, by the compiler's own word; `None` if it has none.
fn vectors_with<'a>(flags: impl Iterator<Item = &'a str>) -> Option<&'static str> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(flags).args(["--print", "cfg"]).output().ok()?;
    let told = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    Some(Machine::vectors(|feature| told.lines().any(|line| line == format!("target_feature=\"{feature}\""))))
}

/// Has allocators in C and C++ compiled as those in Rust are: without the checks that they make unless `NDEBUG` is defined (snmalloc
/// fills what it gives back, and proves its trees right at each step), for the same processor, and as aligned.
fn as_rivals_are_released(command: &mut Command, aligned: bool) {
    let is_native = ["CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS"].into_iter().any(|name| {
        std::env::var_os(name).is_some_and(|flags| flags.to_string_lossy().contains("target-cpu=native"))
    });
    let wanted = [
        (true, "-DNDEBUG"),
        (is_native, "-march=native"),
        (aligned, "-falign-functions=64"),
        (aligned, "-falign-loops=64"),
    ];
    for name in ["CFLAGS", "CXXFLAGS"] {
        let mut flags = std::env::var_os(name).unwrap_or_default();
        for (_, flag) in wanted.iter().filter(|(is_wanted, _)| *is_wanted) {
            flags.push(" ");
            flags.push(flag);
        }
        command.env(name, flags);
    }
}

/// Puts a program where the next build does not overwrite it.
fn keep(program: &Path, base: &str, feature: &str) -> Result<PathBuf, Error> {
    let name = if feature.is_empty() { "system" } else { feature };
    let kept = program.with_file_name(format!("{base}-{name}"));
    // Another comparison may be running the old one, which then must not change under it.
    let fresh = kept.with_extension(std::process::id().to_string());
    fs::copy(program, &fresh)
        .and_then(|_| fs::rename(&fresh, &kept))
        .map_err(|cause| Error::doing(format!("keeping {}", kept.display()), cause))?;
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_knows_what_aligns() {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let object = std::env::temp_dir().join(format!("zk-compare-aligned-{}.o", std::process::id()));
        // An empty crate, from standard input.
        let output = Command::new(rustc)
            .args(["-", "--crate-type=lib", "--emit=obj", "-o"])
            .arg(&object)
            .args(ALIGNED)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::remove_file(object).unwrap();
    }

    /// A record said AVX2 of programs that were compiled without, by a program that had been compiled with it.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_compiler_says_for_which_vectors_it_compiles() {
        let with = |flags: &str| vectors_with(flags.split(' ').filter(|flag| !flag.is_empty()));
        assert_eq!(with("-C target-feature=+avx2"), Some("AVX2"));
        assert_eq!(with("-Ctarget-cpu=x86-64-v4"), Some("AVX-512"));
        assert!(with("").is_some_and(|vectors| vectors.starts_with("the baseline")));
        assert_eq!(with("--no-such-flag"), None);
    }

    #[test]
    fn children_are_aligned_but_quick_ones() {
        let mut command = Command::new("cargo");
        align(&mut command);
        let flags = command.get_envs().find_map(|(name, value)| {
            name.to_string_lossy()
                .ends_with("RUSTFLAGS")
                .then(|| value.unwrap().to_string_lossy().into_owned())
        });
        let flags = flags.unwrap();
        assert!(ALIGNED.iter().all(|flag| flags.contains(flag)), "{flags}");
        assert!(flags.ends_with(ALIGNED[1]), "{flags}");
        assert!(Program::child(false).aligned && !Program::child(true).aligned);
    }
}
