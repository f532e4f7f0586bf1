//! Plans: a config expanded into trials with stable ids.
//!
//! Invariant: a trial's id depends on what it runs and on nothing else.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use expctl_settings::{
    Estimator, Measure, Mode, Model, PackGpu, Settings, Slurm, TRIAL_SCHEMA_VERSION, Trial, find, to_json,
};
use serde_json::Value as Json;

use crate::config::{Config, Run};
use crate::layer::Setting;
use crate::node::ValueOrigin;
use crate::problem::{ConfErrors, Problem};
use crate::project_files::ProjectFiles;
use crate::suggest::closest;
use crate::sweep::MAX_TRIALS;

/// The trials of a config, in the order in which they are submitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Name of the config: stem of its file name.
    pub config: String,
    /// The config file, as given.
    pub path: PathBuf,
    /// `--set` overrides, as given.
    pub overrides: Vec<String>,
    /// Folder of the study in experiments/.
    pub study: String,
    /// Variant that ratios refer to.
    pub baseline: Option<String>,
    /// Published ways to make a rate that the note shows beside the right one.
    pub estimators: Vec<Estimator>,
    /// The first repeat of every run, then the second, and so on: slow drift of a machine hits all variants alike.
    pub trials: Vec<Trial>,
}

/// `--only` named nothing of the plan.
#[derive(Debug, thiserror::Error)]
#[error("no variant or trial is named `{name}`{}", near.as_ref().map_or(String::new(), |n| format!("; did you mean `{n}`?")))]
pub struct UnknownName {
    /// The unknown name.
    pub name: String,
    /// The name that was probably meant.
    pub near: Option<String>,
    /// The variants that there are.
    pub variants: Vec<String>,
}

impl Plan {
    /// Names of the variants, in order.
    pub fn variants(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for trial in &self.trials {
            if !names.contains(&trial.variant) {
                names.push(trial.variant.clone());
            }
        }
        names
    }

    /// Keep the trials of the named variants, or those with a named id. No names keep all.
    ///
    /// # Errors
    /// A name that is neither.
    pub fn only(mut self, names: &[String]) -> Result<Self, UnknownName> {
        if names.is_empty() {
            return Ok(self);
        }
        let named = |trial: &Trial, name: &String| trial.variant == *name || trial.id == *name;
        for name in names {
            if !self.trials.iter().any(|trial| named(trial, name)) {
                let variants = self.variants();
                let near = closest(name, variants.iter().map(String::as_str)).map(str::to_owned);
                return Err(UnknownName { name: name.clone(), near, variants });
            }
        }
        self.trials.retain(|trial| names.iter().any(|name| named(trial, name)));
        Ok(self)
    }
}

/// Makes the trials of a config.
///
/// # Errors
/// Two points of the sweep that run the same.
pub fn expand(project: &dyn ProjectFiles, config: &Config) -> Result<Plan, ConfErrors> {
    refuse_duplicates(config)?;
    let alone = run_alone(config);
    refuse_too_many(config, alone.as_ref())?;
    let repeats = config.runs.iter().filter_map(|run| run.values.get(Measure::REPEATS)).max().unwrap_or(0);
    let mut trials = Vec::new();
    let mut recorded: HashMap<String, Vec<f64>> = HashMap::new();
    // The repeats of a run differ in little, and a sweep may have thousands of runs.
    let runs: Vec<RepeatedRun<'_>> =
        config.runs.iter().chain(&alone).filter_map(|run| RepeatedRun::new(project, config, run)).collect();
    for repeat in 1..=repeats {
        for run in &runs {
            let Some(mut trial) = run.trial(repeat) else { continue };
            let train = &trial.settings.train;
            if train.mode == Mode::Emulate && !train.step_times_of.is_empty() {
                // They can be read: the config was judged.
                let read = || project.step_times(&train.step_times_of).unwrap_or_default();
                trial.recorded_step_ms = recorded.entry(train.step_times_of.clone()).or_insert_with(read).clone();
            }
            trials.push(trial);
        }
    }
    Ok(Plan {
        config: config.name.clone(),
        path: config.path.clone(),
        overrides: config.overrides.clone(),
        study: config.study.clone(),
        baseline: config.baseline.clone(),
        estimators: config.estimators.clone(),
        trials,
    })
}

/// The run that shows what it costs a trial to run side by side with others: that of the baseline, else the first one, alone. None where no
/// trials run side by side, where the config wants no such run, and where its sweep has it.
fn run_alone(config: &Config) -> Option<Run> {
    let pack = |run: &Run| run.values.get(Slurm::PACK).unwrap_or(1);
    let packed = || config.runs.iter().filter(|run| pack(run) > 1);
    let of_baseline = packed().find(|run| config.baseline.as_ref() == Some(&run.variant));
    let run = of_baseline.or_else(|| packed().next())?;
    if run.values.get(Slurm::PACK_CALIBRATE) != Some(true) {
        return None;
    }
    let elsewhere = |run: &Run| {
        let mut point = run.swept();
        point.remove(Slurm::PACK.name());
        point.remove(Slurm::PACK_GPU.name());
        point
    };
    let runs_alone =
        |other: &Run| other.variant == run.variant && pack(other) == 1 && elsewhere(other) == elsewhere(run);
    if config.runs.iter().any(runs_alone) {
        return None;
    }
    let mut alone = run.clone();
    alone.values.derive(Slurm::PACK, Some(1));
    if alone.point.contains_key(Slurm::PACK.name()) {
        alone.point.insert(Slurm::PACK.name(), Setting::unwritten(Some(to_json(&1))));
    }
    // It shares no GPU, so it is the trial of a job in which all run alone.
    if !alone.point.contains_key(Slurm::PACK_GPU.name()) {
        alone.values.derive(Slurm::PACK_GPU, Some(PackGpu::default()));
    }
    Some(alone)
}

/// Refuse more trials than a job may have; `alone` runs besides those of the config.
fn refuse_too_many(config: &Config, alone: Option<&Run>) -> Result<(), ConfErrors> {
    let repeats = |run: &Run| run.values.get(Measure::REPEATS).map_or(0, |repeats| repeats as usize);
    let trials = config.runs.iter().chain(alone).map(repeats).fold(0, usize::saturating_add);
    if trials <= MAX_TRIALS {
        return Ok(());
    }
    let at = config.runs.iter().max_by_key(|run| repeats(run)).and_then(|run| run.values.at(&Measure::REPEATS));
    let runs = config.runs.len() + usize::from(alone.is_some());
    let message = format!("{trials} trials ({runs} settings, each repeated) are more than {MAX_TRIALS}");
    let problem = Problem::new(at.unwrap_or(ValueOrigin::start_of(0)), message, "repeats all of them");
    let problem = problem.help("repeat less often, or submit parts of it with --only or --set");
    Err(ConfErrors::new(config.path.display().to_string(), vec![problem], config.sources.clone()))
}

/// What the trials of a run have in common.
struct RepeatedRun<'a> {
    config: &'a str,
    run: &'a Run,
    /// As in the trials, but for the seeds of further training runs.
    settings: Settings,
    point: BTreeMap<String, Json>,
    /// End of their ids.
    hash: String,
    data_dir: PathBuf,
}

impl<'a> RepeatedRun<'a> {
    fn new(project: &dyn ProjectFiles, config: &'a Config, run: &'a Run) -> Option<Self> {
        let mut settings = run.values.settings()?;
        // Ranks may start in another folder, so they are told where the files are; the id has the text of the config.
        for path in [&mut settings.model.path, &mut settings.train.start_from] {
            if !path.is_empty() {
                *path = project.folders().root().join(path.as_str()).to_string_lossy().into_owned();
            }
        }
        // All of them exist: the config was judged.
        let named = std::mem::take(&mut settings.array.files);
        let files = named.iter().flat_map(|named| project.array_files(named).unwrap_or_default());
        settings.array.files = files.map(|path| path.to_string_lossy().into_owned()).collect();
        let point = run.swept();
        let hash = trial_hash(&run.variant, &point, &run.values.flat());
        let data_dir = project.folders().data_dir(&settings.data);
        Some(Self { config: &config.name, run, settings, point, hash, data_dir })
    }

    /// The trial of a repeat; none for a repeat that the run does not have.
    fn trial(&self, repeat: u32) -> Option<Trial> {
        let run = self.run;
        let mut settings = self.settings.clone();
        if repeat > settings.measure.repeats {
            return None;
        }
        if settings.train.epochs > 0 {
            // With the seeds of the first one, each further run would be its copy, bit for bit.
            let (model, loader) = seeds(&settings, repeat);
            (settings.model.seed, settings.loader.seed) = (model, loader);
        }
        let default_model = !settings.runs_command() && run.values.at(&Model::KIND).is_none();
        Some(Trial {
            schema: TRIAL_SCHEMA_VERSION,
            id: named_trial(&run.variant, repeat, &self.hash),
            config: self.config.to_owned(),
            variant: run.variant.clone(),
            method: run.method.clone(),
            point: self.point.clone(),
            repeat,
            data_dir: self.data_dir.clone(),
            default_model,
            recorded_step_ms: Vec::new(),
            settings,
        })
    }
}

/// Seeds of the model and of the order of samples in a repeat of a training run.
fn seeds(settings: &Settings, repeat: u32) -> (u64, u64) {
    let further = u64::from(repeat.saturating_sub(1));
    (settings.model.seed.saturating_add(further), settings.loader.seed.saturating_add(further))
}

fn refuse_duplicates(config: &Config) -> Result<(), ConfErrors> {
    let mut seen: HashMap<(&str, String), Option<ValueOrigin>> = HashMap::new();
    let mut problems = Vec::new();
    for run in &config.runs {
        // Sorted by key, so equal settings give equal texts.
        let same = serde_json::to_string(&run.values.flat()).unwrap_or_default();
        let Some(first) = seen.get(&(run.variant.as_str(), same.clone())) else {
            seen.insert((&run.variant, same), run.at);
            continue;
        };
        // Only a sweep runs a variant more than once, so the second one has a place.
        let Some(at) = run.at else { continue };
        let keys: Vec<String> = run.swept().iter().map(|(k, v)| format!("{k} = {v}")).collect();
        let message = format!("two points of the sweep run the same: {}", keys.join(", "));
        let problem = Problem {
            message,
            at,
            label: "the same again".to_owned(),
            also: first.map(|at| (at, "first here".to_owned())).filter(|(first, _)| *first != at),
            help: Some("remove one; to run a point more than once, set measure.repeats".to_owned()),
        };
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(ConfErrors::new(config.path.display().to_string(), problems, config.sources.clone()))
}

/// `<variant>-r<repeat>-<hash>`: 8 hex digits of BLAKE3 over the canonical JSON (keys sorted, no spaces) of the
/// variant's name, the point of the sweep and the settings that change what is run.
///
/// It is the same in every job, on every machine and for every order of keys, and safe as a folder name.
pub fn trial_id(
    variant: &str,
    repeat: u32,
    point: &BTreeMap<String, Json>,
    settings: &BTreeMap<&'static str, &Json>,
) -> String {
    named_trial(variant, repeat, &trial_hash(variant, point, settings))
}

fn named_trial(variant: &str, repeat: u32, hash: &str) -> String {
    format!("{variant}-r{repeat}-{hash}")
}

/// The end of a [`trial_id`], which is the same for all repeats.
fn trial_hash(variant: &str, point: &BTreeMap<String, Json>, settings: &BTreeMap<&'static str, &Json>) -> String {
    let is_in_id = |key: &str, value: &Json| find(key).is_none_or(|spec| spec.is_in_id(value));
    let run: BTreeMap<&str, &Json> =
        settings.iter().filter(|(key, value)| is_in_id(key, value)).map(|(key, value)| (*key, *value)).collect();
    let mut hasher = blake3::Hasher::new();
    // Maps of texts to plain values, which always can be written.
    let canonical = serde_json::to_vec(&(variant, point, run)).unwrap_or_default();
    hasher.update(&canonical);
    hasher.finalize().to_hex()[..8].to_owned()
}
