//! Each allocator beside ours: a line per pattern, a point per rival.
//!
//! Why the axis is short: what is of interest lies around 1, and one allocator that takes thousands of times as long would put all
//! others upon each other.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Drawing, FAINT, INK, OUR_COLOUR, Row, colour, is_shown, legend};
use crate::peers::OURS;

/// How far the axis of multiples goes; what lies beyond is an arrow behind its end. A decade of thousands put whoever was 5 % faster
/// under our own dot.
const AXIS: (f64, f64) = (0.3, 10.0);
/// What is written below it.
const TICKS: [f64; 10] = [0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0];
/// How far the ground goes at either end, for arrows.
const ROOM: f64 = 1.45;
/// The radius of a dot, and half of the height of an arrow, in pixels.
const RADIUS: i32 = 3;
/// What lies less than this apart goes above or below.
const APART: i32 = 2 * RADIUS;
/// Above or below the line of its row.
const LANES: [i32; 3] = [0, -5, 5];
const ROW_HEIGHT: i32 = 18;

/// Draws a line per pattern with a point per rival over a logarithmic axis, and ours as the line at 1.
pub(super) fn beside(rows: &[Row], about: &str, value: fn(&(String, f64, f64)) -> f64) -> Drawing<String> {
    let mut svg = String::new();
    {
        let (top, bottom) = (48, 48 + i32::try_from(rows.len())? * ROW_HEIGHT);
        let root = SVGBackend::with_string(&mut svg, (900, u32::try_from(bottom)? + 100)).into_drawing_area();
        let axis = Axis::of(rows.iter().flat_map(|(_, points)| points.iter().map(value)));
        root.draw_text(about, &("sans-serif", 16).into_font().color(&INK), (160, 12))?;
        let text = ("sans-serif", 11).into_font().color(&INK);
        let middle = text.pos(Pos::new(HPos::Center, VPos::Top));
        for tick in TICKS.into_iter().filter(|tick| (axis.low..=axis.high).contains(tick)) {
            let x = axis.x(tick);
            root.draw(&PathElement::new([(x, top), (x, bottom)], FAINT))?;
            root.draw_text(&tick.to_string(), &middle, (x, bottom + 6))?;
        }
        let ys = || (top + ROW_HEIGHT / 2..bottom).step_by(ROW_HEIGHT as usize);
        for y in ys() {
            root.draw(&PathElement::new([(axis.left, y), (axis.right, y)], FAINT))?;
        }
        let ours = axis.x(1.0);
        root.draw(&PathElement::new([(ours, top), (ours, bottom)], OUR_COLOUR.stroke_width(2)))?;
        for ((name, points), y) in rows.iter().zip(ys()) {
            root.draw_text(name, &text, (12, y - 6))?;
            let shown = points.iter().filter(|point| point.0 != OURS && is_shown(&point.0));
            let marks: Vec<(f64, RGBColor)> = shown.map(|point| (value(point), colour(&point.0))).collect();
            for Mark { x, lane, side, colour } in axis.placed(marks) {
                let (y, style) = (y + lane, colour.filled());
                if side == 0 {
                    root.draw(&Circle::new((x, y), RADIUS, style))?;
                } else {
                    let (back, tip) = (x - side * RADIUS, x + side * RADIUS);
                    root.draw(&Polygon::new([(back, y - RADIUS), (tip, y), (back, y + RADIUS)], style))?;
                }
            }
        }
        legend(&root, rows.iter().flat_map(|(_, points)| points.iter().map(|point| point.0.as_str())))?;
        root.present()?;
    }
    Ok(svg)
}

/// Where a value is drawn.
struct Mark {
    x: i32,
    /// Above or below the line.
    lane: i32,
    /// -1 and 1 for an arrow beyond either end.
    side: i32,
    colour: RGBColor,
}

/// The axis of multiples, in pixels.
struct Axis {
    /// Where it begins and ends, and what values lie there.
    left: i32,
    right: i32,
    low: f64,
    high: f64,
}

impl Axis {
    /// From the tick below all values to the one above, and with room for arrows where some lie beyond.
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let (least, most) =
            values.fold((0.9, 1.1), |(least, most), value| (value.min(least), value.max(most)));
        let low = TICKS.into_iter().rfind(|tick| *tick <= least);
        let high = TICKS.into_iter().find(|tick| *tick >= most);
        Self { left: 160, right: 885, low: low.unwrap_or(AXIS.0 / ROOM), high: high.unwrap_or(AXIS.1 * ROOM) }
    }

    #[expect(clippy::cast_possible_truncation, reason = "pixels")]
    fn x(&self, value: f64) -> i32 {
        let share = (value / self.low).ln() / (self.high / self.low).ln();
        self.left + (share * f64::from(self.right - self.left)).round() as i32
    }

    /// Places the points of a row so that none lies upon another while there is room; arrows stand one behind the other, the
    /// farthest last.
    fn placed(&self, mut marks: Vec<(f64, RGBColor)>) -> Vec<Mark> {
        marks.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let below = marks.iter().filter(|(value, _)| *value < AXIS.0).count();
        let mut last = [i32::MIN / 2; LANES.len()];
        let mut beyond = 0;
        let place = |(nth, (value, colour)): (usize, (f64, RGBColor))| {
            let arrow = |from: f64, side: i32, nth: i32| Mark {
                x: self.x(from) + side * (APART + nth * (APART + 2)),
                lane: 0,
                side,
                colour,
            };
            if value < AXIS.0 {
                return arrow(AXIS.0, -1, i32::try_from(below - 1 - nth).unwrap_or(0));
            }
            if value > AXIS.1 {
                beyond += 1;
                return arrow(AXIS.1, 1, beyond - 1);
            }
            let x = self.x(value);
            let free = last.iter().position(|before| x - before >= APART);
            let lane = free.or_else(|| (0..LANES.len()).min_by_key(|&lane| last[lane])).unwrap_or(0);
            last[lane] = x;
            Mark { x, lane: LANES[lane], side: 0, colour }
        };
        marks.into_iter().enumerate().map(place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers behind these words in each line that begins with `tag`.
    fn numbers<const N: usize>(svg: &str, tag: &str, names: [&str; N]) -> Vec<[i32; N]> {
        let of = |line: &str, name: &str| {
            let (_, after) = line.split_once(&format!(" {name}=\"")).expect("has it");
            after.split('"').next().and_then(|number| number.parse().ok()).expect("is a number")
        };
        svg.lines()
            .filter(|line| line.starts_with(tag))
            .map(|line| names.map(|name| of(line, name)))
            .collect()
    }

    /// A rival that was 5 % faster lay under our own dot, as most did.
    #[test]
    fn nobody_who_is_a_little_faster_is_hidden() {
        let points =
            [("glibc", 0.95), (OURS, 1.0), ("mimalloc", 0.95), ("jemalloc", 0.96), ("zk-alloc", 5000.0)];
        let points = points.map(|(name, time)| (name.to_owned(), time, 1.0)).to_vec();
        let svg = beside(&[("a", points)], "times", |point| point.1).expect("can be drawn");
        let dots = numbers(&svg, "<circle", ["cx", "cy", "r"]);
        let dots: Vec<_> = dots.into_iter().filter(|[_, y, _]| *y < 48 + ROW_HEIGHT).collect();
        assert_eq!(dots.len(), 3, "one of each within the axis, and none of ours: {svg}");
        let apart = |a: &[i32; 3], b: &[i32; 3]| (a[0] - b[0]).abs().max((a[1] - b[1]).abs());
        assert!(
            dots.iter().enumerate().all(|(i, a)| dots[..i].iter().all(|b| apart(a, b) > RADIUS)),
            "{dots:?}"
        );
        let ours = Axis::of([0.95, 5000.0].into_iter()).x(1.0);
        assert!(dots.iter().all(|[x, ..]| x + RADIUS < ours), "{dots:?}, ours at {ours}");
        assert_eq!(svg.matches("<polygon").count(), 1, "an arrow for who is far out");
    }

    #[test]
    fn arrows_stand_behind_the_ends_of_the_axis_in_order() {
        let values = [0.01, 20.0, 0.1, 5000.0, 9.0];
        let axis = Axis::of(values.into_iter());
        let marks = axis.placed(values.map(|value| (value, INK)).to_vec());
        let xs: Vec<i32> = marks.iter().map(|mark| mark.x).collect();
        assert!(xs.is_sorted() && xs[0] >= axis.left && xs[4] <= axis.right, "{xs:?}");
        assert!(xs[1] < axis.x(AXIS.0) && xs[2] < axis.x(AXIS.1) && axis.x(AXIS.1) < xs[3], "{xs:?}");
        assert_eq!(marks.iter().map(|mark| mark.side).collect::<Vec<_>>(), [-1, -1, 0, 1, 1]);
    }
}
