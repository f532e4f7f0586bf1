use super::chart::{Chart, Layer, Scale};
use super::error::PlotError;
use super::layout::{EDGE, Layout, Placed};
use super::pen::{Pen, at};
use super::size::Size;
use super::span::Span;
use super::theme::{self, Theme};
use super::{axes, legend, marks};

/// A chart as an SVG file: dark on white or light on black as the reader's system says, words as words, and no script.
///
/// # Errors
/// A chart without panels.
pub fn svg(chart: &Chart) -> Result<String, PlotError> {
    svg_sized(chart, None)
}

/// The same with a size, where one was asked for.
///
/// # Errors
/// A chart without panels.
pub fn svg_sized(chart: &Chart, size: Option<Size>) -> Result<String, PlotError> {
    draw(chart, Theme::System, size)
}

/// The same as part of a page that has [`theme::page_style`]: with the scales of each panel, so that a script can zoom.
///
/// # Errors
/// A chart without panels.
pub fn svg_in_page(chart: &Chart) -> Result<String, PlotError> {
    draw(chart, Theme::Page, None)
}

pub(super) fn draw(chart: &Chart, theme: Theme, size: Option<Size>) -> Result<String, PlotError> {
    if chart.panels.is_empty() {
        return Err(PlotError::Empty(chart.name.clone()));
    }
    let layout = Layout::of(chart, size);
    let (width, height) = (at(layout.width), at(layout.height));
    let mut pen = Pen::default();
    let view = format!("0 0 {width} {height}");
    let alt = if chart.alt.is_empty() { &chart.title } else { &chart.alt };
    let mut root: Vec<(&str, &dyn std::fmt::Display)> =
        vec![("xmlns", &"http://www.w3.org/2000/svg"), ("viewBox", &view)];
    if theme != Theme::Page {
        root.extend([("width", &width as _), ("height", &height as _)]);
    }
    root.extend([("class", &"chart" as _), ("role", &"img" as _), ("aria-label", alt as _)]);
    pen.open("svg", &root);
    pen.style(&theme::style(theme));
    if !chart.caption.is_empty() && theme != Theme::Page {
        pen.words("desc", &[], &chart.caption);
    }
    pen.mark("rect", &[("class", &"ground"), ("width", &"100%"), ("height", &"100%")]);
    if !chart.title.is_empty() {
        pen.words("text", &[("class", &"ink title"), ("x", &at(EDGE)), ("y", &at(EDGE + 13.0))], &chart.title);
    }
    legend::draw(&mut pen, chart, layout.width, layout.legend_at);
    let values = cell_values(chart);
    for (i, placed) in layout.panels.iter().enumerate() {
        panel(&mut pen, chart, i, placed, values);
    }
    pen.close("svg");
    Ok(pen.finish())
}

fn panel(pen: &mut Pen, chart: &Chart, i: usize, placed: &Placed<'_>, values: [f64; 2]) {
    let [left, right] = placed.x.places;
    let [bottom, top] = placed.y.places;
    let scale = |span: &Span| if span.scale == Scale::Log { "log" } else { "linear" };
    let ends = |span: &Span| format!("{:e} {:e}", span.values[0], span.values[1]);
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
    axes::draw(pen, placed);
    // Ids are those of the page that the picture may stand in.
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
    axes::shades(pen, placed, values);
    pen.close("g");
}

/// Lowest and highest value of all cells: one colour is one value in all panels.
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
