use std::path::PathBuf;

use expctl_record::{Estimator, JobRecord, TRIAL_SCHEMA_VERSION, Trial};

use crate::conf::closest;
use crate::exit::{Exit, Failure};

/// What a config runs: its trials, in the order in which they are submitted.
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
    /// What was asked for.
    pub name: String,
    /// What was probably meant.
    pub near: Option<String>,
    /// The variants that there are.
    pub variants: Vec<String>,
}

impl From<UnknownName> for Failure {
    fn from(unknown: UnknownName) -> Self {
        Self::new(Exit::Usage, &unknown).hint(format_args!("variants are {}", unknown.variants.join(", ")))
    }
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

    /// The job that running this plan would make. What only submitting knows is left open: the job id and the time are
    /// 0, the commit is unknown.
    pub fn job_record(&self, backend: &str) -> JobRecord {
        JobRecord {
            schema: TRIAL_SCHEMA_VERSION,
            job: 0,
            backend: backend.to_owned(),
            config: self.config.clone(),
            study: self.study.clone(),
            config_path: self.path.clone(),
            overrides: self.overrides.clone(),
            submitted: 0,
            commit: None,
            expctl_version: env!("CARGO_PKG_VERSION").to_owned(),
            baseline: self.baseline.clone(),
            estimators: self.estimators.clone(),
            trials: self.trials.clone(),
        }
    }
}
