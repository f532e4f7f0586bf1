use minijinja::HtmlEscape;

use crate::plot::{Chart, PlotError, svg_in_page};

/// Digits of a value in a page: more than a tooltip shows.
const DIGITS: usize = 6;

/// A picture of a page: drawn, with the values behind it.
pub(super) struct Plot {
    /// What it is of.
    pub chart: Chart,
    svg: String,
}

impl Plot {
    /// Draw a chart.
    pub fn new(chart: Chart) -> Result<Self, PlotError> {
        Ok(Self { svg: svg_in_page(&chart)?, chart })
    }

    /// The file name that the note's markdown has for it.
    pub fn file(&self) -> String {
        format!("page_{}.svg", self.chart.name)
    }

    /// True if a link of the note's markdown is to this picture.
    pub fn is(&self, link: &str) -> bool {
        link.ends_with(&format!("_{}.svg", self.chart.name))
    }

    /// As a part of the page.
    pub fn html(&self) -> String {
        let Self { chart, svg } = self;
        let mut values = serde_json::to_value(&chart.panels).unwrap_or_default();
        round(&mut values);
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

fn round(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Array(all) => all.iter_mut().for_each(round),
        serde_json::Value::Object(all) => all.values_mut().for_each(round),
        serde_json::Value::Number(number) => {
            if let Some(exact) = number.as_f64().filter(|v| *v != 0.0 && number.is_f64()) {
                let rounded: f64 = format!("{exact:.*e}", DIGITS - 1).parse().unwrap_or(exact);
                *value = rounded.into();
            }
        }
        _ => {}
    }
}
