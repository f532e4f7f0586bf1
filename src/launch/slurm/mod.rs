//! The Slurm backend.

use expctl_record::JobRecord;

use crate::exit::Failure;
use crate::project::Project;

/// The batch script of a job, exactly as it would be submitted.
///
/// # Errors
/// Always, as long as this build has no Slurm backend.
pub fn script(_project: &Project, _job: &JobRecord) -> Result<String, Failure> {
    Err(Failure::internal("this build has no Slurm backend"))
}
