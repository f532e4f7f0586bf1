use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::source::Origin;

/// A key, and where it stands.
#[derive(Clone, Debug)]
pub struct Key {
    /// The key, without quotes.
    pub name: String,
    /// Where.
    pub at: Origin,
}

/// A value, and where it stands.
#[derive(Clone, Debug)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Where.
    pub at: Origin,
}

/// Entries of a table, in the order of the text.
pub type Table = Vec<(Key, Node)>;

/// A TOML value that owns its text.
#[derive(Clone, Debug)]
pub enum Value {
    /// A string.
    Text(String),
    /// An integer; one beyond the range is held at its end.
    Integer(i128),
    /// A float.
    Float(f64),
    /// A boolean.
    Bool(bool),
    /// A date or time, which no key takes.
    Datetime,
    /// An array.
    Array(Vec<Node>),
    /// A table.
    Table(Table),
}

impl Node {
    pub(super) fn from_toml(source: usize, value: &Spanned<DeValue<'_>>) -> Self {
        let at = Origin::new(source, value.span());
        let value = match value.get_ref() {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(digits) => {
                let end = if digits.as_str().starts_with('-') { i128::MIN } else { i128::MAX };
                Value::Integer(i128::from_str_radix(digits.as_str(), digits.radix()).unwrap_or(end))
            }
            // The parser let it through, so it is a float; an overflow becomes infinity.
            DeValue::Float(digits) => Value::Float(digits.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Boolean(flag) => Value::Bool(*flag),
            DeValue::Datetime(_) => Value::Datetime,
            DeValue::Array(items) => Value::Array(items.iter().map(|v| Self::from_toml(source, v)).collect()),
            DeValue::Table(entries) => Value::Table(table_from_toml(source, entries)),
        };
        Self { value, at }
    }

    /// What a message calls the value.
    pub fn describe(&self) -> String {
        match &self.value {
            Value::Text(text) => format!("the text \"{text}\""),
            Value::Integer(n) => format!("the number {n}"),
            Value::Float(x) => format!("the number {x}"),
            Value::Bool(flag) => format!("{flag}"),
            Value::Datetime => "a date".to_owned(),
            Value::Array(_) => "an array".to_owned(),
            Value::Table(_) => "a table".to_owned(),
        }
    }
}

pub(super) fn table_from_toml(source: usize, entries: &DeTable<'_>) -> Table {
    let mut table: Table = entries
        .iter()
        .map(|(key, value)| {
            let key = Key { name: key.get_ref().to_string(), at: Origin::new(source, key.span()) };
            (key, Node::from_toml(source, value))
        })
        .collect();
    // The parser sorts by name; users number their variants by where they stand.
    table.sort_by_key(|(key, _)| key.at.span().start);
    table
}

/// All values of a table under dotted keys: `loader.workers = 4`, `"loader.workers" = 4` and `[loader] workers = 4` are
/// the same. No setting is a table, so every table is a step of the path. The key's place is that of its last part.
pub(super) fn flatten(prefix: &str, table: &Table) -> Vec<(Key, Node)> {
    let mut flat = Vec::new();
    for (key, node) in table {
        let name = if prefix.is_empty() { key.name.clone() } else { format!("{prefix}.{}", key.name) };
        match &node.value {
            Value::Table(inner) => flat.extend(flatten(&name, inner)),
            _ => flat.push((Key { name, at: key.at }, node.clone())),
        }
    }
    flat
}
