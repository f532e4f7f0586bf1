//! What Slurm would do with a script, without queueing it.

use std::path::Path;

use expctl_record::JobRecord;

use super::path_text;
use super::script::{profile_of, render_within};
use super::tools::{Programs, Slurm};
use crate::exit::Failure;
use crate::project::Project;

impl Slurm {
    /// The batch scripts of a job, with what this cluster says of its limits.
    ///
    /// # Errors
    /// As [`super::render`].
    pub fn scripts(&self, project: &Project, job: &JobRecord) -> Result<Vec<String>, Failure> {
        let profile = profile_of(project, job)?;
        render_within(project, job, &Programs::find()?, &profile, self.limits(&profile))
    }

    /// Have `sbatch --test-only` look at a script; returns what it says: when and where the job would start. Some versions
    /// of Slurm use up a job number for the answer.
    ///
    /// # Errors
    /// Exit 4, with Slurm's own words, if the cluster cannot be reached or refuses the script.
    pub fn test_only(&self, script: &Path) -> Result<String, Failure> {
        let path = path_text(script)?;
        let (answer, said) = self.run_with_both("sbatch", ["--test-only", path])?;
        // Slurm says it on stderr.
        let lines = said.lines().chain(answer.lines()).map(|line| line.trim().trim_start_matches("sbatch: "));
        Ok(lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; "))
    }
}
