//! A valid config: its runs, each with all settings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use expctl_settings::{Array, ArrayFormat, Estimator, Experiment, KEYS, Key, Settings, Worker, to_json};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

use crate::cluster_profile::BaseSettings;
use crate::document::Document;
use crate::layer::{Layer, Setting};
use crate::node::{Sources, ValueOrigin};
use crate::problem::ConfErrors;
use crate::project_files::ProjectFiles;
use crate::reader::Reader;
use crate::resolve::resolve;
use crate::search::SearchSpace;

/// One variant at one point of the sweep, before repeats: what is run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Name of the variant.
    pub variant: String,
    /// Its name in tables.
    pub method: String,
    /// The swept settings.
    pub point: Layer,
    /// Place of the point; none without a sweep.
    pub at: Option<ValueOrigin>,
    /// All settings.
    pub values: Values,
}

impl Run {
    /// The swept settings with their values, by dotted key.
    pub fn swept(&self) -> BTreeMap<String, Json> {
        self.point.iter().filter_map(|(key, setting)| Some(((*key).to_owned(), setting.value.clone()?))).collect()
    }
}

/// A valid config.
#[derive(Clone, Debug)]
pub struct Config {
    /// Stem of the file name.
    pub name: String,
    /// The file, as given.
    pub path: PathBuf,
    /// `--set` arguments, as given.
    pub overrides: Vec<String>,
    /// Folder of the study in experiments/.
    pub study: String,
    /// Variant that ratios refer to.
    pub baseline: Option<String>,
    /// Published ways to make a rate that the note shows beside the right one.
    pub estimators: Vec<Estimator>,
    /// Every variant at every point of the sweep. Never empty.
    pub runs: Vec<Run>,
    /// Number of variants.
    pub variants: usize,
    /// Number of points of the sweep; 1 without one.
    pub points: usize,
    /// `[search]`, which nothing but a search reads; none without it.
    pub search: Option<SearchSpace>,
    /// The texts that it was read from.
    pub sources: Sources,
}

/// All settings of one run, by dotted key.
///
/// A getter returns none for a value that a problem has been reported for: rules that need the value are then skipped.
#[derive(Clone, Debug, Default)]
pub struct Values(pub(crate) Layer);

impl Values {
    /// The value of a key.
    pub fn get<T: DeserializeOwned>(&self, key: Key<T>) -> Option<T> {
        T::deserialize(self.json(&key)?).ok()
    }

    /// A whole number, wide enough to calculate with.
    pub fn number<T: DeserializeOwned + Into<u64>>(&self, key: Key<T>) -> Option<u64> {
        self.get(key).map(Into::into)
    }

    /// The value of a key as JSON.
    pub fn json(&self, key: &str) -> Option<&Json> {
        self.0.get(key)?.value.as_ref()
    }

    /// The place that sets a key; none for a default.
    pub fn at(&self, key: &str) -> Option<ValueOrigin> {
        self.0.get(key)?.at
    }

    /// The place of item `i` of an array, else that of the array.
    pub fn item_at(&self, key: &str, i: usize) -> Option<ValueOrigin> {
        let setting = self.0.get(key)?;
        setting.items.get(i).copied().or(setting.at)
    }

    /// Whether a key is set or has a default, valid or not.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// Gives a key the value that follows from other settings; none where that is not known.
    pub(crate) fn derive<T: Serialize>(&mut self, key: Key<T>, value: Option<T>) {
        self.0.insert(key.name(), Setting::unwritten(value.map(|value| to_json(&value))));
    }

    /// The same, unless the key is set or has a default.
    pub(crate) fn derive_missing<T: Serialize>(&mut self, key: Key<T>, value: Option<T>) {
        if !self.has(&key) {
            self.derive(key, value);
        }
    }

    /// Whether a program of the user's runs as the ranks.
    pub(crate) fn runs_command(&self) -> bool {
        self.get(Worker::COMMAND).is_some_and(|command| !command.is_empty())
    }

    /// Whether rows of an array are read.
    pub(crate) fn reads_array(&self) -> bool {
        self.get(Array::FORMAT).is_some_and(|format| format != ArrayFormat::None)
    }

    /// Every key with its value, sorted by key.
    pub fn flat(&self) -> BTreeMap<&'static str, &Json> {
        self.0.iter().filter_map(|(key, s)| Some((*key, s.value.as_ref()?))).collect()
    }

    /// The settings as structs; none while a key has no valid value.
    pub fn settings(&self) -> Option<Settings> {
        let mut sections: Map<String, Json> = Map::new();
        for spec in KEYS.iter() {
            let value = self.json(spec.key)?.clone();
            let section = sections.entry(spec.section()).or_insert_with(|| Json::Object(Map::new()));
            section.as_object_mut()?.insert(spec.leaf().to_owned(), value);
        }
        #[expect(clippy::expect_used, reason = "the table of keys is made from the fields of the settings")]
        let settings = serde_json::from_value(Json::Object(sections)).expect("checked values make settings");
        Some(settings)
    }
}

/// Read the config at `path` with its parents, put the `--set` arguments on top, and check everything.
///
/// # Errors
/// All problems of all texts, each with its place.
pub fn load(project: &dyn ProjectFiles, path: &Path, overrides: &[String]) -> Result<Config, ConfErrors> {
    load_only(project, path, overrides, &[])
}

/// The same where only some variants or trials will run (all, if `only` is empty): settings of the others need not fit together.
///
/// # Errors
/// Like those of [`load`].
pub fn load_only(
    project: &dyn ProjectFiles,
    path: &Path,
    overrides: &[String],
    only: &[String],
) -> Result<Config, ConfErrors> {
    let mut reader = Reader::new();
    let document = reader.file(path, None);
    let shown = path.display().to_string();
    let name = path.file_stem().map_or_else(|| shown.clone(), |stem| stem.to_string_lossy().into_owned());
    finish(project, reader, document, (name, path.to_owned()), (overrides, only))
}

/// The same for a config that is not in a file: `text`, which messages call `shown`.
///
/// # Errors
/// Like those of [`load`].
pub fn load_text(
    project: &dyn ProjectFiles,
    name: &str,
    shown: &str,
    text: &str,
    overrides: &[String],
) -> Result<Config, ConfErrors> {
    let mut reader = Reader::new();
    let tree = reader.text(shown, text).unwrap_or_default();
    let document = Document::read(&tree, &mut reader.problems);
    finish(project, reader, document, (name.to_owned(), PathBuf::from(shown)), (overrides, &[]))
}

/// Names of the variants of the config at `path`, as far as it can be read, in its order. Nothing is checked, and no data are opened.
pub fn variant_names(path: &Path) -> Vec<String> {
    Reader::new().file(path, None).variants.into_iter().map(|variant| variant.name).collect()
}

/// Put the `--set` arguments on top of what was read, and check everything that `only` asks for. `called` is the name and the path of the
/// config.
fn finish(
    project: &dyn ProjectFiles,
    mut reader: Reader,
    document: Document,
    called: (String, PathBuf),
    (overrides, only): (&[String], &[String]),
) -> Result<Config, ConfErrors> {
    let (name, path) = called;
    let mut set = Document::default();
    for argument in overrides {
        let over = reader.argument(argument);
        set.extend(over);
    }
    let base = BaseSettings::load(project.folders(), [&set.settings, &document.settings], &mut reader);
    let shown = path.display().to_string();
    let Reader { sources, mut problems, complete, .. } = reader;
    if !complete {
        return Err(ConfErrors::new(shown, problems, sources));
    }
    let resolved = resolve(project, &base.settings, document, (&set, only), &mut problems);
    if let Some(run) = resolved.runs.first() {
        base.check(&run.values, &mut problems);
    }
    if !problems.is_empty() {
        return Err(ConfErrors::new(shown, problems, sources));
    }
    let study = resolved.runs.first().and_then(|run| run.values.get(Experiment::STUDY)).unwrap_or_default();
    Ok(Config {
        name,
        path,
        overrides: overrides.to_vec(),
        study,
        baseline: resolved.baseline,
        estimators: resolved.estimators,
        runs: resolved.runs,
        variants: resolved.variants,
        points: resolved.points,
        search: resolved.search,
        sources,
    })
}
