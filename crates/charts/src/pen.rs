use std::fmt::{Display, Write as _};

use minijinja::HtmlEscape;

/// Writes SVG; whatever comes from outside is escaped.
#[derive(Default)]
pub(super) struct Pen {
    out: String,
}

/// A coordinate with one decimal, which is finer than any screen shows.
pub(super) fn at(value: f64) -> String {
    let text = format!("{value:.1}");
    match text.strip_suffix(".0") {
        Some("-0") => "0".to_owned(),
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

/// XML has no place for most control characters, escaped or not.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

impl Pen {
    fn tag(&mut self, name: &str, attributes: &[(&str, &dyn Display)], end: &str) {
        let _ = write!(self.out, "<{name}");
        for (key, value) in attributes {
            let _ = write!(self.out, " {key}=\"{}\"", HtmlEscape(&printable(&value.to_string())));
        }
        self.out.push_str(end);
    }

    /// An element with others inside, until [`Self::close`].
    pub fn open(&mut self, name: &str, attributes: &[(&str, &dyn Display)]) {
        self.tag(name, attributes, ">\n");
    }

    /// The end of an element.
    pub fn close(&mut self, name: &str) {
        let _ = writeln!(self.out, "</{name}>");
    }

    /// An element with nothing inside.
    pub fn mark(&mut self, name: &str, attributes: &[(&str, &dyn Display)]) {
        self.tag(name, attributes, "/>\n");
    }

    /// An element with words inside.
    pub fn words(&mut self, name: &str, attributes: &[(&str, &dyn Display)], words: &str) {
        self.tag(name, attributes, ">");
        let _ = writeln!(self.out, "{}</{name}>", HtmlEscape(&printable(words)));
    }

    /// A style sheet of ours, as it is.
    pub fn style(&mut self, css: &str) {
        if !css.is_empty() {
            let _ = writeln!(self.out, "<style>{css}</style>");
        }
    }

    /// What was written.
    pub fn finish(self) -> String {
        self.out
    }
}
