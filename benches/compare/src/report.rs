//! From a record to the document: tables between markers, and plots beside it.
//!
//! Why it is here: no number in a document is typed by hand. Whoever changes the record runs this again.

use std::fs;
use std::path::Path;

use prove_harness::Error;

use crate::patterns::{self, Pattern};
use crate::plots;
use crate::record::{self, Record, Run};
use crate::{arenas, calls, provers, replay, summary, tables};

/// Where the generated part of the document begins …
pub const BEGIN: &str = "<!-- begin of what `zk-compare report` writes -->";
/// … and ends.
pub const END: &str = "<!-- end of what `zk-compare report` writes -->";

/// A pattern with its runs.
pub type Measured<'a> = (&'a Pattern, Vec<Run>);

/// Records that are shown beside the main one, with their names.
#[derive(Clone, Copy, Debug)]
pub struct Besides<'a> {
    /// Random workloads.
    pub random: (&'a Record, &'a str),
    /// The same patterns on other machines.
    pub elsewhere: &'a [Elsewhere],
}

/// A record of another machine.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    record: Record,
    name: String,
    /// What provers took there.
    provers: String,
}

impl Elsewhere {
    /// Reads what lies in `folder`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let (record, name) = (Record::read(folder)?, record::name_of(folder));
        Ok(Self { record, name, provers: provers::tables(folder)? })
    }
}

/// Writes the tables of a record into `document`, `provers` among them, and its plots into the folder `plots` beside it; at the end
/// those of the other records.
///
/// # Errors
/// When a file cannot be read or written, or the document has no place for the tables.
pub fn report(
    record: &Record,
    name: &str,
    provers: &str,
    besides: Besides,
    document: &Path,
) -> Result<(), Error> {
    let doing =
        |cause: &dyn std::fmt::Display| Error::doing(format!("writing {}", document.display()), cause);
    let all = patterns::all();
    let measured = measured(record, &all);
    let folder = document.with_file_name("plots");
    fs::create_dir_all(&folder).map_err(|cause| doing(&cause))?;
    let plots = plots::draw(&measured, &folder)?;
    let text = fs::read_to_string(document).map_err(|cause| doing(&cause))?;
    let inside = generated(record, name, provers, &measured, &plots)
        + &besides.elsewhere.iter().map(|there| of_elsewhere(there, &all)).collect::<String>()
        + &of_random(besides.random, &all);
    let text =
        replaced(&text, &inside).ok_or_else(|| doing(&format!("it has no lines {BEGIN:?} and {END:?}")))?;
    fs::write(document, text).map_err(|cause| doing(&cause))
}

/// Sorts the runs of a record by pattern, in the order of the list.
#[must_use]
pub fn measured<'a>(record: &Record, all: &'a [Pattern]) -> Vec<Measured<'a>> {
    let of = |pattern: &'a Pattern| {
        let runs = record.runs_of(&pattern.name);
        (!runs.is_empty()).then_some((pattern, runs))
    };
    all.iter().filter_map(of).collect()
}

/// Lays out a record: its origin, who wins, the plots, and every table.
fn generated(
    record: &Record,
    name: &str,
    provers: &str,
    measured: &[Measured],
    plots: &[plots::Plot],
) -> String {
    let mut text = format!("## Record {name}\n\n{}\n", about(record));
    text += &tables::overview(measured);
    text += &format!("\n{}\n", tables::together(measured));
    text += &tables::of_peers();
    for plot in plots {
        text += &format!("\n![{}](plots/{})\n", plot.about, plot.file);
    }
    text += provers;
    text += &replay::tables(&record.replays);
    if !record.calls.is_empty() {
        text += &format!("\n### System calls\n\n{}", calls::table(&record.calls));
    }
    for (pattern, runs) in measured {
        text += "\n";
        text += &tables::of_pattern(pattern, runs);
    }
    text += &arenas::tables(&record.arenas);
    text
}

/// Where the part about another machine begins, before the name of its record.
const ELSEWHERE: &str = "\n## Another machine, record ";

/// Lays out a record of another machine: its origin, who wins, and what was taken by provers and again from traces.
fn of_elsewhere(Elsewhere { record, name, provers }: &Elsewhere, all: &[Pattern]) -> String {
    let measured = measured(record, all);
    format!(
        "{ELSEWHERE}{name}\n\nThose of the same patterns that were run there, and who wins; what each \
         allocator took is in the record.\n\n{}\n{}\n\n{}\n{provers}{}",
        about(record),
        tables::overview(&measured),
        tables::together(&measured),
        replay::tables(&record.replays)
    )
}

/// The origin of a record, as a list.
fn about(record: &Record) -> String {
    record.about.iter().map(|line| format!("- {line}\n")).collect()
}

/// Where the part about random workloads begins, before the name of its record.
const RANDOM: &str = "\n## Random workloads, record ";

/// Lays out a record of random workloads: its origin, who wins, and every table.
fn of_random((record, name): (&Record, &str), all: &[Pattern]) -> String {
    let measured = measured(record, all);
    let about = about(record);
    let mut text = format!(
        "{RANDOM}{name}\n\nDrawn from numbers: sizes, lifetimes, threads, and what blocks are used for. These are the first numbers, \
         all of them. Any other can be had: `--pattern =random/12345`.\n\n{about}\n{}\n\n{}",
        tables::together(&measured),
        tables::overview(&measured)
    );
    for (pattern, runs) in &measured {
        text += "\n";
        text += &tables::of_pattern(pattern, runs);
    }
    text
}

/// Puts `inside` between the markers, or returns `None` where they are missing.
fn replaced(text: &str, inside: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{inside}\n{END}{after}"))
}

/// Returns the time of each allocator over ours for a pattern, and likewise its peak memory.
#[must_use]
pub fn beside_ours(runs: &[Run], ours: &str) -> Vec<(String, f64, f64)> {
    let summaries = summary::of_pattern(runs);
    let Some(own) = summaries.iter().find(|summary| summary.peer == ours) else { return Vec::new() };
    let beside = summaries.iter().map(|s| (s.peer.clone(), s.min / own.min, s.peak / own.peak));
    // Who failed has no time.
    beside.filter(|(_, time, _)| time.is_finite() && *time > 0.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_between_the_markers_changes() {
        let text = format!("head\n{BEGIN}\nold\n{END}\ntail\n");
        let new = replaced(&text, "new").expect("has markers");
        assert_eq!(new, format!("head\n{BEGIN}\n\nnew\n{END}\ntail\n"));
        assert_eq!(replaced(&new, "new"), Some(new.clone()));
        assert_eq!(replaced("no markers", "new"), None);
    }

    #[test]
    fn the_document_shows_the_record_that_it_names() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let text = fs::read_to_string(root.join("docs/BENCHMARKS.md")).expect("is there");
        let named = |heading: &str| {
            let (_, after) = text.split_once(heading).expect("names a record");
            after.lines().next().expect("in that line")
        };
        let (name, random) = (named("\n## Record "), named(RANDOM));
        let folder = root.join("benches/record").join(name);
        let of_random = Record::read(&root.join("benches/record").join(random)).expect("is there");
        let there = text.split(ELSEWHERE).skip(1).filter_map(|part| part.lines().next());
        let elsewhere: Vec<Elsewhere> = there
            .map(|name| Elsewhere::read(&root.join("benches/record").join(name)).expect("is there"))
            .collect();
        assert!(!elsewhere.is_empty(), "names a record");
        let besides = Besides { random: (&of_random, random), elsewhere: &elsewhere };
        let elsewhere = std::env::temp_dir().join(format!("zk-compare-document-{}", std::process::id()));
        fs::create_dir_all(&elsewhere).expect("can be made");
        let document = elsewhere.join("BENCHMARKS.md");
        fs::write(&document, &text).expect("can be written");
        let record = Record::read(&folder).expect("is there");
        let (_, own) =
            text.split_once("\nFrom `benches/record/").expect("names that of the provers' own commands");
        let (own, _) = own.split_once('`').expect("as code");
        let own = crate::readme::details(&root.join("benches/record").join(own)).expect("can be read");
        let proofs = own + &crate::provers::tables(&folder).expect("can be read");
        report(&record, name, &proofs, besides, &document).expect("has a place for it");
        let again = fs::read_to_string(&document).expect("was written");
        let plots = fs::read_dir(elsewhere.join("plots")).expect("were drawn");
        for plot in plots.map(|plot| plot.expect("can be read").path()) {
            let shown = root.join("docs/plots").join(plot.file_name().expect("is a file"));
            let same = fs::read(&plot).expect("was drawn") == fs::read(&shown).unwrap_or_default();
            assert!(same, "{}: run `zk-compare report`", shown.display());
        }
        fs::remove_dir_all(&elsewhere).expect("was made");
        assert!(again == text, "run `zk-compare report`");
    }
}
