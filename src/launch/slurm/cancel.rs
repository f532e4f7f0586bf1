//! Cancelling trials, whichever of Slurm's numbers they run under.

use std::collections::{BTreeMap, BTreeSet};

use super::arrays::Arrays;
use super::standing::Standing;
use super::tools::Slurm;
use super::wait::WaitProgress;
use crate::exit::{Exit, Failure};
use crate::project::Project;

impl Slurm {
    /// Cancel the trials `only` of a job (their places in it), or all of it, and wait until each has its outcome. Trials that
    /// ended already stay as they are. Returns how many there were to cancel.
    ///
    /// # Errors
    /// Exit 2 for a trial that shares its task with others that have not ended; exit 4 with Slurm's words, or what
    /// [`Slurm::wait`] fails with.
    pub fn cancel(
        &self,
        project: &Project,
        id: u64,
        only: Option<&[u32]>,
        progress: &mut dyn FnMut(WaitProgress),
    ) -> Result<usize, Failure> {
        let folder = project.job(id);
        let record = folder.record()?;
        let trials = &record.trials;
        let arrays = Arrays::load(&folder, id, trials.len())?;
        let standings = self.standings(&[(folder.clone(), record.clone())])?;
        let mut open: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
        let mut cancelled = Vec::new();
        let mut spared = Vec::new();
        for (index, place) in (0..).zip(arrays.places(trials.len())) {
            let (Some(place), Some(trial)) = (place, trials.get(index as usize)) else { continue };
            if standings.trials.get(&(id, index as usize)) == Some(&Standing::Ended) {
                continue;
            }
            if only.is_none_or(|only| only.contains(&index)) {
                open.entry(place.array.id).or_default().insert(place.task);
                cancelled.push(index);
            } else {
                spared.push((place.key(), trial));
            }
        }
        let shares = |((array, task), _): &&((u64, u32), _)| open.get(array).is_some_and(|tasks| tasks.contains(task));
        if let Some((_, other)) = spared.iter().find(shares) {
            let message =
                format!("trial {} runs in the same task, one after the other: one cannot be cancelled alone", other.id);
            return Err(Failure::new(Exit::Usage, message).hint(format!("expctl cancel {id}")));
        }
        if only.is_none() {
            // Nothing is left for it to wait for, and the arrays must not start when it ends.
            if let Some(build) = arrays.build {
                self.cancel_quietly(&arrays, build);
            }
        }
        for (array, tasks) in &open {
            let tasks: Vec<u32> = tasks.iter().copied().collect();
            self.cancel_tasks(&arrays.named(*array), &tasks)?;
        }
        if !cancelled.is_empty() {
            self.wait_for(project, id, Some(&cancelled), progress)?;
        }
        Ok(cancelled.len())
    }

    /// Cancel a job that may have ended.
    pub(super) fn cancel_quietly(&self, arrays: &Arrays, id: u64) {
        if let Err(e) = self.cancel_job(&arrays.named(id)) {
            tracing::debug!("{e}");
        }
    }
}
