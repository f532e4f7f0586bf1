//! The content of one text, before layers are laid on top of each other.

use std::collections::BTreeMap;

use expctl_settings::{Estimator, KEYS, KeySpec, SECTIONS, SettingValue};

use crate::layer::{Layer, Scope, Setting, accept, read_settings, table_of, text_of};
use crate::node::{Node, NodeKey, NodeTable, NodeValue, ValueOrigin, flatten};
use crate::problem::Problem;
use crate::search::{SearchTable, read_search};
use crate::suggest::{closest, closest_key, closest_top, key_synonym, same_leaf, section_synonym};
use crate::sweep::{Sweep, read_sweep};

/// One `[variant.NAME]`.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The name.
    pub name: String,
    /// Its name in tables.
    pub method: Option<String>,
    /// Its settings.
    pub settings: Layer,
    /// The variant of another config that it builds on, as `extends` names it: `FILE#VARIANT`.
    pub extends: Option<(String, ValueOrigin)>,
    /// All that this other config sets for that variant; below the settings of this config's files. None without `extends`.
    pub base: Option<Layer>,
    /// First place of the name; none for the variant of a config that names none.
    pub at: Option<ValueOrigin>,
}

impl Variant {
    /// A variant that sets nothing yet.
    pub fn named(name: &str, at: Option<ValueOrigin>) -> Self {
        Self { name: name.to_owned(), method: None, settings: Layer::new(), extends: None, base: None, at }
    }
}

/// The content of one text: a file, or a `--set` argument.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// Files it builds on.
    pub extends: Vec<(String, ValueOrigin)>,
    /// Settings outside variants.
    pub settings: Layer,
    /// First place of each section.
    pub sections: BTreeMap<&'static str, ValueOrigin>,
    /// Variants, in order.
    pub variants: Vec<Variant>,
    /// `compare.baseline`.
    pub baseline: Option<(String, ValueOrigin)>,
    /// `compare.estimators`; none where it is not set.
    pub estimators: Option<Vec<Estimator>>,
    /// `[sweep]`.
    pub sweep: Sweep,
    /// `[search]`.
    pub search: SearchTable,
}

impl Document {
    /// Read a tree and report all that is wrong with it.
    pub fn read(tree: &NodeTable, problems: &mut Vec<Problem>) -> Self {
        let mut document = Self::default();
        for (key, node) in tree {
            match key.name.as_str() {
                "extends" => document.extends = read_extends(node, problems),
                "variant" => document.read_variants(node, problems),
                "compare" => document.read_compare(node, problems),
                "sweep" => {
                    if let Some(table) = table_of("`sweep`", node, problems) {
                        document.sweep = read_sweep(key.at, table, problems);
                    }
                }
                "search" => {
                    if let Some(table) = table_of("`search`", node, problems) {
                        document.search = read_search(key.at, table, problems);
                    }
                }
                _ => document.read_top(key, node, problems),
            }
        }
        document
    }

    /// A section, a dotted key in quotes, or something unknown.
    fn read_top(&mut self, key: &NodeKey, node: &Node, problems: &mut Vec<Problem>) {
        if let Some(section) = SECTIONS.into_iter().find(|s| *s == key.name) {
            self.sections.entry(section).or_insert(key.at);
            if let Some(table) = table_of(&format!("`{section}`"), node, problems) {
                self.settings.extend(read_settings(section, table, Scope::Config, problems));
            }
        } else if key.name.contains('.') {
            let single = vec![(key.clone(), node.clone())];
            self.settings.extend(read_settings("", &single, Scope::Config, problems));
        } else {
            unknown_top(key, node, &mut self.settings, problems);
        }
    }

    fn read_variants(&mut self, node: &Node, problems: &mut Vec<Problem>) {
        let Some(table) = table_of("`variant`", node, problems) else { return };
        for (key, node) in table {
            check_name(key, problems);
            let mut variant = Variant::named(&key.name, Some(key.at));
            let Some(table) = table_of(&format!("variant `{}`", key.name), node, problems) else { continue };
            for (inner, node) in table {
                if inner.name == "method" {
                    variant.method = text_of("`method`", node, problems);
                } else if inner.name == "extends" {
                    variant.extends = text_of("`extends` of a variant", node, problems).map(|named| (named, node.at));
                } else if let Some(section) = SECTIONS.into_iter().find(|s| *s == inner.name) {
                    if let Some(table) = table_of(&format!("`{section}`"), node, problems) {
                        variant.settings.extend(read_settings(section, table, Scope::Trial, problems));
                    }
                } else if inner.name.contains('.') {
                    let single = vec![(inner.clone(), node.clone())];
                    variant.settings.extend(read_settings("", &single, Scope::Trial, problems));
                } else {
                    unknown_top(inner, node, &mut variant.settings, problems);
                }
            }
            self.variants.push(variant);
        }
    }

    fn read_compare(&mut self, node: &Node, problems: &mut Vec<Problem>) {
        let Some(table) = table_of("`compare`", node, problems) else { return };
        for (key, node) in table {
            match key.name.as_str() {
                "baseline" => {
                    self.baseline = text_of("`compare.baseline`", node, problems).map(|name| (name, node.at));
                }
                "estimators" => self.estimators = Some(read_estimators(node, problems)),
                name => {
                    let problem = Problem::new(key.at, format!("unknown key `compare.{name}`"), "no such key");
                    problems.push(match closest(name, ["baseline", "estimators"]) {
                        Some(near) => problem.help(format!("did you mean `compare.{near}`?")),
                        None => problem.help("[compare] takes `baseline`, the name of a variant, and `estimators`"),
                    });
                }
            }
        }
    }

    /// Put `over` on top: tables are merged key by key, every other value is replaced.
    pub fn extend(&mut self, over: Self) {
        self.settings.extend(over.settings);
        self.sections.extend(over.sections);
        for variant in over.variants {
            match self.variants.iter_mut().find(|v| v.name == variant.name) {
                Some(below) => {
                    below.settings.extend(variant.settings);
                    below.method = variant.method.or(below.method.take());
                    below.base = variant.base.or(below.base.take());
                    below.at = variant.at;
                }
                None => self.variants.push(variant),
            }
        }
        self.baseline = over.baseline.or(self.baseline.take());
        self.estimators = over.estimators.or(self.estimators.take());
        self.sweep.extend(over.sweep);
        self.search.extend(over.search);
    }
}

fn read_extends(node: &Node, problems: &mut Vec<Problem>) -> Vec<(String, ValueOrigin)> {
    match &node.value {
        NodeValue::Array(items) => {
            items.iter().filter_map(|item| text_of("`extends`", item, problems).map(|path| (path, item.at))).collect()
        }
        _ => text_of("`extends`", node, problems).map(|path| (path, node.at)).into_iter().collect(),
    }
}

/// Report an unknown table or value; a setting that was probably meant counts as set.
fn unknown_top(key: &NodeKey, node: &Node, layer: &mut Layer, problems: &mut Vec<Problem>) {
    if let NodeValue::Table(table) = &node.value {
        unknown_section(key, table, layer, problems);
        return;
    }
    let problem = Problem::new(key.at, format!("unknown key `{}`", key.name), "no such key");
    let in_section =
        |spec: &KeySpec| format!("did you mean `{}`? settings belong to a section: [{}]", spec.key, spec.section());
    if let Some(spec) = same_leaf(&key.name) {
        mark(layer, spec, key.at);
        problems.push(problem.help(in_section(spec)));
        return;
    }
    if let Some(synonym) = key_synonym(&key.name) {
        synonym.spec().into_iter().for_each(|spec| mark(layer, spec, key.at));
        problems.push(problem.help(synonym.help(Some(node))));
        return;
    }
    problems.push(match (closest_top(&key.name), closest_key(&key.name)) {
        (Some(top), _) => problem.help(format!("did you mean `{top}`?")),
        (None, Some(spec)) => {
            mark(layer, spec, key.at);
            problem.help(in_section(spec))
        }
        (None, None) => problem.help("all keys are listed in docs/reference/config.md"),
    });
}

/// Report a table that is no section: key by key where another system has it, else as a whole.
fn unknown_section(key: &NodeKey, table: &NodeTable, layer: &mut Layer, problems: &mut Vec<Problem>) {
    let leaves = flatten(&key.name, table);
    let of_others = section_synonym(&key.name).is_some() || leaves.iter().any(|(k, _)| key_synonym(&k.name).is_some());
    if of_others && !leaves.is_empty() {
        for (leaf, node) in &leaves {
            let problem = Problem::new(leaf.at, format!("unknown key `{}`", leaf.name), "no such key");
            problems.push(match (key_synonym(&leaf.name), same_leaf(&leaf.name)) {
                (Some(synonym), _) => {
                    synonym.spec().into_iter().for_each(|spec| mark(layer, spec, leaf.at));
                    problem.help(synonym.help(Some(node)))
                }
                (None, Some(spec)) => {
                    mark(layer, spec, leaf.at);
                    problem.help(format!("it is `{}` here ({})", spec.key, spec.help))
                }
                (None, None) => problem.help("all keys are listed in docs/reference/config.md"),
            });
        }
        return;
    }
    let problem = Problem::new(key.at, format!("unknown section `{}`", key.name), "no such section");
    problems.push(match (section_synonym(&key.name), closest_top(&key.name)) {
        (Some(ours), _) => problem.help(format!("its keys are in [{}] here", ours.join("], ["))),
        (None, Some(near)) => {
            KEYS.iter().filter(|spec| spec.section() == near).for_each(|spec| mark(layer, spec, key.at));
            problem.help(format!("did you mean `{near}`?"))
        }
        (None, None) => problem.help(format!("sections are {}", SECTIONS.join(", "))),
    });
}

/// Count a key as set at `at`, so that it is not reported as missing as well.
fn mark(layer: &mut Layer, spec: &'static KeySpec, at: ValueOrigin) {
    layer.entry(spec.key).or_insert(Setting::unread(at));
}

/// A variant's name becomes part of folder names.
fn check_name(key: &NodeKey, problems: &mut Vec<Problem>) {
    let first = key.name.chars().next().is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let rest = key.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c));
    if !(first && rest && key.name.len() <= 64) {
        let problem = Problem::new(key.at, format!("`{}` cannot name a variant", key.name), "part of folder names");
        problems.push(problem.help(
            "use up to 64 lowercase letters, digits, `_` and `-`, the first a letter or digit; `method` takes free text",
        ));
    }
}

/// `compare.estimators`: an array of known words; a word that stands there twice counts once.
pub fn read_estimators(node: &Node, problems: &mut Vec<Problem>) -> Vec<Estimator> {
    const KEY: &str = "compare.estimators";
    let word = <Estimator as SettingValue>::TYPE;
    let NodeValue::Array(items) = &node.value else {
        let takes = format!("an array of {}", word.describe());
        let problem = Problem::new(node.at, format!("`{KEY}` takes {takes}, not {}", node.describe()), "not an array");
        problems.push(problem.help(format!("write `estimators = [{}]`", word.describe())));
        return Vec::new();
    };
    let mut found = Vec::new();
    for item in items {
        match accept(&word, KEY, item) {
            Ok(name) => {
                let meant = Estimator::ALL.into_iter().find(|e| name.as_str() == Some(e.name()));
                found.extend(meant.filter(|e| !found.contains(e)));
            }
            Err(problem) => problems.push(*problem),
        }
    }
    found
}
