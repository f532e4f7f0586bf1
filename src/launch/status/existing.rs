//! Which trials of a plan the ledger has already, or is about to have.

use std::collections::{BTreeMap, BTreeSet};

use expctl_record::{JobDir, TrialState};
use serde::Deserialize;

use super::look::look;
use crate::exit::Failure;
use crate::ledger::Ledger;
use crate::project::Project;

/// What the ledger has of the trials that were asked for. A trial's id says all that it runs, so one in another job is the
/// same measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Had {
    /// The newest job in which a trial completed, by trial.
    pub completed: BTreeMap<String, u64>,
    /// The newest job in which a trial waits or runs, or may do so, by trial; none of them has completed anywhere.
    pub active: BTreeMap<String, u64>,
    /// What could not be looked at, a line each.
    pub trouble: Vec<String>,
}

/// As much of `job.json` as the search needs.
#[derive(Deserialize)]
struct Listed {
    trials: Vec<ListedTrial>,
}

#[derive(Deserialize)]
struct ListedTrial {
    id: String,
}

impl Had {
    /// Look for `wanted` in all jobs that were measured here, newest first. Slurm is asked at most once, and only if a job
    /// of its has an attempt without an outcome.
    ///
    /// # Errors
    /// The published results cannot be read, or a job that may still run cannot.
    pub fn of(project: &Project, wanted: &BTreeSet<&str>) -> Result<Self, Failure> {
        let mut had = Self::default();
        let mut open: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
        for id in Ledger::open(project)?.measured_ids().into_iter().rev() {
            let folder = project.job(id);
            let listed = match listed(&folder) {
                Ok(listed) => listed,
                Err(why) => {
                    had.trouble.push(format!("job {id} was not looked at: {why}"));
                    continue;
                }
            };
            for trial in listed.trials.into_iter().filter(|trial| wanted.contains(trial.id.as_str())) {
                if had.completed.contains_key(&trial.id) {
                    continue;
                }
                match last_state(&folder, &trial.id) {
                    Ok(Some(TrialState::Completed)) => {
                        had.completed.insert(trial.id, id);
                    }
                    // One that failed may be in a retry that has not begun.
                    Ok(_) => {
                        open.entry(id).or_default().insert(trial.id);
                    }
                    Err(e) => had.trouble.push(format!("{} of job {id} was not looked at: {e}", trial.id)),
                }
            }
        }
        for trials in open.values_mut() {
            trials.retain(|trial| !had.completed.contains_key(trial));
        }
        open.retain(|_, trials| !trials.is_empty());
        had.look_at(project, &open)?;
        Ok(had)
    }

    /// Sort out which of the trials without results something still runs.
    fn look_at(&mut self, project: &Project, open: &BTreeMap<u64, BTreeSet<String>>) -> Result<(), Failure> {
        if open.is_empty() {
            return Ok(());
        }
        let folders: Vec<JobDir> = open.keys().map(|id| project.job(*id)).collect();
        let seen = look(&folders)?;
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
    pub fn misses(&self, trial: &str) -> bool {
        !self.completed.contains_key(trial) && !self.active.contains_key(trial)
    }

    /// Which jobs have them, newest first: `job 12 (3 completed), job 14 (1 waiting or running)`.
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

fn listed(folder: &JobDir) -> Result<Listed, String> {
    let text = std::fs::read(folder.record_path()).map_err(|e| e.to_string())?;
    serde_json::from_slice(&text).map_err(|e| e.to_string())
}

/// How a trial's last attempt ended; none while it has not.
fn last_state(folder: &JobDir, trial: &str) -> Result<Option<TrialState>, expctl_record::RecordError> {
    match folder.attempts(trial)?.last() {
        Some(last) => Ok(last.outcome()?.map(|outcome| outcome.state)),
        None => Ok(None),
    }
}
