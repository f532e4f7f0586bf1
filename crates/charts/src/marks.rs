//! The marks of a layer: lines, dots, bars, boxes, cells.

use std::collections::HashSet;
use std::fmt::Write as _;

use crate::chart::{Bar, BoxMark, Layer, Point, ShadedCell};
use crate::layout::PlacedPanel;
use crate::scale::four_digits;
use crate::svg::{Pen, at};
use crate::theme::{class, shade};

/// Number of dots in a panel above which they are small, and dots at the same position are drawn once.
const MANY_DOTS: usize = 600;
/// Number of cells up to which each has a title.
const MAX_TITLED_CELLS: usize = 400;

/// Dashes of a line by its index into the palette; the first five are solid.
pub fn dash(colour: usize) -> &'static str {
    ["none", "7 3", "2 3", "9 3 2 3"][(colour / 5) % 4]
}

/// CSS class and line cap of dots: round for the first five colours, square for the next five.
pub fn mark_classes(colour: usize) -> (String, &'static str) {
    (format!("dots {}", class('s', colour)), if (colour / 5).is_multiple_of(2) { "round" } else { "square" })
}

/// Draw a layer; `values` are the lowest and highest value of all cells of the picture.
pub fn draw(pen: &mut Pen, placed: &PlacedPanel<'_>, layer: &Layer, values: [f64; 2]) {
    match layer {
        Layer::Line { name, colour, points } => {
            let path = line_path(placed, points);
            if path.is_empty() {
                return;
            }
            let class = format!("line {}", class('s', *colour));
            pen.open("g", &[("data-name", name)]);
            pen.words("title", &[], name);
            pen.mark("path", &[("class", &class), ("stroke-dasharray", &dash(*colour)), ("d", &path)]);
            pen.close("g");
        }
        Layer::Dots { name, colour, points } => dots(pen, placed, name, *colour, points),
        Layer::Bars { name, colour, bars } => {
            pen.open("g", &[("data-name", name)]);
            for one in bars {
                bar(pen, placed, name, *colour, one);
            }
            // Whiskers last, so that no bar hides them.
            for one in bars {
                whisker(pen, placed, name, one);
            }
            pen.close("g");
        }
        Layer::Boxes { name, colour, whiskers, boxes } => {
            pen.open("g", &[("data-name", name)]);
            for one in boxes {
                box_mark(pen, placed, [name, whiskers], *colour, one);
            }
            pen.close("g");
        }
        Layer::Cells { name, cells } => {
            for one in cells {
                cell(pen, placed, name, one, values, cells.len() <= MAX_TITLED_CELLS);
            }
        }
        Layer::Rule { name, y } => {
            if let Some(y) = placed.y.position(*y) {
                let [left, right] = placed.x.points.map(at);
                pen.open("g", &[("data-name", name)]);
                pen.words("title", &[], name);
                pen.mark("path", &[("class", &"rule"), ("d", &format!("M{left} {}H{right}", at(y)))]);
                pen.close("g");
            }
        }
    }
}

/// A path through the data. It is interrupted where the axes cannot show a value. Of all data within half a point of width, the
/// first, lowest, highest and last are drawn.
fn line_path(placed: &PlacedPanel<'_>, points: &[Point]) -> String {
    let mut path = String::new();
    let mut column: Vec<[f64; 2]> = Vec::new();
    let mut start = true;
    for [x, y] in points {
        let Some((x, y)) = placed.x.position(*x).zip(placed.y.position(*y)) else {
            flush(&mut path, &mut column, &mut start);
            start = true;
            continue;
        };
        if column.first().is_some_and(|first| (first[0] - x).abs() > 0.5) {
            flush(&mut path, &mut column, &mut start);
        }
        column.push([x, y]);
    }
    flush(&mut path, &mut column, &mut start);
    path
}

fn flush(path: &mut String, column: &mut Vec<[f64; 2]>, start: &mut bool) {
    let mut keep: Vec<usize> = (0..column.len()).collect();
    if column.len() > 4 {
        let by_height = |a: &usize, b: &usize| column[*a][1].total_cmp(&column[*b][1]);
        let ends = [keep.iter().copied().min_by(by_height), keep.iter().copied().max_by(by_height)];
        keep = [Some(0), Some(column.len() - 1)].into_iter().chain(ends).flatten().collect();
        keep.sort_unstable();
        keep.dedup();
    }
    let mut last = String::new();
    for i in keep {
        let place = format!("{} {}", at(column[i][0]), at(column[i][1]));
        if place != last {
            let _ = write!(path, "{}{place}", if std::mem::take(start) { 'M' } else { 'L' });
            last = place;
        }
    }
    column.clear();
}

/// All dots of a layer as one path of strokes without length, which is much smaller than as many circles.
fn dots(pen: &mut Pen, placed: &PlacedPanel<'_>, name: &str, colour: usize, points: &[Point]) {
    let (class, cap) = mark_classes(colour);
    let dotted =
        placed.panel.layers.iter().map(|layer| if let Layer::Dots { points, .. } = layer { points.len() } else { 0 });
    let many = dotted.sum::<usize>() > MANY_DOTS;
    let mut seen = HashSet::new();
    let mut path = String::new();
    for [x, y] in points {
        let Some((x, y)) = placed.x.position(*x).zip(placed.y.position(*y)) else { continue };
        if many && !seen.insert(((x * 2.0) as i64, (y * 2.0) as i64)) {
            continue;
        }
        let _ = write!(path, "M{} {}h0", at(x), at(y));
    }
    if path.is_empty() {
        return;
    }
    pen.open("g", &[("data-name", &name)]);
    pen.words("title", &[], name);
    if !many {
        // A rim in the background colour makes a dot visible on a bar of its own colour.
        pen.mark("path", &[("class", &"dots rim"), ("stroke-linecap", &cap), ("d", &path)]);
    }
    let class = if many { format!("{class} many") } else { class };
    pen.mark("path", &[("class", &class), ("stroke-linecap", &cap), ("d", &path)]);
    pen.close("g");
}

/// Left, top, width and height of a rectangle in points; `None` if the axes cannot show it.
fn rectangle(placed: &PlacedPanel<'_>, x: [f64; 2], y: [f64; 2]) -> Option<[f64; 4]> {
    let (a, b) = (placed.x.clamped(x[0])?, placed.x.clamped(x[1])?);
    let (c, d) = (placed.y.clamped(y[0])?, placed.y.clamped(y[1])?);
    Some([a.min(b), c.min(d), (a - b).abs(), (c - d).abs()])
}

fn bar(pen: &mut Pen, placed: &PlacedPanel<'_>, name: &str, colour: usize, bar: &Bar) {
    let half = bar.width / 2.0;
    let Some([x, y, w, h]) = rectangle(placed, [bar.x - half, bar.x + half], [bar.from, bar.to]) else { return };
    let (x, y, w, h) = (at(x), at(y), at(w), at(h));
    // A bar thinner than the last written digit has no area, and SVG does not allow such a rectangle.
    if w == "0" || h == "0" {
        return;
    }
    let words = bar_title(placed, name, bar);
    let class = format!("bar edge {}", class('f', colour));
    pen.open("rect", &[("class", &class), ("x", &x), ("y", &y), ("width", &w), ("height", &h)]);
    pen.words("title", &[], words.trim_start_matches(": "));
    pen.close("rect");
}

fn whisker(pen: &mut Pen, placed: &PlacedPanel<'_>, name: &str, bar: &Bar) {
    let Some(ends) = bar.interval else { return };
    let [low, high] = ends;
    let (Some(x), Some(low), Some(high)) = (placed.x.position(bar.x), placed.y.clamped(low), placed.y.clamped(high))
    else {
        return;
    };
    let (left, right) = (at(x - 5.0), at(x + 5.0));
    let mut path = format!("M{} {}V{}", at(x), at(low), at(high));
    // An end outside of the picture has no bar across, to show that the interval goes on.
    for (value, y) in [(ends[0], low), (ends[1], high)] {
        if placed.y.values[0] <= value && value <= placed.y.values[1] {
            let _ = write!(path, "M{left} {y}H{right}", y = at(y));
        }
    }
    pen.open("path", &[("class", &"whisker"), ("d", &path)]);
    pen.words("title", &[], bar_title(placed, name, bar).trim_start_matches(": "));
    pen.close("path");
}

/// Title of a bar: its name, its length (or its upper end, if it has none) and its interval.
fn bar_title(placed: &PlacedPanel<'_>, name: &str, bar: &Bar) -> String {
    let prefix = name_at(placed, bar.x);
    let interval =
        bar.interval.map(|[low, high]| format!(" [{}–{}]", four_digits(low), four_digits(high))).unwrap_or_default();
    let value = if bar.from == bar.to { bar.to } else { bar.to - bar.from };
    format!("{prefix}{name}: {}{interval}", four_digits(value))
}

/// Name of the x axis at a value, followed by a comma; empty for an axis of numbers.
fn name_at(placed: &PlacedPanel<'_>, x: f64) -> String {
    let name = usize::try_from(x.round() as i64).ok().and_then(|i| placed.panel.x.names.get(i));
    name.filter(|name| !name.is_empty()).map(|name| format!("{name}, ")).unwrap_or_default()
}

/// A box from quartile to quartile, a line at the median, and whiskers with a bar across at each end.
fn box_mark(pen: &mut Pen, placed: &PlacedPanel<'_>, [name, whiskers]: [&str; 2], colour: usize, mark: &BoxMark) {
    let half = mark.width / 2.0;
    let Some([x, y, w, h]) = rectangle(placed, [mark.x - half, mark.x + half], mark.quartiles) else { return };
    let [low, first, median, third, high] =
        [mark.whiskers[0], mark.quartiles[0], mark.median, mark.quartiles[1], mark.whiskers[1]]
            .map(|value| placed.y.clamped(value).map(at));
    let (Some(low), Some(first), Some(median), Some(third), Some(high)) = (low, first, median, third, high) else {
        return;
    };
    pen.open("g", &[]);
    let ends = |[from, to]: [f64; 2]| format!("{} to {}", four_digits(from), four_digits(to));
    let words = format!(
        "{}{name}: median {}, 25 % to 75 %: {}, {whiskers}: {}",
        name_at(placed, mark.x),
        four_digits(mark.median),
        ends(mark.quartiles),
        ends(mark.whiskers)
    );
    pen.words("title", &[], &words);
    let (left, right, middle) = (at(x), at(x + w), at(x + w / 2.0));
    let (width, height) = (at(w), at(h));
    // A box without height is only the line at its median.
    if width != "0" && height != "0" {
        let class = format!("bar edge {}", class('f', colour));
        pen.mark("rect", &[("class", &class), ("x", &left), ("y", &at(y)), ("width", &width), ("height", &height)]);
    }
    let (from, to) = (at(x + w / 4.0), at(x + w * 3.0 / 4.0));
    let path = format!(
        "M{left} {median}H{right}M{middle} {third}V{high}M{middle} {first}V{low}M{from} {high}H{to}M{from} {low}H{to}"
    );
    pen.mark("path", &[("class", &"whisker"), ("d", &path)]);
    pen.close("g");
}

fn cell(pen: &mut Pen, placed: &PlacedPanel<'_>, name: &str, cell: &ShadedCell, [low, high]: [f64; 2], named: bool) {
    let Some([x, y, w, h]) = rectangle(placed, cell.x, cell.y) else { return };
    if !cell.value.is_finite() || w <= 0.0 || h <= 0.0 {
        return;
    }
    let fill = shade(if high > low { (cell.value - low) / (high - low) } else { 0.5 });
    // Slightly wider, so that the background does not show between neighbours.
    let (x, y, w, h) = (at(x), at(y), at(w + 0.3), at(h));
    if !named {
        pen.mark("rect", &[("fill", &fill), ("x", &x), ("y", &y), ("width", &w), ("height", &h)]);
        return;
    }
    pen.open("rect", &[("fill", &fill), ("x", &x), ("y", &y), ("width", &w), ("height", &h)]);
    pen.words("title", &[], &format!("{name}: {}", four_digits(cell.value)));
    pen.close("rect");
}
