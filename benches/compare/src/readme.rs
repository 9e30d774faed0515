//! From the records of the provers' own commands to the README: their table, and what plonky2 takes in memory.
//!
//! Why it is here: the README shows what a user's first commands print, so it has records of those and not of the
//! comparison among all; and like every number in a document, these are not typed by hand.

use std::fs;
use std::path::Path;

use prove_harness::Error;
use prove_harness::record::{Record, Run};
use prove_harness::statistics::Summary;
use prove_harness::table;

/// The records in a folder of them, in the order of the table, and what is added to the names of their statements.
pub const FILES: [(&str, &str); 4] = [
    ("plonky3.json", ""),
    ("plonky2-14.json", " (plonky2)"),
    ("plonky2.json", " (plonky2)"),
    ("others.json", ""),
];

/// The parts of the README that are written here; each begins and ends with a line that names it.
const PARTS: [(&str, Part); 2] = [("prover table", proofs), ("footprint", footprint)];

type Part = fn(&str, &[Record]) -> String;

/// Writes the parts of the README that show the records in `folder`, which has the name `name`.
///
/// # Errors
/// When a file cannot be read or written, a record holds nothing, or the README has no place for it.
pub fn write(readme: &Path, name: &str, folder: &Path) -> Result<(), Error> {
    let doing = |cause: std::io::Error| Error::doing(format!("writing {}", readme.display()), cause);
    let text = fs::read_to_string(readme).map_err(doing)?;
    fs::write(readme, filled(&text, name, folder)?).map_err(doing)
}

/// Returns `readme` with the parts that show the records in `folder`, which has the name `name`, as they are now.
///
/// Fails when a record cannot be read or holds nothing, or the README has no place for it.
fn filled(readme: &str, name: &str, folder: &Path) -> Result<String, Error> {
    let records = FILES.iter().map(|(file, suffix)| read(&folder.join(file), suffix));
    let records: Vec<Record> = records.collect::<Result<_, _>>()?;
    PARTS.iter().try_fold(readme.to_owned(), |text, (part, generated)| {
        replaced(&text, part, &generated(name, &records)).ok_or_else(|| {
            Error::new(format!(
                "the README has no lines \"<!-- begin {part} -->\" and \"<!-- end {part} -->\""
            ))
        })
    })
}

fn read(file: &Path, suffix: &str) -> Result<Record, Error> {
    let doing = |cause: &dyn std::fmt::Display| Error::doing(format!("reading {}", file.display()), cause);
    let json = fs::read(file).map_err(|cause| doing(&cause))?;
    let mut record: Record = serde_json::from_slice(&json).map_err(|cause| doing(&cause))?;
    if record.runs.is_empty() {
        return Err(doing(&"it holds no proofs"));
    }
    for run in &mut record.runs {
        run.statement += suffix;
    }
    Ok(record)
}

fn proofs(name: &str, records: &[Record]) -> String {
    let runs: Vec<Run> = records.iter().flat_map(|record| record.runs.iter().cloned()).collect();
    let turns = |record: &Record| record.runs.iter().map(|run| run.turn + 1).max().unwrap_or(0);
    let files = FILES.iter().zip(records).map(|((file, _), record)| format!("`{file}` ({})", turns(record)));
    let files: Vec<String> = files.collect();
    let rounds = runs.iter().map(|run| run.rounds.len()).max().unwrap_or(1);
    let machine = &records[0].machine;
    format!(
        "From the records in `benches/record/{name}`, each of so many turns:\n{}.\n\n{}\n\n\
         Every proof is verified, on {} threads, each turn 1 cold and {} warm. Faults and kernel time are of the median\n\
         warm proof, the peak is the highest of any turn, the hit rate counts the cold proof too.\n{machine}.",
        files.join(", "),
        table::render(&runs),
        records[0].threads,
        rounds - 1,
    )
}

fn footprint(_: &str, records: &[Record]) -> String {
    let mib = |record: &Record, allocator: &str| {
        let runs: Vec<&Run> = record.runs.iter().filter(|run| run.allocator == allocator).collect();
        Summary::of(&runs).peak_resident_bytes / f64::from(1 << 20)
    };
    let of_plonky2 = FILES.iter().zip(records).filter(|((file, _), _)| file.starts_with("plonky2"));
    let lines: Vec<String> = of_plonky2
        .map(|(_, record)| {
            let (theirs, ours) = (mib(record, "System"), mib(record, "NAlloc"));
            let statement = &record.runs[0].statement;
            format!(
                "- {statement}: {theirs:.0} MiB under `System`, {ours:.0} under `NAlloc` ({:.2})",
                ours / theirs
            )
        })
        .collect();
    lines.join("\n")
}

/// Puts `inside` between the lines that name `part`, or returns `None` where they are missing.
fn replaced(text: &str, part: &str, inside: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- begin {part} -->\n"), format!("<!-- end {part} -->"));
    let (before, rest) = text.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}{inside}\n{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_between_the_lines_of_a_part_changes() {
        let text = "head\n<!-- begin a -->\nold\n<!-- end a -->\ntail <!-- begin b -->\n";
        let new = replaced(text, "a", "new").expect("has such lines");
        assert_eq!(new, "head\n<!-- begin a -->\nnew\n<!-- end a -->\ntail <!-- begin b -->\n");
        assert_eq!(replaced(&new, "a", "new"), Some(new.clone()));
        assert_eq!(replaced(&new, "b", "new"), None, "it does not end");
    }

    #[test]
    fn the_readme_shows_the_record_that_it_names() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let readme = fs::read_to_string(root.join("README.md")).expect("is there");
        let (_, after) = readme.split_once("`benches/record/").expect("names a record");
        let (name, _) = after.split_once('`').expect("as code");
        let folder = root.join("benches/record").join(name);
        assert!(filled(&readme, name, &folder).expect("can be read") == readme, "run `zk-compare report`");
    }
}
