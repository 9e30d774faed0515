//! The comparison: every pattern under every allocator, one table per pattern.
//!
//! `cargo run --release -p zk-compare`

use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use prove_harness::{Error, Rows, finish, parse, say};
use zk_compare::arenas::Group;
use zk_compare::calls;
use zk_compare::compare::{self, Settings};
use zk_compare::patterns::Pattern;
use zk_compare::peers::Peer;
use zk_compare::provers::{self, Statement};
use zk_compare::record::{self, Record};
use zk_compare::{arenas, patterns, peers, readme, replay, report, tables};

/// Runs every allocation pattern under every allocator, each in a process of its own.
#[derive(Parser, Debug)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Task>,
    #[command(flatten)]
    run: Run,
}

#[derive(Subcommand, Debug)]
enum Task {
    /// List the patterns and the allocators
    List,
    /// Count the system calls about memory of a warm round, with `strace`; the filters stand before this word, and
    /// `--record` there says into which record that exists already the counts go
    SystemCalls,
    /// Prove with a real prover under every allocator; `--allocator` before this word chooses some, and `--record` there
    /// says into which record that exists already the proofs go
    Provers {
        /// What to prove
        #[arg(long, value_enum, default_value = "keccak")]
        statement: Statement,
        /// Rows, a power of two (may be given more than once)
        #[arg(long, default_value = "2^14")]
        rows: Vec<Rows>,
        #[command(flatten)]
        settings: prove_harness::Settings,
    },
    /// Take and free the blocks of a trace (`ZK_NALLOC_TRACE`) again, in its order, under every allocator; the filters stand
    /// before this word, and `--record` there says into which record that exists already the replays go
    Replay {
        /// The trace, packed or not
        trace: PathBuf,
    },
    /// Write the tables and plots of a record into the document, and those of the provers' own commands into the README
    Report {
        /// The folder of the record, of `benches/record` [default: the latest there]
        record: Option<PathBuf>,
    },
}

#[derive(Args, Debug)]
struct Run {
    /// Only patterns whose name contains one of these, or is one that stands behind a `=`
    #[arg(long, value_delimiter = ',')]
    pattern: Vec<String>,
    /// Only these allocators
    #[arg(long, value_delimiter = ',', value_parser = peers::ALL.map(|peer| peer.name))]
    allocator: Vec<String>,
    /// Processes per pattern and allocator; every second turn runs the allocators backwards. A comparison of patterns in
    /// full goes on with nalloc and those near the best while both halves of the turns differ [default: 5]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    turns: Option<u32>,
    /// How far it goes on, those included [default: three times as many]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=3000))]
    turns_at_most: Option<u32>,
    /// Threads of each process [default: the processors it may use]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4096))]
    threads: Option<u16>,
    /// Name of the record; one that is there is added to, pattern by pattern [default: the date, where everything is
    /// run in full; else none is written]
    #[arg(long)]
    record: Option<String>,
    /// Small sizes, and every byte checked: shows that all is right, not how fast it is
    #[arg(long, conflicts_with = "record")]
    quick: bool,
    /// Show the counters of this project's allocator at the end of each of its processes
    #[arg(long)]
    stats: bool,
    /// List the patterns and the allocators
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let arguments: Arguments = parse();
    finish(match arguments.command {
        Some(Task::List) => list(),
        Some(Task::SystemCalls) => system_calls(&arguments.run),
        Some(Task::Provers { statement, rows, mut settings }) => {
            if let Some(name) = arguments.run.record.as_ref().filter(|_| settings.json.is_none()) {
                settings.json = Some(provers::file_of(statement, &records().join(name)));
            }
            of_provers(&arguments.run, &settings)
                .and_then(|of_provers| is_there(&arguments.run, of_provers))
                .and_then(|()| provers::compare(statement, &rows, &chosen_peers(&arguments.run), &settings))
        }
        Some(Task::Replay { trace }) => replay(&trace, &arguments.run),
        Some(Task::Report { record }) => report(record),
        None if arguments.run.list => list(),
        None => run(&arguments.run),
    })
}

/// Refuses what would count for nothing: options of patterns before the word `provers`, and behind it what stands before it. Returns
/// what a record must be of.
fn of_provers(options: &Run, provers: &prove_harness::Settings) -> Result<Settings, Error> {
    let given = [
        ("--pattern", !options.pattern.is_empty()),
        ("--turns", options.turns.is_some()),
        ("--turns-at-most", options.turns_at_most.is_some()),
        ("--threads", options.threads.is_some()),
        ("--quick", options.quick),
        ("--stats", options.stats),
        ("--list", options.list),
    ];
    if let Some((name, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
        return Err(Error::new(format!(
            "{name} before `provers` is for patterns; what provers take stands behind that word (provers --help)"
        )));
    }
    if provers.allocator.is_some() {
        return Err(Error::new("--allocator stands before `provers`, where it chooses some"));
    }
    Ok(Settings { threads: provers.threads(), ..settings(options) })
}

fn list() -> Result<(), Error> {
    say("patterns:")?;
    for pattern in patterns::all() {
        say(format_args!("  {:24} {}", pattern.name, pattern.about))?;
    }
    for (name, about) in arenas::GROUPS {
        say(format_args!("  {name:24} {about}"))?;
    }
    say("allocators:")?;
    for peer in peers::ALL {
        say(format_args!("  {:24} {}", peer.name, peer.about))?;
    }
    Ok(())
}

/// What the filters leave.
struct Chosen {
    patterns: Vec<Pattern>,
    arenas: Vec<Group>,
    peers: Vec<&'static Peer>,
    settings: Settings,
}

/// Whether a pattern's name contains `part`, or is what stands in it behind a `=`.
fn is_meant(name: &str, part: &str) -> bool {
    part.strip_prefix('=').map_or_else(|| name.contains(part), |whole| name == whole)
}

fn chosen(options: &Run) -> Result<Chosen, Error> {
    let wanted =
        |name: &str| options.pattern.is_empty() || options.pattern.iter().any(|part| is_meant(name, part));
    let mut patterns = patterns::all();
    patterns.retain(|pattern| wanted(&pattern.name));
    // A filter that is misspelt would go unnoticed among others, and an empty one means everything, for hours.
    let any = |part: &str| {
        let arena = |(name, _): &Group| is_meant(name, part);
        patterns.iter().any(|pattern| is_meant(&pattern.name, part))
            || arenas::GROUPS.iter().any(arena)
            || part.strip_prefix('=').is_some_and(|name| patterns::named(name).is_some())
    };
    if let Some(part) = options.pattern.iter().find(|part| part.is_empty() || !any(part)) {
        return Err(Error::new(format!("--pattern {part:?}: no pattern has such a name; --list shows them")));
    }
    // Those that can be named and are not listed.
    for name in options.pattern.iter().filter_map(|part| part.strip_prefix('=')) {
        if !patterns.iter().any(|pattern| pattern.name == name) {
            patterns.extend(patterns::named(name));
        }
    }
    // Arenas have no global allocator to choose: whoever chooses one means the patterns, unless both are named.
    let asked = options.allocator.is_empty() || !options.pattern.is_empty();
    let arenas: Vec<Group> = arenas::GROUPS.into_iter().filter(|(name, _)| asked && wanted(name)).collect();
    // Nothing is built for nothing.
    let peers = if patterns.is_empty() { Vec::new() } else { chosen_peers(options) };
    Ok(Chosen { patterns, arenas, peers, settings: settings(options) })
}

/// Turns of each, where nothing else is said.
const TURNS: u32 = 5;

fn settings(options: &Run) -> Settings {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = options.threads.map_or(cpus, usize::from);
    let turns = options.turns.unwrap_or(TURNS);
    Settings {
        turns,
        turns_at_most: options.turns_at_most.unwrap_or(compare::TURNS_TIMES * turns),
        threads,
        quick: options.quick,
        stats: options.stats,
    }
}

fn chosen_peers(options: &Run) -> Vec<&'static Peer> {
    let chosen = |name: &str| options.allocator.is_empty() || options.allocator.iter().any(|n| n == name);
    peers::ALL.iter().filter(|peer| chosen(peer.name)).collect()
}

fn system_calls(options: &Run) -> Result<(), Error> {
    let Chosen { patterns, peers, settings, .. } = chosen(options)?;
    is_there(options, settings)?;
    let calls = calls::count(&patterns, &peers, settings)?;
    let table = calls::table(&calls);
    let kept =
        options.record.as_ref().map_or(Ok(()), |name| keep(Record { calls, ..Record::default() }, name));
    say(table)?;
    kept
}

fn replay(trace: &Path, options: &Run) -> Result<(), Error> {
    is_there(options, settings(options))?;
    replay::compare(trace, &chosen_peers(options), settings(options), |replays| {
        options.record.as_ref().map_or(Ok(()), |name| keep(Record { replays, ..Record::default() }, name))
    })
}

/// Refuses a record to which nothing can be added: only a comparison of patterns begins one.
fn is_there(options: &Run, settings: Settings) -> Result<(), Error> {
    let Some(name) = &options.record else { return Ok(()) };
    let folder = records().join(name);
    if !folder.exists() {
        return Err(Error::new(format!(
            "{}: no such record, to which this could be added",
            folder.display()
        )));
    }
    can_keep(name, settings)
}

/// Writes a record, or adds to the one of that name, and returns its folder.
fn put(record: Record, name: &str) -> Result<PathBuf, Error> {
    let folder = records().join(name);
    let record = if folder.exists() { Record::read(&folder)?.joined(record) } else { record };
    record.write(&folder)?;
    Ok(folder)
}

/// Does the same and says so.
fn keep(record: Record, name: &str) -> Result<(), Error> {
    let folder = put(record, name)?;
    eprintln!("written: {}", folder.display());
    Ok(())
}

/// Sees to it that a record can be begun or added to, before hours of work and not after them.
fn can_keep(name: &str, settings: Settings) -> Result<(), Error> {
    let mut parts = Path::new(name).components();
    if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
        return Err(Error::new(format!("--record {name:?}: the name of a folder beside the other records")));
    }
    let folder = records().join(name);
    if folder.exists() {
        let there = Record::read(&folder)
            .map_err(|cause| Error::new(format!("--record {name}: it cannot be added to: {cause}")))?;
        if let Some(line) = there.differs_from(&compare::describe(settings)) {
            return Err(Error::new(format!("--record {name}: it cannot be added to: here it is {line}")));
        }
    }
    Ok(())
}

fn run(options: &Run) -> Result<(), Error> {
    let Chosen { patterns, arenas, peers, settings } = chosen(options)?;
    if settings.turns_at_most < settings.turns {
        let Settings { turns, turns_at_most: most, .. } = settings;
        return Err(Error::new(format!("--turns-at-most {most}: --turns asks for {turns}")));
    }
    options.record.as_deref().map_or(Ok(()), |name| can_keep(name, settings))?;
    let all = options.pattern.is_empty() && options.allocator.is_empty() && !options.quick;
    let name = options.record.clone().or_else(|| all.then(|| fresh_name(&date())));
    let so_far = |record: &Record| name.as_deref().map_or(Ok(()), |name| put(record.clone(), name).map(drop));
    let mut record = compare::compare(&patterns, &peers, settings, &so_far)?;
    let (turns, failed) = arenas::compare(&arenas, settings)?;
    record.arenas = turns;
    record.about.extend(failed);
    if all {
        print!("{}", tables::overview(&report::measured(&record, &patterns)));
    }
    let failed = record.about.iter().any(|line| line.starts_with("failed"));
    if let Some(name) = name {
        keep(record, &name)?;
    }
    if options.quick && failed {
        return Err(Error::new("a pattern failed"));
    }
    Ok(())
}

fn records() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("record")
}

fn report(record: Option<PathBuf>) -> Result<(), Error> {
    let folder = match record {
        Some(folder) if folder.is_dir() => folder,
        Some(name) => records().join(name),
        None => latest(record::ROUNDS)?,
    };
    let own = latest(readme::FILES[0].0)?;
    let of_provers = readme::details(&own)? + &provers::tables(&folder)?;
    let random = latest_where(|folder| is_of_kind(folder, RANDOM))?;
    let elsewhere = all_where(|folder| is_of_kind(folder, ELSEWHERE))?;
    let besides = report::Besides {
        random: (&Record::read(&random)?, &record::name_of(&random)),
        elsewhere: &elsewhere
            .iter()
            .map(|folder| report::Elsewhere::read(folder))
            .collect::<Result<Vec<_>, _>>()?,
    };
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/BENCHMARKS.md");
    report::report(&Record::read(&folder)?, &record::name_of(&folder), &of_provers, besides, &document)?;
    say(format_args!("{} shows {} and {}", document.display(), folder.display(), own.display()))?;
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let from = readme::Folders { own: &own, compared: &folder, elsewhere: &elsewhere, random: &random };
    readme::write(&readme, &document, &from)?;
    say(format_args!("{} shows both", readme.display()))?;
    Ok(())
}

/// How the names of records end that hold random workloads, …
const RANDOM: &str = "-random";
/// … or the same patterns on another machine, of which there may be several.
const ELSEWHERE: &str = "-elsewhere";

fn is_of_kind(folder: &Path, kind: &str) -> bool {
    folder.to_string_lossy().ends_with(kind) && folder.join(record::ROUNDS).is_file()
}

/// Returns the record whose name comes last, of those that hold `file` and whose name says of no other kind: names begin with
/// a date, and what the provers' own commands leave lies there too.
fn latest(file: &str) -> Result<PathBuf, Error> {
    let is_besides = |folder: &Path| [RANDOM, ELSEWHERE].iter().any(|kind| is_of_kind(folder, kind));
    latest_where(|folder| folder.join(file).is_file() && !is_besides(folder))
        .map_err(|_| Error::new(format!("there is no record yet that holds {file}")))
}

fn latest_where(holds: impl Fn(&Path) -> bool) -> Result<PathBuf, Error> {
    all_where(holds)?.pop().ok_or_else(|| Error::new("there is no such record yet"))
}

/// Returns such records in the order of their names.
fn all_where(holds: impl Fn(&Path) -> bool) -> Result<Vec<PathBuf>, Error> {
    let folders = std::fs::read_dir(records()).map_err(|cause| Error::doing("looking for records", cause))?;
    let mut folders: Vec<_> =
        folders.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| holds(path)).collect();
    folders.sort();
    Ok(folders)
}

/// Returns the name itself, or with a number if there is such a record.
fn fresh_name(name: &str) -> String {
    let names = std::iter::once(name.to_owned()).chain((2..).map(|number| format!("{name}-{number}")));
    names.into_iter().find(|name| !records().join(name).exists()).unwrap_or_else(|| name.to_owned())
}

/// Returns the date of today (UTC) as year, month and day.
fn date() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let (year, month, day) = civil(now.as_secs() / 86_400);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Turns days since 1970 into a date (Howard Hinnant, "chrono-compatible low-level date algorithms").
const fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    (year + era * 400 + if month <= 2 { 1 } else { 0 }, month, day)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Arguments, Task, civil, is_meant, of_provers};

    /// They were taken and counted for nothing.
    #[test]
    fn what_counts_for_nothing_is_refused_by_name() {
        let checked = |words: &[&str]| {
            let all = [&["zk-compare"], words].concat();
            let Arguments { command: Some(Task::Provers { settings, .. }), run } =
                Arguments::try_parse_from(all).expect("parses")
            else {
                panic!("proves")
            };
            of_provers(&run, &settings).map(|settings| settings.threads).map_err(|error| error.to_string())
        };
        for words in [
            &["--turns", "5"][..],
            &["--turns-at-most", "9"],
            &["--threads", "1"],
            &["--quick"],
            &["--stats"],
            &["--list"],
            &["--pattern", "fill"],
        ] {
            let line = checked(&[words, &["provers"]].concat()).expect_err("it is of patterns");
            assert!(
                line.starts_with(&format!("{} before `provers`", words[0])) && !line.contains('\n'),
                "{line}"
            );
        }
        let line = checked(&["provers", "--allocator", "nalloc"]).expect_err("it chooses nobody there");
        assert!(line.starts_with("--allocator stands before"), "{line}");
        // Whether a record is of as many threads is asked of the provers' own, and not of those of patterns.
        let words = ["--allocator", "nalloc", "--record", "x", "provers", "--turns", "5", "--threads", "77"];
        assert_eq!(checked(&words), Ok(77));
    }

    #[test]
    fn a_pattern_is_meant_by_a_part_of_its_name_or_by_all_of_it() {
        assert!(is_meant("load-fill/1M", "fill/1M") && !is_meant("load-fill/1M", "=fill/1M"));
        assert!(is_meant("fill/1M", "=fill/1M"));
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(19_782), (2024, 2, 29));
        assert_eq!(civil(20_514), (2026, 3, 2));
    }
}
