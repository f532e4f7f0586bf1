use std::sync::LazyLock;

use crate::conf::kind::Kind;

use super::{array, data, model, pipeline, profile, run, train};

/// Sections of a config, in the order of the reference.
pub const SECTIONS: [&str; 16] = [
    "experiment",
    "data",
    "select",
    "pipeline",
    "array",
    "sampler",
    "loader",
    "model",
    "train",
    "measure",
    "profile",
    "trace",
    "checkpoint",
    "worker",
    "launch",
    "slurm",
];

/// What a key is when nothing sets it.
#[derive(Clone, Copy, Debug)]
pub enum Preset {
    /// It has to be set.
    Required,
    /// A TOML value.
    Value(&'static str),
    /// Taken from something else; the text says from what.
    Derived(&'static str),
}

/// One key of the language.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// The dotted key, `section.name`.
    pub key: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What it is when nothing sets it.
    pub preset: Preset,
    /// What it means, one line.
    pub help: &'static str,
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

    /// Whether the key holds for the whole job, so that variants and sweeps cannot change it: one job has one note, and
    /// runs on one cluster.
    pub fn per_job(&self) -> bool {
        self.section() == "experiment" || matches!(self.key, "measure.interleave" | "slurm.profile" | "slurm.throttle")
    }
}

/// The key with this dotted name.
pub fn find(key: &str) -> Option<&'static KeySpec> {
    KEYS.iter().find(|spec| spec.key == key)
}

pub(super) const COUNT: Kind = Kind::Integer { min: 1, max: i64::MAX };
/// Far beyond any use, and safe in 32 bits.
pub(super) const MANY: i64 = 1_000_000;
pub(super) const COUNT32: Kind = Kind::Integer { min: 1, max: MANY };
pub(super) const NATURAL: Kind = Kind::Integer { min: 0, max: i64::MAX };
pub(super) const NATURAL32: Kind = Kind::Integer { min: 0, max: MANY };
pub(super) const NOT_NEGATIVE: Kind = Kind::Number { min: 0.0, from: true, max: f64::MAX };

pub(super) const fn words(words: &'static [&'static str]) -> Kind {
    Kind::Choice { words, aliases: &[] }
}

pub(super) const fn key(key: &'static str, kind: Kind, preset: Preset, help: &'static str) -> KeySpec {
    KeySpec { key, kind, preset, help }
}

/// All keys, in the order of the reference.
pub static KEYS: LazyLock<Vec<KeySpec>> = LazyLock::new(|| {
    [data::KEYS, array::KEYS, pipeline::KEYS, model::KEYS, train::KEYS, profile::KEYS, run::KEYS].concat()
});
