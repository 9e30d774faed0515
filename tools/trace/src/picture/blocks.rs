//! The second chart: when blocks of the largest sizes lived.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::chart::{times, x};
use super::{PLOT_LEFT, PLOT_WIDTH, WIDTH};
use crate::story::{Block, Story};
use crate::units::{bytes, count, time};

/// Sizes that have a row.
const ROWS: usize = 24;

/// Blocks of one size that are drawn under each other when they live at once; more share the last lane.
const LANES: usize = 6;

/// What is narrower than this and follows the one before it as closely is drawn as one bar with it.
const NARROW: f64 = 1.5;

const LANE: f64 = 7.0;
const GAP: f64 = 7.0;

pub(super) fn draw(page: &mut String, story: &Story) {
    let mut sizes: BTreeMap<u64, Vec<&Block>> = BTreeMap::new();
    for block in &story.blocks {
        sizes.entry(block.size).or_default().push(block);
    }
    let rows: Vec<_> = sizes
        .into_iter()
        .rev()
        .take(ROWS)
        .map(|(size, blocks)| (size, blocks.len(), lanes(&blocks, story.nanoseconds)))
        .collect();
    if rows.is_empty() {
        return;
    }
    let height = |lanes: &[Vec<Bar<'_>>]| (LANE * lanes.len() as f64).max(2.0 * LANE) + GAP;
    let bottom = 6.0 + rows.iter().map(|(_, _, lanes)| height(lanes)).sum::<f64>();
    let _ = write!(
        page,
        "<h2>The largest blocks</h2>\n<p class=\"legend\"><span><i class=\"plain\"></i>as asked for</span>\
         <span><i class=\"zeroed\"></i>zeroed</span><span><i class=\"resized\"></i>resized</span></p>\n\
         <div class=\"scroll\"><svg class=\"chart\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\" \
         aria-label=\"Lives of the largest blocks\">\n",
        bottom + 34.0
    );
    times(page, story.nanoseconds, bottom);
    let mut top = 6.0;
    for (size, blocks, lanes) in &rows {
        let _ = writeln!(
            page,
            "<path class=\"grid\" d=\"M0 {:.1}h{}\"/><text class=\"tick end\" x=\"{:.1}\" y=\"{:.1}\">{}{}</text>",
            top - GAP / 2.0,
            PLOT_LEFT + PLOT_WIDTH,
            PLOT_LEFT - 8.0,
            top + LANE + 3.5,
            bytes(*size),
            if *blocks > 1 { format!(" ×{}", count(*blocks as u64)) } else { String::new() }
        );
        for (lane, bars) in lanes.iter().enumerate() {
            for bar in bars {
                draw_bar(page, story, bar, top + LANE * lane as f64);
            }
        }
        top += height(lanes);
    }
    page.push_str("</svg></div>\n");
}

/// What is drawn of a block, or of several short ones.
struct Bar<'a> {
    block: &'a Block,
    from: f64,
    to: f64,
    more: u64,
}

/// Puts blocks into lanes in which none lives while another does, as far as there are lanes.
fn lanes<'a>(blocks: &[&'a Block], end: u64) -> Vec<Vec<Bar<'a>>> {
    let mut lanes: Vec<(u64, Vec<Bar<'_>>)> = Vec::new();
    for &block in blocks {
        let until = block.freed.unwrap_or(end);
        let free = lanes.iter().position(|(busy, _)| *busy <= block.taken);
        let at = match free {
            Some(lane) => lane,
            None if lanes.len() < LANES => {
                lanes.push((0, Vec::new()));
                lanes.len() - 1
            }
            None => LANES - 1,
        };
        let Some((busy, lane)) = lanes.get_mut(at) else { continue };
        *busy = until.max(*busy);
        let (from, to) = (x(block.taken, end), x(until, end));
        match lane.last_mut().filter(|last| to - from < NARROW && from - last.to < NARROW) {
            Some(last) => {
                last.to = last.to.max(to);
                last.more += 1;
            }
            None => lane.push(Bar { block, from, to, more: 0 }),
        }
    }
    lanes.into_iter().map(|(_, lane)| lane).collect()
}

fn draw_bar(page: &mut String, story: &Story, bar: &Bar<'_>, top: f64) {
    let Bar { block, from, to, more } = *bar;
    let class = match block {
        Block { resized: 1.., .. } => "resized",
        Block { zeroed: true, .. } => "zeroed",
        _ => "plain",
    };
    let more = if more > 0 { format!("; and {} more here", count(more)) } else { String::new() };
    let _ = writeln!(
        page,
        "<rect class=\"bar {class}\" x=\"{from:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}{more}</title></rect>",
        (to - from).max(0.8),
        LANE - 1.0,
        told(block, block.freed.unwrap_or(story.nanoseconds))
    );
}

/// A block in words.
fn told(block: &Block, end: u64) -> String {
    let mut text =
        format!("{}, taken at {} on thread {}, ", bytes(block.size), time(block.taken), block.thread);
    let _ = match block.freed {
        Some(_) => write!(text, "for {}", time(end - block.taken)),
        None => write!(text, "never freed"),
    };
    if block.zeroed {
        text.push_str(", zeroed");
    }
    if block.resized > 0 {
        let _ = write!(text, ", resized {} times from {}", block.resized, bytes(block.size_first));
    }
    let _ = write!(text, "; {} of it not resident before", bytes(block.fresh.min(block.size)));
    if let Some(touched) = block.touched {
        let _ = write!(text, ", {:.0} % touched", 100.0 * touched.resident as f64 / block.size.max(1) as f64);
    }
    text
}
