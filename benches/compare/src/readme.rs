//! From records to the README, which says what provers gain and where we stand, and to the first part of the document behind it:
//! what provers take under the allocators that they are tuned with, and the score over all patterns.
//!
//! Why it is here: the README shows what a user's first commands print, so it has records of those beside that of the
//! comparison among all; and like every number in a document, these are not typed by hand.

mod peers;

use std::path::{Path, PathBuf};
use std::{fs, iter};

use comfy_table::{CellAlignment, Table, presets};
use prove_harness::Error;
use prove_harness::record::{Record, Run};
use prove_harness::statistics::{Summary, kinds};
use prove_harness::table;

use crate::report::{Measured, measured};
use crate::{patterns, record, summary, tables};

/// The records of the provers' own commands in a folder of them, in the order of the table, and what is added to the names of
/// their statements.
pub const FILES: [(&str, &str); 15] = [
    ("plonky3.json", " (Plonky3)"),
    ("plonky2-14.json", " (plonky2)"),
    ("plonky2.json", " (plonky2)"),
    ("others.json", ""),
    ("openvm.json", ""),
    ("halo2.json", ""),
    ("miden.json", ""),
    ("nova.json", ""),
    ("spartan.json", ""),
    ("sp1.json", ""),
    ("stwo-18.json", ""),
    ("stwo.json", ""),
    ("triton.json", ""),
    ("plonky3-always.json", " (Plonky3), THP `always`"),
    ("others-always.json", ", THP `always`"),
];

/// The folders of the records that the README shows.
#[derive(Clone, Copy, Debug)]
pub struct Folders<'a> {
    /// Those of the provers' own commands.
    pub own: &'a Path,
    /// The comparison among all.
    pub compared: &'a Path,
    /// The same patterns on other machines.
    pub elsewhere: &'a [PathBuf],
    /// Random workloads.
    pub random: &'a Path,
}

impl<'a> Folders<'a> {
    /// Those that hold patterns, from the oldest: their names begin with a date.
    fn of_patterns(&self) -> Vec<&'a Path> {
        let elsewhere = self.elsewhere.iter().map(PathBuf::as_path);
        let mut folders: Vec<&Path> = elsewhere.chain([self.compared]).collect();
        folders.sort_by_key(|folder| record::name_of(folder));
        folders
    }
}

/// Writes what is generated of the README, and of the document's first part.
///
/// # Errors
/// When a file cannot be read or written, a record holds nothing, or a file has no place for it.
pub fn write(readme: &Path, document: &Path, from: &Folders) -> Result<(), Error> {
    put(readme, &of_readme(from)?)?;
    put(document, &of_document(from)?)
}

/// What is generated of a file: the name of each part, and the part.
type Parts = [(&'static str, String); 2];

fn of_readme(from: &Folders) -> Result<Parts, Error> {
    let about = record::about(from.own)?;
    let results = results(from.own, &about, &own_records(from.own)?);
    Ok([("results", results), ("standing", standing(from)?)])
}

fn of_document(from: &Folders) -> Result<Parts, Error> {
    Ok([("peers", peers::peers(from)?), ("score", score(from)?)])
}

fn put(file: &Path, parts: &Parts) -> Result<(), Error> {
    let doing = |cause: &dyn std::fmt::Display| Error::doing(format!("writing {}", file.display()), cause);
    let text = fs::read_to_string(file).map_err(|cause| doing(&cause))?;
    let text = filled(&text, parts).map_err(|part| {
        doing(&format!("it has no lines \"<!-- begin {part} -->\" and \"<!-- end {part} -->\""))
    })?;
    fs::write(file, text).map_err(|cause| doing(&cause))
}

/// Returns `text` with its generated parts as they are now, or the name of the part that it has no place for.
fn filled(text: &str, parts: &Parts) -> Result<String, &'static str> {
    let put =
        |text: String, (part, inside): &(&'static str, String)| replaced(&text, part, inside).ok_or(*part);
    parts.iter().try_fold(text.to_owned(), put)
}

fn own_records(folder: &Path) -> Result<Vec<Record>, Error> {
    FILES.iter().map(|(file, suffix)| read(&folder.join(file), suffix)).collect()
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

/// The name of a record, as a path in the repository.
fn place(folder: &Path) -> String {
    format!("`benches/record/{}`", record::name_of(folder))
}

/// Lays out what the provers' own commands measured, in full, for the document.
///
/// # Errors
/// When a file cannot be read, or a record holds nothing.
pub fn details(own: &Path) -> Result<String, Error> {
    let records = own_records(own)?;
    let runs: Vec<Run> = records.iter().flat_map(|record| record.runs.iter().cloned()).collect();
    let turns = |record: &Record| record.runs.iter().map(|run| run.turn + 1).max().unwrap_or(0);
    let files = FILES.iter().zip(&records).map(|((file, _), record)| format!("`{file}` ({})", turns(record)));
    let files: Vec<String> = files.collect();
    let rounds = runs.iter().map(|run| run.rounds.len()).max().unwrap_or(1);
    Ok(format!(
        "\n### Provers under `System` and under `NAlloc`\n\nFrom {}, with the number of turns in brackets: {}.\n\n{}\n\n\
         Every proof is verified, on {} threads, each turn {}. Faults and kernel time are of the median\n\
         warm proof, the peak is the highest of any turn, the hit rate counts the cold proof too. {}.\n",
        place(own),
        files.join(", "),
        table::render(&runs),
        records[0].threads,
        kinds(rounds),
        records[0].machine,
    ))
}

/// A table with a column of names, whose other columns are numbers.
fn table(head: impl IntoIterator<Item = String>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(head);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The statements of a record in their order, and what was measured of each under one allocator.
fn summaries<'a>(records: &'a [Record], allocator: &str) -> Vec<(&'a str, Summary)> {
    let mut statements: Vec<&str> = Vec::new();
    for run in records.iter().flat_map(|record| &record.runs) {
        if !statements.contains(&run.statement.as_str()) {
            statements.push(&run.statement);
        }
    }
    let of = |statement: &&'a str| {
        let all = records.iter().flat_map(|record| &record.runs);
        let runs: Vec<&Run> =
            all.filter(|run| run.statement == *statement && run.allocator == allocator).collect();
        (*statement, Summary::of(&runs))
    };
    statements.iter().map(of).collect()
}

/// Says from what to what the first proofs of our processes took, over `theirs`.
fn first_proofs(records: &[Record], statement: &str, theirs: f64) -> String {
    let runs = records.iter().flat_map(|record| &record.runs);
    let ours = runs.filter(|run| run.statement == statement && run.allocator == "NAlloc");
    let cold = ours.filter_map(|run| run.rounds.first()).map(|round| round.seconds / theirs);
    let (least, most) =
        cold.fold((f64::INFINITY, 0.0_f64), |(least, most), ratio| (least.min(ratio), most.max(ratio)));
    format!("{least:.2} to {most:.2}")
}

fn mib(bytes: f64) -> String {
    format!("{:.0}", bytes / f64::from(1 << 20))
}

fn results(own: &Path, about: &[String], records: &[Record]) -> String {
    let commit = about.iter().find_map(|line| line.strip_prefix("commit: ")).unwrap_or("unknown");
    let head = [
        "proof",
        "warm proof, s",
        "ratio",
        "peak memory, MiB",
        "ratio",
        "page faults, warm",
        "in the kernel",
        "first proof, ratio",
    ];
    let mut table = table(head.map(String::from));
    let pairs = summaries(records, "System").into_iter().zip(summaries(records, "NAlloc"));
    for ((statement, theirs), (_, ours)) in pairs {
        let ratio = |value: fn(&Summary) -> f64| format!("{:.2}", value(&ours) / value(&theirs));
        table.add_row([
            statement.to_owned(),
            format!("{:.3} → {:.3}", theirs.warm_seconds_median, ours.warm_seconds_median),
            ratio(|summary| summary.warm_seconds_median),
            format!("{} → {}", mib(theirs.peak_resident_bytes), mib(ours.peak_resident_bytes)),
            ratio(|summary| summary.peak_resident_bytes),
            format!("{:.0} → {:.0}", theirs.warm_faults, ours.warm_faults),
            format!("{:.1} → {:.1} %", 1e2 * theirs.warm_kernel_share, 1e2 * ours.warm_kernel_share),
            first_proofs(records, statement, theirs.cold_seconds),
        ]);
    }
    format!(
        "{table}\n\nMedians of the warm proofs (*in the kernel* of what all threads spend), the highest peak, and the first proofs of a process from the fastest to the slowest, over \
         the median under `System`; every proof is verified. {} threads, {}; huge pages for everybody in the rows with THP `always`. The machine is shared, so ratios count, not seconds; \
         first proofs depend on whose memory the host took back before. The engine is that of {commit}. In full: [BENCHMARKS.md](docs/BENCHMARKS.md#provers-under-system-and-under-nalloc), from {}.",
        records[0].threads,
        records[0].machine,
        place(own)
    )
}

/// Says in a few lines what the document shows in tables: provers beside tuned allocators, patterns, and random workloads.
fn standing(from: &Folders) -> Result<String, Error> {
    let all = patterns::all();
    let mut records: Vec<(&Path, record::Record)> = Vec::new();
    for folder in from.of_patterns() {
        records.push((folder, record::Record::read(folder)?));
    }
    // Records of a few patterns were made for those that a change was about.
    let rows = |record: &record::Record| measured(record, &all).len();
    let most = records.iter().map(|(_, record)| rows(record)).max().unwrap_or(0);
    let whole = records.into_iter().rfind(|(_, record)| 2 * rows(record) >= most);
    let (folder, whole) = whole.ok_or_else(|| Error::new("no record holds patterns"))?;
    let random = record::Record::read(from.random)?;
    let [of_patterns, of_random] = [&whole, &random].map(|record| in_words(&measured(record, &all)));
    Ok(format!(
        "- *Provers*, beside glibc, jemalloc and mimalloc told to keep their memory. {}\n\
         - *Patterns* of what provers do, each against the best of all other allocators: {of_patterns} ({})\n\
         - *Random workloads*, likewise: {of_random} ({})",
        peers::in_words(from)?,
        place(folder),
        place(from.random)
    ))
}

/// Says how many rows are won and lost, and by how much.
fn in_words(measured: &[Measured]) -> String {
    let [rows, won, in_time, in_memory, _, means] = tables::score(measured);
    format!(
        "of {rows}, {won} are won, {in_time} lost in time, {in_memory} lost in memory alone. Our time over that of the best one of each: \
         {means}, by the fastest rounds (medians), in the geometric mean."
    )
}

fn score(from: &Folders) -> Result<String, Error> {
    let all = patterns::all();
    let mut table =
        table(["workloads", "processor", "record"].into_iter().chain(tables::SCORE).map(String::from));
    let folders = from.of_patterns().into_iter().rev();
    let kinds = ["patterns of provers"].into_iter().chain(iter::repeat("the same")).zip(folders);
    let mut sources = Vec::new();
    for (workloads, folder) in kinds.chain([("random", from.random)]) {
        let record = record::Record::read(folder)?;
        let said =
            |kind: &str| record.about.iter().find_map(|line| line.strip_prefix(kind)).unwrap_or("unknown");
        let (processors, _) = said("processors in use: ").split_once(' ').unwrap_or(("?", ""));
        let cells = tables::score(&measured(&record, &all));
        let machine = format!("{} of {}", processors, said("processor: "));
        // Several are of the same machine.
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        table.add_row([workloads.to_owned(), machine, name].into_iter().chain(cells));
        sources.push(place(folder));
    }
    let of_random = record::Record::read(from.random)?;
    let random = sources.pop().unwrap_or_default();
    let others = sources.join(", ");
    Ok(format!(
        "{table}\n\nEach row is one workload against the best of all peers that ran it, chosen on each half of the turns and compared \
         on the other: lost in time above {:.2} of its fastest round. *Slower by medians*: as many rows would be lost by the median \
         round. From {others} and {random}, each of which tells its commits.\n\nThe random workloads, all allocators together:\n\n{}",
        summary::TIME_RATIO_MAX,
        tables::together(&measured(&of_random, &all)),
    ))
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

    /// The records that both files name.
    fn shown(root: &Path, readme: &str, document: &str) -> [Vec<PathBuf>; 4] {
        let folder = |name: &str| root.join("benches/record").join(name);
        let named = |text: &str, after: &str| -> Vec<PathBuf> {
            let (_, after) = text.split_once(after).expect("has that part");
            let (after, _) = after.split_once("\n\n").expect("ends");
            let names = after.split("`benches/record/").skip(1).filter_map(|rest| rest.split('`').next());
            names.map(folder).collect()
        };
        let (_, results) = readme.split_once("<!-- begin results -->").expect("has that part");
        let (_, score) = document.split_once("<!-- begin score -->").expect("has that part");
        let mut there = named(score, "round. From ");
        let random = there.split_off(there.len() - 1);
        let (elsewhere, compared) =
            there.into_iter().partition(|folder| folder.to_string_lossy().ends_with("-elsewhere"));
        [named(results, "In full: "), compared, elsewhere, random]
    }

    #[test]
    fn readme_and_document_show_the_records_that_they_name() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let read = |file: &str| fs::read_to_string(root.join(file)).expect("is there");
        let (readme, document) = (read("README.md"), read("docs/BENCHMARKS.md"));
        let [own, compared, elsewhere, random] = shown(&root, &readme, &document);
        let from =
            Folders { own: &own[0], compared: &compared[0], elsewhere: &elsewhere, random: &random[0] };
        let of_readme = of_readme(&from).expect("can be read");
        assert!(filled(&readme, &of_readme).as_deref() == Ok(&readme), "run `zk-compare report`");
        let of_document = of_document(&from).expect("can be read");
        assert!(filled(&document, &of_document).as_deref() == Ok(&document), "run `zk-compare report`");
    }

    #[test]
    fn the_table_of_results_says_of_which_engine_it_is() {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("record").join("2026-11-27-provers");
        let records = [read(&own.join("stwo.json"), "").expect("is there")];
        let said = |about: &str| results(&own, &[about.into()], &records);
        assert!(said("commit: abc").contains(" The engine is that of abc. In full: "));
        assert!(said("processor: a").contains(" The engine is that of unknown. In full: "));
    }

    #[test]
    fn a_part_that_a_file_has_no_place_for_is_named() {
        let parts = [("a", "new".to_owned()), ("b", "new".to_owned())];
        assert_eq!(filled("<!-- begin a -->\n<!-- end a -->\n", &parts), Err("b"));
    }
}
