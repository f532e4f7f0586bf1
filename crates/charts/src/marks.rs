use std::collections::HashSet;
use std::fmt::Write as _;

use super::chart::{Bar, BoxMark, Cell, Layer, Point};
use super::layout::Placed;
use super::pen::{Pen, at};
use super::theme::{COLOURS, shade};
use super::ticks::plain;

/// Dots of a panel from which they are small and nothing is drawn twice at one place.
const MANY: usize = 600;
/// Cells that still get words of their own.
const NAMED_CELLS: usize = 400;

/// Dashes of a line by its place in the palette; none for the first five.
pub(super) fn dash(colour: usize) -> &'static str {
    ["none", "7 3", "2 3", "9 3 2 3"][(colour / 5) % 4]
}

/// Class of dots, and how a dot ends: round for the first five colours, square for the next.
pub(super) fn mark_classes(colour: usize) -> (String, &'static str) {
    (format!("dots s{}", colour % COLOURS), if (colour / 5).is_multiple_of(2) { "round" } else { "square" })
}

/// Draw a layer; `values` are the lowest and highest value of all cells of the picture.
pub(super) fn draw(pen: &mut Pen, placed: &Placed<'_>, layer: &Layer, values: [f64; 2]) {
    match layer {
        Layer::Line { name, colour, points } => {
            let path = joined(placed, points);
            if path.is_empty() {
                return;
            }
            let class = format!("line s{}", colour % COLOURS);
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
            // On top, lest the next bar hides them.
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
                cell(pen, placed, name, one, values, cells.len() <= NAMED_CELLS);
            }
        }
        Layer::Rule { name, y } => {
            if let Some(y) = placed.y.place(*y) {
                let [left, right] = placed.x.places.map(at);
                pen.open("g", &[("data-name", name)]);
                pen.words("title", &[], name);
                pen.mark("path", &[("class", &"rule"), ("d", &format!("M{left} {}H{right}", at(y)))]);
                pen.close("g");
            }
        }
    }
}

/// A path through the points. Where the axes have no place for one, the line is interrupted; of the many points within half
/// a point of width, the first, lowest, highest and last are drawn.
fn joined(placed: &Placed<'_>, points: &[Point]) -> String {
    let mut path = String::new();
    let mut column: Vec<[f64; 2]> = Vec::new();
    let mut start = true;
    for [x, y] in points {
        let Some((x, y)) = placed.x.place(*x).zip(placed.y.place(*y)) else {
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

/// All dots of a layer as one path of strokes without length, which is a fraction of as many circles.
fn dots(pen: &mut Pen, placed: &Placed<'_>, name: &str, colour: usize, points: &[Point]) {
    let (class, cap) = mark_classes(colour);
    let dotted =
        placed.panel.layers.iter().map(|layer| if let Layer::Dots { points, .. } = layer { points.len() } else { 0 });
    let many = dotted.sum::<usize>() > MANY;
    let mut seen = HashSet::new();
    let mut path = String::new();
    for [x, y] in points {
        let Some((x, y)) = placed.x.place(*x).zip(placed.y.place(*y)) else { continue };
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
        // A rim in the colour of the ground, so that a dot is seen on a bar of its own colour.
        pen.mark("path", &[("class", &"dots rim"), ("stroke-linecap", &cap), ("d", &path)]);
    }
    let class = if many { format!("{class} many") } else { class };
    pen.mark("path", &[("class", &class), ("stroke-linecap", &cap), ("d", &path)]);
    pen.close("g");
}

/// From upper left to lower right, in points; none for what the axes have no place for.
fn corners(placed: &Placed<'_>, x: [f64; 2], y: [f64; 2]) -> Option<[f64; 4]> {
    let (a, b) = (placed.x.within(x[0])?, placed.x.within(x[1])?);
    let (c, d) = (placed.y.within(y[0])?, placed.y.within(y[1])?);
    Some([a.min(b), c.min(d), (a - b).abs(), (c - d).abs()])
}

fn bar(pen: &mut Pen, placed: &Placed<'_>, name: &str, colour: usize, bar: &Bar) {
    let half = bar.width / 2.0;
    let Some([x, y, w, h]) = corners(placed, [bar.x - half, bar.x + half], [bar.from, bar.to]) else { return };
    let (x, y, w, h) = (at(x), at(y), at(w), at(h));
    // As it is written: what is thinner than the last digit has no area in the picture, and such a rectangle is no valid one.
    if w == "0" || h == "0" {
        return;
    }
    let words = words(placed, name, bar);
    let class = format!("bar edge f{}", colour % COLOURS);
    pen.open("rect", &[("class", &class), ("x", &x), ("y", &y), ("width", &w), ("height", &h)]);
    pen.words("title", &[], words.trim_start_matches(": "));
    pen.close("rect");
}

fn whisker(pen: &mut Pen, placed: &Placed<'_>, name: &str, bar: &Bar) {
    let Some(ends) = bar.interval else { return };
    let [low, high] = ends;
    let (Some(x), Some(low), Some(high)) = (placed.x.place(bar.x), placed.y.within(low), placed.y.within(high)) else {
        return;
    };
    let (left, right) = (at(x - 5.0), at(x + 5.0));
    let mut path = format!("M{} {}V{}", at(x), at(low), at(high));
    // An end outside of the picture has no bar across: it goes on.
    for (value, y) in [(ends[0], low), (ends[1], high)] {
        if placed.y.values[0] <= value && value <= placed.y.values[1] {
            let _ = write!(path, "M{left} {y}H{right}", y = at(y));
        }
    }
    pen.open("path", &[("class", &"whisker"), ("d", &path)]);
    pen.words("title", &[], words(placed, name, bar).trim_start_matches(": "));
    pen.close("path");
}

/// What a bar says: its name and length, or its end where it has no length, and its interval.
fn words(placed: &Placed<'_>, name: &str, bar: &Bar) -> String {
    let place = place(placed, bar.x);
    let interval = bar.interval.map(|[low, high]| format!(" [{}–{}]", plain(low), plain(high))).unwrap_or_default();
    let value = if bar.from == bar.to { bar.to } else { bar.to - bar.from };
    format!("{place}{name}: {}{interval}", plain(value))
}

/// The name of the axis below a value, with a comma behind it; empty where the axis has numbers.
fn place(placed: &Placed<'_>, x: f64) -> String {
    let name = usize::try_from(x.round() as i64).ok().and_then(|i| placed.panel.x.names.get(i));
    name.map(|name| format!("{name}, ")).unwrap_or_default()
}

/// A box from quartile to quartile, a line at the median, and whiskers with a bar across at each end.
fn box_mark(pen: &mut Pen, placed: &Placed<'_>, [name, whiskers]: [&str; 2], colour: usize, mark: &BoxMark) {
    let half = mark.width / 2.0;
    let Some([x, y, w, h]) = corners(placed, [mark.x - half, mark.x + half], mark.quartiles) else { return };
    let [low, first, median, third, high] =
        [mark.whiskers[0], mark.quartiles[0], mark.median, mark.quartiles[1], mark.whiskers[1]]
            .map(|value| placed.y.within(value).map(at));
    let (Some(low), Some(first), Some(median), Some(third), Some(high)) = (low, first, median, third, high) else {
        return;
    };
    pen.open("g", &[]);
    let ends = |[from, to]: [f64; 2]| format!("{} to {}", plain(from), plain(to));
    let words = format!(
        "{}{name}: median {}, 25 % to 75 %: {}, {whiskers}: {}",
        place(placed, mark.x),
        plain(mark.median),
        ends(mark.quartiles),
        ends(mark.whiskers)
    );
    pen.words("title", &[], &words);
    let (left, right, middle) = (at(x), at(x + w), at(x + w / 2.0));
    let (width, height) = (at(w), at(h));
    // A box without height is the line at its median.
    if width != "0" && height != "0" {
        let class = format!("bar edge f{}", colour % COLOURS);
        pen.mark("rect", &[("class", &class), ("x", &left), ("y", &at(y)), ("width", &width), ("height", &height)]);
    }
    let (from, to) = (at(x + w / 4.0), at(x + w * 3.0 / 4.0));
    let path = format!(
        "M{left} {median}H{right}M{middle} {third}V{high}M{middle} {first}V{low}M{from} {high}H{to}M{from} {low}H{to}"
    );
    pen.mark("path", &[("class", &"whisker"), ("d", &path)]);
    pen.close("g");
}

fn cell(pen: &mut Pen, placed: &Placed<'_>, name: &str, cell: &Cell, [low, high]: [f64; 2], named: bool) {
    let Some([x, y, w, h]) = corners(placed, cell.x, cell.y) else { return };
    if !cell.value.is_finite() || w <= 0.0 || h <= 0.0 {
        return;
    }
    let fill = shade(if high > low { (cell.value - low) / (high - low) } else { 0.5 });
    // A hair wider than its place, or the ground shines through between neighbours.
    let (x, y, w, h) = (at(x), at(y), at(w + 0.3), at(h));
    if !named {
        pen.mark("rect", &[("fill", &fill), ("x", &x), ("y", &y), ("width", &w), ("height", &h)]);
        return;
    }
    pen.open("rect", &[("fill", &fill), ("x", &x), ("y", &y), ("width", &w), ("height", &h)]);
    pen.words("title", &[], &format!("{name}: {}", plain(cell.value)));
    pen.close("rect");
}
