//! A story cut into columns of time, one for each unit of the drawing.

use serde::Serialize;

use super::PLOT_WIDTH;
use crate::story::{Sample, Story};

/// What is drawn of a column, in KiB.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Columns {
    /// Nanoseconds that a column stands for.
    pub(super) width: f64,
    /// The most that was live.
    pub(super) live: Vec<u64>,
    /// What was held, cached and resident when it was last looked at.
    pub(super) held: Vec<u64>,
    pub(super) cached: Vec<u64>,
    pub(super) process: Vec<u64>,
    /// In huge pages.
    pub(super) huge: Vec<u64>,
    /// Page faults in the column.
    pub(super) faults: Vec<u64>,
}

impl Columns {
    pub(super) fn of(story: &Story) -> Self {
        let count = PLOT_WIDTH as usize;
        let width = (story.nanoseconds.max(1) as f64) / PLOT_WIDTH;
        let mut columns = Self { width, ..Self::default() };
        let (mut steps, mut samples) = (story.steps.iter().peekable(), story.samples.iter().peekable());
        let (mut live, mut last, mut huge) = (0, Sample::default(), 0);
        let mut faults = story.samples.first().map_or(0, |sample| sample.faults);
        for column in 0..count {
            let end = width * (column + 1) as f64;
            let mut most = live;
            while let Some(step) = steps.next_if(|step| (step.nanoseconds as f64) <= end) {
                live = step.live;
                most = most.max(live);
            }
            // A look may fall between two peaks; a column shows the highest of its looks.
            let mut seen: Option<Sample> = None;
            while let Some(sample) = samples.next_if(|sample| (sample.nanoseconds as f64) <= end) {
                last = *sample;
                huge = sample.huge.unwrap_or(huge);
                let before = seen.unwrap_or(*sample);
                seen = Some(Sample {
                    cached: before.cached.max(sample.cached),
                    resident: before.resident.max(sample.resident),
                    anonymous: before.anonymous.max(sample.anonymous),
                    ..*sample
                });
            }
            let shown = seen.unwrap_or(last);
            columns.live.push(most >> 10);
            columns.held.push(shown.resident >> 10);
            columns.cached.push(shown.cached >> 10);
            columns.process.push(shown.anonymous >> 10);
            columns.huge.push(huge >> 10);
            columns.faults.push(last.faults.saturating_sub(faults));
            faults = faults.max(last.faults);
        }
        columns
    }

    /// The highest value of all, in bytes.
    pub(super) fn max(&self) -> u64 {
        let all = [&self.live, &self.held, &self.cached, &self.process];
        all.into_iter().flatten().max().map_or(0, |kib| kib << 10)
    }

    /// As JSON, for the script; numbers and plain names alone.
    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| "{}".into())
    }
}
