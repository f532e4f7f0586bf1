//! What a submission left in Slurm's queue that was killed midway: arrays on hold.

use std::collections::BTreeSet;
use std::path::Path;

use expctl_ledger::{JobArrays, JobDir, JobRecord};
use slurm_client::{Availability, JobId};

use super::array_task::job_id;
use super::backend::SlurmBackend;
use crate::exit::Failure;

/// Slurm's reason for a task that its user holds.
const HELD: &str = "JobHeldUser";

impl SlurmBackend {
    /// Cancel the user's jobs that wait with a script in this folder.
    ///
    /// # Errors
    /// Exit 4 with Slurm's own words.
    pub fn cancel_held_in(&self, folder: &Path) -> Result<(), Failure> {
        if self.client().availability() == Availability::Absent {
            return Ok(());
        }
        let columns = ["--me", "--noheader", "--states=PENDING", "--format=%F|%o"];
        let table = self.client().run("squeue", columns)?;
        let ids: BTreeSet<u64> = table.lines().filter_map(|line| of_script_in(line, folder)).collect();
        for id in ids {
            self.client().cancel(&JobId::new(id))?;
        }
        Ok(())
    }

    /// Finish the submission of a job that is in the ledger: release the arrays that are still on hold. False if all of them are; they are
    /// cancelled then, because not everything that belongs to the job may be in the queue.
    ///
    /// # Errors
    /// Exit 4 with Slurm's own words; exit 6 if the ledger cannot be read.
    pub fn finish_submission(&self, folder: &JobDir, record: &JobRecord) -> Result<bool, Failure> {
        let arrays = JobArrays::load(folder, record.job, record.trials.len())?;
        let ids: Vec<JobId> = arrays.arrays.iter().map(|array| job_id(&arrays, array.id)).collect();
        let queue = self.client().queued(&ids)?;
        let mut held = ids.clone();
        held.retain(|id| {
            let mut tasks = queue.iter().filter(|((array, _), _)| *array == id.id);
            tasks.any(|(_, task)| task.state.is_waiting() && task.detail == HELD)
        });
        if held.len() == ids.len() {
            for id in arrays.ids() {
                self.client().cancel(&job_id(&arrays, id))?;
            }
            return Ok(false);
        }
        for id in &held {
            self.client().release(id)?;
        }
        Ok(true)
    }
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
}
