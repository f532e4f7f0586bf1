use std::collections::{BTreeMap, HashMap};

use expctl_record::{Settings, TRIAL_SCHEMA_VERSION, Trial};
use serde_json::Value as Json;

use super::id::trial_id;
use super::plan_type::Plan;
use crate::conf::{ConfErrors, Config, Origin, Problem, Run, matching};
use crate::project::Project;

/// Make the trials of a config.
///
/// # Errors
/// Two points of the sweep that run the same.
pub fn expand(project: &Project, config: &Config) -> Result<Plan, ConfErrors> {
    refuse_duplicates(config)?;
    let repeats = config.runs.iter().filter_map(|run| run.values.number("measure.repeats")).max().unwrap_or(0);
    let mut trials = Vec::new();
    for repeat in 1..=u32::try_from(repeats).unwrap_or(u32::MAX) {
        for run in &config.runs {
            trials.extend(trial(project, config, run, repeat));
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

/// None for a repeat that this run does not have.
fn trial(project: &Project, config: &Config, run: &Run, repeat: u32) -> Option<Trial> {
    let mut settings = run.values.settings()?;
    if repeat > settings.measure.repeats {
        return None;
    }
    // Ranks may start in another folder, so they are told where the files are; the id has the text of the config.
    for path in [&mut settings.model.path, &mut settings.train.start_from] {
        if !path.is_empty() {
            *path = project.root().join(path.as_str()).to_string_lossy().into_owned();
        }
    }
    // All of them exist: the config was judged.
    let named = std::mem::take(&mut settings.array.files);
    let files = named.iter().flat_map(|named| matching(project.root(), named).unwrap_or_default());
    settings.array.files = files.map(|path| path.to_string_lossy().into_owned()).collect();
    if settings.train.epochs > 0 {
        // With the seeds of the first one, each further run would be its copy, bit for bit.
        let (model, loader) = seeds(&settings, repeat);
        (settings.model.seed, settings.loader.seed) = (model, loader);
    }
    let default_model = !settings.runs_command() && run.values.at("model.kind").is_none();
    let point = point(run);
    Some(Trial {
        schema: TRIAL_SCHEMA_VERSION,
        id: trial_id(&run.variant, repeat, &point, &run.values.flat()),
        config: config.name.clone(),
        variant: run.variant.clone(),
        method: run.method.clone(),
        point,
        repeat,
        data_dir: project.data_dir(&settings.data),
        default_model,
        settings,
    })
}

/// Seeds of the model and of the order of samples in a repeat of a training run.
fn seeds(settings: &Settings, repeat: u32) -> (u64, u64) {
    let further = u64::from(repeat.saturating_sub(1));
    (settings.model.seed.saturating_add(further), settings.loader.seed.saturating_add(further))
}

fn point(run: &Run) -> BTreeMap<String, Json> {
    run.point.iter().filter_map(|(key, s)| Some(((*key).to_owned(), s.value.clone()?))).collect()
}

fn refuse_duplicates(config: &Config) -> Result<(), ConfErrors> {
    let mut seen: HashMap<(&str, String), Option<Origin>> = HashMap::new();
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
        let keys: Vec<String> = point(run).iter().map(|(k, v)| format!("{k} = {v}")).collect();
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
