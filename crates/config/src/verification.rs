//! The config that verifies predictions: variants of a past job, each beside variants with a change.

use std::fmt::Write;
use std::path::Path;

use expctl_settings::{Experiment, Loader, Measure, Train, Trial, to_json};
use serde_json::Value as Json;

use crate::past_job::{PastJob, Point, recorded_value, write_variant};

/// Ending of a verification's name.
const SUFFIX: &str = "_verified";
/// Fewest runs of each variant: fewer give no interval worth the name.
const MIN_REPEATS: u32 = 3;

/// A setting with its new value, as `--set` takes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedSetting {
    /// Its key.
    pub key: &'static str,
    /// Its new value.
    pub value: Json,
}

/// A change that is to be verified, which becomes a variant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifiedChange {
    /// The settings that make it. The variant is named after the last one.
    pub settings: Vec<ChangedSetting>,
    /// Warm-up and measured steps of its runs; `None`: those of the trial.
    pub steps: Option<(u64, u64)>,
}

/// A trial of the past job, with the changes that are to be verified.
#[derive(Clone, Debug)]
pub struct VerifiedTrial<'a> {
    /// Any of the runs of a variant at one point of its sweep.
    pub trial: &'a Trial,
    /// The changes.
    pub changes: Vec<VerifiedChange>,
}

/// A config as text, for [`load_text`](crate::load_text).
#[derive(Clone, Debug)]
pub struct Verification {
    /// Name of the config: that of the past job's, and `_verified`.
    pub name: String,
    /// TOML.
    pub text: String,
    /// For each trial that was given the name of the variant with its own settings, and of the variant of each change.
    pub variants: Vec<(String, Vec<String>)>,
}

impl Verification {
    /// Each of `trials` as it ran, and with each of its changes. All run the same number of times, alternately: the first run of each, then the
    /// second, and so on. `repeats`: runs of each; none takes as many as the job has, but at least three.
    pub fn new(root: &Path, past: PastJob<'_>, trials: &[VerifiedTrial<'_>], repeats: Option<u32>) -> Self {
        let recorded = trials.iter().map(|one| one.trial.settings.measure.repeats).max().unwrap_or(0);
        let repeats = repeats.unwrap_or(recorded.max(MIN_REPEATS));
        let name = match past.config.ends_with(SUFFIX) {
            true => past.config.to_owned(),
            false => format!("{}{SUFFIX}", past.config),
        };
        let mut text =
            format!("# Predictions from job {} (config {}), beside its own settings.\n", past.job, past.config);
        let chosen: Vec<&Trial> = trials.iter().map(|one| one.trial).collect();
        let resources =
            |trial: &Trial| (trial.settings.launch.ranks, trial.settings.launch.nodes, to_json(&trial.settings.slurm));
        let is_alike = chosen.windows(2).all(|two| resources(two[0]) == resources(two[1]));
        past.write_job_settings(&mut text, &chosen, |key| {
            let is = |other: &str| key == other;
            if is(Experiment::TITLE.name()) {
                Some(Json::from(format!("{} (job {}, predictions verified)", past.title(), past.job)))
            } else if is(Experiment::DESCRIPTION.name()) {
                Some(Json::from("Does each change bring what was predicted?"))
            } else if is(Experiment::MEASURES.name()) {
                Some(Json::from(vec!["each change beside the settings that it was predicted from, run alternately"]))
            } else if is(Experiment::DOES_NOT_MEASURE.name()) {
                Some(Json::from(Vec::<&str>::new()))
            } else if is(Measure::INTERLEAVE.name()) && is_alike {
                // On the same nodes, one after another: what slows a node slows both sides of a ratio.
                Some(Json::from(true))
            } else {
                None
            }
        });
        let variants = trials.iter().map(|one| write_trial(&mut text, root, one, repeats)).collect::<Vec<_>>();
        let own: Vec<&str> = variants.iter().map(|(own, _): &(String, Vec<String>)| own.as_str()).collect();
        let with_baseline =
            PastJob { baseline: past.baseline.filter(|name| own.contains(name)).or(own.first().copied()), ..past };
        with_baseline.write_comparison(&mut text, &own);
        Self { name, text, variants }
    }
}

/// Name of the config of a verification in messages and the ledger, instead of a path.
pub fn verification_path(job: u64) -> String {
    format!("job {job}, verified")
}

/// Whether a config's path is such a name.
pub fn is_verification(path: &Path) -> bool {
    let text = path.to_str().and_then(|text| text.strip_prefix("job ")?.strip_suffix(", verified"));
    text.is_some_and(|number| number.parse::<u64>().is_ok())
}

/// The trial as a variant, and a variant for each of its changes; returns their names.
fn write_trial(text: &mut String, root: &Path, one: &VerifiedTrial<'_>, repeats: u32) -> (String, Vec<String>) {
    let own = own_name(one.trial);
    write_changed(text, root, one.trial, &own, None, repeats);
    let changed = one.changes.iter().map(|change| {
        let last = change.settings.last().map(|last| name_of_setting(last.key, &last.value));
        let name = format!("{own}-{}", last.unwrap_or_default());
        write_changed(text, root, one.trial, &name, Some(change), repeats);
        name
    });
    let changed = changed.collect();
    (own, changed)
}

fn write_changed(
    text: &mut String,
    root: &Path,
    trial: &Trial,
    name: &str,
    change: Option<&VerifiedChange>,
    repeats: u32,
) {
    let (loader, measure) = (&trial.settings.loader, &trial.settings.measure);
    let settings = change.map(|change| change.settings.as_slice()).unwrap_or_default();
    let changed = |key: &str| settings.iter().find(|one| one.key == key).map(|one| &one.value);
    let with = |key: &str, recorded: u64| changed(key).and_then(Json::as_u64).unwrap_or(recorded);
    let workers = with(Loader::WORKERS.name(), loader.workers.into());
    let ahead = workers * with(Loader::PREFETCH_FACTOR.name(), loader.prefetch_factor.into());
    let mut method = trial.method.clone();
    for ChangedSetting { key, value } in settings {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let _ = write!(method, ", {key} = {value}");
    }
    let steps = change.and_then(|change| change.steps);
    // Of the settings that say how long an emulated step takes there is one.
    let gives_way = |key: &str| {
        let others = [Train::EMULATE.name(), Train::STEP_TIMES_OF.name()];
        others.contains(&key) && changed(&Train::STEP_MS).is_some()
    };
    write_variant(text, (name, &method), trial, &Point::new(), |key, value| {
        if let Some(new) = changed(key) {
            return Some(new.clone());
        }
        if gives_way(key) {
            return None;
        }
        if key == Measure::REPEATS.name() {
            return Some(Json::from(repeats));
        }
        if key == Measure::WARMUP.name() {
            // No measured step may be served from batches that were loaded during the warm-up.
            return Some(Json::from(steps.map_or(measure.warmup, |(warmup, _)| warmup).max(ahead)));
        }
        if let Some((_, steps)) = steps.filter(|_| key == Measure::STEPS.name()) {
            return Some(Json::from(steps));
        }
        recorded_value(key, root, trial, value)
    });
}

/// Name of the variant with the trial's own settings: that of its variant, with its point of the sweep.
fn own_name(trial: &Trial) -> String {
    let mut name = trial.variant.clone();
    for (key, value) in &trial.point {
        let _ = write!(name, "-{}", name_of_setting(key, value));
    }
    name
}

/// `workers4` for `loader.workers = 4`. What cannot be in a name becomes a hyphen.
fn name_of_setting(key: &str, value: &Json) -> String {
    let last = key.rsplit('.').next().unwrap_or(key);
    let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    format!("{last}{value}").chars().map(allowed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_settings_are_names_of_variants() {
        assert_eq!(name_of_setting("loader.workers", &Json::from(4)), "workers4");
        assert_eq!(name_of_setting("array.format", &Json::from("h5ad")), "formath5ad");
        assert_eq!(name_of_setting("train.learning_rate", &Json::from(0.5)), "learning_rate0-5");
    }

    #[test]
    fn a_verification_is_known_by_its_path() {
        assert!(is_verification(Path::new(&verification_path(12))));
        assert!(!is_verification(Path::new("conf/086.toml")) && !is_verification(Path::new("job x, verified")));
    }
}
