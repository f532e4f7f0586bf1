//! The config that isolates the parts of a past job: its variants on one rank, in each mode.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use expctl_settings::{
    Array, Data, Draw, Estimator, Experiment, ISOLATION_SUFFIX, KEYS, KeySpec, Launch, LearningSchedule, Loader,
    MaskSource, Measure, Mode, Model, ModelKind, Pipeline, Profile, Sampler, Section, Settings, Slurm, TraceAt, Train,
    Trial, Workload, is_url, to_json,
};
use serde_json::{Map, Value as Json};

use crate::plan::UnknownName;
use crate::rules::BUILT_ROWS_KEYS;
use crate::suggest::closest;

/// Keys that isolation sets; a sweep of the past job over one of them is left out.
pub const ISOLATED: [&str; 3] = [Train::MODE.name(), Launch::RANKS.name(), Launch::NODES.name()];
/// Keys over which a sweep of the past job is left out: those, and the epochs, of which isolation runs none.
const NOT_SWEPT: [&str; 5] = [ISOLATED[0], ISOLATED[1], ISOLATED[2], Train::EPOCHS.name(), Train::PATIENCE.name()];

/// The job whose parts are isolated.
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

/// A config as text, for [`load_text`](crate::load_text).
#[derive(Clone, Debug)]
pub struct Isolation {
    /// Name of the config: that of the past job's, and `_isolation`.
    pub name: String,
    /// TOML. Variants are written out line by line, so that a message about a line says whose it is.
    pub text: String,
    /// Which variant ran at which point of the past job's sweep, without the keys that isolation sets.
    pub ran: Vec<(String, Point)>,
}

/// Swept settings of a trial, by dotted key.
pub type Point = BTreeMap<String, Json>;

/// The modes of an isolated job.
#[derive(Clone, Debug)]
pub struct Modes {
    modes: Vec<Mode>,
    left_out: Vec<(String, Mode)>,
}

impl Modes {
    /// All of them, from the data alone to the whole step.
    pub const ALL: [Mode; 4] = [Mode::Data, Mode::Forward, Mode::ForwardBackward, Mode::Train];

    /// One mode for every variant.
    pub fn one(mode: Mode) -> Self {
        Self { modes: vec![mode], left_out: Vec::new() }
    }

    /// Do not run `variant` in `mode`.
    pub fn leave_out(&mut self, variant: &str, mode: Mode) {
        self.left_out.push((variant.to_owned(), mode));
    }

    /// Whether no variant is left out of any mode.
    pub fn whole(&self) -> bool {
        self.left_out.is_empty()
    }

    fn runs(&self, variant: &str, mode: Mode) -> bool {
        !self.left_out.iter().any(|(name, left_out)| name == variant && *left_out == mode)
    }
}

impl Default for Modes {
    fn default() -> Self {
        Self { modes: Self::ALL.to_vec(), left_out: Vec::new() }
    }
}

impl Isolation {
    /// The variants of a job, or those that are named, on one rank in each of `modes`; everything else as it was resolved.
    /// A training run becomes as many steps as are usual. None for `repeats` keeps the job's.
    ///
    /// Files below `root`, the project, are named from there, so that ids do not depend on where it lies.
    ///
    /// # Errors
    /// A name that is none of the job's variants.
    pub fn new(
        root: &Path,
        past: PastJob<'_>,
        only: &[String],
        repeats: Option<u32>,
        modes: &Modes,
    ) -> Result<Self, UnknownName> {
        let variants = variants(past);
        if let Some(name) = only.iter().find(|name| !variants.contains(name)) {
            let near = closest(name, variants.iter().map(String::as_str)).map(str::to_owned);
            return Err(UnknownName { name: name.clone(), near, variants });
        }
        let chosen: Vec<&Trial> =
            past.trials.iter().filter(|trial| only.is_empty() || only.contains(&trial.variant)).collect();
        let mut ran: Vec<(String, Point)> = Vec::new();
        for trial in &chosen {
            let at = (trial.variant.clone(), residual(trial));
            if !ran.contains(&at) {
                ran.push(at);
            }
        }
        let name = match past.config.ends_with(ISOLATION_SUFFIX) {
            true => past.config.to_owned(),
            false => format!("{}{ISOLATION_SUFFIX}", past.config),
        };
        Ok(Self { name, text: text(root, past, &chosen, &ran, repeats, modes), ran })
    }

    /// Names of the variants, in order.
    pub fn variants(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for (variant, _) in &self.ran {
            if !names.contains(&variant.as_str()) {
                names.push(variant);
            }
        }
        names
    }
}

/// Name of the config of an isolated job in messages and the ledger, instead of a path.
pub fn isolation_path(job: u64) -> String {
    format!("job {job}, isolated")
}

/// Whether a config's path is such a name.
pub fn is_isolation(path: &Path) -> bool {
    let text = path.to_str().and_then(|text| text.strip_prefix("job ")?.strip_suffix(", isolated"));
    text.is_some_and(|number| number.parse::<u64>().is_ok())
}

fn variants(past: PastJob<'_>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for trial in past.trials {
        if !names.contains(&trial.variant) {
            names.push(trial.variant.clone());
        }
    }
    names
}

/// The trial's point of the sweep, without the keys that isolation sets.
fn residual(trial: &Trial) -> Point {
    trial
        .point
        .iter()
        .filter(|(key, _)| !NOT_SWEPT.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn text(
    root: &Path,
    past: PastJob<'_>,
    chosen: &[&Trial],
    ran: &[(String, Point)],
    repeats: Option<u32>,
    modes: &Modes,
) -> String {
    let mut out = format!(
        "# Job {} (config {}) on one rank: the data alone, then the forward pass, the backward pass and the optimizer with it.\n",
        past.job, past.config
    );
    let mut points: Vec<&Point> = Vec::new();
    for (_, point) in ran {
        if !points.contains(&point) {
            points.push(point);
        }
    }
    if let Some(first) = chosen.first() {
        let settings = flat(first);
        for spec in KEYS.iter().filter(|spec| spec.per_job) {
            let is = |key: &str| spec.key == key;
            let derived = |trial: &&Trial| trial.settings.experiment.study == trial.settings.data.set;
            if is(&Experiment::STUDY) && chosen.iter().all(derived) {
                // Derived again. Own files have no study, and one that is written must be a folder.
                continue;
            }
            let value = if is(&Experiment::TITLE) {
                Json::from(format!("{} (job {}, isolated)", title(past, first), past.job))
            } else if is(&Experiment::DESCRIPTION) {
                Json::from("What do the data, the forward pass, the backward pass and the optimizer cost on one rank?")
            } else if is(&Experiment::MEASURES) {
                Json::from(vec!["each variant alone, with more of the step in each mode"])
            } else if is(&Experiment::DOES_NOT_MEASURE) {
                Json::from(vec!["more than one rank, and with it the exchange of gradients"])
            } else {
                setting(&settings, spec.key)
            };
            let _ = writeln!(out, "{} = {}", spec.key, toml_of(&value));
        }
    }
    let mut written: Vec<&str> = Vec::new();
    for trial in chosen {
        if written.contains(&trial.variant.as_str()) {
            continue;
        }
        written.push(&trial.variant);
        variant(&mut out, root, trial, repeats);
    }
    if let Some(baseline) = past.baseline.filter(|name| written.contains(name)) {
        let _ = writeln!(out, "\ncompare.baseline = {}", toml_of(&Json::from(baseline)));
    }
    if !past.estimators.is_empty() {
        let named: Vec<&str> = past.estimators.iter().map(|estimator| estimator.name()).collect();
        let _ = writeln!(out, "\ncompare.estimators = {}", toml_of(&Json::from(named)));
    }
    let (run, names): (Vec<Mode>, Vec<&str>) = modes
        .modes
        .iter()
        .filter(|mode| written.iter().any(|variant| modes.runs(variant, **mode)))
        .map(|mode| (*mode, mode.name()))
        .unzip();
    let _ = writeln!(out, "\nsweep.grid.\"train.mode\" = {}", toml_of(&Json::from(names)));
    if points.iter().any(|point| !point.is_empty()) {
        let rows: Vec<String> = points.iter().map(|point| row(point)).collect();
        let _ = writeln!(out, "sweep.list = [{}]", rows.join(", "));
    }
    let mut left_out = Vec::new();
    for variant in &written {
        for mode in run.iter().filter(|mode| !modes.runs(variant, **mode)) {
            left_out.push(format!("{{ variant = \"{variant}\", \"train.mode\" = \"{}\" }}", mode.name()));
        }
    }
    if !left_out.is_empty() {
        let _ = writeln!(out, "sweep.exclude = [{}]", left_out.join(", "));
    }
    out
}

fn title(past: PastJob<'_>, trial: &Trial) -> String {
    let title = &trial.settings.experiment.title;
    if title.is_empty() { past.config.to_owned() } else { title.clone() }
}

fn variant(out: &mut String, root: &Path, trial: &Trial, repeats: Option<u32>) {
    let name = &trial.variant;
    let _ = writeln!(out, "\nvariant.{name}.method = {}", toml_of(&Json::from(trial.method.as_str())));
    let settings = flat(trial);
    let swept = residual(trial);
    for spec in KEYS.iter().filter(|spec| has_effect(spec, &trial.settings, &swept)) {
        if spec.per_job || swept.contains_key(spec.key) {
            continue;
        }
        let Some(value) = isolated_value(spec.key, root, trial, &settings, repeats) else { continue };
        if !goes_without_saying(spec, &value) {
            let _ = writeln!(out, "variant.{name}.{} = {}", spec.key, toml_of(&value));
        }
    }
}

/// The value of a key in the isolated job; none where the config does not say it.
fn isolated_value(
    key: &str,
    root: &Path,
    trial: &Trial,
    settings: &Map<String, Json>,
    repeats: Option<u32>,
) -> Option<Json> {
    let trains_epochs = trial.settings.train.epochs > 0;
    let is = |other: &str| key == other;
    let value = setting(settings, key);
    if is(&Train::MODE) {
        // The sweep says it.
        return None;
    }
    if is(&Model::KIND) && trial.default_model {
        // Nobody chose it, and the new job says so, too.
        return None;
    }
    if is(&Launch::RANKS) || is(&Launch::NODES) {
        return Some(Json::from(1));
    }
    if is(&Train::EPOCHS) || is(&Train::PATIENCE) {
        return Some(Json::from(0));
    }
    if trains_epochs && (is(&Model::SEED) || is(&Loader::SEED)) {
        // A repeat of a training run has seeds of its own; the config had those of the first.
        return Some(first_seed(&value, trial.repeat));
    }
    if is(&Model::PATH) || is(&Train::START_FROM) || is(&Array::FILES) {
        return Some(as_given(root, value));
    }
    if is(&Measure::STEPS) && (trains_epochs || trial.settings.measure.epochs > 0) {
        // A training run of epochs gets the default number of steps; with measured epochs the steps follow from them.
        return None;
    }
    // The schedule waits for validations, of which there are none.
    let waits = trial.settings.train.schedule == LearningSchedule::Plateau;
    if trains_epochs && (is(&Train::SCHEDULE_PATIENCE) || is(&Train::SCHEDULE) && waits) {
        return None;
    }
    if is(&Measure::REPEATS) {
        return Some(repeats.map_or(value, Json::from));
    }
    Some(value)
}

/// Whether a config with these settings, and the keys that are `swept`, may say the key at all.
fn has_effect(spec: &KeySpec, settings: &Settings, swept: &Point) -> bool {
    let array = settings.reads_array();
    // Isolated trials run without a profiler.
    if !spec.applies_to(Workload::from_data(array)) || [Profile::NAME, TraceAt::NAME].contains(&spec.section()) {
        return false;
    }
    let is = |key: &str| spec.key == key;
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
fn flat(trial: &Trial) -> Map<String, Json> {
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

fn row(point: &Point) -> String {
    let cells: Vec<String> = point.iter().map(|(key, value)| format!("\"{key}\" = {}", toml_of(value))).collect();
    format!("{{ {} }}", cells.join(", "))
}

/// A plain value as TOML writes it.
fn toml_of(value: &Json) -> String {
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
