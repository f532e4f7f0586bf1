//! The texts of a config as trees whose keys and values know where they stand.

use std::num::IntErrorKind;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

/// A place in one of the texts that a config was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValueOrigin {
    source: usize,
    start: usize,
    end: usize,
}

impl ValueOrigin {
    pub(crate) fn new(source: usize, span: Range<usize>) -> Self {
        Self { source, start: span.start, end: span.end.max(span.start) }
    }

    /// Start of a text, for problems that have no better place.
    pub(crate) fn start_of(source: usize) -> Self {
        Self::new(source, 0..0)
    }

    /// The text that it lies in.
    pub fn source(&self) -> usize {
        self.source
    }

    /// Bytes of that text.
    pub fn span(&self) -> Range<usize> {
        self.start..self.end
    }
}

/// The texts that a config was read from: its file, the files that it extends, the `--set` arguments.
///
/// Invariant: texts are only added, so a [`ValueOrigin`] stays valid.
#[derive(Clone, Debug, Default)]
pub struct Sources(Vec<(String, String)>);

impl Sources {
    pub(crate) fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> usize {
        self.0.push((name.into(), text.into()));
        self.0.len() - 1
    }

    /// Name of the text in messages: the path as the user wrote it, or `--set`.
    pub fn name(&self, source: usize) -> &str {
        self.0.get(source).map_or("", |(name, _)| name)
    }

    /// The whole text.
    pub fn text(&self, source: usize) -> &str {
        self.0.get(source).map_or("", |(_, text)| text)
    }

    /// The files among them, each once, under the names that messages use.
    pub fn files(&self) -> Vec<(&str, &str)> {
        let mut files: Vec<(&str, &str)> = Vec::new();
        for (name, text) in &self.0 {
            if name != "--set" && !files.iter().any(|(known, _)| known == name) {
                files.push((name, text));
            }
        }
        files
    }

    /// `file:line` of a place, for messages that mention a second file.
    pub(crate) fn line_of(&self, at: ValueOrigin) -> String {
        let before = self.text(at.source).get(..at.start).unwrap_or("");
        format!("{}:{}", self.name(at.source), before.matches('\n').count() + 1)
    }
}

/// A key, and where it stands.
#[derive(Clone, Debug)]
pub struct NodeKey {
    /// The key, without quotes.
    pub name: String,
    /// Where.
    pub at: ValueOrigin,
}

/// A value, and where it stands.
#[derive(Clone, Debug)]
pub struct Node {
    /// The value.
    pub value: NodeValue,
    /// Where.
    pub at: ValueOrigin,
}

/// Entries of a table, in the order of the text.
pub type NodeTable = Vec<(NodeKey, Node)>;

/// A TOML value that owns its text.
#[derive(Clone, Debug)]
pub enum NodeValue {
    /// A string.
    Text(String),
    /// An integer; one beyond the range is held at its end.
    Integer(i128),
    /// Text that looks like an integer and is none: `0x`.
    NoNumber(String),
    /// A float.
    Float(f64),
    /// A boolean.
    Bool(bool),
    /// A date or time, which no key takes.
    Datetime,
    /// An array.
    Array(Vec<Node>),
    /// A table.
    Table(NodeTable),
}

impl Node {
    pub(crate) fn from_toml(source: usize, value: &Spanned<DeValue<'_>>) -> Self {
        let at = ValueOrigin::new(source, value.span());
        let value = match value.get_ref() {
            DeValue::String(text) => NodeValue::Text(text.to_string()),
            DeValue::Integer(digits) => integer(digits),
            // The parser let it through, so it is a float; an overflow becomes infinity.
            DeValue::Float(digits) => NodeValue::Float(digits.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Boolean(flag) => NodeValue::Bool(*flag),
            DeValue::Datetime(_) => NodeValue::Datetime,
            DeValue::Array(items) => NodeValue::Array(items.iter().map(|v| Self::from_toml(source, v)).collect()),
            DeValue::Table(entries) => NodeValue::Table(table_from_toml(source, entries)),
        };
        Self { value, at }
    }

    /// The value in the words of a message.
    pub fn describe(&self) -> String {
        match &self.value {
            NodeValue::Text(text) => format!("the text \"{text}\""),
            NodeValue::Integer(n) => format!("the number {n}"),
            NodeValue::NoNumber(text) => format!("`{text}`, which is no number in TOML"),
            NodeValue::Float(x) => format!("the number {x}"),
            NodeValue::Bool(flag) => format!("{flag}"),
            NodeValue::Datetime => "a date".to_owned(),
            NodeValue::Array(_) => "an array".to_owned(),
            NodeValue::Table(_) => "a table".to_owned(),
        }
    }
}

/// The parser takes prefix and first digit for a number: `0x`, `007` and digits of other scripts come through.
fn integer(digits: &DeInteger<'_>) -> NodeValue {
    let text = digits.as_str();
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let has_form = match digits.radix() {
        10 => unsigned == "0" || !unsigned.starts_with('0'),
        _ => unsigned == text,
    };
    match i128::from_str_radix(text, digits.radix()) {
        Ok(number) if has_form => NodeValue::Integer(number),
        Err(e) if *e.kind() == IntErrorKind::PosOverflow => NodeValue::Integer(i128::MAX),
        Err(e) if *e.kind() == IntErrorKind::NegOverflow => NodeValue::Integer(i128::MIN),
        _ => NodeValue::NoNumber(digits.to_string()),
    }
}

pub(crate) fn table_from_toml(source: usize, entries: &DeTable<'_>) -> NodeTable {
    let mut table: NodeTable = entries
        .iter()
        .map(|(key, value)| {
            let key = NodeKey { name: key.get_ref().to_string(), at: ValueOrigin::new(source, key.span()) };
            (key, Node::from_toml(source, value))
        })
        .collect();
    // The parser sorts by name; users number their variants by where they stand.
    table.sort_by_key(|(key, _)| key.at.span().start);
    table
}

/// All values of a table under dotted keys: `loader.workers = 4`, `"loader.workers" = 4` and `[loader] workers = 4` are
/// the same. No setting is a table, so every table is a step of the path. The key's place is that of its last part.
pub(crate) fn flatten(prefix: &str, table: &NodeTable) -> Vec<(NodeKey, Node)> {
    let mut flat = Vec::new();
    for (key, node) in table {
        let name = if prefix.is_empty() { key.name.clone() } else { format!("{prefix}.{}", key.name) };
        match &node.value {
            NodeValue::Table(inner) => flat.extend(flatten(&name, inner)),
            _ => flat.push((NodeKey { name, at: key.at }, node.clone())),
        }
    }
    flat
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Option<NodeValue> {
        let text = format!("a = {text}");
        let table = DeTable::parse(&text).ok()?;
        Some(table_from_toml(0, table.get_ref()).remove(0).1.value)
    }

    /// The invalid integers of toml-test that the parser lets through, and their like.
    #[test]
    fn what_looks_like_an_integer_and_is_none_is_no_number() {
        for text in ["0x", "0o", "0b", "\u{660}", "0\u{661}", "007", "+0x1", "0x-1"] {
            assert!(matches!(value(text), None | Some(NodeValue::NoNumber(_))), "{text}: {:?}", value(text));
        }
        for (text, number) in
            [("0", 0), ("-0", 0), ("+7", 7), ("0x1F", 31), ("0o17", 15), ("0b101", 5), ("1_000", 1000)]
        {
            assert!(matches!(value(text), Some(NodeValue::Integer(n)) if n == number), "{text}: {:?}", value(text));
        }
        let huge = "9".repeat(60);
        assert!(matches!(value(&huge), Some(NodeValue::Integer(i128::MAX))));
        assert!(matches!(value(&format!("-{huge}")), Some(NodeValue::Integer(i128::MIN))));
    }
}
