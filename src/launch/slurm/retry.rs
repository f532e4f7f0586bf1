//! More arrays for some trials of a job, into the folder the job has already.

use super::arrays::Arrays;
use super::commands::Submission;
use super::parts::parts;
use super::resources::Resources;
use super::script::{Number, fill, profile_of};
use super::submit::array;
use super::tools::{Programs, Slurm};
use crate::exit::{Exit, Failure};
use crate::project::Project;

/// What a trial asks for differently in its next attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adjustment {
    /// Memory of the trial, MiB.
    pub memory_mib: Option<u64>,
    /// Time limit, minutes.
    pub time_min: Option<u64>,
    /// Nodes to stay away from.
    pub exclude: Vec<String>,
}

impl Adjustment {
    fn apply(&self, mut resources: Resources) -> Resources {
        resources.memory_mib = self.memory_mib.unwrap_or(resources.memory_mib);
        resources.time_min = self.time_min.unwrap_or(resources.time_min);
        resources.exclude.clone_from(&self.exclude);
        resources
    }
}

impl Slurm {
    /// Queue the trials `which` of job `id` (their places in the job) once more; returns Slurm's numbers of the new arrays.
    /// As at the first submission, an array is released only when the ledger knows it.
    ///
    /// # Errors
    /// Exit 4, with Slurm's own words, if the cluster cannot be reached or refuses; exit 70 if the ledger cannot be written.
    pub fn retry(
        &self,
        project: &Project,
        id: u64,
        which: &[(u32, Adjustment)],
        programs: &Programs,
    ) -> Result<Vec<u64>, Failure> {
        let folder = project.job(id);
        let record = folder.record()?;
        let profile = profile_of(project, &record)?;
        let _lock = Arrays::lock(&folder)?;
        let mut arrays = Arrays::load(&folder, id, record.trials.len())?;
        let places = arrays.places(record.trials.len());
        let mut attempts = std::collections::BTreeMap::new();
        for (index, _) in which {
            let trial = record
                .trials
                .get(*index as usize)
                .ok_or_else(|| Failure::internal(format!("job {id} has no trial number {index}")))?;
            let last = folder.attempts(&trial.id)?.last().map_or(0, expctl_record::AttemptDir::number);
            if let Some(place) = places.get(*index as usize).and_then(Option::as_ref).filter(|p| p.attempt > last) {
                let message = format!("another attempt of trial {} is queued already, as {}", trial.id, place.name());
                return Err(Failure::new(Exit::Incomplete, message).hint(format!("expctl status {id}")));
            }
            attempts.insert(*index, last + 1);
        }
        let indices: Vec<u32> = which.iter().map(|(index, _)| *index).collect();
        let adjust = |index: u32, resources: Resources| match which.iter().find(|(i, _)| *i == index) {
            Some((_, adjustment)) => adjustment.apply(resources),
            None => resources,
        };
        let mut new = Vec::new();
        for part in parts(&record, &indices, self.limits(&profile), &adjust) {
            let name = format!("batch-{}.sh", arrays.arrays.len() + 1);
            let script = fill(project, &record, programs, &profile, &part, Number::Known(id))?;
            let how = Submission { hold: true, cluster: arrays.cluster.clone(), after: None };
            let submitted =
                self.queue(&folder, &name, &script, &how).map_err(|failure| and_what_runs(failure, &new))?;
            let attempt = |index: u32| attempts.get(&index).copied().unwrap_or(1);
            arrays.arrays.push(array(&submitted, &name, &part, &attempt));
            let released = arrays.save(&folder).and_then(|()| self.release(&submitted));
            if let Err(failure) = released {
                // Its number stays in the ledger: the next look sees it as cancelled.
                let failure = and_what_runs(failure, &new);
                return Err(match self.cancel_job(&submitted) {
                    Ok(()) => failure.hint(format_args!("job {} was cancelled again", submitted.id)),
                    Err(e) => failure
                        .hint(format_args!("job {0} is left on hold ({e}); cancel it: scancel {0}", submitted.id)),
                });
            }
            new.push(submitted.id);
        }
        if let Some(note) = arrays.note {
            // It would wait for these arrays inside its own allocation.
            self.cancel_quietly(&arrays, note);
            self.queue_note(project, &record, programs, &profile, &folder, &mut arrays)?;
        }
        Ok(new)
    }
}

/// A retry that is refused half way has queued something all the same.
fn and_what_runs(failure: Failure, queued: &[u64]) -> Failure {
    if queued.is_empty() {
        return failure;
    }
    let ids: Vec<String> = queued.iter().map(u64::to_string).collect();
    failure.hint(format!("other trials of this retry are queued, as Slurm's job {}", ids.join(", ")))
}
