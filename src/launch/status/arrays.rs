//! Slurm's numbers of a job.

use expctl_record::{JobDir, JobRecord};

use crate::exit::Failure;
use crate::launch::slurm::Arrays;

/// Numbers of the arrays that ran or run the trials of a job, oldest first; none for a job on this machine.
///
/// # Errors
/// The list of arrays cannot be read.
pub fn arrays(folder: &JobDir, record: &JobRecord) -> Result<Vec<u64>, Failure> {
    if !record.on_slurm() {
        return Ok(Vec::new());
    }
    let all = Arrays::load(folder, record.job, record.trials.len())?;
    Ok(all.arrays.into_iter().map(|array| array.id).collect())
}
