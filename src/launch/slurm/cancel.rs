//! Cancelling array tasks, whichever of Slurm's numbers they run under.

use std::collections::BTreeMap;

use super::submissions::{Submissions, settled};
use super::submitted::Submitted;
use super::tools::Slurm;
use super::wait::WaitProgress;
use crate::exit::Failure;
use crate::project::Project;

impl Slurm {
    /// Cancel the array tasks `only` of a job, or all of it, and wait until each has its outcome. Tasks that ended already
    /// stay as they are. Returns how many there were to cancel.
    ///
    /// # Errors
    /// Exit 4 with Slurm's words, or what [`Slurm::wait`] fails with.
    pub fn cancel(
        &self,
        project: &Project,
        id: u64,
        only: Option<&[u32]>,
        progress: &mut dyn FnMut(WaitProgress),
    ) -> Result<usize, Failure> {
        let folder = project.job(id);
        let submissions = Submissions::load(&folder, id)?;
        let mut open: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (index, trial) in (0..).zip(&folder.record()?.trials) {
            let (array, attempt) = submissions.newest(index);
            let wanted = only.is_none_or(|only| only.contains(&index));
            if wanted && settled(&folder, trial, attempt)?.is_none() {
                open.entry(array.id).or_default().push(index);
            }
        }
        for (array, tasks) in &open {
            let Submitted { id, .. } = submissions.named(*array);
            let names = tasks.iter().map(|index| format!("{id}_{index}"));
            // --quiet: a task that ended meanwhile is what was wanted.
            let cluster = submissions.named(*array).cluster_option();
            self.run("scancel", cluster.into_iter().chain(["--quiet".to_owned()]).chain(names))?;
        }
        let cancelled: Vec<u32> = open.into_values().flatten().collect();
        if !cancelled.is_empty() {
            self.wait_for(project, id, Some(&cancelled), progress)?;
        }
        Ok(cancelled.len())
    }
}
