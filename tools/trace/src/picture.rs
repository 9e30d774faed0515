//! One page: a proof's memory over time, its blocks, its sizes.
//!
//! Why one file without anything from elsewhere: it is sent around, kept beside a benchmark, opened years later. It is
//! HTML that is XML as well, so that a test can read it; drawn once, here, so that it shows without scripts too, which
//! only follow the pointer.
//!
//! Invariant: no text of a trace stands in the page unescaped.

mod blocks;
mod chart;
mod columns;
mod text;

use std::fmt::Write;

use crate::file::Trace;
use crate::story::Story;
use crate::summary::Summary;
use crate::units::{bytes, count, time};
use text::escaped;

const STYLE: &str = include_str!("picture/style.css");
const SCRIPT: &str = include_str!("picture/script.js");

/// The plot of a chart, in the units of its drawing: both charts share the axis of time.
const PLOT_LEFT: f64 = 112.0;
const PLOT_WIDTH: f64 = 1000.0;
const WIDTH: f64 = PLOT_LEFT + PLOT_WIDTH + 24.0;

/// Draws a story on a page.
#[must_use]
pub fn page(title: &str, trace: &Trace, story: &Story) -> String {
    let summary = Summary::of(trace, story);
    let title = escaped(title);
    let mut page = String::with_capacity(256 << 10);
    // Writing to a string cannot fail.
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<p class=\"lead\">{}</p>\n",
        lead(trace, &summary)
    );
    for caveat in summary.caveats(story) {
        let _ = writeln!(page, "<p class=\"caveat\">{}.</p>", escaped(&caveat));
    }
    tiles(&mut page, &summary);
    let columns = columns::Columns::of(story);
    page.push_str("<h2>Memory over time</h2>\n");
    legend(&mut page);
    chart::draw(&mut page, story, &columns);
    blocks::draw(&mut page, story);
    stages(&mut page, &summary);
    classes(&mut page, &summary);
    let _ = write!(
        page,
        "<p class=\"foot\">Live: bytes that large requests have in use, as they were asked for, at every event. Held: what \
         is in use and cached, as far as the allocator presumes it to be resident. Cached: free and held. Process: its \
         anonymous memory that is resident, as the kernel says. The last three are looked at every two milliseconds at \
         most, when something happens.</p>\n<div id=\"tip\" hidden=\"hidden\"></div>\n\
         <script type=\"application/json\" id=\"columns\">{}</script>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        columns.json()
    );
    page
}

fn lead(trace: &Trace, summary: &Summary) -> String {
    let header = &trace.header;
    let huge = match header.huge_page {
        0 => "no huge pages".to_owned(),
        huge => format!("huge pages of {}", bytes(huge)),
    };
    format!(
        "{} of large requests ({} and more by default) of process {}: {} on {}, {} of memory, {huge}.",
        time(summary.nanoseconds),
        bytes(64 << 10),
        header.process,
        plural(summary.threads, "thread", "threads"),
        plural(header.cpus, "processor", "processors"),
        bytes(header.ram),
    )
}

fn plural(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

fn tiles(page: &mut String, summary: &Summary) {
    let warm = match summary.bytes {
        0 => "-".to_owned(),
        all => format!("{:.1} %", 100.0 * (1.0 - summary.fresh as f64 / all as f64)),
    };
    let tiles = [
        ("peak live", bytes(summary.peak_live), format!("at {}", time(summary.peak_live_at))),
        ("peak held", bytes(summary.peak_resident), "in use and cached".into()),
        ("peak of the process", bytes(summary.peak_anonymous), "anonymous, resident".into()),
        ("page faults", count(summary.faults), "of the process, while this ran".into()),
        ("blocks taken", count(summary.blocks), format!("{} in all", bytes(summary.bytes))),
        ("served warm", warm, "of these bytes".into()),
        (
            "resized",
            count(summary.grown.iter().sum()),
            format!("{} in place, {} moved, {} copied", summary.grown[0], summary.grown[1], summary.grown[2]),
        ),
    ];
    page.push_str("<div class=\"tiles\">\n");
    for (name, value, more) in tiles {
        let _ = writeln!(
            page,
            "<div><span>{name}</span><strong>{}</strong><small>{}</small></div>",
            escaped(&value),
            escaped(&more)
        );
    }
    page.push_str("</div>\n");
}

fn legend(page: &mut String) {
    page.push_str("<p class=\"legend\">");
    for (class, name) in [("live", "live"), ("held", "held"), ("cached", "cached"), ("process", "process")] {
        let _ = write!(page, "<span><i class=\"{class}\"></i>{name}</span>");
    }
    page.push_str("</p>\n");
}

fn table(page: &mut String, header: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    page.push_str("<div class=\"scroll\"><table>\n<thead><tr>");
    for name in header {
        let _ = write!(page, "<th>{name}</th>");
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        page.push_str("<tr>");
        for cell in row {
            let _ = write!(page, "<td>{}</td>", escaped(&cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table></div>\n");
}

fn stages(page: &mut String, summary: &Summary) {
    if summary.stages.is_empty() {
        return;
    }
    page.push_str("<h2>Phases</h2>\n");
    let rows = summary.stages.iter().map(|stage| {
        let name = if stage.name.is_empty() { "(unnamed)".to_owned() } else { stage.name.clone() };
        vec![
            name,
            count(stage.times),
            time(stage.total),
            time(stage.longest),
            bytes(stage.peak_live),
            bytes(stage.taken),
        ]
    });
    table(page, &["phase", "times", "in all", "longest", "peak live", "asked for"], rows);
}

fn classes(page: &mut String, summary: &Summary) {
    page.push_str("<h2>Sizes</h2>\n");
    let rows = summary.classes.iter().map(|class| {
        vec![
            format!("{} to {}", bytes(class.from), bytes(class.from.saturating_mul(2))),
            count(class.blocks),
            count(class.zeroed),
            count(class.resized),
            bytes(class.bytes),
            bytes(class.fresh),
            bytes(class.peak_live),
            class.median_life.map_or_else(|| "-".into(), time),
        ]
    });
    let header =
        ["size", "blocks", "zeroed", "resized", "bytes", "of these not resident", "peak live", "median life"];
    table(page, &header, rows);
}
