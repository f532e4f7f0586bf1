use std::collections::BTreeMap;

use expctl_record::Settings;
use serde_json::{Map, Value as Json};

use super::keys::KEYS;
use super::layer::{Layer, Setting};
use super::source::Origin;

/// All settings of one run, by dotted key.
///
/// A getter returns none for a value that a problem has been reported for: what depends on it is then not judged.
#[derive(Clone, Debug, Default)]
pub struct Values(pub(super) Layer);

impl Values {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Json> {
        self.0.get(key)?.value.as_ref()
    }

    /// A whole number.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.get(key)?.as_u64()
    }

    /// A text.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }

    /// An array of texts.
    pub fn texts(&self, key: &str) -> Option<Vec<&str>> {
        self.get(key)?.as_array()?.iter().map(Json::as_str).collect()
    }

    /// Where a key was set; none for a default.
    pub fn at(&self, key: &str) -> Option<Origin> {
        self.0.get(key)?.at
    }

    /// Where item `i` of an array was set, or at least the array.
    pub fn item_at(&self, key: &str, i: usize) -> Option<Origin> {
        let setting = self.0.get(key)?;
        setting.items.get(i).copied().or(setting.at)
    }

    /// Whether a key is set or has a default, valid or not.
    pub(super) fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    pub(super) fn derive(&mut self, key: &'static str, value: Option<Json>) {
        self.0.insert(key, Setting::unwritten(value));
    }

    /// Every key with its value, sorted by key.
    pub fn flat(&self) -> BTreeMap<&'static str, &Json> {
        self.0.iter().filter_map(|(key, s)| Some((*key, s.value.as_ref()?))).collect()
    }

    /// The typed side. None while a key has no valid value.
    pub fn settings(&self) -> Option<Settings> {
        let mut sections: Map<String, Json> = Map::new();
        for spec in KEYS.iter() {
            let value = self.get(spec.key)?.clone();
            let section = sections.entry(spec.section()).or_insert_with(|| Json::Object(Map::new()));
            section.as_object_mut()?.insert(spec.leaf().to_owned(), value);
        }
        #[expect(clippy::expect_used, reason = "a test walks KEYS and Settings: they describe the same keys")]
        let settings = serde_json::from_value(Json::Object(sections)).expect("checked values make settings");
        Some(settings)
    }
}
