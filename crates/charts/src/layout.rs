use super::chart::{Axis, Chart, Layer, Panel};
use super::legend;
use super::size::Size;
use super::span::{Side, Span, values};
use super::text::{shorten, width, wrap};
use super::ticks::{Tick, ticks};

/// Width of a picture of which no size was asked for, in points.
const WIDTH: f64 = 860.0;
/// The least part of its usual height that a panel gets: a picture that was to be lower is higher than asked for.
const LOWEST: f64 = 0.25;
/// Free space at the edges.
pub(super) const EDGE: f64 = 14.0;
/// Free space between panels.
const GAP: f64 = 20.0;
/// Type sizes of numbers and of headings of panels.
pub(super) const SIZE: f64 = 12.0;
/// Height of a line of words.
pub(super) const LINE: f64 = 15.0;
/// Room for the heading of a picture.
const TITLE: f64 = 26.0;
/// Room beside a panel for the bar that explains its colours.
const SHADES: f64 = 78.0;
/// Names below an axis that do not fit even in lines lean by this angle, in degrees.
pub(super) const LEAN: f64 = 32.0;
/// The longest that a leaning name or a name at the left gets.
const LONGEST: f64 = 190.0;

/// Names or numbers of an axis, as they are written.
#[derive(Clone, Debug)]
pub(super) enum Labels {
    /// Each in a line, at its tick.
    Numbers(Vec<Tick>),
    /// Names in lines, at 0, 1, 2….
    Lines(Vec<Vec<String>>),
    /// Names that lean.
    Leaning(Vec<String>),
}

/// A panel with its place.
pub(super) struct Placed<'a> {
    /// The panel.
    pub panel: &'a Panel,
    /// Values from left to right.
    pub x: Span,
    /// Values from bottom to top.
    pub y: Span,
    /// What stands below.
    pub below: Labels,
    /// What stands at the left.
    pub beside: Labels,
    /// Baseline of the axis' label below.
    pub label_at: f64,
    /// Left edge of everything that belongs to it.
    pub left: f64,
    /// Right edge of it.
    pub right: f64,
}

/// All panels of a chart with their places.
pub(super) struct Layout<'a> {
    /// Width of the picture.
    pub width: f64,
    /// Height of the picture.
    pub height: f64,
    /// What of that are panels: the heights of all rows together.
    inner: f64,
    /// Where the legend begins.
    pub legend_at: f64,
    /// Panels.
    pub panels: Vec<Placed<'a>>,
}

impl<'a> Layout<'a> {
    /// Of the size that was asked for, or as wide as all pictures and as high as its panels usually are.
    pub fn of(chart: &'a Chart, size: Option<Size>) -> Self {
        let width = size.map_or(WIDTH, Size::width);
        let usual = Self::stretched(chart, width, 1.0);
        let Some(size) = size else { return usual };
        let (inner, mut layout) = (usual.inner, usual);
        // Words above, between and below the panels take what they take; the panels get the rest. Names below an axis may need other
        // lines in higher panels, whose numbers beside the axis are wider: hence more than once.
        for _ in 0..3 {
            let words = layout.height - layout.inner;
            layout = Self::stretched(chart, width, ((size.height() - words) / inner).max(LOWEST));
        }
        layout.height = layout.height.max(size.height());
        layout
    }

    /// With panels `stretch` times as high as usual.
    fn stretched(chart: &'a Chart, width: f64, stretch: f64) -> Self {
        let columns = chart.columns.clamp(1, chart.panels.len().max(1));
        let outer = (width - 2.0 * EDGE - GAP * (columns - 1) as f64) / columns as f64;
        let title = if chart.title.is_empty() { 0.0 } else { TITLE };
        let legend_at = EDGE + title;
        let mut top = legend_at + legend::height(chart, width);
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
        // Rounding errors of stretched panels are no point of height.
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

fn place<'a>(panel: &'a Panel, [left, right]: [f64; 2], [from, to]: [f64; 2]) -> Placed<'a> {
    let mut y = Span { values: values(panel, Side::Y), places: [to, from], scale: panel.y.scale };
    let beside = beside(&panel.y, &y);
    let numbers = match &beside {
        Labels::Numbers(ticks) => ticks.iter().map(|tick| width(&tick.label, SIZE)).fold(0.0, f64::max),
        Labels::Lines(names) => names.iter().flatten().map(|name| width(name, SIZE)).fold(0.0, f64::max),
        Labels::Leaning(_) => 0.0,
    };
    let label = if panel.y.label.is_empty() { 0.0 } else { LINE + 5.0 };
    let shades = if has_cells(panel) { SHADES } else { 6.0 };
    let mut x = Span {
        values: values(panel, Side::X),
        places: [(left + label + numbers + 8.0).ceil(), (right - shades).floor()],
        scale: panel.x.scale,
    };
    let below = below(&panel.x, &x);
    let depth = match &below {
        Labels::Numbers(_) => LINE,
        Labels::Lines(names) => LINE * names.iter().map(Vec::len).max().unwrap_or(1) as f64,
        Labels::Leaning(names) => {
            let (sin, cos) = LEAN.to_radians().sin_cos();
            let longest = names.iter().map(|name| width(name, SIZE)).fold(0.0, f64::max);
            // A leaning name ends below its tick and begins to the left of it: the first one needs room there.
            let first = names.first().map_or(0.0, |name| width(name, SIZE));
            let short = (first * cos - (x.place(0.0).unwrap_or(x.places[0]) - left)).max(0.0);
            x.places[0] = (x.places[0] + short).min(x.places[1] - 60.0);
            longest * sin + LINE
        }
    };
    let label_at = to + 5.0 + depth + if panel.x.label.is_empty() { -4.0 } else { LINE };
    y.places = [to, from];
    Placed { panel, x, y, below, beside, label_at, left, right }
}

/// Numbers or names at the left.
fn beside(axis: &Axis, span: &Span) -> Labels {
    if axis.names.is_empty() {
        let wanted = (span.length() / 42.0).clamp(2.0, 10.0);
        return Labels::Numbers(ticks(span.scale, span.values, wanted as usize));
    }
    Labels::Lines(axis.names.iter().map(|name| vec![shorten(name, SIZE, LONGEST)]).collect())
}

/// As many numbers as fit below; names in lines, or leaning where a line would be wider than its place.
fn below(axis: &Axis, span: &Span) -> Labels {
    if axis.names.is_empty() {
        let most = (span.length() / 60.0).clamp(2.0, 12.0) as usize;
        let fitting = |wanted: &usize| free_of_overlaps(&ticks(span.scale, span.values, *wanted), span);
        let wanted = (1..=most).rev().find(fitting).unwrap_or(1);
        return Labels::Numbers(ticks(span.scale, span.values, wanted));
    }
    let slot = span.length() / axis.names.len() as f64;
    let lines: Option<Vec<Vec<String>>> = axis.names.iter().map(|name| wrap(name, SIZE, slot - 6.0)).collect();
    match lines.filter(|names| names.iter().all(|lines| lines.len() <= 3)) {
        Some(lines) => Labels::Lines(lines),
        None => Labels::Leaning(axis.names.iter().map(|name| shorten(name, SIZE, LONGEST)).collect()),
    }
}

fn free_of_overlaps(ticks: &[Tick], span: &Span) -> bool {
    let mut end = f64::NEG_INFINITY;
    ticks.iter().filter(|tick| !tick.label.is_empty()).all(|tick| {
        let (Some(at), half) = (span.place(tick.value), width(&tick.label, SIZE) / 2.0) else { return true };
        let free = at - half > end + 8.0;
        end = at + half;
        free
    })
}
