//! Blocks by size, phases by name: what a table has a row for.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::story::{Deed, Story};

/// The blocks between two powers of two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Class {
    /// From this size on, up to twice it, in bytes.
    pub from: u64,
    /// How many there were, and of those how many were to read as zero, and were resized.
    pub blocks: u64,
    /// See `blocks`.
    pub zeroed: u64,
    /// See `blocks`.
    pub resized: u64,
    /// Their sizes together, and of those what was not resident when they were taken.
    pub bytes: u64,
    /// See `bytes`.
    pub fresh: u64,
    /// The most of them that were live at once, in bytes.
    pub peak_live: u64,
    /// How long half of them lived, in nanoseconds; those that were freed.
    pub median_life: Option<u64>,
}

/// All times of a phase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stage {
    /// What it is called.
    pub name: String,
    /// How often it was run.
    pub times: u64,
    /// How long in all, and at most, in nanoseconds.
    pub total: u64,
    /// See `total`.
    pub longest: u64,
    /// The most that was live meanwhile, in bytes.
    pub peak_live: u64,
    /// How many bytes were asked for meanwhile, by whichever thread.
    pub taken: u64,
}

/// Puts the blocks of a story into classes, the largest first.
#[must_use]
pub(crate) fn classes(story: &Story) -> Vec<Class> {
    let mut classes: BTreeMap<u32, (Class, u64, Vec<u64>)> = BTreeMap::new();
    let of = |size: u64| size.max(1).ilog2();
    for step in &story.steps {
        let Some(block) = story.block(step) else { continue };
        let (class, live, lives) = classes.entry(of(block.size)).or_default();
        match step.deed {
            Deed::Taken => {
                class.from = 1 << of(block.size);
                class.blocks += 1;
                class.zeroed += u64::from(block.zeroed);
                class.resized += u64::from(block.resized > 0);
                class.bytes = class.bytes.saturating_add(block.size);
                class.fresh = class.fresh.saturating_add(block.fresh);
                *live = live.saturating_add(block.size);
                class.peak_live = class.peak_live.max(*live);
            }
            Deed::Freed => {
                *live = live.saturating_sub(block.size);
                lives.push(step.nanoseconds.saturating_sub(block.taken));
            }
            Deed::Resized { .. } => {}
        }
    }
    let finished = classes.into_values().rev().map(|(mut class, _, mut lives)| {
        lives.sort_unstable();
        class.median_life = lives.get(lives.len() / 2).copied();
        class
    });
    finished.collect()
}

/// Puts the phases of a story together by their names, in the order in which they first began.
#[must_use]
pub(crate) fn stages(story: &Story) -> Vec<Stage> {
    let mut stages: Vec<Stage> = Vec::new();
    for phase in &story.phases {
        let known = stages.iter().position(|stage| stage.name == phase.name);
        let at = known.unwrap_or_else(|| {
            stages.push(Stage { name: phase.name.clone(), ..Stage::default() });
            stages.len() - 1
        });
        let from = story.steps.partition_point(|step| step.nanoseconds < phase.begins);
        let to = story.steps.partition_point(|step| step.nanoseconds <= phase.ends);
        let before = from.checked_sub(1).and_then(|index| story.steps.get(index)).map_or(0, |step| step.live);
        let Some(stage) = stages.get_mut(at) else { continue };
        stage.times += 1;
        stage.total = stage.total.saturating_add(phase.ends - phase.begins);
        stage.longest = stage.longest.max(phase.ends - phase.begins);
        stage.peak_live = stage.peak_live.max(before);
        for step in story.steps.get(from..to.max(from)).unwrap_or_default() {
            stage.peak_live = stage.peak_live.max(step.live);
            if step.deed == Deed::Taken {
                let size = story.block(step).map_or(0, |block| block.size_first);
                stage.taken = stage.taken.saturating_add(size);
            }
        }
    }
    stages
}
