//! The rules of the house that no compiler checks: layers, where `unsafe` may stand, where `libc` is named, and that
//! every invariant which a proof cites exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A file imports from its own layer and from those to its left.
const LAYERS: [&[&str]; 10] = [
    &["error", "invariant", "sync", "config"],
    &["os"],
    &["geometry"],
    // Checked mode is the page heap's: it keeps the pattern in what is free.
    &["misuse", "heap"],
    &["zeroing", "limits", "trace"],
    &["cache"],
    &["global", "arena", "secret"],
    &["stats", "prefault"],
    &["phases"],
    &["report"],
];

/// The looks to the right: who finds an invariant broken writes a line and ends the process, which is a system call; and
/// the start of the engine, once in a process, arms what is to happen at its end.
const EXCEPTIONS: [(&str, &str); 2] = [("src/invariant.rs", "os"), ("src/global.rs", "report")];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// All files of `src`, by their path from the root.
fn sources() -> Vec<(String, String)> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).expect("src is a folder") {
            let path = entry.expect("a file of ours").path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    let mut paths = Vec::new();
    walk(&root().join("src"), &mut paths);
    paths.sort();
    let name = |p: &PathBuf| p.strip_prefix(root()).expect("under the root").display().to_string();
    paths.iter().map(|p| (name(p), read(p))).collect()
}

/// The module at the root of the crate that a file belongs to.
fn module(file: &str) -> &str {
    let rest = file.trim_start_matches("src/");
    rest.split(['/', '.']).next().unwrap_or(rest)
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// Code without comments; what is under `cfg(test)` at the end of a file is left out, tests may look anywhere.
fn code(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or(line));
    lines.take_while(|line| !line.contains("mod tests {")).collect::<Vec<_>>().join("\n")
}

fn is_test(file: &str) -> bool {
    file.contains("/tests") || file.contains("/fake") || file.contains("walk.rs")
}

/// The names behind `crate::` in a text, those in braces too.
fn imports(code: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let word =
            |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
        if let Some(list) = rest.strip_prefix('{') {
            let list = list.split("};").next().unwrap_or(list);
            names.extend(list.split(',').map(|part| word(part.trim())));
        } else {
            names.insert(word(rest));
        }
    }
    names
}

#[test]
fn files_import_from_layers_to_their_left() {
    let mut wrong = Vec::new();
    for (file, text) in sources() {
        if file == "src/lib.rs" || is_test(&file) {
            continue;
        }
        let own = layer(module(&file)).unwrap_or_else(|| panic!("{file} is in no layer"));
        for name in imports(&code(&text)) {
            if layer(&name).is_some_and(|theirs| theirs > own) && !EXCEPTIONS.contains(&(&*file, &*name)) {
                wrong.push(format!("{file} imports crate::{name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn unsafe_stands_in_the_files_that_are_listed_and_nowhere_else() {
    let expecting: BTreeSet<_> = sources()
        .into_iter()
        .filter(|(_, text)| text.split_whitespace().collect::<String>().contains("expect(unsafe_code"))
        .map(|(file, _)| file)
        .collect();
    let safety = read(&root().join("docs/SAFETY.md"));
    let listed: BTreeSet<_> = safety
        .split("## Files that may be unsafe")
        .nth(1)
        .expect("docs/SAFETY.md lists the files")
        .lines()
        .filter_map(|line| Some(line.strip_prefix("- `")?.split('`').next()?.to_owned()))
        .collect();
    assert_eq!(expecting, listed);
}

#[test]
fn libc_is_named_in_the_os_layer_alone() {
    for (file, text) in sources() {
        let named = code(&text).contains("libc::");
        assert!(!named || file.starts_with("src/os"), "{file} names libc");
    }
}

#[test]
fn every_invariant_that_is_cited_exists() {
    let safety = read(&root().join("docs/SAFETY.md"));
    let defined =
        |name: &str| safety.contains(&format!("**{name} ")) || safety.contains(&format!("**{name}."));
    let mut missing = BTreeSet::new();
    for (file, text) in sources() {
        for word in text.split(|c: char| !c.is_alphanumeric()) {
            let mut letters = word.chars();
            let known = letters.next().is_some_and(|c| "GHCOSRXMT".contains(c));
            let number = letters.as_str();
            if known
                && (1..=2).contains(&number.len())
                && number.chars().all(|c| c.is_ascii_digit())
                && !defined(word)
            {
                missing.insert(format!("{word} in {file}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn the_architecture_fits_on_a_few_pages() {
    assert!(read(&root().join("docs/ARCHITECTURE.md")).lines().count() <= 150);
}
