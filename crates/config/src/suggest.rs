//! Suggestions for unknown keys and words.

pub use expctl_text::closest;

use expctl_settings::{KEYS, KeySpec, SECTIONS, ValueType, find};

use crate::node::{Node, NodeValue};
use crate::synonyms::{KEY_SYNONYMS, KeySynonym, SECTION_SYNONYMS, WORD_SYNONYMS, WordSynonym};

/// The key that an unknown dotted key, which no other system has either, was probably meant to be: the same name in another section, or
/// a near spelling.
pub fn closest_key(unknown: &str) -> Option<&'static KeySpec> {
    let (section, leaf) = unknown.rsplit_once('.').unwrap_or(("", unknown));
    let here = KEYS.iter().filter(|spec| spec.section() == section);
    if let Some(near) = closest(leaf, here.map(KeySpec::leaf)) {
        return KEYS.iter().find(|spec| spec.section() == section && spec.leaf() == near);
    }
    if let Some(spec) = same_leaf(unknown) {
        return Some(spec);
    }
    let near = closest(leaf, KEYS.iter().map(KeySpec::leaf))?;
    KEYS.iter().find(|spec| spec.leaf() == near)
}

/// The key with the last part of `path`: in the sections that its section of another system stands for, else in any.
pub fn same_leaf(path: &str) -> Option<&'static KeySpec> {
    let (section, leaf) = path.rsplit_once('.').unwrap_or(("", path));
    let outermost = section.split('.').next().unwrap_or(section);
    let preferred = section_synonym(outermost).unwrap_or_default();
    let named = || KEYS.iter().filter(|spec| spec.leaf() == leaf);
    let there = preferred.iter().find_map(|section| named().find(|spec| spec.section() == *section));
    there.or_else(|| named().next())
}

/// The synonym for the key at the dotted `path` of another system: the one with the longest name that fits.
pub fn key_synonym(path: &str) -> Option<&'static KeySynonym> {
    let path = path.to_ascii_lowercase().replace('-', "_");
    let length = |name: &str| {
        let name = name.to_ascii_lowercase();
        // A whole section is more than any name within it.
        let (fits, length) = match name.ends_with('.') {
            true => (format!(".{path}.").contains(&format!(".{name}")), usize::MAX),
            false => (path == name || path.ends_with(&format!(".{name}")), name.len()),
        };
        fits.then_some(length)
    };
    let found = KEY_SYNONYMS.iter().filter_map(|synonym| {
        let longest = synonym.theirs.iter().filter_map(|name| length(name)).max()?;
        Some((longest, synonym))
    });
    found.max_by_key(|(longest, _)| *longest).map(|(_, synonym)| synonym)
}

/// The synonym for a `word` of another system: as a value of `key`, else of any key.
pub fn word_synonym(key: &str, word: &str) -> Option<&'static WordSynonym> {
    let folded = |word: &str| word.to_ascii_lowercase().replace(['-', ' '], "_");
    let word = folded(word);
    let fitting = || WORD_SYNONYMS.iter().filter(|synonym| synonym.theirs.iter().any(|theirs| folded(theirs) == word));
    fitting().find(|synonym| synonym.key == key).or_else(|| fitting().next())
}

/// Our sections for the keys of a section of another system; none of a section that nobody has.
pub fn section_synonym(name: &str) -> Option<&'static [&'static str]> {
    let name = name.to_ascii_lowercase().replace('-', "_");
    SECTION_SYNONYMS.iter().find(|(theirs, _)| *theirs == name).map(|(_, ours)| *ours)
}

impl KeySynonym {
    /// Our value in TOML for their `text`, where it is another one; empty where the key is left out.
    pub fn converted(&self, text: &str) -> Option<&'static str> {
        let found = self.values.iter().find(|(theirs, _)| *theirs == text || *theirs == "*");
        found.map(|(_, ours)| *ours)
    }

    /// Our key.
    pub fn spec(&self) -> Option<&'static KeySpec> {
        find(self.ours?)
    }

    /// Help for a config with their key and this `value`: what to write instead.
    pub fn help(&self, value: Option<&Node>) -> String {
        let Some(spec) = self.spec() else { return self.note.to_owned() };
        let text = value.and_then(plain).unwrap_or_default();
        let takes_words = matches!(spec.value, ValueType::Choice { .. });
        let word = word_synonym(spec.key, &text).filter(|word| takes_words && !word.ours.is_empty());
        let said = match (self.converted(&text), word) {
            (Some(ours), _) if !ours.is_empty() => format!("`{} = {ours}`", spec.key),
            (None, Some(word)) => format!("`{} = \"{}\"`", word.key, word.ours),
            _ => format!("`{}`", spec.key),
        };
        format!("it is {said} here ({}){}", spec.help, and(self.note))
    }
}

impl WordSynonym {
    /// Help for a config with their word as a value of `key`: what to write instead.
    pub fn help(&self, key: &str) -> String {
        match self.ours {
            "" => self.note.to_owned(),
            ours if self.key == key => format!("it is \"{ours}\" here{}", and(self.note)),
            ours => format!("that is `{} = \"{ours}\"` here{}", self.key, and(self.note)),
        }
    }
}

fn and(note: &str) -> String {
    if note.is_empty() { String::new() } else { format!("; {note}") }
}

/// A value as the text that [`KeySynonym::values`] compares; none of tables, dates and longer arrays.
fn plain(node: &Node) -> Option<String> {
    match &node.value {
        NodeValue::Text(text) => Some(text.clone()),
        NodeValue::Integer(n) => Some(n.to_string()),
        NodeValue::Float(x) => Some(x.to_string()),
        NodeValue::Bool(flag) => Some(flag.to_string()),
        NodeValue::Array(items) => match items.as_slice() {
            [] => Some("[]".to_owned()),
            [one] => Some(format!("[{}]", plain(one)?)),
            _ => None,
        },
        NodeValue::NoNumber(_) | NodeValue::Datetime | NodeValue::Table(_) => None,
    }
}

/// The section or other top-level name that was probably meant.
pub fn closest_top(unknown: &str) -> Option<&'static str> {
    closest(unknown, SECTIONS.into_iter().chain(["extends", "variant", "compare", "sweep", "search"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::literal_node;

    #[test]
    fn what_was_meant_is_found() {
        let meant = |key| closest_key(key).map(|spec| spec.key);
        assert_eq!(meant("loader.batchsize"), Some("loader.batch_size"));
        assert_eq!(meant("loader.hidden"), Some("model.hidden"), "another section's key");
        assert_eq!(meant("loader.zebra"), None);
        assert_eq!(closest_top("varient"), Some("variant"));
        assert_eq!(closest("006_kuzmin_tmi", ["001-other", "006-kuzmin-tmi"]), Some("006-kuzmin-tmi"));
    }

    #[test]
    fn the_longest_name_that_fits_is_meant() {
        let ours = |path: &str| key_synonym(path).map(|synonym| synonym.ours);
        assert_eq!(ours("num_workers"), Some(Some("loader.workers")));
        assert_eq!(ours("data_module.num_workers"), Some(Some("loader.workers")));
        assert_eq!(ours("train.lr"), Some(Some("train.learning_rate")));
        assert_eq!(ours("trainer.strategy"), Some(Some("launch.ranks")));
        assert_eq!(ours("sampler.strategy"), Some(Some("sampler.draw")));
        let standard = "transforms.forward_transform.normalization.gene_interaction.strategy";
        assert_eq!(ours(standard), Some(Some("train.standardise_labels")));
        assert_eq!(ours("model.graphs"), Some(Some("model.edge_types")));
        assert_eq!(ours("cell_dataset.graphs"), Some(Some("pipeline.edge_types")));
        // What the published model does not read is not taken for what it reads.
        assert_eq!(ours("model.hidden_channels"), Some(Some("model.hidden")));
        assert_eq!(ours("model.prediction_head_config.hidden_channels"), Some(None));
        assert_eq!(ours("wandb.project"), Some(None));
        assert_eq!(ours("persistent-workers"), Some(None));
        assert_eq!((ours("loader.batchsize"), ours("zebra"), ours("mywandb.x")), (None, None, None));
    }

    #[test]
    fn words_are_found_whatever_their_case() {
        let ours = |key: &str, word: &str| word_synonym(key, word).map(|synonym| (synonym.key, synonym.ours));
        let lazy = Some(("pipeline.processor", "lazy"));
        assert_eq!(ours("pipeline.processor", "LazySubgraphRepresentation"), lazy);
        assert_eq!(ours("model.kind", "lazysubgraphrepresentation"), lazy, "a value of another key");
        assert_eq!(ours("model.kind", "HeteroCellBipartiteDangoGI"), Some(("model.kind", "lazy")));
        assert_eq!(ours("train.precision", "bf16-mixed"), Some(("train.precision", "bf16_mixed")));
        assert_eq!(ours("array.format", "tiledbsoma"), Some(("array.format", "")));
        assert_eq!(ours("array.format", "Merlin"), Some(("sampler.preset", "merlin")));
        assert_eq!(ours("pipeline.processor", "lazzy"), None);
    }

    #[test]
    fn a_key_of_ours_is_found_in_their_section() {
        let ours = |path: &str| same_leaf(path).map(|spec| spec.key);
        assert_eq!(ours("data_module.batch_size"), Some("loader.batch_size"));
        assert_eq!(ours("trainer.precision"), Some("train.precision"));
        assert_eq!(ours("data_module.seed"), Some("loader.seed"), "of several that of the section");
        assert_eq!(ours("data_module.zebra"), None);
    }

    #[test]
    fn help_says_the_value_where_it_changes() {
        let help = |path: &str, value: &str| {
            let node = literal_node(value).unwrap();
            key_synonym(path).unwrap().help(Some(&node))
        };
        let starts = |said: String, with: &str| assert!(said.starts_with(with), "{said}");
        starts(help("data_module.use_full_masks", "true"), "it is `pipeline.store = \"full_masks\"` here (");
        let processor = help("graph_processor.type", "\"LazySubgraphRepresentation\"");
        starts(processor, "it is `pipeline.processor = \"lazy\"` here (");
        // A number of threads is no word of any key.
        starts(help("num_workers", "32"), "it is `loader.workers` here (");
        let strategy = help("train.strategy", "\"ddp\"");
        assert!(strategy.ends_with("the number of GPUs"), "{strategy}");
        starts(strategy, "it is `launch.ranks` here (");
        starts(help("persistent_workers", "true"), "loader threads live as long as the run");
    }
}
