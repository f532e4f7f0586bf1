//! Settings as texts give them: checked against the table of keys, each with its place.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use expctl_settings::{KEYS, KeySpec, ValueType, Worker, find};
use serde_json::Value as Json;

use crate::node::{Node, NodeKey, NodeTable, NodeValue, ValueOrigin, flatten, table_from_toml};
use crate::problem::Problem;
use crate::suggest::{closest, closest_key, key_synonym, word_synonym};

/// A checked value of a key.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Its canonical form; none after a problem was reported. Rules that need the value are then skipped.
    pub value: Option<Json>,
    /// Its place; none for a default.
    pub at: Option<ValueOrigin>,
    /// Places of the items of an array; empty for a default.
    pub items: Vec<ValueOrigin>,
}

impl Setting {
    /// The checked value of `node`. A problem leaves the setting without a value.
    pub fn read(spec: &KeySpec, node: &Node, problems: &mut Vec<Problem>) -> Self {
        let value = accept(&spec.value, spec.key, node).map_err(|problem| problems.push(*problem)).ok();
        let items = match &node.value {
            NodeValue::Array(items) => items.iter().map(|item| item.at).collect(),
            _ => Vec::new(),
        };
        Self { value, at: Some(node.at), items }
    }

    /// A setting that was meant, but could not be read.
    pub fn unread(at: ValueOrigin) -> Self {
        Self { value: None, at: Some(at), items: Vec::new() }
    }

    /// A default, or a derived value.
    pub fn unwritten(value: Option<Json>) -> Self {
        Self { value, at: None, items: Vec::new() }
    }
}

/// Settings by dotted key. Layers on top of each other make a trial: the upper one wins key by key.
pub type Layer = BTreeMap<&'static str, Setting>;

/// The part of a config that a table of settings belongs to, which decides which keys it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// For the whole config.
    Config,
    /// For a variant or a point of a sweep.
    Trial,
}

/// Read the settings of `table`, whose keys lie under `prefix` (a section, or nothing).
pub fn read_settings(prefix: &str, table: &NodeTable, scope: Scope, problems: &mut Vec<Problem>) -> Layer {
    let mut layer = Layer::new();
    for (key, node) in flatten(prefix, table) {
        let Some(spec) = known_key(&key, &node, scope, problems, &mut layer) else { continue };
        layer.insert(spec.key, Setting::read(spec, &node, problems));
    }
    layer
}

/// The key's entry in the table of keys; reports an unknown key. The key that it stands for in another system, or that was probably meant,
/// is marked in `layer` as set, so that it is not reported as missing as well.
pub fn known_key(
    key: &NodeKey,
    value: &Node,
    scope: Scope,
    problems: &mut Vec<Problem>,
    layer: &mut Layer,
) -> Option<&'static KeySpec> {
    let (name, at) = (&key.name, key.at);
    let Some(spec) = find(name) else {
        let problem = Problem::new(at, format!("unknown key `{name}`"), "no such key");
        let mark = |layer: &mut Layer, spec: &'static KeySpec| {
            layer.entry(spec.key).or_insert(Setting::unread(at));
        };
        problems.push(match (key_synonym(name), closest_key(name)) {
            (Some(synonym), _) => {
                synonym.spec().into_iter().for_each(|spec| mark(layer, spec));
                problem.help(synonym.help(Some(value)))
            }
            (None, Some(near)) => {
                mark(layer, near);
                problem.help(format!("did you mean `{}`? ({})", near.key, near.help))
            }
            (None, None) => problem.help("all keys are listed in docs/reference/config.md"),
        });
        return None;
    };
    if scope == Scope::Trial && spec.per_job {
        let problem = Problem::new(at, format!("`{name}` cannot differ between the trials of a job"), "not here");
        problems.push(problem.help(format!("set it once, in [{}]", spec.section())));
        return None;
    }
    Some(spec)
}

/// All keys that have a fixed default.
pub static DEFAULTS: LazyLock<Layer> = LazyLock::new(|| {
    let defaults = KEYS.iter().filter_map(|spec| Some((spec.key, Setting::unwritten(Some(spec.default_value()?)))));
    defaults.collect()
});

/// The canonical form of a value of this type, or its problem. `key` is the dotted key.
pub fn accept(value_type: &ValueType, key: &str, node: &Node) -> Result<Json, Box<Problem>> {
    let wrong_type = |node: &Node| {
        let problem = Problem::new(
            node.at,
            format!("`{key}` takes {}, not {}", value_type.describe(), node.describe()),
            format!("expected {}", value_type.describe()),
        );
        Box::new(match repair(value_type, key, node) {
            Some(help) => problem.help(help),
            None => problem,
        })
    };
    let range = |node: &Node| {
        Problem::new(
            node.at,
            format!("`{key}` is out of range: {}", node.describe()),
            format!("expected {}", value_type.describe()),
        )
    };
    match (*value_type, &node.value) {
        (ValueType::Text, NodeValue::Text(text)) => Ok(Json::from(text.as_str())),
        (ValueType::Bool, NodeValue::Bool(flag)) => Ok(Json::from(*flag)),
        (ValueType::Integer { min, max }, NodeValue::Integer(n)) => match i64::try_from(*n) {
            Ok(n) if (min..=max).contains(&n) => Ok(Json::from(n)),
            Err(_) if *n > 0 => Err(Box::new(range(node).help(format!("the largest is {max}")))),
            _ => Err(Box::new(range(node))),
        },
        (ValueType::Number { min, above, max }, NodeValue::Integer(_) | NodeValue::Float(_)) => {
            let x = match node.value {
                NodeValue::Integer(n) => n as f64,
                NodeValue::Float(x) => x,
                _ => f64::NAN,
            };
            let low = if above { x > min } else { x >= min };
            if x.is_finite() && low && x <= max { Ok(Json::from(x)) } else { Err(Box::new(range(node))) }
        }
        (ValueType::Choice { words, aliases }, NodeValue::Text(text)) => {
            let meant = aliases.iter().find(|(alias, _)| alias == text).map_or(text.as_str(), |(_, word)| word);
            if words.contains(&meant) {
                return Ok(Json::from(meant));
            }
            let problem = Problem::new(
                node.at,
                format!("`{key}` has no choice \"{text}\""),
                format!("expected {}", value_type.describe()),
            );
            let known = words.iter().copied().chain(aliases.iter().map(|(alias, _)| *alias));
            Err(Box::new(match (word_synonym(key, text), closest(text, known)) {
                (Some(synonym), _) => problem.help(synonym.help(key)),
                (None, Some(word)) => problem.help(format!("did you mean \"{word}\"?")),
                (None, None) => problem,
            }))
        }
        (ValueType::TextList, NodeValue::Array(items)) => {
            let texts = items.iter().map(|item| match &item.value {
                NodeValue::Text(text) => Ok(Json::from(text.as_str())),
                _ => Err(wrong_type(item)),
            });
            texts.collect::<Result<Vec<_>, _>>().map(Json::from)
        }
        (ValueType::NumberList { max }, NodeValue::Array(items)) => {
            let numbers = items.iter().map(|item| match &item.value {
                NodeValue::Integer(n) if (0..=i128::from(max)).contains(n) => Ok(Json::from(*n as i64)),
                _ => Err(wrong_type(item)),
            });
            numbers.collect::<Result<Vec<_>, _>>().map(Json::from)
        }
        (ValueType::Numbers { min, max }, NodeValue::Integer(_) | NodeValue::Float(_)) => {
            accept(&ValueType::Number { min, above: false, max }, key, node)
        }
        (ValueType::Numbers { min, max }, NodeValue::Array(items)) => {
            let one = ValueType::Number { min, above: false, max };
            let numbers = items.iter().map(|item| match item.value {
                NodeValue::Integer(_) | NodeValue::Float(_) => accept(&one, key, item),
                _ => Err(wrong_type(item)),
            });
            // One number is the same alone and in an array.
            let mut numbers = numbers.collect::<Result<Vec<_>, _>>()?;
            Ok(if numbers.len() == 1 { numbers.remove(0) } else { Json::from(numbers) })
        }
        _ => Err(wrong_type(node)),
    }
}

/// How to write what was probably meant.
fn repair(value_type: &ValueType, key: &str, node: &Node) -> Option<String> {
    match (value_type, &node.value) {
        (ValueType::Choice { .. }, NodeValue::Integer(n)) if word_synonym(key, &n.to_string()).is_some() => {
            word_synonym(key, &n.to_string()).map(|synonym| synonym.help(key))
        }
        (ValueType::Integer { .. } | ValueType::Number { .. } | ValueType::Numbers { .. }, NodeValue::Text(text))
            if text.parse::<f64>().is_ok() =>
        {
            Some(format!("write it without quotes: {text}"))
        }
        (ValueType::Bool, NodeValue::Text(text)) => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => Some("write true, without quotes".to_owned()),
            "false" | "no" | "off" => Some("write false, without quotes".to_owned()),
            _ => None,
        },
        (ValueType::Integer { .. }, NodeValue::Float(x)) if x.fract() == 0.0 => Some(format!("write it as {x:.0}")),
        (ValueType::TextList, NodeValue::Text(text)) if key == Worker::COMMAND.name() => {
            let words: Vec<String> = text.split_whitespace().map(|word| format!("{word:?}")).collect();
            Some(format!("write the program and its arguments as an array: [{}]", words.join(", ")))
        }
        (ValueType::TextList, NodeValue::Text(text)) => Some(format!("write it as an array: [\"{text}\"]")),
        (ValueType::NumberList { .. }, NodeValue::Integer(n)) => Some(format!("write it as an array: [{n}]")),
        (
            ValueType::Text | ValueType::Choice { .. },
            NodeValue::Integer(_) | NodeValue::Float(_) | NodeValue::Bool(_),
        ) => Some("put it in quotes".to_owned()),
        (_, NodeValue::Array(_))
            if !matches!(
                value_type,
                ValueType::TextList | ValueType::NumberList { .. } | ValueType::Numbers { .. }
            ) =>
        {
            Some("to run one trial for each value, put the array under [sweep.grid]".to_owned())
        }
        _ => None,
    }
}

/// A TOML value by itself.
pub fn literal_node(literal: &str) -> Option<Node> {
    let text = format!("v = {literal}");
    let table = toml::de::DeTable::parse(&text).ok()?;
    table_from_toml(0, table.get_ref()).into_iter().next().map(|(_, node)| node)
}

/// A text, or a problem that says what `what` takes.
pub fn text_of(what: &str, node: &Node, problems: &mut Vec<Problem>) -> Option<String> {
    if let NodeValue::Text(text) = &node.value {
        return Some(text.clone());
    }
    problems.push(Problem::new(node.at, format!("{what} takes text, not {}", node.describe()), "expected text"));
    None
}

/// A table, or a problem that says what `what` is.
pub fn table_of<'a>(what: &str, node: &'a Node, problems: &mut Vec<Problem>) -> Option<&'a NodeTable> {
    if let NodeValue::Table(table) = &node.value {
        return Some(table);
    }
    problems.push(Problem::new(node.at, format!("{what} is a table, not {}", node.describe()), "expected a table"));
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_value_of_its_key() {
        for spec in KEYS.iter() {
            let Some(default) = spec.default_value() else { continue };
            let literal = toml::Value::try_from(&default).unwrap().to_string();
            let accepted = accept(&spec.value, spec.key, &literal_node(&literal).unwrap());
            assert_eq!(accepted.ok(), Some(default), "{} = {literal}", spec.key);
        }
    }
}
