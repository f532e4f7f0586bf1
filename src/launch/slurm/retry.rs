//! Another array for some trials of a job, into the folder the job has already.

use std::collections::BTreeMap;

use expctl_record::write_atomic;

use super::path_text;
use super::script::render_retry;
use super::submissions::Submissions;
use super::submitted::Submitted;
use super::tools::{Programs, Slurm};
use crate::exit::{Exit, Failure};
use crate::project::Project;

impl Slurm {
    /// Queue the array tasks `indices` of job `id` once more; returns Slurm's number of the new array. As at the first
    /// submission, it is released only when the ledger knows it.
    ///
    /// # Errors
    /// Exit 4, with Slurm's own words, if the cluster cannot be reached or refuses; exit 70 if the ledger cannot be written.
    pub fn retry(&self, project: &Project, id: u64, indices: &[u32], programs: &Programs) -> Result<u64, Failure> {
        let folder = project.job(id);
        let record = folder.record()?;
        let mut submissions = Submissions::load(&folder, id)?;
        let script = render_retry(project, &record, programs, indices)?;
        let path = folder.path().join("batch-retry.sh");
        write_atomic(&path, script.as_bytes())?;
        let mut attempts = BTreeMap::new();
        for index in indices {
            let trial = record
                .trials
                .get(*index as usize)
                .ok_or_else(|| Failure::internal(format!("job {id} has no trial number {index}")))?;
            attempts.insert(*index, folder.attempts(&trial.id)?.last().map_or(1, |last| last.number() + 1));
        }
        let arguments = ["--parsable".to_owned(), "--hold".to_owned(), path_text(&path)?.to_owned()];
        let answer = self.run("sbatch", submissions.named(id).cluster_option().into_iter().chain(arguments))?;
        let Some(Submitted { id: array, .. }) = Submitted::parse(&answer) else {
            let message = format!("sbatch answered {:?}, which is not a job id", answer.trim());
            return Err(Failure::new(Exit::Cluster, message));
        };
        let submitted = submissions.named(array);
        let released = submissions
            .add(&folder, array, attempts)
            .and_then(|()| self.run("scontrol", submitted.arguments(Some("release"))).map_err(Failure::from));
        match released {
            Ok(_) => Ok(array),
            // Its number stays in the ledger: the next look sees it as cancelled.
            Err(failure) => Err(self.withdraw(&submitted, failure)),
        }
    }
}
