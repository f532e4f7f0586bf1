//! Hydra configs, which are YAML: not read as configs, but translated to the TOML that stands for them.
//!
//! The lines are scanned, not parsed: nested keys by indentation, scalars, lists of scalars and references (`${a.b}`), which is what such
//! configs are made of. What is not understood becomes a comment of the translation, never a setting.

use std::fmt::Write;
use std::path::Path;

use expctl_settings::{Array, KEYS, KeySpec, Pipeline, SECTIONS, Section, ValueType};

use crate::layer::{accept, literal_node};
use crate::suggest::{key_synonym, same_leaf, word_synonym};
use crate::synonyms::{KEY_SYNONYMS, KeySynonym};

/// Whether a file is YAML, by its extension.
pub fn is_yaml(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("yaml") || extension.eq_ignore_ascii_case("yml"))
}

/// The TOML that stands for `text`, the content of a YAML config called `name`: a line for each key that has a setting here, with the key
/// that it comes from; then a comment for each of the others.
pub fn toml_of_yaml(name: &str, text: &str) -> String {
    let entries = scan(text);
    let mut lines: Vec<Line> = Vec::new();
    let mut open: Vec<String> = Vec::new();
    for entry in &entries {
        match translated(entry, &entries) {
            Translated::Line(line) => match lines.iter_mut().find(|known| known.spec.key == line.spec.key) {
                Some(known) if known.rank <= line.rank => *known = line,
                Some(_) => {}
                None => lines.push(line),
            },
            Translated::Open(why) => open.push(format!("{} = {}: {why}", entry.path, shown(&entry.value))),
            Translated::LeftOut => {}
        }
    }
    render(name, &lines, &open)
}

/// A key of a YAML text with its value.
#[derive(Clone, Debug, PartialEq)]
struct YamlEntry {
    /// Dotted path.
    path: String,
    value: Value,
}

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Null,
    /// A scalar without its quotes, and whether it had any.
    Scalar(String, bool),
    /// A list of scalars, without their quotes.
    List(Vec<String>),
    /// Something else, as it stands there.
    Raw(String),
}

/// A line of the translation.
struct Line {
    spec: &'static KeySpec,
    /// The value in TOML.
    literal: String,
    /// The path that it comes from.
    from: String,
    note: &'static str,
    /// Position of the synonym in the table; of two lines for one key the one with the higher rank counts.
    rank: usize,
}

enum Translated {
    Line(Line),
    /// No setting, and why.
    Open(String),
    /// Nothing to say.
    LeftOut,
}

fn translated(entry: &YamlEntry, all: &[YamlEntry]) -> Translated {
    let value = resolved(&entry.value, all);
    let synonym = key_synonym(&entry.path);
    let spec = match synonym {
        Some(KeySynonym { ours: None, note, .. }) => return Translated::Open((*note).to_owned()),
        Some(synonym) => synonym.spec(),
        None => same_leaf(&entry.path),
    };
    let Some(spec) = spec else { return Translated::Open("no such setting here".to_owned()) };
    let note = synonym.map_or("", |synonym| synonym.note);
    // Without a synonym the key has our name, and yields to any that has one.
    let rank = synonym.map_or(0, |found| 1 + KEY_SYNONYMS.iter().position(|s| s.theirs == found.theirs).unwrap_or(0));
    let line = |spec, literal: String, note| Line { spec, literal, from: entry.path.clone(), note, rank };
    let literal = match synonym.and_then(|synonym| synonym.converted(&shown(&value))) {
        Some("") if note.is_empty() => return Translated::LeftOut,
        Some("") => return Translated::Open(format!("see {}; {note}", spec.key)),
        Some(ours) => return Translated::Line(line(spec, ours.to_owned(), note)),
        None => match toml_literal(&value) {
            Some(literal) => literal,
            None if value == Value::Null => return Translated::LeftOut,
            None => return Translated::Open(format!("the value of {} is not understood", spec.key)),
        },
    };
    if let (ValueType::Choice { .. }, Value::Scalar(text, _)) = (spec.value, &value)
        && let Some(word) = word_synonym(spec.key, text)
    {
        let ours = KEYS.iter().find(|spec| spec.key == word.key).filter(|_| !word.ours.is_empty());
        return match ours {
            Some(spec) => Translated::Line(line(spec, format!("\"{}\"", word.ours), word.note)),
            None => Translated::Open(word.note.to_owned()),
        };
    }
    match literal_node(&literal).map(|node| accept(&spec.value, spec.key, &node)) {
        Some(Ok(_)) => Translated::Line(line(spec, literal, note)),
        Some(Err(problem)) => Translated::Open(problem.message),
        None => Translated::Open(format!("the value of {} is not understood", spec.key)),
    }
}

/// The value that a reference to another key stands for; any other value is itself.
fn resolved(value: &Value, all: &[YamlEntry]) -> Value {
    let Value::Scalar(text, _) = value else { return value.clone() };
    let Some(path) = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) else { return value.clone() };
    let found = all.iter().find(|entry| entry.path == path).map(|entry| entry.value.clone());
    found.unwrap_or_else(|| Value::Raw(text.clone()))
}

/// A value as the synonyms compare it.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Scalar(text, true) => text.clone(),
        Value::Scalar(text, false) => match text.as_str() {
            "True" | "TRUE" => "true".to_owned(),
            "False" | "FALSE" => "false".to_owned(),
            _ => text.clone(),
        },
        Value::List(items) => format!("[{}]", items.join(", ")),
        Value::Raw(text) => text.clone(),
    }
}

/// A value in TOML; none of nothing, and of what was not understood.
fn toml_literal(value: &Value) -> Option<String> {
    let text = |text: &str| toml::Value::from(text).to_string();
    let scalar = |plain: &str| match (plain.parse::<i64>(), plain.parse::<f64>()) {
        (Ok(n), _) => n.to_string(),
        (_, Ok(x)) if x.is_finite() => format!("{x:?}"),
        _ => text(plain),
    };
    match value {
        Value::Null | Value::Raw(_) => None,
        Value::Scalar(quoted, true) => Some(text(quoted)),
        Value::Scalar(_, false) => Some(match shown(value).as_str() {
            flag @ ("true" | "false") => flag.to_owned(),
            plain => scalar(plain),
        }),
        Value::List(items) => {
            Some(format!("[{}]", items.iter().map(|item| text(item.as_str())).collect::<Vec<_>>().join(", ")))
        }
    }
}

fn render(name: &str, lines: &[Line], open: &[String]) -> String {
    let mut out = format!("# In the place of {name}\n");
    let set = |key: &str| lines.iter().any(|line| line.spec.key == key);
    for section in SECTIONS {
        let mut rows: Vec<String> = Vec::new();
        if section == Pipeline::NAME && !set(&Pipeline::PROCESSOR) && !set(&Array::FORMAT) {
            rows.push(
                "# processor = \"…\"  # the script says it: LazySubgraphRepresentation is \"lazy\", Perturbation \"perturbation\""
                    .to_owned(),
            );
        }
        for spec in KEYS.iter().filter(|spec| spec.section() == section) {
            let Some(line) = lines.iter().find(|line| line.spec.key == spec.key) else { continue };
            let note = if line.note.is_empty() { String::new() } else { format!("; {}", line.note) };
            rows.push(format!("{} = {}  # {}{note}", spec.leaf(), line.literal, line.from));
        }
        if !rows.is_empty() {
            // Writing to a string does not fail.
            let _ = writeln!(out, "\n[{section}]\n{}", rows.join("\n"));
        }
    }
    if !open.is_empty() {
        let _ = writeln!(out, "\n# Without a setting here:\n# {}", open.join("\n# "));
    }
    out
}

/// The keys of a YAML text that have a value of their own, in its order.
fn scan(text: &str) -> Vec<YamlEntry> {
    let mut entries: Vec<YamlEntry> = Vec::new();
    // Keys that the line is below, with their indentation.
    let mut above: Vec<(usize, String)> = Vec::new();
    let mut lines = text.lines().map(without_comment);
    while let Some(line) = lines.next() {
        let content = line.trim();
        if content.is_empty() || content == "---" || content == "..." {
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        if let Some(item) = content.strip_prefix('-').filter(|rest| rest.is_empty() || rest.starts_with(' ')) {
            // Items may stand as far to the left as their key.
            above.retain(|(of, _)| *of <= indent);
            push_item(&mut entries, &path_of(&above), item.trim());
            continue;
        }
        above.retain(|(of, _)| *of < indent);
        let Some((key, rest)) = split_key(content) else { continue };
        above.push((indent, key.to_owned()));
        let mut rest = rest.trim().to_owned();
        // A list may go on over several lines.
        while rest.starts_with('[') && !rest.ends_with(']') {
            let Some(next) = lines.next() else { break };
            rest.push(' ');
            rest.push_str(next.trim());
        }
        if !rest.is_empty() {
            entries.push(YamlEntry { path: path_of(&above), value: value_of(&rest) });
        }
    }
    entries
}

fn path_of(above: &[(usize, String)]) -> String {
    above.iter().map(|(_, key)| key.as_str()).collect::<Vec<_>>().join(".")
}

/// Append an item of a list that stands line by line; one that is a mapping makes the list no list of scalars.
fn push_item(entries: &mut Vec<YamlEntry>, path: &str, item: &str) {
    let mapping = split_key(item).is_some();
    match entries.last_mut().filter(|last| last.path == path) {
        Some(YamlEntry { value: Value::List(items), .. }) if !mapping => items.push(unquoted(item).0),
        Some(last) => last.value = Value::Raw("a list".to_owned()),
        None if mapping => entries.push(YamlEntry { path: path.to_owned(), value: Value::Raw("a list".to_owned()) }),
        None => entries.push(YamlEntry { path: path.to_owned(), value: Value::List(vec![unquoted(item).0]) }),
    }
}

/// `key: value` or `key:` apart; none of anything else.
fn split_key(content: &str) -> Option<(&str, &str)> {
    if content.starts_with(['"', '\'', '[', '{']) {
        return None;
    }
    content
        .strip_suffix(':')
        .map(|key| (key, ""))
        .filter(|(key, _)| !key.contains(": "))
        .or_else(|| content.split_once(": "))
}

fn value_of(text: &str) -> Value {
    match text {
        "null" | "~" | "Null" | "NULL" => Value::Null,
        // Mappings in one line, texts over several lines, anchors and tags.
        _ if text.starts_with(['{', '|', '>', '&', '*', '!']) => Value::Raw(text.to_owned()),
        _ => match text.strip_prefix('[').map(|rest| rest.strip_suffix(']')) {
            Some(Some(items)) => {
                let items = items.split(',').map(str::trim).filter(|item| !item.is_empty());
                Value::List(items.map(|item| unquoted(item).0).collect())
            }
            Some(None) => Value::Raw(text.to_owned()),
            None => {
                let (text, quoted) = unquoted(text);
                Value::Scalar(text, quoted)
            }
        },
    }
}

/// A scalar without the quotes around it, and whether it had any.
fn unquoted(text: &str) -> (String, bool) {
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return (inner.to_owned(), true);
        }
    }
    (text.to_owned(), false)
}

/// A line up to its comment: `#` at its start or behind a space, outside quotes.
fn without_comment(line: &str) -> &str {
    let mut quote: Option<char> = None;
    let mut before = ' ';
    for (at, c) in line.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '#' && before.is_whitespace() => return &line[..at],
            None if (c == '"' || c == '\'') && (before.is_whitespace() || "[,".contains(before)) => quote = Some(c),
            None => {}
        }
        before = c;
    }
    line
}

#[cfg(test)]
mod tests {
    use expctl_settings::find;

    use super::*;

    /// The forms that Hydra configs of torchcell have.
    const CONFIG: &str = r#"
# A comment: with a colon
defaults:
  - default
  - _self_

wandb:
  project: cells # not here
  tags: []
cell_dataset:
  graphs: [
      physical,
      string12_0_fusion,   # two
    ]
  node_embeddings:
    - learnable
  incidence_graphs: []
transforms:
  forward_transform:
    normalization:
      gene_interaction:
        strategy: "standard" # Options: standard, minmax
data_module:
  batch_size: 28 # 32 works
  num_workers: 4
  pin_memory: true
  prefetch: false
  use_full_masks: true
  persistent_workers: true
norms: "layer"
trainer:
  max_steps: 100
  strategy: ddp
  devices: 4
  precision: "bf16-mixed"  # "32-true"
model:
  norm: ${norms}
  hidden_channels: 64
  prediction_head_config:
    hidden_channels: 32
  local_predictor_config:
    num_heads: 8
regression_task:
  loss: logcosh
  execution_mode: "dataloader_profiling"
  optimizer:
    type: "AdamW"
    lr: 1e-4
  lr_scheduler:
    type: CosineAnnealingWarmupRestarts
    max_lr: 5e-4
  clip_grad_norm: true
  clip_grad_norm_max_norm: 10.0
  grad_accumulation_schedule: {0: 2}
"#;

    #[test]
    fn keys_are_found_by_indentation() {
        let found = scan(CONFIG);
        let value = |path: &str| found.iter().find(|entry| entry.path == path).map(|entry| entry.value.clone());
        let plain = |text: &str| Some(Value::Scalar(text.to_owned(), false));
        assert_eq!(value("data_module.batch_size"), plain("28"));
        assert_eq!(value("regression_task.optimizer.lr"), plain("1e-4"));
        assert_eq!(value("trainer.precision"), Some(Value::Scalar("bf16-mixed".to_owned(), true)));
        let graphs = ["physical", "string12_0_fusion"].map(str::to_owned).to_vec();
        assert_eq!(value("cell_dataset.graphs"), Some(Value::List(graphs)));
        assert_eq!(value("defaults"), Some(Value::List(vec!["default".to_owned(), "_self_".to_owned()])));
        assert_eq!(value("cell_dataset.incidence_graphs"), Some(Value::List(Vec::new())));
        assert_eq!(value("cell_dataset.node_embeddings"), Some(Value::List(vec!["learnable".to_owned()])));
        assert!(matches!(value("regression_task.grad_accumulation_schedule"), Some(Value::Raw(_))));
        assert_eq!(value("A comment"), None);
    }

    #[test]
    fn a_hydra_config_becomes_settings() {
        let text = toml_of_yaml("x.yaml", CONFIG);
        let read: toml::Table = toml::from_str(&text).unwrap();
        let of = |key: &str| {
            let (section, leaf) = key.split_once('.').unwrap();
            read.get(section).and_then(|section| section.get(leaf)).cloned()
        };
        let int = |n: i64| Some(toml::Value::from(n));
        let word = |word: &str| Some(toml::Value::from(word));
        assert_eq!(of("loader.batch_size"), int(28));
        assert_eq!(of("loader.workers"), int(4));
        assert_eq!(of("pipeline.store"), word("full_masks"));
        assert_eq!(of("pipeline.metabolism"), Some(toml::Value::from(false)));
        assert_eq!(of("launch.ranks"), int(4));
        assert_eq!(of("measure.steps"), int(100));
        assert_eq!(of("train.precision"), word("bf16_mixed"));
        assert_eq!(of("train.loss"), word("log_cosh"));
        assert_eq!(of("train.mode"), word("data"));
        assert_eq!(of("train.standardise_labels"), Some(toml::Value::from(true)));
        assert_eq!(of("train.learning_rate"), Some(toml::Value::from(5e-4)), "the peak of the cycles");
        assert_eq!(of("train.clip_norm"), Some(toml::Value::from(10.0)));
        assert_eq!(of("model.norm"), word("graph"), "a reference");
        assert_eq!(of("model.hidden"), int(64), "not that of a head that the model does not read");
        assert_eq!(of("model.heads"), int(8));
        // Every line is a setting with a value that it takes.
        for (section, settings) in &read {
            for (leaf, value) in settings.as_table().unwrap() {
                let key = format!("{section}.{leaf}");
                let spec = find(&key).unwrap_or_else(|| panic!("{key}: {text}"));
                let node = literal_node(&value.to_string()).unwrap();
                assert!(accept(&spec.value, spec.key, &node).is_ok(), "{key} = {value}");
            }
        }
        for said in [
            "# defaults = [default, _self_]: parents are named in `extends",
            "# wandb.project = cells: no tracker is written to",
            "# data_module.persistent_workers = true: loader threads live as long as the run",
            "# trainer.strategy = ddp: see launch.ranks; several ranks train with DDP",
            "# regression_task.grad_accumulation_schedule = {0: 2}: see train.accumulation; as [\"EPOCH:BATCHES\"]",
            "# processor = \"…\"  # the script says it",
            "mode = \"data\"  # regression_task.execution_mode; what ran under this name is \"zero_loss\"",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_a_comment() {
        let text = toml_of_yaml("x.yaml", "trainer:\n  devices: auto\n  precision: 16-mixed\nfree text\nzebra: 1\n");
        assert!(text.contains("# trainer.devices = auto: `launch.ranks` takes a whole number"), "{text}");
        assert!(text.contains("# trainer.precision = 16-mixed: float16 is not computed in"), "{text}");
        assert!(text.contains("# zebra = 1: no such setting here"), "{text}");
        let read: toml::Table = toml::from_str(&text).unwrap();
        assert!(read.values().all(|section| section.as_table().is_some_and(toml::Table::is_empty)), "{text}");
    }

    #[test]
    fn yaml_is_told_by_its_name() {
        let is = |name: &str| is_yaml(Path::new(name));
        assert!(is("a/x.yaml") && is("x.YML"));
        assert!(!is("x.toml") && !is("yaml"));
    }
}
