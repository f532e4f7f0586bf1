//! A chart as SVG (frame, axes, legend; [`crate::marks`] draws the marks), and that SVG as PNG.

use std::fmt::{Display, Write as _};
use std::sync::{Arc, LazyLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use crate::chart::{Chart, ChartError, Layer, Scale, Size};
use crate::layout::{ChartLayout, EDGE, FONT_SIZE, LEAN, LINE, Labels, PlacedPanel, shorten, text_width};
use crate::marks;
use crate::scale::{AxisMap, ticks};
use crate::theme::{Theme, class, shade, style};

/// A chart as an SVG file. It follows the light or dark scheme of the reader's system, keeps text as text, and has no script.
///
/// `size`: width and height; `None`: the default width and the height that the panels usually have.
///
/// # Errors
/// [`ChartError::NoPanel`].
pub fn svg(chart: &Chart, size: Option<Size>) -> Result<String, ChartError> {
    draw(chart, Theme::System, size)
}

/// A chart as SVG for a page with the style sheet [`crate::page_style`]. Panels carry their axes, so that a script can zoom.
///
/// # Errors
/// [`ChartError::NoPanel`].
pub fn svg_in_page(chart: &Chart) -> Result<String, ChartError> {
    draw(chart, Theme::Page, None)
}

pub fn draw(chart: &Chart, theme: Theme, size: Option<Size>) -> Result<String, ChartError> {
    if chart.panels.is_empty() {
        return Err(ChartError::NoPanel { chart: chart.name.clone() });
    }
    let layout = ChartLayout::new(chart, size);
    let (width, height) = (at(layout.width), at(layout.height));
    let mut pen = Pen::default();
    let view = format!("0 0 {width} {height}");
    let alt = if chart.alt.is_empty() { &chart.title } else { &chart.alt };
    let mut root: Vec<(&str, &dyn Display)> = vec![("xmlns", &"http://www.w3.org/2000/svg"), ("viewBox", &view)];
    if theme != Theme::Page {
        root.extend([("width", &width as _), ("height", &height as _)]);
    }
    root.extend([("class", &"chart" as _), ("role", &"img" as _), ("aria-label", alt as _)]);
    pen.open("svg", &root);
    pen.style(&style(theme));
    if !chart.caption.is_empty() && theme != Theme::Page {
        pen.words("desc", &[], &chart.caption);
    }
    pen.mark("rect", &[("class", &"ground"), ("width", &"100%"), ("height", &"100%")]);
    if !chart.title.is_empty() {
        pen.words("text", &[("class", &"ink title"), ("x", &at(EDGE)), ("y", &at(EDGE + 13.0))], &chart.title);
    }
    legend(&mut pen, chart, layout.width, layout.legend_at);
    let values = cell_values(chart);
    for (i, placed) in layout.panels.iter().enumerate() {
        panel(&mut pen, chart, i, placed, values);
    }
    pen.close("svg");
    Ok(pen.finish())
}

fn panel(pen: &mut Pen, chart: &Chart, i: usize, placed: &PlacedPanel<'_>, values: [f64; 2]) {
    let [left, right] = placed.x.points;
    let [bottom, top] = placed.y.points;
    let scale = |axis: &AxisMap| if axis.scale == Scale::Log { "log" } else { "linear" };
    let ends = |axis: &AxisMap| format!("{:e} {:e}", axis.values[0], axis.values[1]);
    let frame = format!("{} {} {} {}", at(left), at(top), at(right - left), at(bottom - top));
    pen.open(
        "g",
        &[
            ("class", &"panel"),
            ("data-frame", &frame),
            ("data-x", &ends(&placed.x)),
            ("data-y", &ends(&placed.y)),
            ("data-x-scale", &scale(&placed.x)),
            ("data-y-scale", &scale(&placed.y)),
        ],
    );
    axes(pen, placed);
    // Ids must be unique in a page with several charts.
    let clip = format!("clip-{}-{i}", chart.name);
    pen.open("clipPath", &[("id", &clip)]);
    let (x, y, w, h) = (at(left - 1.0), at(top - 4.0), at(right - left + 5.0), at(bottom - top + 5.0));
    pen.mark("rect", &[("x", &x), ("y", &y), ("width", &w), ("height", &h)]);
    pen.close("clipPath");
    pen.open("g", &[("clip-path", &format!("url(#{clip})"))]);
    pen.open("g", &[("class", &"marks")]);
    for layer in &placed.panel.layers {
        marks::draw(pen, placed, layer, values);
    }
    pen.close("g");
    pen.close("g");
    colour_key(pen, placed, values);
    pen.close("g");
}

/// Lowest and highest value of all cells, so that a colour means the same value in all panels.
fn cell_values(chart: &Chart) -> [f64; 2] {
    let cells = chart.panels.iter().flat_map(|panel| &panel.layers).filter_map(|layer| match layer {
        Layer::Cells { cells, .. } => Some(cells),
        _ => None,
    });
    let values = cells.flatten().map(|cell| cell.value).filter(|value| value.is_finite());
    let [low, high] = values.fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], v| [low.min(v), high.max(v)]);
    if low < high {
        [low, high]
    } else if low == high {
        [low - 0.5, high + 0.5]
    } else {
        [0.0, 1.0]
    }
}

/// Steps of the colour key.
const KEY_STEPS: usize = 32;

/// Draw grid, numbers, names and labels of a panel.
fn axes(pen: &mut Pen, placed: &PlacedPanel<'_>) {
    let [left, right] = placed.x.points;
    let [bottom, top] = placed.y.points;
    let panel = placed.panel;
    if !panel.title.is_empty() {
        pen.words("text", &[("class", &"ink subtitle"), ("x", &at(left)), ("y", &at(top - 7.0))], &panel.title);
    }
    pen.open("g", &[("class", &"beside")]);
    labels_beside(pen, placed);
    pen.close("g");
    pen.open("g", &[("class", &"below")]);
    labels_below(pen, placed);
    pen.close("g");
    pen.mark("path", &[("class", &"axis"), ("d", &format!("M{} {}V{}H{}", at(left), at(top), at(bottom), at(right)))]);
    let centre = at(f64::midpoint(left, right));
    let below = [
        ("class", &"ink" as _),
        ("text-anchor", &"middle" as _),
        ("x", &centre as _),
        ("y", &at(placed.label_at) as _),
    ];
    if !panel.x.label.is_empty() {
        pen.words("text", &below, &panel.x.label);
    }
    if !panel.y.label.is_empty() {
        let place =
            format!("translate({} {}) rotate(-90)", at(placed.left + FONT_SIZE), at(f64::midpoint(top, bottom)));
        pen.words("text", &[("class", &"ink"), ("text-anchor", &"middle"), ("transform", &place)], &panel.y.label);
    }
}

fn labels_beside(pen: &mut Pen, placed: &PlacedPanel<'_>) {
    let [left, right] = placed.x.points;
    let end = at(left - 6.0);
    match &placed.beside {
        Labels::Numbers(ticks) => {
            for tick in ticks {
                let Some(y) = placed.y.position(tick.value) else { continue };
                let path = format!("M{} {}H{}", at(left), at(y), at(right));
                pen.mark("path", &[("class", &grid_class(&tick.label)), ("d", &path)]);
                let place = [
                    ("class", &"quiet" as _),
                    ("text-anchor", &"end" as _),
                    ("x", &end as _),
                    ("y", &at(y + 4.0) as _),
                ];
                if !tick.label.is_empty() {
                    pen.words("text", &place, &tick.label);
                }
            }
        }
        Labels::Lines(names) => {
            for (i, name) in names.iter().enumerate() {
                let Some(y) = placed.y.position(i as f64) else { continue };
                let place = [
                    ("class", &"quiet" as _),
                    ("text-anchor", &"end" as _),
                    ("x", &end as _),
                    ("y", &at(y + 4.0) as _),
                ];
                pen.words("text", &place, &name.join(" "));
            }
        }
        Labels::Leaning(_) => {}
    }
}

fn labels_below(pen: &mut Pen, placed: &PlacedPanel<'_>) {
    let [bottom, top] = placed.y.points;
    match &placed.below {
        Labels::Numbers(ticks) => {
            for tick in ticks {
                let Some(x) = placed.x.position(tick.value) else { continue };
                let path = format!("M{} {}V{}", at(x), at(top), at(bottom));
                pen.mark("path", &[("class", &grid_class(&tick.label)), ("d", &path)]);
                if !tick.label.is_empty() {
                    centred(pen, x, bottom + LINE + 1.0, &tick.label);
                }
            }
        }
        Labels::Lines(names) => {
            for (i, lines) in names.iter().enumerate() {
                let Some(x) = placed.x.position(i as f64) else { continue };
                for (j, line) in lines.iter().enumerate() {
                    centred(pen, x, bottom + LINE * (j + 1) as f64 + 1.0, line);
                }
            }
        }
        Labels::Leaning(names) => {
            // Names closer than a line of text: draw every second, third….
            let every = (1..).find(|n| *n as f64 * placed.x.length() / names.len() as f64 >= LINE).unwrap_or(1);
            for (i, name) in names.iter().enumerate().step_by(every) {
                let Some(x) = placed.x.position(i as f64) else { continue };
                let transform = format!("translate({} {}) rotate(-{LEAN})", at(x + 4.0), at(bottom + 14.0));
                pen.words("text", &[("class", &"quiet"), ("text-anchor", &"end"), ("transform", &transform)], name);
            }
        }
    }
}

/// Lines without a number are faint.
fn grid_class(label: &str) -> &'static str {
    if label.is_empty() { "grid faint" } else { "grid" }
}

fn centred(pen: &mut Pen, x: f64, y: f64, words: &str) {
    pen.words("text", &[("class", &"quiet"), ("text-anchor", &"middle"), ("x", &at(x)), ("y", &at(y))], words);
}

/// The colour key, right of a panel with cells.
fn colour_key(pen: &mut Pen, placed: &PlacedPanel<'_>, values: [f64; 2]) {
    let Some(name) = placed.panel.layers.iter().find_map(|layer| match layer {
        Layer::Cells { name, .. } => Some(name),
        _ => None,
    }) else {
        return;
    };
    let [bottom, top] = placed.y.points;
    let left = placed.x.points[1] + 14.0;
    let height = (bottom - top) / KEY_STEPS as f64;
    for i in 0..KEY_STEPS {
        let y = at(bottom - height * (i + 1) as f64);
        let fill = shade((i as f64 + 0.5) / KEY_STEPS as f64);
        let place = [
            ("fill", &fill as _),
            ("x", &at(left) as _),
            ("y", &y as _),
            ("width", &"12" as _),
            ("height", &at(height + 0.3) as _),
        ];
        pen.mark("rect", &place);
    }
    let map = AxisMap { values, points: [bottom, top], scale: Scale::Linear };
    let wanted = ((bottom - top) / 42.0).clamp(3.0, 8.0) as usize;
    let places = |count: usize| ticks(Scale::Linear, values, count);
    // One number alone gives no scale.
    let is_scale = |count: &usize| places(*count).iter().filter(|tick| map.position(tick.value).is_some()).count() > 1;
    for tick in places((wanted..=wanted * 4).find(is_scale).unwrap_or(wanted)) {
        let Some(y) = map.position(tick.value) else { continue };
        pen.words("text", &[("class", &"quiet"), ("x", &at(left + 16.0)), ("y", &at(y + 4.0))], &tick.label);
    }
    // The name stands above the key, because a low panel has no space beside it.
    let right = at(placed.right);
    pen.words("text", &[("class", &"ink"), ("text-anchor", &"end"), ("x", &right), ("y", &at(top - 7.0))], name);
}

/// Width of the sample mark before a name.
const SAMPLE: f64 = 22.0;
/// Free space after a name.
const GAP_AFTER: f64 = 18.0;
/// Height of a row.
const ROW_HEIGHT: f64 = LINE + 4.0;

/// An entry of the legend.
struct LegendEntry<'a> {
    /// Full name; the script of a page finds the marks by it.
    name: &'a str,
    /// The name, cut off if too long.
    words: String,
    layer: &'a Layer,
    left: f64,
    row: usize,
}

/// Every name once, in the order of the layers, in a picture `across` points wide; empty if there is only one set of marks.
fn legend_entries(chart: &Chart, across: f64) -> Vec<LegendEntry<'_>> {
    let mut all: Vec<LegendEntry<'_>> = Vec::new();
    let (mut left, mut row) = (EDGE, 0);
    for layer in chart.panels.iter().flat_map(|panel| &panel.layers) {
        let name = match layer {
            Layer::Line { name, .. }
            | Layer::Dots { name, .. }
            | Layer::Bars { name, .. }
            | Layer::Boxes { name, .. }
            | Layer::Rule { name, .. } => name.as_str(),
            // The colour key has its name.
            Layer::Cells { .. } => continue,
        };
        if name.is_empty() || all.iter().any(|entry| entry.name == name) {
            continue;
        }
        let words = shorten(name, FONT_SIZE, across - 2.0 * EDGE - SAMPLE);
        let wide = SAMPLE + text_width(&words, FONT_SIZE) + GAP_AFTER;
        if left + wide - GAP_AFTER > across - EDGE && left > EDGE {
            (left, row) = (EDGE, row + 1);
        }
        all.push(LegendEntry { name, words, layer, left, row });
        left += wide;
    }
    if let [only] = &all[..]
        && !matches!(only.layer, Layer::Rule { .. })
    {
        return Vec::new();
    }
    all
}

/// Height of the legend of a chart that is `across` points wide.
pub fn legend_height(chart: &Chart, across: f64) -> f64 {
    legend_entries(chart, across).last().map_or(0.0, |last| (last.row + 1) as f64 * ROW_HEIGHT + 2.0)
}

/// Draw the legend of a chart that is `across` points wide, with its upper edge at `top`.
fn legend(pen: &mut Pen, chart: &Chart, across: f64, top: f64) {
    for entry in legend_entries(chart, across) {
        let middle = top + entry.row as f64 * ROW_HEIGHT + ROW_HEIGHT / 2.0;
        let (left, right) = (entry.left, entry.left + SAMPLE - 6.0);
        let (from, to, y) = (at(left), at(right), at(middle));
        pen.open("g", &[("class", &"entry"), ("data-name", &entry.name)]);
        match entry.layer {
            Layer::Line { colour, .. } => {
                let path = format!("M{from} {y}H{to}");
                let class = format!("line {}", class('s', *colour));
                pen.mark("path", &[("class", &class), ("stroke-dasharray", &marks::dash(*colour)), ("d", &path)]);
            }
            Layer::Dots { colour, .. } => {
                let (class, cap) = marks::mark_classes(*colour);
                let path = format!("M{} {y}h0", at(f64::midpoint(left, right)));
                pen.mark("path", &[("class", &class), ("stroke-linecap", &cap), ("d", &path)]);
            }
            Layer::Bars { colour, .. } | Layer::Boxes { colour, .. } => {
                let class = format!("bar {}", class('f', *colour));
                let top = at(middle - 5.0);
                pen.mark("rect", &[("class", &class), ("x", &from), ("y", &top), ("width", &"16"), ("height", &"10")]);
            }
            Layer::Rule { .. } => pen.mark("path", &[("class", &"rule"), ("d", &format!("M{from} {y}H{to}"))]),
            Layer::Cells { .. } => {}
        }
        pen.words("text", &[("class", &"ink"), ("x", &at(left + SAMPLE)), ("y", &at(middle + 4.0))], &entry.words);
        pen.close("g");
    }
}

/// Writes SVG elements; attributes and text are escaped.
#[derive(Default)]
pub struct Pen {
    out: String,
}

/// A coordinate with one decimal.
pub fn at(value: f64) -> String {
    let text = format!("{value:.1}");
    match text.strip_suffix(".0") {
        Some("-0") => "0".to_owned(),
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

/// Text as it may stand in an element or an attribute. XML allows no control characters, escaped or not: they become `\u{fffd}`.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#x27;"),
            '/' => out.push_str("&#x2f;"),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

impl Pen {
    fn tag(&mut self, name: &str, attributes: &[(&str, &dyn Display)], end: &str) {
        let _ = write!(self.out, "<{name}");
        for (key, value) in attributes {
            let _ = write!(self.out, " {key}=\"{}\"", escaped(&value.to_string()));
        }
        self.out.push_str(end);
    }

    /// Open an element; [`Self::close`] ends it.
    pub fn open(&mut self, name: &str, attributes: &[(&str, &dyn Display)]) {
        self.tag(name, attributes, ">\n");
    }

    /// Close an element.
    pub fn close(&mut self, name: &str) {
        let _ = writeln!(self.out, "</{name}>");
    }

    /// An empty element.
    pub fn mark(&mut self, name: &str, attributes: &[(&str, &dyn Display)]) {
        self.tag(name, attributes, "/>\n");
    }

    /// An element with text.
    pub fn words(&mut self, name: &str, attributes: &[(&str, &dyn Display)], words: &str) {
        self.tag(name, attributes, ">");
        let _ = writeln!(self.out, "{}</{name}>", escaped(words));
    }

    /// A style sheet, not escaped.
    pub fn style(&mut self, css: &str) {
        if !css.is_empty() {
            let _ = writeln!(self.out, "<style>{css}</style>");
        }
    }

    /// The SVG.
    pub fn finish(self) -> String {
        self.out
    }
}

/// Pixels per point: sharp on dense screens.
const SCALE: f32 = 2.0;

/// Login nodes have no fonts, so the parts of DejaVu Sans that charts need are compiled in.
static FONTS: LazyLock<Arc<fontdb::Database>> = LazyLock::new(|| {
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(include_bytes!("font/DejaVuSans.ttf").to_vec());
    fonts.load_font_data(include_bytes!("font/DejaVuSans-Bold.ttf").to_vec());
    fonts.set_sans_serif_family("DejaVu Sans");
    Arc::new(fonts)
});

/// A chart as a PNG file, dark on white, two pixels per point; `size` as in [`svg`].
///
/// # Errors
/// [`ChartError::NoPanel`], or an SVG that cannot be drawn in the memory there is.
pub fn png(chart: &Chart, size: Option<Size>) -> Result<Vec<u8>, ChartError> {
    let name = || chart.name.clone();
    let options = Options { fontdb: FONTS.clone(), ..Options::default() };
    let tree = Tree::from_str(&draw(chart, Theme::Light, size)?, &options)
        .map_err(|source| ChartError::Svg { chart: name(), source })?;
    let size = tree.size().to_int_size().scale_by(SCALE).ok_or_else(|| ChartError::NoSize { chart: name() })?;
    let mut pixels = Pixmap::new(size.width(), size.height()).ok_or_else(|| ChartError::NoMemory { chart: name() })?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|source| ChartError::Encode { chart: name(), source: Box::new(source) })
}

/// The two files of a chart, each with its name: `<stem>_<chart>.svg` for readers that show SVG, `.png` for all others.
///
/// # Errors
/// As [`png`].
pub fn chart_files(chart: &Chart, size: Option<Size>, stem: &str) -> Result<[(String, Vec<u8>); 2], ChartError> {
    let file = |ending: &str| format!("{stem}_{}.{ending}", chart.name);
    Ok([(file("svg"), svg(chart, size)?.into_bytes()), (file("png"), png(chart, size)?)])
}

#[cfg(test)]
mod tests {
    use super::svg;
    use crate::{Axis, Bar, Chart, Layer, Panel};

    #[test]
    fn neutral_marks_have_no_colour_of_a_series() {
        let bar = Bar { x: 0.0, width: 0.7, from: 0.0, to: 1.0, interval: None };
        let layers = vec![
            Layer::Bars { name: "mean".into(), colour: 0, bars: vec![bar] }.neutral(),
            Layer::Dots { name: "each run".into(), colour: 1, points: vec![[0.0, 1.0]] }.neutral(),
        ];
        let panels = vec![Panel { title: String::new(), x: Axis::new("x"), y: Axis::new("y"), layers }];
        let text = String::from;
        let (name, title, alt, caption) = (text("rates"), text("Rates"), text("Bars."), text("measured"));
        let drawn = svg(&Chart { name, title, alt, caption, panels, columns: 1 }, None).unwrap();
        // The bar, its entry of the legend, and the dots with their entry.
        let counts = ["\"bar edge fn\"", "\"bar fn\"", "\"dots sn\"", "\"bar edge f0\"", "\"dots s1\""];
        assert_eq!(counts.map(|class| drawn.matches(class).count()), [1, 1, 2, 0, 0], "{drawn}");
    }

    #[test]
    fn an_entry_has_the_name_of_its_marks_however_long() {
        let long = "a very long name of a series ".repeat(20);
        let line =
            |name: &str, colour| Layer::Line { name: name.to_owned(), colour, points: vec![[0.0, 1.0], [1.0, 2.0]] };
        let (x, y, layers) = (Axis::new("x"), Axis::new("y"), vec![line(&long, 0), line("b", 1)]);
        let panels = vec![Panel { title: String::new(), x, y, layers }];
        let text = String::from;
        let (name, title, alt, caption) = (text("long"), text("Long"), text("A line."), text("measured"));
        let chart = Chart { name, title, alt, caption, panels, columns: 1 };
        let drawn = svg(&chart, None).unwrap();
        assert_eq!(drawn.matches(&format!("data-name=\"{long}\"")).count(), 2, "{drawn}");
    }
}
