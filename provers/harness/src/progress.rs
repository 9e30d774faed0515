//! What a person sees while the provers run: a bar on a terminal, one line per process elsewhere.
//!
//! Why it is here: a comparison takes a minute or more. All of it goes to standard error, so that standard output
//! holds the table alone. Once a second is enough: the
//! drawing runs beside a prover that uses every processor.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::record::{Round, Run};
use crate::statistics::Summary;

/// Shows how far a comparison has come.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Hidden where standard error is no terminal.
    bar: ProgressBar,
    lines: bool,
    turns: u32,
}

impl Progress {
    /// Starts to show the way to `proofs` proofs, in so many turns.
    pub(crate) fn new(proofs: u64, turns: u32) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = if terminal { ProgressBar::new(proofs) } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} {bar:30} {pos}/{len}  {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_secs(1));
        Self { bar, lines: !terminal, turns }
    }

    /// Says which process starts.
    pub(crate) fn starts(&self, statement: &str, allocator: &str, turn: u32) {
        let turns = self.turns;
        self.bar.set_message(format!("{statement}, {allocator}, turn {} of {turns}", turn + 1));
    }

    /// Counts one proof.
    pub(crate) fn proof(&self, _round: &Round) {
        self.bar.inc(1);
    }

    /// Says how a process went.
    pub(crate) fn ends(&self, run: &Run) {
        let summary = Summary::of(&[run]);
        let line = format!(
            "{}, {}, turn {} of {}: cold {:.2} s, warm {:.2} s, {} proofs verified",
            run.statement,
            run.allocator,
            run.turn + 1,
            self.turns,
            summary.cold_seconds,
            summary.warm_seconds_median,
            run.rounds.len(),
        );
        self.say(&line);
    }

    /// Says something that stays.
    pub(crate) fn say(&self, line: &str) {
        if self.lines {
            eprintln!("{line}");
        } else {
            self.bar.println(line);
        }
    }

    /// Takes the bar away.
    pub(crate) fn done(self) {
        self.bar.finish_and_clear();
    }
}
