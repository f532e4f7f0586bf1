use minijinja::HtmlEscape;
use serde_json::Value;

use crate::plot::{Chart, PlotError, svg_in_page};

/// Digits of a value in a page: more than a tooltip shows.
const DIGITS: usize = 6;

/// A chart of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct PageChart {
    /// What is drawn.
    pub chart: Chart,
    /// By panel and layer: what the marks are of beside the name that the layer has in the legend, as `epoch 3`; shown where the pointer is.
    /// Empty, or too short, where the name says it all.
    pub of: Vec<Vec<String>>,
}

impl PageChart {
    /// The file name by which the markdown of a page links it.
    pub fn link(&self) -> String {
        format!("page_{}.svg", self.chart.name)
    }
}

impl From<Chart> for PageChart {
    fn from(chart: Chart) -> Self {
        Self { chart, of: Vec::new() }
    }
}

/// A picture of a page: drawn, with the values behind it.
pub(super) struct Plot {
    /// What it is of.
    pub chart: Chart,
    of: Vec<Vec<String>>,
    svg: String,
}

impl Plot {
    /// Draw a chart.
    pub fn new(chart: impl Into<PageChart>) -> Result<Self, PlotError> {
        let PageChart { chart, of } = chart.into();
        Ok(Self { svg: svg_in_page(&chart)?, chart, of })
    }

    /// The file name by which the markdown of a page links it.
    pub fn file(&self) -> String {
        format!("page_{}.svg", self.chart.name)
    }

    /// True if a link of the note's markdown is to this picture.
    pub fn is(&self, link: &str) -> bool {
        link.ends_with(&format!("_{}.svg", self.chart.name))
    }

    /// As a part of the page.
    pub fn html(&self) -> String {
        let Self { chart, of, svg } = self;
        let mut values = serde_json::to_value(&chart.panels).unwrap_or_default();
        round(&mut values);
        name_marks(&mut values, of);
        // The only way out of a script element.
        let values = values.to_string().replace('<', "\\u003c");
        let title = HtmlEscape(&chart.title);
        format!(
            "<figure class=\"plot\" id=\"plot-{name}\" tabindex=\"0\" aria-label=\"{title}\">\
             <div class=\"tools\"><button type=\"button\" data-do=\"in\" title=\"Zoom in (+)\">+</button>\
             <button type=\"button\" data-do=\"out\" title=\"Zoom out (−)\">−</button>\
             <button type=\"button\" data-do=\"reset\" title=\"All of it (0)\">Reset</button></div>\
             <div class=\"scroll\">{svg}</div><div class=\"tip\" role=\"status\" hidden></div>\
             <script type=\"application/json\">{values}</script></figure>",
            name = HtmlEscape(&chart.name),
        )
    }
}

/// Put what the marks of each layer are of into its data.
fn name_marks(panels: &mut Value, of: &[Vec<String>]) {
    for (panel, of) in panels.as_array_mut().into_iter().flatten().zip(of) {
        let layers = panel.get_mut("layers").and_then(Value::as_array_mut);
        for (layer, words) in layers.into_iter().flatten().zip(of).filter(|(_, words)| !words.is_empty()) {
            if let Some(layer) = layer.as_object_mut() {
                layer.insert("of".to_owned(), words.as_str().into());
            }
        }
    }
}

fn round(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(round),
        Value::Object(all) => all.values_mut().for_each(round),
        Value::Number(number) => {
            // Numbers of batches and steps are shown in full.
            if let Some(exact) = number.as_f64().filter(|v| v.fract() != 0.0 && number.is_f64()) {
                let rounded: f64 = format!("{exact:.*e}", DIGITS - 1).parse().unwrap_or(exact);
                *value = rounded.into();
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Axis, Layer, Panel};

    #[test]
    fn the_data_of_a_page_says_of_which_epoch_marks_are_and_keeps_batch_numbers() {
        let dots =
            |name: &str| Layer::Dots { name: name.to_owned(), colour: 0, points: vec![[1_234_567.0, 0.123_456_789]] };
        let panel = || {
            let layers = vec![dots("0 mod 2"), dots("1 mod 2")];
            Panel { title: String::new(), x: Axis::new("batch"), y: Axis::new("time (s)"), layers }
        };
        let text = String::from;
        let (name, title, alt, caption) = (text("dots"), text("Dots"), text("Dots."), text("measured"));
        let chart = Chart { name, title, alt, caption, panels: vec![panel(), panel()], columns: 1 };
        let of = vec![Vec::new(), vec![String::new(), text("epoch 3</script>")]];
        let html = Plot::new(PageChart { chart, of }).unwrap().html();
        let (_, data) = html.split_once("<script type=\"application/json\">").unwrap();
        let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
        let of = |panel: usize, layer: usize| data[panel]["layers"][layer]["of"].as_str();
        assert_eq!([of(0, 0), of(0, 1), of(1, 0), of(1, 1)], [None, None, None, Some("epoch 3</script>")]);
        assert_eq!(data[1]["layers"][1]["points"][0], serde_json::json!([1_234_567.0, 0.123_457]));
    }
}
