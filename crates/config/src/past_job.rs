//! A past job as text of a config: its settings, one key a line, as they were resolved.
//!
//! Variants are written out line by line, so that a message about a line says whose it is. Files below the project's root are named from
//! there, so that ids do not depend on where it lies.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use expctl_settings::{
    AcceleratorPreset, Array, Data, Draw, Estimator, Experiment, KEYS, KeySpec, Loader, MaskSource, Measure, Mode,
    Model, ModelKind, NO_DATA_SET, Pipeline, Profile, Sampler, Section, Settings, Slurm, TraceAt, Train, Trial,
    Workload, is_url, to_json,
};
use serde_json::{Map, Value as Json};

use crate::rules::BUILT_ROWS_KEYS;

/// A job that was run.
#[derive(Clone, Copy, Debug)]
pub struct PastJob<'a> {
    /// Its id.
    pub job: u64,
    /// Name of its config.
    pub config: &'a str,
    /// Variant that ratios refer to.
    pub baseline: Option<&'a str>,
    /// Published ways to make a rate that its note shows.
    pub estimators: &'a [Estimator],
    /// Its trials, in order.
    pub trials: &'a [Trial],
}

/// Swept settings of a trial, by dotted key.
pub type Point = BTreeMap<String, Json>;

impl PastJob<'_> {
    /// Names of its variants, in order.
    pub fn variants(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for trial in self.trials {
            if !names.contains(&trial.variant) {
                names.push(trial.variant.clone());
            }
        }
        names
    }

    /// The settings of the whole job, with `replaced` for some of them. `chosen`: the trials that the new config has; none writes nothing.
    pub fn write_job_settings(&self, out: &mut String, chosen: &[&Trial], replaced: impl Fn(&str) -> Option<Json>) {
        let Some(first) = chosen.first() else { return };
        let settings = flat(first);
        let derived = |trial: &&Trial| trial.settings.experiment.study == trial.settings.data.set;
        for spec in KEYS.iter().filter(|spec| spec.per_job) {
            if spec.key == Experiment::STUDY.name() && chosen.iter().all(derived) {
                // Derived again. Own files have no study, and one that is written must be a folder.
                continue;
            }
            let value = replaced(spec.key).unwrap_or_else(|| setting(&settings, spec.key));
            let _ = writeln!(out, "{} = {}", spec.key, toml_of(&value));
        }
    }

    /// What its tables compare with, if it is one of `variants`, and its published ways to make a rate.
    pub fn write_comparison(&self, out: &mut String, variants: &[&str]) {
        if let Some(baseline) = self.baseline.filter(|name| variants.contains(name)) {
            let _ = writeln!(out, "\ncompare.baseline = {}", toml_of(&Json::from(baseline)));
        }
        if !self.estimators.is_empty() {
            let named: Vec<&str> = self.estimators.iter().map(|estimator| estimator.name()).collect();
            let _ = writeln!(out, "\ncompare.estimators = {}", toml_of(&Json::from(named)));
        }
    }

    /// Title of the job, or the name of its config.
    pub fn title(&self) -> String {
        let title = self.trials.first().map(|trial| trial.settings.experiment.title.as_str()).unwrap_or_default();
        if title.is_empty() { self.config.to_owned() } else { title.to_owned() }
    }
}

/// A trial's settings as a variant of a `name` and method, without the keys that are `swept`. `value` gives what the new config says of a key of the
/// trial, and `None` where it says nothing.
pub fn write_variant(
    out: &mut String,
    (name, method): (&str, &str),
    trial: &Trial,
    swept: &Point,
    value: impl Fn(&str, Json) -> Option<Json>,
) {
    let _ = writeln!(out, "\nvariant.{name}.method = {}", toml_of(&Json::from(method)));
    let settings = flat(trial);
    for spec in KEYS.iter().filter(|spec| has_effect(spec, &trial.settings, swept)) {
        if spec.per_job || swept.contains_key(spec.key) {
            continue;
        }
        let Some(value) = value(spec.key, setting(&settings, spec.key)) else { continue };
        if !goes_without_saying(spec, &value) {
            let _ = writeln!(out, "variant.{name}.{} = {}", spec.key, toml_of(&value));
        }
    }
}

/// What a config that runs the trial again says of a key; `None` where it says nothing.
pub fn recorded_value(key: &str, root: &Path, trial: &Trial, value: Json) -> Option<Json> {
    let is = |other: &str| key == other;
    if is(&Model::KIND) && trial.default_model {
        // Nobody chose it, and the new job says so, too.
        return None;
    }
    if trial.settings.train.epochs > 0 && (is(&Model::SEED) || is(&Loader::SEED)) {
        // A repeat of a training run has seeds of its own; the config had those of the first.
        return Some(first_seed(&value, trial.repeat));
    }
    if is(&Measure::STEPS) && (trial.settings.measure.epochs > 0 || trial.settings.train.epochs > 0) {
        // The steps follow from the epochs.
        return None;
    }
    if is(&Train::STEP_MS) {
        // A preset and a recorded job say it themselves, and no other mode has it.
        let train = &trial.settings.train;
        let is_own =
            train.mode == Mode::Emulate && train.emulate == AcceleratorPreset::None && train.step_times_of.is_empty();
        return Some(value).filter(|_| is_own);
    }
    if is(&Model::PATH) || is(&Train::START_FROM) || is(&Array::FILES) {
        return Some(as_given(root, value));
    }
    Some(value)
}

/// Whether a config with these settings, and the keys that are `swept`, may say the key at all.
fn has_effect(spec: &KeySpec, settings: &Settings, swept: &Point) -> bool {
    let array = settings.reads_array();
    // What is derived from a job runs without a profiler.
    if !spec.applies_to(Workload::from_data(array)) || [Profile::NAME, TraceAt::NAME].contains(&spec.section()) {
        return false;
    }
    let is = |key: &str| spec.key == key;
    if settings.runs_command() && !spec.applies_to(Workload::Program) {
        return false;
    }
    // A program without data has no size of them, either.
    if settings.runs_command() && !array && settings.data.set == NO_DATA_SET && spec.section() == Data::NAME {
        return is(&Data::SET);
    }
    let is_swept = |key: &str| swept.contains_key(key);
    if is(&Data::SAMPLES) && settings.array.files.iter().any(|file| is_url(file)) {
        return true;
    }
    if BUILT_ROWS_KEYS.contains(&spec.key) {
        return !array || settings.array.files.is_empty();
    }
    if is(&Sampler::CHUNK_ROWS) {
        return matches!(settings.sampler.draw, Draw::Chunked | Draw::Sequential);
    }
    if is(&Sampler::CHUNKS) {
        return settings.sampler.draw == Draw::Chunked;
    }
    if is(&Model::HEADS) {
        return settings.model.kind != ModelKind::Mlp;
    }
    // With a sweep over what they belong to, some point needs them.
    if is(&Pipeline::GENE_MASKS_MIB) {
        return settings.pipeline.mask_source == MaskSource::GeneMasks || is_swept(&Pipeline::MASK_SOURCE);
    }
    if is(&Pipeline::MASK_SEED) {
        return settings.pipeline.is_approximate() || is_swept(&Pipeline::MASK_FRACTION);
    }
    true
}

/// Whether nobody needs to set the key for this value. What would have no effect may not even be set; what a user or a
/// profile says of Slurm lies below a config, so there everything is said.
fn goes_without_saying(spec: &KeySpec, value: &Json) -> bool {
    spec.section() != Slurm::NAME && spec.default_value().as_ref() == Some(value)
}

/// Settings by dotted key. Invariant: as many as [`KEYS`] has, because settings and keys describe the same.
pub fn flat(trial: &Trial) -> Map<String, Json> {
    let whole = to_json(&trial.settings);
    let sections = whole.as_object().into_iter().flatten();
    let keys_of = |(section, keys): (&String, &Json)| -> Vec<(String, Json)> {
        let keys = keys.as_object().into_iter().flatten();
        keys.map(|(key, value)| (format!("{section}.{key}"), value.clone())).collect()
    };
    sections.flat_map(keys_of).collect()
}

fn setting(settings: &Map<String, Json>, key: &str) -> Json {
    settings.get(key).cloned().unwrap_or_default()
}

/// The seed of the first repeat.
fn first_seed(seed: &Json, repeat: u32) -> Json {
    let first = seed.as_u64().map(|seed| seed.saturating_sub(u64::from(repeat.saturating_sub(1))));
    first.map_or_else(|| seed.clone(), Json::from)
}

/// A path below the project, or each of a list, as a config names it.
fn as_given(root: &Path, path: Json) -> Json {
    if let Json::Array(all) = path {
        return all.into_iter().map(|path| as_given(root, path)).collect();
    }
    let below = path.as_str().and_then(|path| Path::new(path).strip_prefix(root).ok()).and_then(Path::to_str);
    below.map(Json::from).unwrap_or(path)
}

/// A point of a sweep as a row of `sweep.list`.
pub fn sweep_row(point: &Point) -> String {
    let cells: Vec<String> = point.iter().map(|(key, value)| format!("\"{key}\" = {}", toml_of(value))).collect();
    format!("{{ {} }}", cells.join(", "))
}

/// A plain value as TOML writes it.
pub fn toml_of(value: &Json) -> String {
    toml::Value::try_from(value).map_or_else(|_| "\"\"".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_toml() {
        let cases = [
            (Json::from(0.0), "0.0"),
            (Json::from(1e-12), "1e-12"),
            (Json::from(42), "42"),
            (Json::from(true), "true"),
            (Json::from("a \"b\" \\"), "'a \"b\" \\'"),
            (Json::from(vec!["0:3"]), "[\"0:3\"]"),
        ];
        for (value, expected) in cases {
            let text = toml_of(&value);
            let back: toml::Table = toml::from_str(&format!("v = {text}")).unwrap();
            assert_eq!(toml::Value::try_from(&value).unwrap(), back["v"], "{expected} {text}");
        }
    }
}
