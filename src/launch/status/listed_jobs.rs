//! [`ListedJobs`]: all jobs of a ledger as lists show them. Of a job that has ended the files are read twice, and then only their times.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use expctl_ledger::{AttemptDir, AttemptState, JobArrays, JobDir};

use super::{JobStatus, JobStatuses, TrialStatus};
use crate::exit::Failure;
use crate::ledger::{FilesOf, JobFiles, ListedJob, TrialFiles};
use crate::project::Project;

/// Jobs of a ledger, as seen now.
#[derive(Debug)]
pub struct ListedJobs {
    /// The jobs, the newest first.
    pub jobs: Vec<ListedJob>,
    /// Jobs that cannot be read, and why: one damaged file hides no other job.
    pub unreadable: Vec<(JobDir, Failure)>,
    /// Why Slurm could not be asked, if so.
    pub trouble: Option<String>,
}

impl ListedJobs {
    /// Look at the jobs of a project's ledger; `folders` are all of them. Jobs that have ended and have not changed since come from the
    /// cache of the user. Slurm is asked once for all others, as [`JobStatuses::load`] does.
    ///
    /// # Errors
    /// Slurm's answer cannot be understood.
    pub fn load(project: &Project, folders: &[JobDir]) -> Result<Self, Failure> {
        let mut cache = ListedJob::cache(project);
        let cached = parallel_map::map(folders, |folder| cache.get(folder).cloned());
        let open = folders.iter().zip(&cached).filter(|(_, cached)| cached.is_none());
        let open: Vec<JobDir> = open.map(|(folder, _)| folder.clone()).collect();
        let unchanged = parallel_map::map(&open, |folder| cache.is_unchanged(folder).then(|| folder.name()));
        let unchanged: BTreeSet<String> = unchanged.into_iter().flatten().collect();
        let begun = SystemTime::now();
        let JobStatuses { jobs: seen, unreadable, trouble } = JobStatuses::load(&open)?;
        let read = parallel_map::map(&seen, |status| (listed(status), settled_files(status, begun)));
        let mut jobs: Vec<ListedJob> = cached.into_iter().flatten().collect();
        for (status, (job, files)) in seen.iter().zip(read) {
            if let Some(files) = files {
                cache.insert(&status.folder, files, job.clone(), unchanged.contains(&status.folder.name()));
            }
            jobs.push(job);
        }
        cache.save(folders);
        jobs.sort_by_key(|job| std::cmp::Reverse((job.submitted, job.job)));
        Ok(Self { jobs, unreadable, trouble })
    }
}

/// What lists show of a job.
fn listed(status: &JobStatus) -> ListedJob {
    let record = &status.record;
    let (mut known, mut variants) = (BTreeSet::new(), Vec::new());
    for trial in &record.trials {
        if known.insert(trial.variant.as_str()) {
            variants.push(trial.variant.clone());
        }
    }
    let title = record.trials.first().map(|trial| trial.settings.experiment.title.clone()).unwrap_or_default();
    ListedJob {
        job: record.job,
        config: record.config.clone(),
        study: record.study.clone(),
        title,
        backend: record.backend.clone(),
        submitted: record.submitted,
        variants,
        states: status.counts().into_iter().collect(),
        newest_outcome_ns: status.trials.iter().filter_map(outcome_ns).max().unwrap_or(0),
    }
}

/// When the outcome of a trial was written, ns since 1970.
fn outcome_ns(trial: &TrialStatus) -> Option<u64> {
    let written = std::fs::metadata(trial.attempt.as_ref()?.outcome_path()).ok()?.modified().ok()?;
    u64::try_from(written.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
}

/// The state of the files of a job that has ended, after a reading that began at `begun`. `None`: it may change without a change of its files,
/// or they changed just now.
fn settled_files(status: &JobStatus, begun: SystemTime) -> Option<JobFiles> {
    if !is_final(status) {
        return None;
    }
    let files = |trial: &TrialStatus| {
        let attempts = trial.attempt.as_ref().map_or(0, AttemptDir::number);
        TrialFiles(trial.trial.id.clone(), attempts, trial.trial.settings.launch.ranks)
    };
    let trials = status.trials.iter().map(files).collect();
    JobFiles::settled(&status.folder, trials, FilesOf::Outcomes, begun)
}

/// Whether every trial has an outcome, and nothing makes another attempt but a command of the user's.
fn is_final(status: &JobStatus) -> bool {
    let has_ended = |trial: &TrialStatus| {
        let ended = [AttemptState::Completed, AttemptState::Failed, AttemptState::Interrupted];
        trial.outcome.is_some() && ended.contains(&trial.state)
    };
    if !status.trials.iter().all(has_ended) {
        return false;
    }
    let arrays = match JobArrays::of_job(&status.folder, &status.record) {
        Ok(Some(arrays)) => arrays,
        Ok(None) => return true,
        Err(_) => return false,
    };
    // Slurm may requeue a task, and one of a retry may not have begun.
    let tasks = arrays.newest_tasks(status.trials.len());
    status.trials.iter().zip(tasks).all(|(trial, task)| {
        let attempts = trial.attempt.as_ref().map_or(0, AttemptDir::number);
        task.is_some_and(|task| attempts >= task.attempt && (!task.requeue || trial.state == AttemptState::Completed))
    })
}
