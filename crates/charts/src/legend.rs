use super::chart::{Chart, Layer};
use super::layout::{EDGE, LINE, SIZE};
use super::marks::{dash, mark_classes};
use super::pen::{Pen, at};
use super::text::{shorten, width};
use super::theme::COLOURS;

/// Width of the sample before a name.
const SAMPLE: f64 = 22.0;
/// Free space after a name.
const AFTER: f64 = 18.0;
/// Height of a row.
const ROW: f64 = LINE + 4.0;

/// One name of the legend, and the layer that its sample is of.
struct Entry<'a> {
    /// By which the page finds the marks.
    name: &'a str,
    /// As much of it as there is room for.
    words: String,
    layer: &'a Layer,
    left: f64,
    row: usize,
}

/// Every name once, in the order of the layers, in a picture of a width; none where there is but one set of marks.
fn entries(chart: &Chart, across: f64) -> Vec<Entry<'_>> {
    let mut all: Vec<Entry<'_>> = Vec::new();
    let (mut left, mut row) = (EDGE, 0);
    for layer in chart.panels.iter().flat_map(|panel| &panel.layers) {
        let name = match layer {
            Layer::Line { name, .. }
            | Layer::Dots { name, .. }
            | Layer::Bars { name, .. }
            | Layer::Boxes { name, .. }
            | Layer::Rule { name, .. } => name.as_str(),
            // The bar of its colours has its name.
            Layer::Cells { .. } => continue,
        };
        if name.is_empty() || all.iter().any(|entry| entry.name == name) {
            continue;
        }
        let words = shorten(name, SIZE, across - 2.0 * EDGE - SAMPLE);
        let wide = SAMPLE + width(&words, SIZE) + AFTER;
        if left + wide - AFTER > across - EDGE && left > EDGE {
            (left, row) = (EDGE, row + 1);
        }
        all.push(Entry { name, words, layer, left, row });
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
pub(super) fn height(chart: &Chart, across: f64) -> f64 {
    entries(chart, across).last().map_or(0.0, |last| (last.row + 1) as f64 * ROW + 2.0)
}

/// Draw the legend of a chart that is `across` points wide, with its upper edge at `top`.
pub(super) fn draw(pen: &mut Pen, chart: &Chart, across: f64, top: f64) {
    for entry in entries(chart, across) {
        let middle = top + entry.row as f64 * ROW + ROW / 2.0;
        let (left, right) = (entry.left, entry.left + SAMPLE - 6.0);
        let (from, to, y) = (at(left), at(right), at(middle));
        pen.open("g", &[("class", &"entry"), ("data-name", &entry.name)]);
        match entry.layer {
            Layer::Line { colour, .. } => {
                let path = format!("M{from} {y}H{to}");
                let class = format!("line s{}", colour % COLOURS);
                pen.mark("path", &[("class", &class), ("stroke-dasharray", &dash(*colour)), ("d", &path)]);
            }
            Layer::Dots { colour, .. } => {
                let (class, cap) = mark_classes(*colour);
                let path = format!("M{} {y}h0", at(f64::midpoint(left, right)));
                pen.mark("path", &[("class", &class), ("stroke-linecap", &cap), ("d", &path)]);
            }
            Layer::Bars { colour, .. } | Layer::Boxes { colour, .. } => {
                let class = format!("bar f{}", colour % COLOURS);
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

#[cfg(test)]
mod tests {
    use crate::plot::{Axis, Chart, Layer, Panel, svg};

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
        let drawn = svg(&chart).unwrap();
        assert_eq!(drawn.matches(&format!("data-name=\"{long}\"")).count(), 2, "{drawn}");
    }
}
