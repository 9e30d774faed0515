//! The first chart: bytes over time, with the phases as bands.

use std::collections::HashMap;
use std::fmt::Write;

use super::columns::Columns;
use super::text::{binary_step, decimal_step, escaped};
use super::{PLOT_LEFT, PLOT_WIDTH, WIDTH};
use crate::story::Story;
use crate::units::{bytes, time};

const HEIGHT: f64 = 320.0;
const BAND: f64 = 18.0;

/// Bands that are drawn one under another; deeper ones share the last.
const BANDS_MAX: u32 = 4;

/// Bands that are drawn at all.
const PHASES_MAX: usize = 2000;

/// Colours that names of phases are given in turn.
const COLOURS: usize = 6;

pub(super) fn draw(page: &mut String, story: &Story, columns: &Columns) {
    let depth = story.phases.iter().map(|phase| phase.depth.min(BANDS_MAX - 1) + 1).max().unwrap_or(0);
    let top = 14.0 + BAND * f64::from(depth);
    let bottom = top + HEIGHT;
    let all = bottom + 34.0;
    let _ = writeln!(
        page,
        "<div class=\"scroll\"><svg id=\"chart\" class=\"chart\" viewBox=\"0 0 {WIDTH} {all}\" role=\"img\" \
         aria-label=\"Memory over time\" data-left=\"{PLOT_LEFT}\" data-width=\"{PLOT_WIDTH}\" data-top=\"{top}\" \
         data-bottom=\"{bottom}\">"
    );
    let step = binary_step(columns.max());
    let max = columns.max().div_ceil(step).max(1).saturating_mul(step);
    let y = |value: u64| bottom - HEIGHT * (value as f64 / max as f64);
    for value in (0..=max / step).map(|tick| tick * step) {
        let at = y(value);
        let _ = writeln!(
            page,
            "<path class=\"grid\" d=\"M{PLOT_LEFT} {at:.1}h{PLOT_WIDTH}\"/><text class=\"tick end\" x=\"{:.1}\" \
             y=\"{:.1}\">{}</text>",
            PLOT_LEFT - 8.0,
            at + 4.0,
            bytes(value)
        );
    }
    times(page, story.nanoseconds, bottom);
    phases(page, story, bottom);
    let line = |values: &[u64]| {
        let mut path = String::new();
        let mut before = None;
        for (column, &kib) in values.iter().enumerate() {
            let at = y(kib << 10);
            match before {
                None => {
                    let _ = write!(path, "M{PLOT_LEFT} {at:.1}");
                }
                Some(kib_before) if kib_before != kib => {
                    let _ = write!(path, "H{:.0}V{at:.1}", PLOT_LEFT + column as f64);
                }
                Some(_) => {}
            }
            before = Some(kib);
        }
        let _ = write!(path, "H{:.0}", PLOT_LEFT + PLOT_WIDTH);
        path
    };
    let live = line(&columns.live);
    let _ = writeln!(page, "<path class=\"live area\" d=\"{live}V{bottom:.1}H{PLOT_LEFT}Z\"/>");
    let _ = writeln!(page, "<path class=\"cached line\" d=\"{}\"/>", line(&columns.cached));
    let _ = writeln!(page, "<path class=\"process line\" d=\"{}\"/>", line(&columns.process));
    let _ = writeln!(page, "<path class=\"held line\" d=\"{}\"/>", line(&columns.held));
    let _ = writeln!(page, "<path class=\"live line\" d=\"{live}\"/>");
    let peak = (x(story.peak_live_at, story.nanoseconds), y(story.peak_live));
    // Where there is room beside it.
    let (anchor, shift) = if peak.0 > PLOT_LEFT + PLOT_WIDTH / 2.0 { ("end", -9.0) } else { ("start", 9.0) };
    let _ = writeln!(
        page,
        "<circle class=\"peak\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\"/><text class=\"label {anchor}\" x=\"{:.1}\" \
         y=\"{:.1}\">peak live {}</text>\n<path id=\"cursor\" class=\"cursor\" d=\"\"/>\n</svg></div>",
        peak.0,
        peak.1,
        peak.0 + shift,
        peak.1 - 8.0,
        bytes(story.peak_live)
    );
}

/// Where a time lies.
pub(super) fn x(nanoseconds: u64, all: u64) -> f64 {
    PLOT_LEFT + PLOT_WIDTH * (nanoseconds as f64 / all.max(1) as f64)
}

/// The axis of time, at the bottom of a plot.
pub(super) fn times(page: &mut String, all: u64, bottom: f64) {
    let step = decimal_step(all as f64);
    let _ = writeln!(page, "<path class=\"axis\" d=\"M{PLOT_LEFT} {bottom:.1}h{PLOT_WIDTH}\"/>");
    for tick in 0..=(all as f64 / step) as u64 {
        let at = tick as f64 * step;
        let place = x(at as u64, all);
        let text = if tick == 0 { "0".to_owned() } else { short(at, step) };
        let _ = writeln!(
            page,
            "<path class=\"axis\" d=\"M{place:.1} {bottom:.1}v5\"/><text class=\"tick middle\" x=\"{place:.1}\" \
             y=\"{:.1}\">{text}</text>",
            bottom + 19.0
        );
    }
}

/// A time on the axis, with as many digits as the distance between two ticks asks for.
fn short(at: f64, step: f64) -> String {
    let (unit, name) = match at {
        v if v >= 1e9 || step >= 1e8 => (1e9, "s"),
        v if v >= 1e6 || step >= 1e5 => (1e6, "ms"),
        _ => (1e3, "µs"),
    };
    let digits = (unit / step).log10().ceil().clamp(0.0, 3.0) as usize;
    format!("{:.digits$} {name}", at / unit)
}

fn phases(page: &mut String, story: &Story, bottom: f64) {
    let mut colours: HashMap<&str, usize> = HashMap::new();
    for phase in story.phases.iter().take(PHASES_MAX) {
        let next = colours.len() % COLOURS;
        let colour = *colours.entry(&phase.name).or_insert(next);
        let (from, to) = (x(phase.begins, story.nanoseconds), x(phase.ends, story.nanoseconds));
        let width = (to - from).max(0.5);
        let top = 6.0 + BAND * f64::from(phase.depth.min(BANDS_MAX - 1));
        let name = escaped(if phase.name.is_empty() { "phase" } else { &phase.name });
        let _ = write!(
            page,
            "<g class=\"phase c{colour}\"><title>{name}: {} from {}</title><rect class=\"band\" x=\"{from:.1}\" \
             y=\"{top:.1}\" width=\"{width:.1}\" height=\"{:.1}\" rx=\"2\"/>",
            time(phase.ends - phase.begins),
            time(phase.begins),
            BAND - 3.0,
        );
        if phase.depth == 0 {
            let _ = write!(
                page,
                "<rect class=\"wash\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\"/>",
                top + BAND,
                bottom - top - BAND
            );
        }
        // About six units a letter.
        if width > 6.5 * phase.name.chars().count() as f64 + 8.0 {
            let _ = write!(
                page,
                "<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\">{name}</text>",
                from + 5.0,
                top + 11.5
            );
        }
        page.push_str("</g>\n");
    }
}
