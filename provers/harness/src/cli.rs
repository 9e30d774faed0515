//! The part of the command line that all provers share.
//!
//! Why it is here: `--rounds` and the like must mean the same for every prover, and a mistake in them must be
//! answered in one clear line.

use std::fmt;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use clap::{Args, Parser};

use crate::allocator::Choice;
use crate::error::Error;

/// How often, how wide and under what to prove.
#[derive(Args, Clone, Debug)]
pub struct Settings {
    /// Proofs per process; the first is the cold one
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub rounds: u32,

    /// Processes per statement and allocator; every second turn runs the allocators in reverse order [default: 2; 4 where more
    /// than two are compared]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    turns: Option<u32>,

    /// Worker threads of each prover [default: the processors it may use]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4096))]
    threads: Option<u16>,

    /// Prove in this very process, under this allocator, and print a line of JSON per proof
    #[arg(long, value_enum)]
    pub allocator: Option<Choice>,

    /// Write the machine and every single proof into this file, after each turn
    #[arg(long, value_name = "FILE", conflicts_with = "allocator")]
    pub json: Option<PathBuf>,

    /// Have NAlloc fault in so many MiB before the first proof, which is not timed
    #[arg(long, value_name = "MIB", default_value_t = 0)]
    pub prefault: usize,

    /// Print NAlloc's report on standard error at the end of each of its processes: what memory cost, and what to do
    #[arg(long)]
    pub report: bool,

    /// Record what each of NAlloc's processes does with large blocks, in a file of this folder, for `zk-nalloc-trace`
    #[arg(long, value_name = "FOLDER", conflicts_with = "allocator")]
    pub trace: Option<PathBuf>,

    /// Print NAlloc's own counters on standard error at the end of each of its processes
    #[arg(long)]
    pub stats: bool,
}

impl Settings {
    /// Returns how many turns so many contenders take. Two turns of more than two are forwards and backwards alone: whoever is at an
    /// end runs twice in a row.
    #[must_use]
    pub fn turns(&self, contenders: usize) -> u32 {
        self.turns.unwrap_or(if contenders > 2 { 4 } else { 2 })
    }

    /// Returns the number of worker threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from)
    }
}

/// A number of rows: a power of two, written `2^15` or `32768`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    log2: u32,
}

impl Rows {
    const LOG2_MIN: u32 = 5;
    /// Larger traces take more than 100 GiB in every prover here.
    const LOG2_MAX: u32 = 24;

    /// Returns the binary logarithm.
    #[must_use]
    pub const fn log2(self) -> u32 {
        self.log2
    }

    /// Returns the number itself.
    #[must_use]
    pub const fn count(self) -> usize {
        1 << self.log2
    }

    /// Returns the number halved so many times, unless that is fewer than a statement may have.
    #[must_use]
    pub fn halved(self, times: u32) -> Option<Self> {
        let log2 = self.log2.checked_sub(times).filter(|&log2| log2 >= Self::LOG2_MIN)?;
        Some(Self { log2 })
    }
}

impl FromStr for Rows {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let log2 = match text.strip_prefix("2^") {
            Some(exponent) => exponent.parse::<u32>().ok(),
            None => text.parse::<u64>().ok().filter(|n| n.is_power_of_two()).map(u64::ilog2),
        };
        let log2 = log2.ok_or_else(|| Error::new("rows are a power of two, written as 2^15 or 32768"))?;
        if !(Self::LOG2_MIN..=Self::LOG2_MAX).contains(&log2) {
            let (min, max) = (Self::LOG2_MIN, Self::LOG2_MAX);
            return Err(Error::new(format!("rows must lie between 2^{min} and 2^{max}")));
        }
        Ok(Self { log2 })
    }
}

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "2^{}", self.log2)
    }
}

/// Parses the command line, or ends the process: with the help that was asked for, or with one line that says what
/// is wrong.
#[must_use]
pub fn parse<C: Parser>() -> C {
    C::try_parse().unwrap_or_else(|error| {
        if !error.use_stderr() {
            error.exit();
        }
        eprintln!("{}", one_line(&error.to_string()));
        std::process::exit(2)
    })
}

/// Joins the first paragraph of clap's answer: the mistake and what was possible, without the usage text.
fn one_line(answer: &str) -> String {
    let paragraph = answer.lines().map(str::trim).take_while(|line| !line.is_empty());
    paragraph.collect::<Vec<_>>().join(" ")
}

/// Prints a line on standard output; whoever reads may stop to (`head`), and nobody misses the rest.
///
/// # Errors
/// When standard output takes no more for another reason.
pub fn say(what: impl fmt::Display) -> Result<(), Error> {
    say_to(&mut std::io::stdout(), what)
}

fn say_to(output: &mut impl Write, what: impl fmt::Display) -> Result<(), Error> {
    match writeln!(output, "{what}") {
        Err(cause) if cause.kind() != ErrorKind::BrokenPipe => {
            Err(Error::doing("writing to standard output", cause))
        }
        _ => Ok(()),
    }
}

/// Turns the outcome of a prover into its exit status, an error into one line on standard error.
#[must_use]
pub fn finish(outcome: Result<(), Error>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Choice, Error, Rows, Settings, one_line, say_to};

    #[derive(Parser, Debug)]
    struct Cli {
        #[command(flatten)]
        settings: Settings,
        #[arg(long, default_value = "2^14")]
        rows: Rows,
    }

    fn parse(words: &[&str]) -> Result<Cli, String> {
        Cli::try_parse_from([&["prove"], words].concat()).map_err(|error| one_line(&error.to_string()))
    }

    #[test]
    fn rows_are_a_power_of_two_in_either_spelling() {
        for (text, log2) in [("2^15", 15), ("32768", 15), ("2^5", 5), ("16777216", 24)] {
            assert_eq!(text.parse::<Rows>().map(Rows::log2).ok(), Some(log2), "{text}");
        }
        for text in ["", "15", "2^", "2^4", "2^25", "2^-3", "-32768", "2^99999999999", "33000", "lots", "0"] {
            assert!(text.parse::<Rows>().is_err(), "{text}");
        }
        let halves = |times| "2^6".parse::<Rows>().ok()?.halved(times).map(Rows::log2);
        assert_eq!([0, 1, 2, 7].map(halves), [Some(6), Some(5), None, None]);
        assert_eq!("4096".parse::<Rows>().map(|rows| rows.to_string()).ok().as_deref(), Some("2^12"));
    }

    #[test]
    fn a_mistake_is_answered_in_one_line_that_names_it() {
        for (words, needle) in [
            (&["--rows", "33000"][..], "power of two"),
            (&["--rounds", "1"], "--rounds"),
            (&["--turns", "0"], "--turns"),
            (&["--threads", "x"], "--threads"),
            (&["--allocator", "dlmalloc"], "nalloc"),
            (&["--frobnicate"], "--frobnicate"),
        ] {
            let line = parse(words).expect_err("a mistake must be refused");
            assert!(line.contains(needle) && !line.contains('\n') && line.starts_with("error:"), "{line}");
        }
    }

    #[test]
    fn the_defaults_compare_and_the_child_is_asked_for_by_name() {
        let cli = parse(&[]).expect("defaults parse");
        assert!(
            cli.settings.allocator.is_none() && cli.settings.threads() >= 1 && cli.rows.count() == 1 << 14
        );
        let turns = |words: &[&str], contenders| parse(words).map(|cli| cli.settings.turns(contenders));
        assert_eq!((turns(&[], 2), turns(&[], 3)), (Ok(2), Ok(4)));
        assert_eq!(turns(&["--turns", "3"], 14), Ok(3));
        let cli = parse(&["--allocator", "nalloc", "--threads", "3"]).expect("child parses");
        assert_eq!((cli.settings.allocator, cli.settings.threads()), (Some(Choice::NAlloc), 3));
    }

    /// Takes nothing, for this reason.
    struct Full(std::io::ErrorKind);

    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_stops_reading_is_no_error_and_a_full_disk_is() {
        assert!(say_to(&mut Full(std::io::ErrorKind::BrokenPipe), "a table").is_ok());
        let said = say_to(&mut Full(std::io::ErrorKind::StorageFull), "a table");
        assert!(
            said.is_err_and(|error: Error| error.to_string().starts_with("writing to standard output: "))
        );
    }
}
