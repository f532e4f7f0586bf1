use serde_json::Value as Json;

use super::node::{Node, Value};
use super::problem::Problem;
use super::suggest::{closest, word_synonym};

/// What a key takes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A string.
    Text,
    /// An array of strings.
    TextList,
    /// An array of whole numbers from 0 to so many.
    NumberList {
        /// Largest.
        max: i64,
    },
    /// `true` or `false`.
    Bool,
    /// A whole number, both ends included.
    Integer {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
    },
    /// A finite number.
    Number {
        /// Smallest.
        min: f64,
        /// Whether `min` itself is allowed.
        from: bool,
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

impl Kind {
    /// What a message or the reference calls it, for example "a whole number, 1 or more".
    pub fn describe(&self) -> String {
        match *self {
            Self::Text => "text".to_owned(),
            Self::TextList => "an array of texts".to_owned(),
            Self::NumberList { .. } => "an array of whole numbers, 0 or more".to_owned(),
            Self::Bool => "true or false".to_owned(),
            Self::Integer { min, max: i64::MAX } => format!("a whole number, {min} or more"),
            Self::Integer { min, max } => format!("a whole number, {min} to {max}"),
            Self::Number { min, from, max } => {
                let low = if from { format!("{min} or more") } else { format!("above {min}") };
                if max == f64::MAX { format!("a number, {low}") } else { format!("a number, {low}, at most {max}") }
            }
            Self::Choice { words, .. } => {
                let quoted: Vec<String> = words.iter().map(|w| format!("\"{w}\"")).collect();
                match quoted.as_slice() {
                    [one] => one.clone(),
                    [head @ .., last] => format!("{} or {last}", head.join(", ")),
                    [] => String::new(),
                }
            }
        }
    }

    /// The value in its one canonical form, or what is wrong with it. `key` is the dotted key.
    pub(super) fn accept(&self, key: &str, node: &Node) -> Result<Json, Box<Problem>> {
        let wrong_type = |node: &Node| {
            let problem = Problem::new(
                node.at,
                format!("`{key}` takes {}, not {}", self.describe(), node.describe()),
                format!("expected {}", self.describe()),
            );
            Box::new(match self.repair(key, node) {
                Some(help) => problem.help(help),
                None => problem,
            })
        };
        let range = |node: &Node| {
            Problem::new(
                node.at,
                format!("`{key}` is out of range: {}", node.describe()),
                format!("expected {}", self.describe()),
            )
        };
        match (*self, &node.value) {
            (Self::Text, Value::Text(text)) => Ok(Json::from(text.as_str())),
            (Self::Bool, Value::Bool(flag)) => Ok(Json::from(*flag)),
            (Self::Integer { min, max }, Value::Integer(n)) => match i64::try_from(*n) {
                Ok(n) if (min..=max).contains(&n) => Ok(Json::from(n)),
                Err(_) if *n > 0 => Err(Box::new(range(node).help(format!("the largest is {max}")))),
                _ => Err(Box::new(range(node))),
            },
            (Self::Number { min, from, max }, Value::Integer(_) | Value::Float(_)) => {
                let x = match node.value {
                    Value::Integer(n) => n as f64,
                    Value::Float(x) => x,
                    _ => f64::NAN,
                };
                let low = if from { x >= min } else { x > min };
                if x.is_finite() && low && x <= max { Ok(Json::from(x)) } else { Err(Box::new(range(node))) }
            }
            (Self::Choice { words, aliases }, Value::Text(text)) => {
                let meant = aliases.iter().find(|(alias, _)| alias == text).map_or(text.as_str(), |(_, word)| word);
                if words.contains(&meant) {
                    return Ok(Json::from(meant));
                }
                let problem = Problem::new(
                    node.at,
                    format!("`{key}` has no choice \"{text}\""),
                    format!("expected {}", self.describe()),
                );
                let known = words.iter().copied().chain(aliases.iter().map(|(alias, _)| *alias));
                Err(Box::new(match (word_synonym(key, text), closest(text, known)) {
                    (Some(synonym), _) => problem.help(synonym.help(key)),
                    (None, Some(word)) => problem.help(format!("did you mean \"{word}\"?")),
                    (None, None) => problem,
                }))
            }
            (Self::TextList, Value::Array(items)) => {
                let texts = items.iter().map(|item| match &item.value {
                    Value::Text(text) => Ok(Json::from(text.as_str())),
                    _ => Err(wrong_type(item)),
                });
                texts.collect::<Result<Vec<_>, _>>().map(Json::from)
            }
            (Self::NumberList { max }, Value::Array(items)) => {
                let numbers = items.iter().map(|item| match &item.value {
                    Value::Integer(n) if (0..=i128::from(max)).contains(n) => Ok(Json::from(*n as i64)),
                    _ => Err(wrong_type(item)),
                });
                numbers.collect::<Result<Vec<_>, _>>().map(Json::from)
            }
            _ => Err(wrong_type(node)),
        }
    }

    /// How to write what was probably meant.
    fn repair(&self, key: &str, node: &Node) -> Option<String> {
        match (self, &node.value) {
            (Self::Choice { .. }, Value::Integer(n)) if word_synonym(key, &n.to_string()).is_some() => {
                word_synonym(key, &n.to_string()).map(|synonym| synonym.help(key))
            }
            (Self::Integer { .. } | Self::Number { .. }, Value::Text(text)) if text.parse::<f64>().is_ok() => {
                Some(format!("write it without quotes: {text}"))
            }
            (Self::Bool, Value::Text(text)) => match text.to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" => Some("write true, without quotes".to_owned()),
                "false" | "no" | "off" => Some("write false, without quotes".to_owned()),
                _ => None,
            },
            (Self::Integer { .. }, Value::Float(x)) if x.fract() == 0.0 => Some(format!("write it as {x:.0}")),
            (Self::TextList, Value::Text(text)) => Some(format!("write it as an array: [\"{text}\"]")),
            (Self::NumberList { .. }, Value::Integer(n)) => Some(format!("write it as an array: [{n}]")),
            (Self::Text | Self::Choice { .. }, Value::Integer(_) | Value::Float(_) | Value::Bool(_)) => {
                Some("put it in quotes".to_owned())
            }
            (_, Value::Array(_)) if !matches!(self, Self::TextList | Self::NumberList { .. }) => {
                Some("to run one trial for each value, put the array under [sweep.grid]".to_owned())
            }
            _ => None,
        }
    }
}
