//! The config that isolates the parts of a past job: its variants on one rank, in each mode.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use expctl_record::{Draw, JobRecord, LearningSchedule, MaskSource, Mode, ModelKind, Settings, Trial, is_url};
use serde_json::{Map, Value as Json};

use super::plan_type::UnknownName;
use crate::conf::keys::{KEYS, KeySpec, Preset};
use crate::conf::{OF_BUILT_ROWS, closest, of_other_family};

/// Keys that isolation sets; a sweep of the past job over one of them is left out.
pub const ISOLATED: [&str; 3] = ["train.mode", "launch.ranks", "launch.nodes"];
/// Keys over which a sweep of the past job is left out: those, and the epochs, of which isolation runs none.
const LEFT_OUT: [&str; 5] = [ISOLATED[0], ISOLATED[1], ISOLATED[2], "train.epochs", "train.patience"];
/// Behind the name of the past job's config.
const SUFFIX: &str = expctl_record::ISOLATION_SUFFIX;

/// A config as text, for [`crate::conf::load_text`].
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
    pub fn of(
        root: &Path,
        record: &JobRecord,
        only: &[String],
        repeats: Option<u32>,
        modes: &Modes,
    ) -> Result<Self, UnknownName> {
        let variants = variants(record);
        if let Some(name) = only.iter().find(|name| !variants.contains(name)) {
            let near = closest(name, variants.iter().map(String::as_str)).map(str::to_owned);
            return Err(UnknownName { name: name.clone(), near, variants });
        }
        let chosen: Vec<&Trial> =
            record.trials.iter().filter(|trial| only.is_empty() || only.contains(&trial.variant)).collect();
        let mut ran: Vec<(String, Point)> = Vec::new();
        for trial in &chosen {
            let at = (trial.variant.clone(), residual(trial));
            if !ran.contains(&at) {
                ran.push(at);
            }
        }
        let name = match record.config.strip_suffix(SUFFIX) {
            Some(_) => record.config.clone(),
            None => format!("{}{SUFFIX}", record.config),
        };
        Ok(Self { name, text: text(root, record, &chosen, &ran, repeats, modes), ran })
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

/// What messages and the ledger call the config of an isolated job, in the place of a path.
pub fn isolation_path(job: u64) -> String {
    format!("job {job}, isolated")
}

/// Whether a config's path is such a name.
pub fn is_isolation(path: &Path) -> bool {
    let text = path.to_str().and_then(|text| text.strip_prefix("job ")?.strip_suffix(", isolated"));
    text.is_some_and(|number| number.parse::<u64>().is_ok())
}

fn variants(record: &JobRecord) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for trial in &record.trials {
        if !names.contains(&trial.variant) {
            names.push(trial.variant.clone());
        }
    }
    names
}

/// Where the trial stood in the sweep, without what isolation decides.
fn residual(trial: &Trial) -> Point {
    let own = |key: &str| LEFT_OUT.contains(&key);
    trial.point.iter().filter(|(key, _)| !own(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn text(
    root: &Path,
    record: &JobRecord,
    chosen: &[&Trial],
    ran: &[(String, Point)],
    repeats: Option<u32>,
    modes: &Modes,
) -> String {
    let mut out = format!(
        "# Job {} (config {}) on one rank: the data alone, then the forward pass, the backward pass and the optimizer with it.\n",
        record.job, record.config
    );
    let mut points: Vec<&Point> = Vec::new();
    for (_, point) in ran {
        if !points.contains(&point) {
            points.push(point);
        }
    }
    if let Some(first) = chosen.first() {
        let settings = flat(first);
        for spec in KEYS.iter().filter(|spec| spec.per_job()) {
            let value = match spec.key {
                "experiment.title" => Json::from(format!("{} (job {}, isolated)", title(record, first), record.job)),
                "experiment.description" => Json::from(
                    "What do the data, the forward pass, the backward pass and the optimizer cost on one rank?",
                ),
                "experiment.measures" => Json::from(vec!["each variant alone, with more of the step in each mode"]),
                "experiment.does_not_measure" => {
                    Json::from(vec!["more than one rank, and with it the exchange of gradients"])
                }
                key => of(&settings, key),
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
    if let Some(baseline) = record.baseline.as_deref().filter(|name| written.contains(name)) {
        let _ = writeln!(out, "\ncompare.baseline = {}", toml_of(&Json::from(baseline)));
    }
    if !record.estimators.is_empty() {
        let named: Vec<&str> = record.estimators.iter().map(|estimator| estimator.name()).collect();
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

fn title(record: &JobRecord, trial: &Trial) -> String {
    let title = &trial.settings.experiment.title;
    if title.is_empty() { record.config.clone() } else { title.clone() }
}

fn variant(out: &mut String, root: &Path, trial: &Trial, repeats: Option<u32>) {
    let name = &trial.variant;
    let _ = writeln!(out, "\nvariant.{name}.method = {}", toml_of(&Json::from(trial.method.as_str())));
    let trains_epochs = trial.settings.train.epochs > 0;
    let settings = flat(trial);
    let swept = residual(trial);
    let written =
        |spec: &&KeySpec| !spec.per_job() && !swept.contains_key(spec.key) && has_effect(spec, &trial.settings, &swept);
    for spec in KEYS.iter().filter(written) {
        let value = match spec.key {
            "train.mode" => continue,
            // Nobody chose it, and the new job says so, too.
            "model.kind" if trial.default_model => continue,
            "launch.ranks" | "launch.nodes" => Json::from(1),
            "train.epochs" | "train.patience" => Json::from(0),
            // A repeat of a training run has seeds of its own; the config had those of the first.
            "model.seed" | "loader.seed" if trains_epochs => first_seed(&of(&settings, spec.key), trial.repeat),
            "model.path" | "train.start_from" | "array.files" => as_given(root, of(&settings, spec.key)),
            // As many as are usual: an epoch's steps are no longer what is run.
            "measure.steps" if trains_epochs => continue,
            // They follow from the epochs.
            "measure.steps" if trial.settings.measure.epochs > 0 => continue,
            // It waits for validations, of which there are none.
            "train.schedule_patience" if trains_epochs => continue,
            "train.schedule" if trains_epochs && trial.settings.train.schedule == LearningSchedule::Plateau => continue,
            "measure.repeats" => repeats.map_or_else(|| of(&settings, spec.key), Json::from),
            key => of(&settings, key),
        };
        if !goes_without_saying(spec, &value) {
            let _ = writeln!(out, "variant.{name}.{} = {}", spec.key, toml_of(&value));
        }
    }
}

/// Whether a config with these settings, and the keys that are `swept`, may say the key at all.
fn has_effect(spec: &KeySpec, settings: &Settings, swept: &Point) -> bool {
    let array = settings.reads_array();
    // What a profiler costs is no part of what is isolated.
    if of_other_family(spec, array) || matches!(spec.section(), "profile" | "trace") {
        return false;
    }
    let own_files = !settings.array.files.is_empty();
    match spec.key {
        "data.samples" if settings.array.files.iter().any(|file| is_url(file)) => true,
        key if OF_BUILT_ROWS.contains(&key) => !(array && own_files),
        "sampler.chunk_rows" => matches!(settings.sampler.draw, Draw::Chunked | Draw::Sequential),
        "sampler.chunks" => settings.sampler.draw == Draw::Chunked,
        "model.heads" => settings.model.kind != ModelKind::Mlp,
        // With a sweep over what they belong to, some point needs them.
        "pipeline.gene_masks_mib" => {
            settings.pipeline.mask_source == MaskSource::GeneMasks || swept.contains_key("pipeline.mask_source")
        }
        "pipeline.mask_seed" => settings.pipeline.is_approximate() || swept.contains_key("pipeline.mask_fraction"),
        _ => true,
    }
}

/// Whether nobody needs to set the key for this value. What would have no effect may not even be set; what a user or a
/// profile says of Slurm lies below a config, so there everything is said.
fn goes_without_saying(spec: &KeySpec, value: &Json) -> bool {
    let Preset::Value(literal) = spec.preset else { return false };
    let parsed: Option<toml::Table> = toml::from_str(&format!("v = {literal}")).ok();
    let default = parsed.and_then(|table| serde_json::to_value(table.get("v")?).ok());
    spec.section() != "slurm" && default.as_ref() == Some(value)
}

/// Settings by dotted key. Invariant: as many as [`KEYS`] has, because settings and keys describe the same.
fn flat(trial: &Trial) -> Map<String, Json> {
    let whole = serde_json::to_value(&trial.settings).unwrap_or_default();
    let sections = whole.as_object().into_iter().flatten();
    let keys_of = |(section, keys): (&String, &Json)| -> Vec<(String, Json)> {
        let keys = keys.as_object().into_iter().flatten();
        keys.map(|(key, value)| (format!("{section}.{key}"), value.clone())).collect()
    };
    sections.flat_map(keys_of).collect()
}

fn of(settings: &Map<String, Json>, key: &str) -> Json {
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
