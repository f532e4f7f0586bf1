//! [`ExistingTrials`]: trials of a plan that need not be run again.

use std::collections::{BTreeMap, BTreeSet};

use expctl_ledger::{JobDir, Ledger, LedgerError, TrialState};
use serde::Deserialize;

use super::JobStatuses;
use crate::exit::Failure;
use crate::project::Project;

/// The trials of a plan that the ledger has already, or is about to have. A trial's id identifies all its settings, so
/// a trial with the same id in another job is the same measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExistingTrials {
    /// The newest job in which a trial completed, by trial.
    pub completed: BTreeMap<String, u64>,
    /// The newest job in which a trial waits or runs, or may do so, by trial; only trials that have not completed.
    pub active: BTreeMap<String, u64>,
    /// Jobs and trials that could not be read, a line each.
    pub trouble: Vec<String>,
}

/// The part of `job.json` that the search needs.
#[derive(Deserialize)]
struct TrialIds {
    trials: Vec<TrialId>,
}

#[derive(Deserialize)]
struct TrialId {
    id: String,
}

impl ExistingTrials {
    /// Look for the trials `ids` in all measured jobs, newest first. Slurm is asked at most once, and only if a job on
    /// it has an attempt without an outcome.
    ///
    /// # Errors
    /// The published results cannot be read, or a job that may still run cannot.
    pub fn find(project: &Project, ids: &BTreeSet<&str>) -> Result<Self, Failure> {
        let mut found = Self::default();
        let mut open: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
        for id in Ledger::open(project)?.measured_ids().into_iter().rev() {
            let folder = project.job(id);
            let listed = match trial_ids(&folder) {
                Ok(listed) => listed,
                Err(why) => {
                    found.trouble.push(format!("job {id} was not looked at: {why}"));
                    continue;
                }
            };
            for trial in listed.trials.into_iter().filter(|trial| ids.contains(trial.id.as_str())) {
                if found.completed.contains_key(&trial.id) {
                    continue;
                }
                match last_state(&folder, &trial.id) {
                    Ok(Some(TrialState::Completed)) => {
                        found.completed.insert(trial.id, id);
                    }
                    // A retry of a failed trial may not have begun.
                    Ok(_) => {
                        open.entry(id).or_default().insert(trial.id);
                    }
                    Err(e) => found.trouble.push(format!("{} of job {id} was not looked at: {e}", trial.id)),
                }
            }
        }
        for trials in open.values_mut() {
            trials.retain(|trial| !found.completed.contains_key(trial));
        }
        open.retain(|_, trials| !trials.is_empty());
        found.find_active(project, &open)?;
        Ok(found)
    }

    /// Find the trials without results that something still runs.
    fn find_active(&mut self, project: &Project, open: &BTreeMap<u64, BTreeSet<String>>) -> Result<(), Failure> {
        if open.is_empty() {
            return Ok(());
        }
        let folders: Vec<JobDir> = open.keys().map(|id| project.job(*id)).collect();
        let seen = JobStatuses::load(&folders)?;
        self.trouble.extend(seen.trouble.map(|why| format!("what still runs on Slurm is not known: {why}")));
        for job in seen.jobs {
            let id = job.record.job;
            let asked = open.get(&id);
            for trial in job.trials.iter().filter(|trial| trial.state.is_active()) {
                if asked.is_some_and(|trials| trials.contains(&trial.trial.id)) {
                    self.active.insert(trial.trial.id.clone(), id);
                }
            }
        }
        Ok(())
    }

    /// Whether a trial has to be measured yet.
    pub fn lacks(&self, trial: &str) -> bool {
        !self.completed.contains_key(trial) && !self.active.contains_key(trial)
    }

    /// The jobs that have them, newest first: `job 12 (3 completed), job 14 (1 waiting or running)`.
    pub fn jobs(&self) -> String {
        let mut counts: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
        for job in self.completed.values() {
            counts.entry(*job).or_default().0 += 1;
        }
        for job in self.active.values() {
            counts.entry(*job).or_default().1 += 1;
        }
        let words = counts.iter().rev().map(|(job, (completed, active))| {
            let parts = [(completed, "completed"), (active, "waiting or running")];
            let parts: Vec<String> =
                parts.into_iter().filter(|(n, _)| **n > 0).map(|(n, what)| format!("{n} {what}")).collect();
            format!("job {job} ({})", parts.join(", "))
        });
        words.collect::<Vec<_>>().join(", ")
    }
}

fn trial_ids(folder: &JobDir) -> std::io::Result<TrialIds> {
    let text = std::fs::read(folder.record_path())?;
    Ok(serde_json::from_slice(&text)?)
}

/// End of a trial's last attempt; `None` while it has not ended.
fn last_state(folder: &JobDir, trial: &str) -> Result<Option<TrialState>, LedgerError> {
    match folder.attempts(trial)?.last() {
        Some(last) => Ok(last.outcome()?.map(|outcome| outcome.state)),
        None => Ok(None),
    }
}
