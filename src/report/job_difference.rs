//! [`JobDifference`]: what two jobs were told, and what they ran with, where it is not the same. Nothing is measured here: `compare` does that.

use std::collections::{BTreeMap, BTreeSet};

use expctl_ledger::{Environment, JobDir, JobRecord, LedgerError, Program, Provenance};
use serde::Serialize;

use super::differences::{in_order, setting_name};
use super::recorded_facts::{fact_name, recorded_facts, short_hash};
use crate::ledger::{flatten_all, surroundings_text};

/// A setting in which rows of two jobs differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SettingDifference {
    /// The setting, as a reader calls it.
    pub setting: String,
    /// Its values in both jobs.
    pub values: [String; 2],
    /// The variants, with their swept settings.
    pub variants: Vec<String>,
}

/// Something that two jobs ran with, and that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EnvironmentDifference {
    /// What it is.
    pub name: String,
    /// Its values in both jobs.
    pub values: [String; 2],
}

/// The differences between the configs and the environments of two jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobDifference {
    /// Variants, with their swept settings, that only the first or only the second job has.
    pub only_in: [Vec<String>; 2],
    /// Settings of the variants that both have.
    pub settings: Vec<SettingDifference>,
    /// Code, programs, machines and variables.
    pub environment: Vec<EnvironmentDifference>,
}

impl JobDifference {
    /// Compare the records of two jobs.
    ///
    /// # Errors
    /// A record cannot be read.
    pub fn new(jobs: [&JobDir; 2]) -> Result<Self, LedgerError> {
        let [old, new] = [jobs[0].record()?, jobs[1].record()?];
        let (was, is) = (rows(&old), rows(&new));
        let labels: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
        let missing =
            |rows: &Rows| labels.iter().filter(|label| !rows.contains_key(**label)).map(|l| (**l).clone()).collect();
        let only_in: [Vec<String>; 2] = [missing(&is), missing(&was)];
        let settings = settings(&was, &is);
        let environments = [environment(jobs[0], &old)?, environment(jobs[1], &new)?];
        Ok(Self { only_in, settings, environment: differing(&environments) })
    }
}

/// Settings of each row of a job, by label.
type Rows = BTreeMap<String, BTreeMap<String, String>>;

fn rows(record: &JobRecord) -> Rows {
    let mut rows = Rows::new();
    // Repeats share their settings.
    for trial in &record.trials {
        let mut settings = flatten_all(&trial.settings);
        settings.insert("method".to_owned(), trial.method.clone());
        rows.entry(trial.label()).or_insert(settings);
    }
    rows
}

/// The settings in which rows with the same label differ; those of several rows that differ alike are one.
fn settings(was: &Rows, is: &Rows) -> Vec<SettingDifference> {
    let both: Vec<(&String, [&BTreeMap<String, String>; 2])> =
        was.iter().filter_map(|(label, old)| Some((label, [old, is.get(label)?]))).collect();
    let keys = both.iter().flat_map(|(_, sides)| sides.iter().flat_map(|side| side.keys().map(String::as_str)));
    let mut found: Vec<SettingDifference> = Vec::new();
    for key in in_order(keys) {
        for (label, [old, new]) in &both {
            let value =
                |side: &BTreeMap<String, String>| side.get(key).cloned().unwrap_or_else(|| "not set".to_owned());
            let (setting, values) = (setting_name(key), [value(old), value(new)]);
            if values[0] == values[1] {
                continue;
            }
            match found.iter_mut().find(|known| known.setting == setting && known.values == values) {
                Some(known) => known.variants.push((*label).clone()),
                None => {
                    let variants = vec![(*label).clone()];
                    found.push(SettingDifference { setting: setting.to_owned(), values, variants });
                }
            }
        }
    }
    found
}

/// What a job was submitted with and ran with, by name.
fn environment(job: &JobDir, record: &JobRecord) -> Result<BTreeMap<String, String>, LedgerError> {
    let mut environments: Vec<Environment> = Vec::new();
    for trial in &record.trials {
        for attempt in job.attempts(&trial.id)? {
            environments.extend(attempt.environment()?);
        }
    }
    let mut found = surroundings_text(environments.iter());
    for (key, values) in facts_of_all(&environments) {
        found.entry(key).or_insert(values);
    }
    let mut add = |name: &str, value: Option<String>| found.extend(value.map(|value| (name.to_owned(), value)));
    add("backend", Some(record.backend.clone()));
    add("expctl", Some(record.expctl_version.clone()));
    add("commit", Some(record.commit.clone().unwrap_or_else(|| "none".to_owned())));
    let Some(told) = Provenance::read(job)? else { return Ok(found) };
    let short = |hash: &String| short_hash(hash).to_owned();
    let source = told.source.as_ref();
    add("branch", source.and_then(|source| source.branch.clone()));
    add("uncommitted changes", source.map(|source| source.hash.as_ref().map_or_else(|| "none".to_owned(), short)));
    let build = |program: &Program| program.hash.as_ref().map(short);
    add("build of expctl", build(&told.expctl));
    add("build of the worker", told.worker.as_ref().and_then(build));
    add("libtorch of the submitting machine", told.libtorch.and_then(|found| found.version));
    add("submitted by", Some(told.user));
    add("submitted on", Some(told.host));
    add("submitted in", Some(told.folder.display().to_string()));
    for (name, value) in told.variables {
        add(&format!("variable {name}"), Some(value));
    }
    Ok(found)
}

/// What attempts ran with and on, by name; what was not the same in all of them has each value once.
fn facts_of_all(environments: &[Environment]) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (key, value) in environments.iter().flat_map(recorded_facts) {
        let is_variable = key.starts_with(|c: char| c.is_ascii_uppercase());
        let name = if is_variable { format!("variable {key}") } else { fact_name(&key).to_owned() };
        all.entry(name).or_default().insert(value);
    }
    all.into_iter().map(|(name, values)| (name, values.into_iter().collect::<Vec<_>>().join("; "))).collect()
}

/// What is not the same in both; what one does not say is `unknown`.
fn differing([old, new]: &[BTreeMap<String, String>; 2]) -> Vec<EnvironmentDifference> {
    let keys = old.keys().chain(new.keys()).map(String::as_str);
    let value =
        |side: &BTreeMap<String, String>, key: &str| side.get(key).cloned().unwrap_or_else(|| "unknown".to_owned());
    let sides = in_order(keys).into_iter().map(|key| (key, [value(old, key), value(new, key)]));
    let differ = sides.filter(|(_, values)| values[0] != values[1]);
    differ.map(|(key, values)| EnvironmentDifference { name: setting_name(key).to_owned(), values }).collect()
}
