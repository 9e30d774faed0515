//! Plots of a record, as SVG that is legible on light and on dark ground.
//!
//! What they show: each allocator's time and peak memory beside ours, a line per pattern; and curves of cost over load.
//! Why the style sheet: a picture in a document does not know its ground, so lines and letters are drawn in one dark
//! colour, which a rule in the picture turns light where the reader prefers dark.

mod beside;

use std::fs;
use std::path::Path;

use plotters::prelude::*;
use prove_harness::Error;

use self::beside::beside;
use crate::patterns::CURVES;
use crate::peers::{self, OURS};
use crate::report::{Measured, beside_ours};
use crate::summary;

/// A plot that was drawn.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Its file.
    pub file: String,
    /// What it shows, in words.
    pub about: String,
}

/// Lines and letters.
const INK: RGBColor = RGBColor(0x30, 0x30, 0x38);
/// Lines in the background.
const FAINT: RGBColor = RGBColor(0xc8, 0xc8, 0xd0);
/// Turns both around on a dark ground.
const STYLE: &str = "<style>@media (prefers-color-scheme: dark) {\
    text[fill=\"#303038\"], circle[fill=\"#303038\"] { fill: #d8d8e0 } [stroke=\"#303038\"] { stroke: #d8d8e0 }\
    [stroke=\"#C8C8D0\"] { stroke: #48484f } }</style>";
/// Colours that keep apart from each other, and from white and black.
const COLOURS: [RGBColor; 11] = [
    RGBColor(0x8a, 0x8a, 0x8a),
    RGBColor(0xb0, 0x8c, 0x6a),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0xc4, 0x6a, 0x1e),
    RGBColor(0xd5, 0x3e, 0x3e),
    RGBColor(0x3f, 0x9b, 0xd9),
    RGBColor(0x2f, 0x6f, 0xc0),
    RGBColor(0x56, 0xc4, 0xc4),
    RGBColor(0x1f, 0x95, 0x8f),
    RGBColor(0xa8, 0x6f, 0xd0),
    RGBColor(0xd0, 0x6f, 0xa8),
];
const OUR_COLOUR: RGBColor = RGBColor(0x2c, 0xa0, 0x2c);

fn colour(peer: &str) -> RGBColor {
    let rivals = peers::ALL.iter().filter(|peer| !peer.ours);
    rivals.zip(COLOURS).find(|(rival, _)| rival.name == peer).map_or(OUR_COLOUR, |(_, colour)| colour)
}

/// Draws everything that the record has, and returns what was drawn.
///
/// # Errors
/// When a file cannot be written.
pub fn draw(measured: &[Measured], folder: &Path) -> Result<Vec<Plot>, Error> {
    let mut plots = Vec::new();
    let is_curve = |name: &str| CURVES.iter().any(|(kind, _)| name.split('/').next() == Some(*kind));
    let rows: Vec<Row> = measured
        .iter()
        .filter(|(pattern, _)| !is_curve(&pattern.name))
        .map(|(pattern, runs)| (pattern.name.as_str(), beside_ours(runs, OURS)))
        .filter(|(_, points)| points.len() > 1)
        .collect();
    if !rows.is_empty() {
        let mut add = |file: &str, about: &str, value: fn(&(String, f64, f64)) -> f64| {
            plots.push(Plot { file: file.into(), about: about.into() });
            write(folder, file, beside(&rows, about, value))
        };
        add(
            "time.svg",
            "time of each allocator, as a multiple of ours, which is the line: left of it is faster; arrows lie farther out",
            |point| point.1,
        )?;
        add(
            "memory.svg",
            "peak memory of each allocator, as a multiple of ours, which is the line: left of it is less; arrows lie farther out",
            |point| point.2,
        )?;
    }
    for (kind, about) in CURVES {
        let curves = curves(measured, kind);
        if curves.iter().any(|(_, points)| points.len() > 1) {
            let file = format!("{kind}.svg");
            write(folder, &file, lines(&curves, about))?;
            plots.push(Plot { file, about: about.into() });
        }
    }
    Ok(plots)
}

fn write<E: std::fmt::Display>(folder: &Path, file: &str, svg: Result<String, E>) -> Result<(), Error> {
    let svg = svg.map_err(|cause| Error::doing(format!("drawing {file}"), cause))?;
    // The style belongs behind the opening tag, which plotters writes first.
    let styled = svg.replacen('>', &format!(">{STYLE}"), 1);
    fs::write(folder.join(file), styled).map_err(|cause| Error::doing(format!("writing {file}"), cause))
}

/// A pattern and its points: allocator, time, memory.
type Row<'a> = (&'a str, Vec<(String, f64, f64)>);
type Drawing<T> = Result<T, Box<dyn std::error::Error>>;

/// Of our own forms only the main one.
fn is_shown(peer: &str) -> bool {
    peer == OURS || peers::by_name(peer).is_some_and(|peer| !peer.ours)
}

fn legend<'a>(
    root: &DrawingArea<SVGBackend, plotters::coord::Shift>,
    names: impl Iterator<Item = &'a str>,
) -> Drawing<()> {
    let mut shown: Vec<&str> = Vec::new();
    for name in names.filter(|name| is_shown(name)) {
        if !shown.contains(&name) {
            shown.push(name);
        }
    }
    let text = ("sans-serif", 12).into_font().color(&INK);
    let (_, height) = root.dim_in_pixel();
    let bottom = i32::try_from(height).unwrap_or(0) - 60;
    for (name, place) in shown.iter().zip(0..) {
        let (x, y) = (30 + place % 6 * 140, bottom + place / 6 * 22);
        root.draw(&Circle::new((x, y + 6), 5, colour(name).filled()))?;
        root.draw_text(name, &text, (x + 10, y))?;
    }
    Ok(())
}

/// An allocator and its points: what stands behind the slash, and nanoseconds.
type Curve = (&'static str, Vec<(String, f64)>);

fn curves(measured: &[Measured], kind: &str) -> Vec<Curve> {
    let points = |peer: &peers::Peer| {
        let of = |(pattern, runs): &Measured| {
            let at = pattern.name.strip_prefix(kind)?.strip_prefix('/')?;
            let summary = summary::of_pattern(runs).into_iter().find(|summary| summary.peer == peer.name)?;
            Some((at.to_owned(), 1e9 * summary.median)).filter(|(_, time)| time.is_finite())
        };
        measured.iter().filter_map(of).collect()
    };
    peers::ALL.iter().filter(|peer| is_shown(peer.name)).map(|peer| (peer.name, points(peer))).collect()
}

fn lines(curves: &[Curve], about: &str) -> Drawing<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (900, 480)).into_drawing_area();
        let mut places: Vec<&str> = Vec::new();
        for (at, _) in curves.iter().flat_map(|(_, points)| points) {
            if !places.contains(&at.as_str()) {
                places.push(at);
            }
        }
        let x = |at: &str| places.iter().position(|place| *place == at).unwrap_or(0);
        let values = || curves.iter().flat_map(|(_, points)| points.iter().map(|point| point.1));
        let (low, high) = (values().fold(f64::INFINITY, f64::min) / 1.2, values().fold(0.0, f64::max) * 1.2);
        let mut chart = ChartBuilder::on(&root)
            .caption(about, ("sans-serif", 16).into_font().color(&INK))
            .margin(10)
            .margin_bottom(70)
            .x_label_area_size(30)
            .y_label_area_size(70)
            .build_cartesian_2d(0..places.len().max(2) - 1, (low..high).log_scale())?;
        chart
            .configure_mesh()
            .axis_style(INK)
            .bold_line_style(FAINT)
            .light_line_style(TRANSPARENT)
            .x_labels(places.len())
            .label_style(("sans-serif", 12).into_font().color(&INK))
            .x_label_formatter(&|place| {
                places.get(*place).map_or_else(String::new, |name| (*name).to_owned())
            })
            .y_label_formatter(&|ns| format!("{ns:.0} ns"))
            .draw()?;
        for (peer, points) in curves {
            let width = if *peer == OURS { 3 } else { 1 };
            let line = points.iter().map(|(at, value)| (x(at), *value));
            chart.draw_series(LineSeries::new(line, colour(peer).stroke_width(width)).point_size(3))?;
        }
        legend(&root, curves.iter().filter(|(_, points)| !points.is_empty()).map(|(peer, _)| *peer))?;
        root.present()?;
    }
    Ok(svg)
}
