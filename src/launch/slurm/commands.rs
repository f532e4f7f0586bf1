//! What is asked of Slurm to change something: submit, release, depend, cancel.

use std::path::Path;

use super::path_text;
use super::submitted::Submitted;
use super::tools::Slurm;
use crate::exit::{Exit, Failure};

/// How a script is submitted.
#[derive(Clone, Debug, Default)]
pub(super) struct Submission {
    /// It waits until it is released.
    pub hold: bool,
    /// What it waits for, as `--dependency` takes it.
    pub after: Option<String>,
    /// The cluster that it goes to, where there are several.
    pub cluster: Option<String>,
}

impl Slurm {
    /// Submit a script; returns its number.
    pub(super) fn sbatch(&self, script: &Path, how: &Submission) -> Result<Submitted, Failure> {
        if let Some(rest) = &self.rest {
            let text = std::fs::read_to_string(script).map_err(Failure::internal)?;
            let folder = std::env::current_dir().map_err(Failure::internal)?;
            return Ok(rest.submit(&text, how.hold, how.after.as_deref(), &folder)?);
        }
        let mut arguments = vec!["--parsable".to_owned()];
        arguments.extend(how.cluster.iter().map(|cluster| format!("--clusters={cluster}")));
        arguments.extend(how.hold.then(|| "--hold".to_owned()));
        arguments.extend(how.after.iter().map(|after| format!("--dependency={after}")));
        arguments.push(path_text(script)?.to_owned());
        let answer = self.run("sbatch", arguments)?;
        Submitted::parse(&answer).ok_or_else(|| {
            Failure::new(Exit::Cluster, format!("sbatch answered {:?}, which is not a job id", answer.trim()))
        })
    }

    /// Let a job that was submitted on hold run.
    pub(super) fn release(&self, job: &Submitted) -> Result<(), Failure> {
        let done = match &self.rest {
            Some(rest) => rest.release(job),
            None => self.run("scontrol", job.arguments(Some("release"))).map(drop),
        };
        Ok(done?)
    }

    /// Let a job that is on hold wait for others, too.
    pub(super) fn run_after(&self, job: &Submitted, after: &str) -> Result<(), Failure> {
        if let Some(rest) = &self.rest {
            rest.run_after(job, after)?;
            return Ok(());
        }
        let arguments = ["update".to_owned(), format!("JobId={}", job.id), format!("Dependency={after}")];
        Ok(self.run("scontrol", job.cluster_option().into_iter().chain(arguments)).map(drop)?)
    }

    /// Cancel a job with all its tasks.
    pub(super) fn cancel_job(&self, job: &Submitted) -> Result<(), Failure> {
        let done = match &self.rest {
            Some(rest) => rest.cancel(&[(job.clone(), None)], None),
            None => self.run("scancel", job.arguments(None)).map(drop),
        };
        Ok(done?)
    }

    /// Cancel some tasks of an array. One that has ended meanwhile is no error.
    pub(super) fn cancel_tasks(&self, array: &Submitted, tasks: &[u32]) -> Result<(), Failure> {
        if let Some(rest) = &self.rest {
            let tasks: Vec<_> = tasks.iter().map(|task| (array.clone(), Some(*task))).collect();
            rest.cancel(&tasks, None)?;
            return Ok(());
        }
        let names = tasks.iter().map(|task| format!("{}_{task}", array.id));
        let quiet = ["--quiet".to_owned()];
        Ok(self.run("scancel", array.cluster_option().into_iter().chain(quiet).chain(names)).map(drop)?)
    }

    /// MaxArraySize of the cluster; none if it does not say. slurmrestd never does.
    pub fn max_array_size(&self) -> Option<u64> {
        let config = self.run("scontrol", ["show", "config"]).ok()?;
        let value = config.lines().find_map(|line| line.strip_prefix("MaxArraySize")?.split_once('='))?.1;
        value.trim().parse().ok()
    }
}
