//! What is in Slurm's queue of a submission that was killed midway: arrays on hold.

use std::path::Path;

use expctl_ledger::{JobArrays, JobDir, JobRecord, SubmittedArray};
use slurm_client::{Availability, JobId};

use super::array_task::job_id;
use super::backend::SlurmBackend;
use crate::console::say;
use crate::exit::Failure;

impl SlurmBackend {
    /// Cancel the user's jobs that wait or run with a script in this folder. Where Slurm does not name scripts, say what may be there.
    ///
    /// # Errors
    /// Exit 4 with Slurm's own words.
    pub fn cancel_jobs_in(&self, folder: &Path) -> Result<(), Failure> {
        let unknown = |why: &dyn std::fmt::Display| {
            say(format!(
                "warning: what a submission that ended midway had queued cannot be looked up ({why}); an array may be on hold: \
                 squeue --me"
            ));
        };
        if self.client().availability() == Availability::Absent {
            unknown(&"no Slurm is found");
            return Ok(());
        }
        let columns = ["--me", "--noheader", "--states=PENDING,CONFIGURING,RUNNING,SUSPENDED", "--format=%F|%o"];
        let clusters = clusters_of(folder).map(|clusters| format!("--clusters={clusters}"));
        let table = match self.client().run("squeue", clusters.into_iter().chain(columns.map(str::to_owned))) {
            Ok(table) => table,
            // slurmrestd does not name scripts, and Slurm's commands need not be here.
            Err(error) if self.client().uses_rest() => {
                unknown(&error);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        for job in jobs_in(&table, folder) {
            self.client().cancel(&job)?;
        }
        Ok(())
    }

    /// Finish the submission of a job that is in the ledger: release the arrays that are still on hold. False if all of them are; they are
    /// cancelled then, because not everything that belongs to the job may be in the queue. An array with an attempt was released, whatever
    /// the queue says of it now.
    ///
    /// # Errors
    /// Exit 4 with Slurm's own words; exit 6 if the ledger cannot be read.
    pub fn finish_submission(&self, folder: &JobDir, record: &JobRecord) -> Result<bool, Failure> {
        let arrays = JobArrays::load(folder, record.job, record.trials.len())?;
        let ids: Vec<JobId> = arrays.arrays.iter().map(|array| job_id(&arrays, array.id)).collect();
        let queue = self.client().queued(&ids)?;
        let is_on_hold = |array: &SubmittedArray| {
            let mut tasks = queue.iter().filter(|((id, _), _)| *id == array.id).map(|(_, task)| task).peekable();
            tasks.peek().is_some() && tasks.all(|task| task.state.is_waiting() && names_hold(&task.detail))
        };
        let (mut on_hold, mut has_begun) = (Vec::new(), false);
        for array in &arrays.arrays {
            if has_attempt(folder, record, array)? {
                has_begun = true;
            } else if is_on_hold(array) {
                on_hold.push(job_id(&arrays, array.id));
            }
        }
        if !has_begun && on_hold.len() == ids.len() {
            // Beside the arrays, a job that builds the data may have ended long ago: Slurm knows it no more then.
            for id in [arrays.build, arrays.note].into_iter().flatten() {
                self.cancel_quietly(&arrays, id);
            }
            for id in &ids {
                self.client().cancel(id)?;
            }
            return Ok(false);
        }
        for id in &on_hold {
            self.client().release(id)?;
        }
        Ok(true)
    }
}

/// Whether Slurm's reason for a task that waits may be the hold that it was submitted with: a dependency of a held task is named instead.
fn names_hold(reason: &str) -> bool {
    reason.starts_with("JobHeld") || reason.starts_with("Dependency")
}

/// Whether a trial of an array has begun.
fn has_attempt(folder: &JobDir, record: &JobRecord, array: &SubmittedArray) -> Result<bool, Failure> {
    for entry in array.tasks.values().flatten() {
        if let Some(trial) = record.trials.get(entry.0 as usize)
            && !folder.attempts(&trial.id)?.is_empty()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The clusters that the batch script in a folder names, where there are several.
fn clusters_of(folder: &Path) -> Option<String> {
    let script = std::fs::read_to_string(folder.join("batch.sh")).ok()?;
    let mut options = script.lines().filter_map(|line| line.strip_prefix("#SBATCH "));
    options.find_map(|option| {
        let named = ["--clusters=", "--clusters ", "-M "].iter().find_map(|name| option.trim().strip_prefix(name))?;
        Some(named.trim().to_owned())
    })
}

/// The jobs in a table of `ID|SCRIPT` whose scripts lie in `folder`, each once. A line `CLUSTER: NAME` begins the jobs of another cluster.
fn jobs_in(table: &str, folder: &Path) -> Vec<JobId> {
    let mut cluster = None;
    let mut jobs = Vec::new();
    for line in table.lines() {
        if let Some(name) = line.strip_prefix("CLUSTER: ") {
            cluster = Some(name.trim().to_owned());
        } else if let Some(id) = of_script_in(line, folder) {
            let job = JobId { id, cluster: cluster.clone() };
            if !jobs.contains(&job) {
                jobs.push(job);
            }
        }
    }
    jobs
}

/// The job of a line `ID|SCRIPT`, if the script lies in `folder`.
fn of_script_in(line: &str, folder: &Path) -> Option<u64> {
    let (id, script) = line.split_once('|')?;
    id.trim().parse().ok().filter(|_| Path::new(script.trim()).starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_known_by_the_folder_of_its_script() {
        let folder = Path::new("/home/me/runs/.staged-ab");
        let of = |line: &str| of_script_in(line, folder);
        assert_eq!(of("100012|/home/me/runs/.staged-ab/batch.sh"), Some(100_012));
        for line in ["100012|/home/me/runs/.staged-abc/batch.sh", "100012|(null)", "x|/home/me/runs/.staged-ab/b", ""] {
            assert_eq!(of(line), None, "{line}");
        }
    }

    #[test]
    fn jobs_of_several_clusters_are_told_apart() {
        let table = "CLUSTER: a\n7|/r/b.sh\n7|/r/b.sh\n8|/x/b.sh\nCLUSTER: b\n7|/r/b.sh\n";
        let job = |cluster: &str| JobId { id: 7, cluster: Some(cluster.to_owned()) };
        assert_eq!(jobs_in(table, Path::new("/r")), [job("a"), job("b")]);
        assert_eq!(jobs_in("9|/r/b.sh\n", Path::new("/r")), [JobId::new(9)]);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("batch.sh"), "#!/bin/bash\n#SBATCH --clusters=a,b\n").unwrap();
        assert_eq!(clusters_of(folder.path()).as_deref(), Some("a,b"));
    }

    #[test]
    fn a_held_task_may_name_its_dependency() {
        assert!(["JobHeldUser", "JobHeldAdmin", "Dependency", "DependencyNeverSatisfied"].into_iter().all(names_hold));
        assert!(!["Priority", "Resources", ""].into_iter().any(names_hold));
    }
}
