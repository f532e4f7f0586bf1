//! Metadata of a key: its type, default, help, and the workloads that it matters for.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::ops::Deref;

use serde::Serialize;
use serde_json::Value as Json;

/// A dotted key, `loader.batch_size`, with the type of its value.
#[derive(Debug)]
pub struct Key<T> {
    name: &'static str,
    value: PhantomData<fn() -> T>,
}

impl<T> Key<T> {
    /// The key with this dotted name.
    pub const fn new(name: &'static str) -> Self {
        Self { name, value: PhantomData }
    }

    /// The dotted name.
    pub const fn name(self) -> &'static str {
        self.name
    }
}

impl<T> Clone for Key<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Key<T> {}

/// The dotted name, so that a key goes where a name does.
impl<T> Deref for Key<T> {
    type Target = str;

    fn deref(&self) -> &str {
        self.name
    }
}

impl<T> Display for Key<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The kind of data and program of a trial. A trial with a program has two workloads: [`Workload::Program`], and that of its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Samples of a graph.
    Graph,
    /// Rows of an array.
    Array,
    /// A program of the user's runs in the place of expctl's own worker.
    Program,
}

impl Workload {
    /// All workloads.
    pub const ALL: [Self; 3] = [Self::Graph, Self::Array, Self::Program];

    /// The workload of trials that read rows of an array (`array`), or samples of a graph.
    pub const fn from_data(array: bool) -> Self {
        if array { Self::Array } else { Self::Graph }
    }
}

/// Which values a key takes.
#[derive(Clone, Copy, Debug)]
pub enum ValueType {
    /// A string.
    Text,
    /// An array of strings.
    TextList,
    /// An array of whole numbers from 0 to `max`.
    NumberList {
        /// Largest.
        max: i64,
    },
    /// A number, or an array of numbers, both bounds included.
    Numbers {
        /// Smallest.
        min: f64,
        /// Largest.
        max: f64,
    },
    /// `true` or `false`.
    Bool,
    /// A whole number, both bounds included.
    Integer {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
    },
    /// A finite number.
    Number {
        /// Lower bound.
        min: f64,
        /// Whether the number has to be above `min`, and not `min` itself.
        above: bool,
        /// Largest.
        max: f64,
    },
    /// One of some words.
    Choice {
        /// The words.
        words: &'static [&'static str],
        /// Other names, each with the word that it stands for.
        aliases: &'static [(&'static str, &'static str)],
    },
}

impl ValueType {
    /// The same with a smallest whole number.
    #[must_use]
    pub const fn min_integer(self, min: i64) -> Self {
        match self {
            Self::Integer { max, .. } => Self::Integer { min, max },
            other => other,
        }
    }

    /// The same with a largest whole number.
    #[must_use]
    pub const fn max_integer(self, max: i64) -> Self {
        match self {
            Self::Integer { min, .. } => Self::Integer { min, max },
            other => other,
        }
    }

    /// The same with a smallest number.
    #[must_use]
    pub const fn min_number(self, min: f64) -> Self {
        match self {
            Self::Number { max, .. } => Self::Number { min, above: false, max },
            Self::Numbers { max, .. } => Self::Numbers { min, max },
            other => other,
        }
    }

    /// The same with a number that is itself too small.
    #[must_use]
    pub const fn above_number(self, min: f64) -> Self {
        match self {
            Self::Number { max, .. } => Self::Number { min, above: true, max },
            other => other,
        }
    }

    /// The same with a largest number.
    #[must_use]
    pub const fn max_number(self, max: f64) -> Self {
        match self {
            Self::Number { min, above, .. } => Self::Number { min, above, max },
            Self::Numbers { min, .. } => Self::Numbers { min, max },
            other => other,
        }
    }

    /// Its words in messages and the reference, for example "a whole number, 1 or more".
    pub fn describe(&self) -> String {
        match *self {
            Self::Text => "text".to_owned(),
            Self::TextList => "an array of texts".to_owned(),
            Self::NumberList { .. } => "an array of whole numbers, 0 or more".to_owned(),
            Self::Numbers { min, max } => format!("a number from {min} to {max}, or an array of them"),
            Self::Bool => "true or false".to_owned(),
            Self::Integer { min, max: i64::MAX } => format!("a whole number, {min} or more"),
            Self::Integer { min, max } => format!("a whole number, {min} to {max}"),
            Self::Number { min, above, max } => {
                let low = if above { format!("above {min}") } else { format!("{min} or more") };
                if max == f64::MAX { format!("a number, {low}") } else { format!("a number, {low}, at most {max}") }
            }
            Self::Choice { words, .. } => {
                let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
                match quoted.as_slice() {
                    [one] => one.clone(),
                    [head @ .., last] => format!("{} or {last}", head.join(", ")),
                    [] => String::new(),
                }
            }
        }
    }
}

/// A type that settings have.
pub trait SettingValue {
    /// Its values in a config, without the bounds of a single key.
    const TYPE: ValueType;
}

/// Far beyond any use, and safe in 32 bits.
const MAX_U32_SETTING: i64 = 1_000_000;

impl SettingValue for String {
    const TYPE: ValueType = ValueType::Text;
}

impl SettingValue for Vec<String> {
    const TYPE: ValueType = ValueType::TextList;
}

impl SettingValue for Vec<u32> {
    const TYPE: ValueType = ValueType::NumberList { max: MAX_U32_SETTING };
}

impl SettingValue for bool {
    const TYPE: ValueType = ValueType::Bool;
}

impl SettingValue for u64 {
    const TYPE: ValueType = ValueType::Integer { min: 0, max: i64::MAX };
}

impl SettingValue for u32 {
    const TYPE: ValueType = ValueType::Integer { min: 0, max: MAX_U32_SETTING };
}

impl SettingValue for f64 {
    const TYPE: ValueType = ValueType::Number { min: f64::MIN, above: false, max: f64::MAX };
}

/// A setting as JSON. Settings are plain values, of which each can be written.
pub fn to_json(value: &impl Serialize) -> Json {
    serde_json::to_value(value).unwrap_or_default()
}

/// The value of a key that nothing sets.
#[derive(Clone, Copy, Debug)]
pub enum KeyDefault {
    /// It has to be set.
    Required,
    /// A value.
    Value(fn() -> Json),
    /// Taken from something else; the text says from what.
    Derived(&'static str),
}

/// How a setting takes part in the id of a trial.
#[derive(Clone, Copy, Debug)]
pub enum InId {
    /// Whatever its value is.
    Always,
    /// Unless it has the value that trials had before there was the key, whose ids stay what they were.
    Unless(fn() -> Json),
    /// Not at all: it says how a trial is described, found or waited for, not what it runs.
    Never,
}

/// All that is known of a key.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// The dotted key, `section.name`.
    pub key: &'static str,
    /// Which values it takes.
    pub value: ValueType,
    /// Its value when nothing sets it.
    pub default: KeyDefault,
    /// Its meaning, one line.
    pub help: &'static str,
    /// The workloads that it matters for.
    pub workloads: &'static [Workload],
    /// Whether it holds for the whole job, so that variants and sweeps cannot change it: one job has one note, and runs on one
    /// cluster.
    pub per_job: bool,
    /// How it takes part in the id of a trial.
    pub in_id: InId,
}

impl KeySpec {
    /// The part before the dot.
    pub fn section(&self) -> &'static str {
        self.key.split_once('.').map_or("", |(section, _)| section)
    }

    /// The part after the dot.
    pub fn leaf(&self) -> &'static str {
        self.key.split_once('.').map_or(self.key, |(_, leaf)| leaf)
    }

    /// Whether it matters for the workload.
    pub fn applies_to(&self, workload: Workload) -> bool {
        self.workloads.contains(&workload)
    }

    /// The fixed default; none of keys that have none.
    pub fn default_value(&self) -> Option<Json> {
        match self.default {
            KeyDefault::Value(value) => Some(value()),
            KeyDefault::Required | KeyDefault::Derived(_) => None,
        }
    }

    /// Whether a trial with this value of the key has it in its id.
    pub fn is_in_id(&self, value: &Json) -> bool {
        match self.in_id {
            InId::Always => true,
            InId::Unless(before) => *value != before(),
            InId::Never => false,
        }
    }
}

/// A section of a config.
pub trait Section {
    /// Its name.
    const NAME: &'static str;
    /// Its keys, in the order of the reference.
    const KEYS: &'static [KeySpec];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KEYS, Loader, SECTIONS, find};

    #[test]
    fn a_field_has_its_key_in_the_table() {
        assert_eq!((Loader::BATCH_SIZE.name(), &*Loader::WORKERS), ("loader.batch_size", "loader.workers"));
        let spec = find(&Loader::BATCH_SIZE).unwrap();
        assert_eq!((spec.section(), spec.leaf(), spec.help), ("loader", "batch_size", "Samples per rank and step"));
        assert_eq!(spec.value.describe(), "a whole number, 1 or more");
        assert!(matches!(spec.default, KeyDefault::Required) && spec.is_in_id(&Json::from(0)));
        let buffer = find(&Loader::BUFFER_MIB).unwrap();
        assert!(!buffer.is_in_id(&Json::from(0)) && buffer.is_in_id(&Json::from(1)));
    }

    #[test]
    fn keys_stand_in_their_sections() {
        let mut sections: Vec<&str> = KEYS.iter().map(KeySpec::section).collect();
        sections.dedup();
        assert_eq!(sections, SECTIONS);
        assert!(KEYS.iter().all(|spec| !spec.workloads.is_empty()), "a key that matters nowhere");
    }
}
