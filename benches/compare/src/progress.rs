//! What a person sees while a comparison runs: a bar on a terminal, a line per pattern elsewhere.
//!
//! All of it goes to standard error, so that standard output holds the tables alone. The bar is drawn once a second
//! at most: it runs beside what is measured.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use prove_harness::say;

/// Shows how far a comparison has come.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    terminal: bool,
}

impl Progress {
    /// Starts to show the way to `processes` processes.
    #[must_use]
    pub fn new(processes: u64) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = if terminal { ProgressBar::new(processes) } else { ProgressBar::hidden() };
        let template = "{elapsed_precise} {bar:30} {pos}/{len}, about {eta} left  {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_secs(1));
        Self { bar, terminal }
    }

    /// Says what is being done.
    pub fn at(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// Counts one process.
    pub fn step(&self) {
        self.bar.inc(1);
    }

    /// Adds processes that are still to come.
    pub fn add(&self, processes: u64) {
        self.bar.inc_length(processes);
    }

    /// Says something that stays.
    pub fn say(&self, line: &str) {
        if self.terminal {
            self.bar.println(line);
        } else {
            eprintln!("{line}");
        }
    }

    /// Prints on standard output without spoiling the bar.
    pub fn print(&self, text: &str) {
        if let Err(error) = self.bar.suspend(|| say(text)) {
            self.say(&format!("error: {error}"));
        }
    }

    /// Takes the bar away.
    pub fn done(self) {
        self.bar.finish_and_clear();
    }
}
