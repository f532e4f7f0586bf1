//! Sizes and positions of the panels of a chart, and of the text around them.

use crate::chart::{Axis, Chart, Layer, Panel, Size};
use crate::scale::{AxisMap, Side, Tick, ticks, value_range};
use crate::svg::legend_height;

/// Default width of a picture, in points.
const WIDTH: f64 = 860.0;
/// Minimum height of a panel as a share of its usual height: a picture may become higher than asked for.
const MIN_STRETCH: f64 = 0.25;
/// Free space at the edges.
pub const EDGE: f64 = 14.0;
/// Free space between panels.
const GAP: f64 = 20.0;
/// Font size of numbers and names.
pub const FONT_SIZE: f64 = 12.0;
/// Height of a line of text.
pub const LINE: f64 = 15.0;
/// Height of the heading of a picture.
const TITLE: f64 = 26.0;
/// Width of the colour key beside a panel.
const SHADES: f64 = 78.0;
/// Angle of names below an axis that do not fit otherwise, in degrees.
pub const LEAN: f64 = 32.0;
/// Maximum width of a leaning name, and of a name at the left.
const MAX_NAME: f64 = 190.0;

/// Names or numbers of an axis.
#[derive(Clone, Debug)]
pub enum Labels {
    /// Numbers at their ticks.
    Numbers(Vec<Tick>),
    /// Names at 0, 1, 2…, each broken into lines.
    Lines(Vec<Vec<String>>),
    /// Leaning names at 0, 1, 2….
    Leaning(Vec<String>),
}

/// A panel with its positions on the picture.
pub struct PlacedPanel<'a> {
    /// The panel.
    pub panel: &'a Panel,
    /// The x axis.
    pub x: AxisMap,
    /// The y axis.
    pub y: AxisMap,
    /// Labels below the x axis.
    pub below: Labels,
    /// Labels left of the y axis.
    pub beside: Labels,
    /// Baseline of the label of the x axis.
    pub label_at: f64,
    /// Left edge of the panel with its labels.
    pub left: f64,
    /// Right edge of the panel with its colour key.
    pub right: f64,
}

/// All panels of a chart with their positions.
pub struct ChartLayout<'a> {
    /// Width of the picture.
    pub width: f64,
    /// Height of the picture.
    pub height: f64,
    /// Height of all rows of panels together, without text.
    inner: f64,
    /// Top of the legend.
    pub legend_at: f64,
    /// Panels.
    pub panels: Vec<PlacedPanel<'a>>,
}

impl<'a> ChartLayout<'a> {
    /// Lay out a chart in the given size, or in the default width and the usual height of its panels.
    pub fn new(chart: &'a Chart, size: Option<Size>) -> Self {
        let width = size.map_or(WIDTH, Size::width);
        let usual = Self::stretched(chart, width, 1.0);
        let Some(size) = size else { return usual };
        let (inner, mut layout) = (usual.inner, usual);
        // Text has a fixed height and the panels get the rest. In higher panels the numbers beside the axis get wider, so that names
        // below it may need other lines: hence more than once.
        for _ in 0..3 {
            let words = layout.height - layout.inner;
            layout = Self::stretched(chart, width, ((size.height() - words) / inner).max(MIN_STRETCH));
        }
        layout.height = layout.height.max(size.height());
        layout
    }

    /// Lay out with panels `stretch` times as high as usual.
    fn stretched(chart: &'a Chart, width: f64, stretch: f64) -> Self {
        let columns = chart.columns.clamp(1, chart.panels.len().max(1));
        let outer = (width - 2.0 * EDGE - GAP * (columns - 1) as f64) / columns as f64;
        let title = if chart.title.is_empty() { 0.0 } else { TITLE };
        let legend_at = EDGE + title;
        let mut top = legend_at + legend_height(chart, width);
        let (mut placed, mut inner) = (Vec::new(), 0.0);
        for row in chart.panels.chunks(columns) {
            let heading = if row.iter().any(|panel| !panel.title.is_empty() || has_cells(panel)) { 22.0 } else { 6.0 };
            let height = stretch * row.iter().map(|panel| inner_height(chart, panel, outer)).fold(0.0, f64::max);
            inner += height;
            let (from, to) = (top + heading, top + heading + height);
            for (column, panel) in row.iter().enumerate() {
                let left = EDGE + (outer + GAP) * column as f64;
                placed.push(place(panel, [left, left + outer], [from, to]));
            }
            let start = placed.len() - row.len();
            top = placed[start..].iter().map(|p| p.label_at + 10.0).fold(to, f64::max) + GAP / 2.0;
        }
        // A rounding error must not add a point of height.
        let height = (top - GAP / 2.0 + EDGE / 2.0 - 1e-6).ceil();
        Self { width, height, inner, legend_at, panels: placed }
    }
}

fn has_cells(panel: &Panel) -> bool {
    panel.layers.iter().any(|layer| matches!(layer, Layer::Cells { .. }))
}

fn inner_height(chart: &Chart, panel: &Panel, outer: f64) -> f64 {
    let rows = panel.y.names.len() as f64;
    let usual = match (chart.columns, chart.panels.len()) {
        (0 | 1, 0 | 1) => 330.0,
        (0 | 1, _) => 210.0,
        _ => (outer * 0.58).clamp(140.0, 280.0),
    };
    if rows > 0.0 { (rows * 26.0).clamp(60.0, 700.0) } else { usual }
}

fn place<'a>(panel: &'a Panel, [left, right]: [f64; 2], [from, to]: [f64; 2]) -> PlacedPanel<'a> {
    let mut y = AxisMap { values: value_range(panel, Side::Y), points: [to, from], scale: panel.y.scale };
    let beside = beside(&panel.y, &y);
    let numbers = match &beside {
        Labels::Numbers(ticks) => ticks.iter().map(|tick| text_width(&tick.label, FONT_SIZE)).fold(0.0, f64::max),
        Labels::Lines(names) => names.iter().flatten().map(|name| text_width(name, FONT_SIZE)).fold(0.0, f64::max),
        Labels::Leaning(_) => 0.0,
    };
    let label = if panel.y.label.is_empty() { 0.0 } else { LINE + 5.0 };
    let shades = if has_cells(panel) { SHADES } else { 6.0 };
    let mut x = AxisMap {
        values: value_range(panel, Side::X),
        points: [(left + label + numbers + 8.0).ceil(), (right - shades).floor()],
        scale: panel.x.scale,
    };
    let below = below(&panel.x, &x);
    let depth = match &below {
        Labels::Numbers(_) => LINE,
        Labels::Lines(names) => LINE * names.iter().map(Vec::len).max().unwrap_or(1) as f64,
        Labels::Leaning(names) => {
            let (sin, cos) = LEAN.to_radians().sin_cos();
            let longest = names.iter().map(|name| text_width(name, FONT_SIZE)).fold(0.0, f64::max);
            // A leaning name ends at its tick, so the first one needs space to the left of the axis.
            let first = names.first().map_or(0.0, |name| text_width(name, FONT_SIZE));
            let missing = (first * cos - (x.position(0.0).unwrap_or(x.points[0]) - left)).max(0.0);
            x.points[0] = (x.points[0] + missing).min(x.points[1] - 60.0);
            longest * sin + LINE
        }
    };
    let label_at = to + 5.0 + depth + if panel.x.label.is_empty() { -4.0 } else { LINE };
    y.points = [to, from];
    PlacedPanel { panel, x, y, below, beside, label_at, left, right }
}

/// Numbers or names at the left.
fn beside(axis: &Axis, span: &AxisMap) -> Labels {
    if axis.names.is_empty() {
        let wanted = (span.length() / 42.0).clamp(2.0, 10.0);
        return Labels::Numbers(ticks(span.scale, span.values, wanted as usize));
    }
    Labels::Lines(axis.names.iter().map(|name| vec![shorten(name, FONT_SIZE, MAX_NAME)]).collect())
}

/// Labels below an axis: as many numbers as fit; names in lines, or leaning if their lines are too wide.
fn below(axis: &Axis, span: &AxisMap) -> Labels {
    if axis.names.is_empty() {
        let max = (span.length() / 60.0).clamp(2.0, 12.0) as usize;
        let fitting = |count: &usize| free_of_overlaps(&ticks(span.scale, span.values, *count), span);
        let wanted = (1..=max).rev().find(fitting).unwrap_or(1);
        return Labels::Numbers(ticks(span.scale, span.values, wanted));
    }
    let slot = span.length() / axis.names.len() as f64;
    let lines: Option<Vec<Vec<String>>> = axis.names.iter().map(|name| wrap(name, FONT_SIZE, slot - 6.0)).collect();
    match lines.filter(|names| names.iter().all(|lines| lines.len() <= 3)) {
        Some(lines) => Labels::Lines(lines),
        None => Labels::Leaning(axis.names.iter().map(|name| shorten(name, FONT_SIZE, MAX_NAME)).collect()),
    }
}

fn free_of_overlaps(ticks: &[Tick], span: &AxisMap) -> bool {
    let mut end = f64::NEG_INFINITY;
    ticks.iter().filter(|tick| !tick.label.is_empty()).all(|tick| {
        let (Some(at), half) = (span.position(tick.value), text_width(&tick.label, FONT_SIZE) / 2.0) else {
            return true;
        };
        let free = at - half > end + 8.0;
        end = at + half;
        free
    })
}

/// Estimated width of a text in points, by the widths of DejaVu Sans, the widest of the fonts in use.
pub fn text_width(words: &str, size: f64) -> f64 {
    words.chars().map(advance).sum::<f64>() * size
}

/// Width of a character, in units of the font size.
fn advance(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | '\'' | '|' => 0.28,
        ' ' | ',' | '.' | ':' | ';' | 'I' => 0.32,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '/' | '-' => 0.39,
        '¹' | '²' | '³' | '⁰'..='⁻' => 0.40,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '=' | '+' | '−' | '×' | '→' | '≥' | '≤' => 0.90,
        'A'..='Z' => 0.71,
        _ if c as u32 >= 0x2e80 => 1.0,
        _ => 0.62,
    }
}

/// Break a text into lines of at max `max` points, at spaces, `_`, `/` and `,`, and if necessary at `=`. `None` if a piece is
/// wider than that.
pub fn wrap(words: &str, size: f64, max: f64) -> Option<Vec<String>> {
    break_at(words, &[' ', '_', '/', ','], size, max).or_else(|| break_at(words, &[' ', '_', '/', ',', '='], size, max))
}

fn break_at(words: &str, at: &[char], size: f64, max: f64) -> Option<Vec<String>> {
    let mut lines: Vec<String> = Vec::new();
    for piece in words.split_inclusive(at) {
        if text_width(piece.trim(), size) > max {
            return None;
        }
        match lines.last_mut() {
            Some(line) if text_width(format!("{line}{piece}").trim(), size) <= max => line.push_str(piece),
            _ => lines.push(piece.to_owned()),
        }
    }
    lines.iter_mut().for_each(|line| *line = line.trim().to_owned());
    Some(lines)
}

/// Cut a text off, with `…`, so that it is at most `max` points wide.
pub fn shorten(words: &str, size: f64, max: f64) -> String {
    if text_width(words, size) <= max {
        return words.to_owned();
    }
    let mut short = String::new();
    for c in words.chars() {
        if text_width(&short, size) + advance(c) * size > max - size {
            break;
        }
        short.push(c);
    }
    format!("{}…", short.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_broken_or_shortened() {
        let name = "lazy launch.ranks=2";
        assert_eq!(wrap(name, 12.0, 400.0).unwrap(), [name]);
        assert_eq!(wrap(name, 12.0, 120.0).unwrap(), ["lazy", "launch.ranks=2"]);
        assert_eq!(wrap(name, 12.0, 95.0).unwrap(), ["lazy", "launch.ranks=", "2"]);
        assert_eq!(wrap(name, 12.0, 40.0), None);
        assert_eq!(shorten(name, 12.0, 400.0), name);
        assert_eq!(shorten(name, 12.0, 60.0), "lazy lau…");
    }
}
