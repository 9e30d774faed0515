//! A story in numbers.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::classes::{Class, Stage, classes, stages};
use crate::file::{Outcome, Trace};
use crate::story::{Deed, Story};
use crate::units::{bytes, count, time};

/// What a trace comes to. Bytes and nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Events in the file, and those that found no place in the buffer.
    pub events: u64,
    /// See `events`.
    pub lost: u64,
    /// Events that the file should hold and does not.
    pub missing: u64,
    /// Whether the process ended in order.
    pub finished: bool,
    /// How long it is.
    pub nanoseconds: u64,
    /// Threads that took or freed large blocks.
    pub threads: u64,
    /// Large blocks taken, and their bytes.
    pub blocks: u64,
    /// See `blocks`.
    pub bytes: u64,
    /// Of those, what was not resident.
    pub fresh: u64,
    /// Requests that the kernel had no memory for.
    pub refused: u64,
    /// Blocks resized in place, by moving their pages, by copying.
    pub grown: [u64; 3],
    /// The most that was live, as it was asked for, and when.
    pub peak_live: u64,
    /// See `peak_live`.
    pub peak_live_at: u64,
    /// The most that the allocator held resident, by its own books.
    pub peak_resident: u64,
    /// The most that was seen resident of the process's anonymous memory.
    pub peak_anonymous: u64,
    /// The most that was free and held.
    pub peak_cached: u64,
    /// Page faults of the process while the trace ran.
    pub faults: u64,
    /// Blocks by size.
    pub classes: Vec<Class>,
    /// Phases by name.
    pub stages: Vec<Stage>,
}

impl Summary {
    /// Sums a trace up.
    #[must_use]
    pub fn of(trace: &Trace, story: &Story) -> Self {
        let peak = |which: fn(&crate::Sample) -> u64| story.samples.iter().map(which).max().unwrap_or(0);
        let mut grown = [0; 3];
        for step in &story.steps {
            if let Deed::Resized { outcome, .. } = step.deed {
                match outcome {
                    Outcome::InPlace => grown[0] += 1,
                    Outcome::Moved => grown[1] += 1,
                    Outcome::Copied => grown[2] += 1,
                    Outcome::Refused => {}
                }
            }
        }
        let seen = peak(|sample| sample.faults).max(trace.header.faults);
        Self {
            events: trace.events.len() as u64,
            lost: trace.header.lost,
            missing: trace.header.events.saturating_sub(trace.events.len() as u64 + trace.holes),
            finished: trace.header.finished,
            nanoseconds: story.nanoseconds,
            threads: story.threads as u64,
            blocks: story.blocks.len() as u64,
            bytes: story.blocks.iter().map(|block| block.size_first).fold(0, u64::saturating_add),
            fresh: story.blocks.iter().map(|block| block.fresh).fold(0, u64::saturating_add),
            refused: story.refused,
            grown,
            peak_live: story.peak_live,
            peak_live_at: story.peak_live_at,
            peak_resident: peak(|sample| sample.resident),
            peak_anonymous: peak(|sample| sample.anonymous),
            peak_cached: peak(|sample| sample.cached),
            faults: seen.saturating_sub(trace.header.faults_before),
            classes: classes(story),
            stages: stages(story),
        }
    }

    /// What a reader should know before they trust the rest; nothing of a whole trace.
    #[must_use]
    pub fn caveats(&self, story: &Story) -> Vec<String> {
        let mut lines = Vec::new();
        if self.lost > 0 {
            lines.push(format!("{} events found no place in the buffer and are missing", count(self.lost)));
        }
        if self.missing > 0 {
            lines.push(format!("the file is cut short: {} events are missing", count(self.missing)));
        }
        if !self.finished {
            lines.push("the process did not end by exit: what happened last is missing".into());
        }
        if story.strays > 0 {
            lines.push(format!("{} events are of blocks that are not known", count(story.strays)));
        }
        lines
    }

    /// Lays it out for a terminal.
    #[must_use]
    pub fn table(&self, story: &Story) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {name:<38}{value:>18}");
        };
        line("length", time(self.nanoseconds));
        line("threads", count(self.threads));
        line("large blocks taken", count(self.blocks));
        line("their bytes", bytes(self.bytes));
        line("of which were not resident", bytes(self.fresh));
        line("resized in place", count(self.grown[0]));
        line("resized by moving pages", count(self.grown[1]));
        line("resized by copying", count(self.grown[2]));
        line("refused by the kernel", count(self.refused));
        line("peak live, as asked for", bytes(self.peak_live));
        line("at", time(self.peak_live_at));
        line("peak resident by the allocator", bytes(self.peak_resident));
        line("peak cached", bytes(self.peak_cached));
        line("peak resident, anonymous, the process", bytes(self.peak_anonymous));
        line("page faults of the process", count(self.faults));
        for caveat in self.caveats(story) {
            let _ = writeln!(text, "  note: {caveat}");
        }
        if !self.stages.is_empty() {
            let _ = write!(text, "\n{}\n", self.stage_table());
        }
        let _ = write!(text, "\n{}", self.class_table());
        text
    }

    fn class_table(&self) -> Table {
        let mut table =
            plain(["size from", "blocks", "zeroed", "resized", "bytes", "fresh", "peak live", "median life"]);
        for class in &self.classes {
            table.add_row([
                bytes(class.from),
                count(class.blocks),
                count(class.zeroed),
                count(class.resized),
                bytes(class.bytes),
                bytes(class.fresh),
                bytes(class.peak_live),
                class.median_life.map_or_else(|| "-".into(), time),
            ]);
        }
        right(table, 0)
    }

    fn stage_table(&self) -> Table {
        let mut table = plain(["phase", "times", "in all", "longest", "peak live", "asked for"]);
        for stage in &self.stages {
            table.add_row([
                stage.name.clone(),
                count(stage.times),
                time(stage.total),
                time(stage.longest),
                bytes(stage.peak_live),
                bytes(stage.taken),
            ]);
        }
        right(table, 1)
    }
}

fn plain<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    table
}

fn right(mut table: Table, from: usize) -> Table {
    for column in table.column_iter_mut().skip(from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
