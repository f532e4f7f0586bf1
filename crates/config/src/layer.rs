use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value as Json;

use super::keys;
use super::keys::{KEYS, Preset};
use super::node::{Key, Node, Table, Value, flatten, table_from_toml};
use super::problem::Problem;
use super::source::Origin;
use super::suggest::{closest_key, key_synonym};

/// A checked value of a key.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Its canonical form. None where a problem has been reported: what depends on it is then not judged.
    pub value: Option<Json>,
    /// Where it stands; none for a default.
    pub at: Option<Origin>,
    /// Where each item of an array stands; empty for a default.
    pub items: Vec<Origin>,
}

impl Setting {
    /// What `node` sets, checked. A problem leaves it without a value.
    pub(super) fn read(spec: &keys::KeySpec, node: &Node, problems: &mut Vec<Problem>) -> Self {
        let value = spec.kind.accept(spec.key, node).map_err(|problem| problems.push(*problem)).ok();
        let items = match &node.value {
            Value::Array(items) => items.iter().map(|item| item.at).collect(),
            _ => Vec::new(),
        };
        Self { value, at: Some(node.at), items }
    }

    /// What was meant, but could not be read.
    pub(super) fn unread(at: Origin) -> Self {
        Self { value: None, at: Some(at), items: Vec::new() }
    }

    /// What nobody wrote.
    pub(super) fn unwritten(value: Option<Json>) -> Self {
        Self { value, at: None, items: Vec::new() }
    }
}

/// Settings by dotted key. Layers on top of each other make a trial: the upper one wins key by key.
pub type Layer = BTreeMap<&'static str, Setting>;

/// Where a table of settings stands, which decides what it may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// For the whole config.
    Config,
    /// For a variant or a point of a sweep.
    Trial,
}

/// Read the settings of `table`, whose keys lie under `prefix` (a section, or nothing).
pub(super) fn read_settings(prefix: &str, table: &Table, scope: Scope, problems: &mut Vec<Problem>) -> Layer {
    let mut layer = Layer::new();
    for (key, node) in flatten(prefix, table) {
        let Some(spec) = known_key(&key, &node, scope, problems, &mut layer) else { continue };
        layer.insert(spec.key, Setting::read(spec, &node, problems));
    }
    layer
}

/// The key's entry in the table; reports an unknown one. What an unknown key with this `value` stands for in another system, or was
/// probably meant to be, is marked in `layer` as set, so that it is not reported as missing as well.
pub(super) fn known_key(
    key: &Key,
    value: &Node,
    scope: Scope,
    problems: &mut Vec<Problem>,
    layer: &mut Layer,
) -> Option<&'static keys::KeySpec> {
    let (name, at) = (&key.name, key.at);
    let Some(spec) = keys::find(name) else {
        let problem = Problem::new(at, format!("unknown key `{name}`"), "no such key");
        let mark = |layer: &mut Layer, spec: &'static keys::KeySpec| {
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
            (None, None) => problem.help("all keys are listed in docs/config.md"),
        });
        return None;
    };
    if scope == Scope::Trial && spec.per_job() {
        let problem = Problem::new(at, format!("`{name}` cannot differ between the trials of a job"), "not here");
        problems.push(problem.help(format!("set it once, in [{}]", spec.section())));
        return None;
    }
    Some(spec)
}

/// All keys that have a fixed default.
pub(super) static DEFAULTS: LazyLock<Layer> = LazyLock::new(|| {
    let mut layer = Layer::new();
    for spec in KEYS.iter() {
        if let Preset::Value(literal) = spec.preset {
            // A literal that does not parse or fit would leave the key unset; a test reads them all.
            let value = literal_node(literal).and_then(|node| spec.kind.accept(spec.key, &node).ok());
            layer.insert(spec.key, Setting::unwritten(value));
        }
    }
    layer
});

/// A TOML value by itself.
pub(super) fn literal_node(literal: &str) -> Option<Node> {
    let text = format!("v = {literal}");
    let table = toml::de::DeTable::parse(&text).ok()?;
    table_from_toml(0, table.get_ref()).into_iter().next().map(|(_, node)| node)
}

/// A text, or a problem that says what `what` takes.
pub(super) fn text_of(what: &str, node: &Node, problems: &mut Vec<Problem>) -> Option<String> {
    if let Value::Text(text) = &node.value {
        return Some(text.clone());
    }
    problems.push(Problem::new(node.at, format!("{what} takes text, not {}", node.describe()), "expected text"));
    None
}

/// A table, or a problem that says what `what` is.
pub(super) fn table_of<'a>(what: &str, node: &'a Node, problems: &mut Vec<Problem>) -> Option<&'a Table> {
    if let Value::Table(table) = &node.value {
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
            if let Preset::Value(literal) = spec.preset {
                assert!(DEFAULTS[spec.key].value.is_some(), "{} = {literal}", spec.key);
            }
        }
    }
}
