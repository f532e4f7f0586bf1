//! What Slurm would do with a script, without queueing it.

use std::path::Path;

use super::path_text;
use super::tools::Slurm;
use crate::exit::Failure;

impl Slurm {
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
