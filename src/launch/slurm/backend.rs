//! Submission. Invariant: a job runs only after its folder stands in the ledger under the job's own number.

use std::collections::BTreeMap;
use std::path::Path;

use expctl_record::{JobDir, JobRecord, write_atomic, write_json};

use super::arrays::{Array, Arrays, Turn};
use super::chain::{build_script, note_script};
use super::commands::Submission;
use super::parts::{Limits, Part, parts};
use super::script::{Number, fill, profile_of};
use super::submitted::Submitted;
use super::tools::{Programs, Slurm, inherited};
use crate::conf::Profile;
use crate::console::say;
use crate::exit::{Exit, Failure};
use crate::project::Project;

/// What a submission consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// The data are built and the note is written by jobs of Slurm, too: before the first array and after the last.
    pub chain: bool,
}

impl Slurm {
    /// Submit `job` (whose own number is not known yet) and return the number that Slurm gave it: that of its first array.
    ///
    /// Its arrays are queued on hold, its folder is put into the ledger under its number, and only then are they released: no
    /// rank ever looks for a folder that is not there. If anything fails on the way, all is cancelled and the folder
    /// removed.
    ///
    /// # Errors
    /// Exit 3 if a script cannot be written; exit 4, with Slurm's own words, if the cluster cannot be reached or
    /// refuses the job; exit 70 if the ledger cannot be written.
    pub fn submit(
        &self,
        project: &Project,
        mut job: JobRecord,
        programs: &Programs,
        order: Order,
    ) -> Result<u64, Failure> {
        self.backend().clone_into(&mut job.backend);
        let profile = profile_of(project, &job)?;
        let all: Vec<u32> = (0..).take(job.trials.len()).collect();
        let parts = parts(&job, &all, self.limits(&profile), &|_, resources| resources);
        let Some((first, others)) = parts.split_first() else {
            return Err(Failure::new(Exit::Config, "the job has no trials"));
        };
        let script = fill(project, &job, programs, &profile, first, Number::Own)?;
        let variables = inherited();
        if !variables.is_empty() {
            say(format_args!("note: not used, since they would override the config: {}", variables.join(", ")));
        }
        std::fs::create_dir_all(project.runs()).map_err(|e| not_made(project.runs(), &e))?;
        // Removed when dropped, on every way out but the last.
        let staged = tempfile::Builder::new()
            .prefix(".staged-")
            .permissions(folder_permissions())
            .tempdir_in(project.runs())
            .map_err(|e| not_made(project.runs(), &e))?;
        let folder = JobDir::new(staged.path());
        write_json(&folder.record_path(), &job)?;
        let submitted =
            self.queue(&folder, "batch.sh", &script, &Submission { hold: true, ..Submission::default() })?;
        job.job = submitted.id;
        let mut arrays = Arrays { cluster: submitted.cluster.clone(), ..Arrays::default() };
        arrays.arrays.push(array(&submitted, "batch.sh", first, &|_| 1));
        let result = self
            .queue_others(project, &job, programs, &profile, others, &folder, &mut arrays)
            .and_then(|()| arrays.save(&folder))
            .and_then(|()| place(project, &job, folder.path()))
            .and_then(|()| {
                // The folder is the job's own now, and no longer ours to remove.
                let _ = staged.keep();
                let folder = project.job(job.job);
                self.chain(project, &job, programs, &profile, order, &folder, &mut arrays)
                    .and_then(|()| arrays.arrays.iter().try_for_each(|array| self.release(&arrays.named(array.id))))
                    .inspect_err(|_| {
                        let _ = std::fs::remove_dir_all(folder.path());
                    })
            });
        match result {
            Ok(()) => Ok(job.job),
            Err(failure) => Err(self.withdraw(&arrays, failure)),
        }
    }

    /// What the cluster takes: what the profile says, else what Slurm says.
    pub(super) fn limits(&self, profile: &Profile) -> Limits {
        let array_size = profile.max_array_size.or_else(|| self.max_array_size());
        Limits { array_size, submit: profile.max_submit }
    }

    /// Write a script into the job's folder and submit it.
    pub(super) fn queue(
        &self,
        folder: &JobDir,
        name: &str,
        script: &str,
        how: &Submission,
    ) -> Result<Submitted, Failure> {
        let path = folder.path().join(name);
        write_atomic(&path, script.as_bytes())?;
        self.sbatch(&path, how)
    }

    /// Queue the arrays after the first one, on hold.
    #[expect(clippy::too_many_arguments, reason = "the parts of one submission")]
    fn queue_others(
        &self,
        project: &Project,
        job: &JobRecord,
        programs: &Programs,
        profile: &Profile,
        others: &[Part],
        folder: &JobDir,
        arrays: &mut Arrays,
    ) -> Result<(), Failure> {
        let how = Submission { hold: true, cluster: arrays.cluster.clone(), after: None };
        for (part, number) in others.iter().zip(2..) {
            let name = format!("batch-{number}.sh");
            let script = fill(project, job, programs, profile, part, Number::Known(job.job))?;
            let submitted = self.queue(folder, &name, &script, &how)?;
            arrays.arrays.push(array(&submitted, &name, part, &|_| 1));
        }
        Ok(())
    }

    /// Put the building of the data before the arrays, which are on hold still, and the note behind them.
    #[expect(clippy::too_many_arguments, reason = "the parts of one submission")]
    fn chain(
        &self,
        project: &Project,
        job: &JobRecord,
        programs: &Programs,
        profile: &Profile,
        order: Order,
        folder: &JobDir,
        arrays: &mut Arrays,
    ) -> Result<(), Failure> {
        if !order.chain {
            return Ok(());
        }
        if let Some(script) = build_script(project, job, programs, profile)? {
            let how = Submission { cluster: arrays.cluster.clone(), ..Submission::default() };
            let build = self.queue(folder, "build.sh", &script, &how)?.id;
            arrays.build = Some(build);
            arrays.save(folder)?;
            let after = format!("afterok:{build}");
            arrays.arrays.iter().try_for_each(|array| self.run_after(&arrays.named(array.id), &after))?;
        }
        self.queue_note(project, job, programs, profile, folder, arrays)
    }

    /// Queue the job that writes the note once all arrays have ended, whatever became of them.
    pub(super) fn queue_note(
        &self,
        project: &Project,
        job: &JobRecord,
        programs: &Programs,
        profile: &Profile,
        folder: &JobDir,
        arrays: &mut Arrays,
    ) -> Result<(), Failure> {
        let ids: Vec<String> = arrays.arrays.iter().map(|array| array.id.to_string()).collect();
        let how = Submission {
            after: Some(format!("afterany:{}", ids.join(":"))),
            cluster: arrays.cluster.clone(),
            hold: false,
        };
        let script = note_script(project, job, programs, profile)?;
        arrays.note = Some(self.queue(folder, "note.sh", &script, &how)?.id);
        arrays.save(folder)
    }

    /// Cancel a job that cannot run; what made it so stays the failure that is shown.
    fn withdraw(&self, arrays: &Arrays, mut failure: Failure) -> Failure {
        for id in arrays.ids() {
            failure = match self.cancel_job(&arrays.named(id)) {
                Ok(()) => failure.hint(format_args!("job {id} was cancelled again")),
                Err(e) => failure.hint(format_args!("job {id} is left on hold ({e}); cancel it: scancel {id}")),
            };
        }
        failure
    }
}

/// An array as the ledger keeps it. `attempt` says which attempt a trial makes.
pub(super) fn array(submitted: &Submitted, script: &str, part: &Part, attempt: &dyn Fn(u32) -> u32) -> Array {
    let turns = |trials: &Vec<u32>| trials.iter().map(|trial| Turn(*trial, attempt(*trial))).collect();
    let tasks: BTreeMap<u32, Vec<Turn>> = part.tasks.iter().map(|(task, trials)| (*task, turns(trials))).collect();
    let resources = &part.resources;
    Array {
        id: submitted.id,
        script: script.to_owned(),
        requeue: resources.requeues.is_some(),
        memory_mib: resources.memory_mib,
        time_min: resources.time_min,
        exclude: resources.exclude.clone(),
        tasks,
    }
}

/// Give the staged folder its number.
fn place(project: &Project, job: &JobRecord, staged: &Path) -> Result<(), Failure> {
    write_json(&JobDir::new(staged).record_path(), job)?;
    let folder = project.job(job.job);
    // A rename would quietly replace an empty folder, so look first.
    if folder.path().exists() {
        return Err(Failure::new(
            Exit::Cluster,
            format!("Slurm gave the job number {}, but {} exists already", job.job, folder.path().display()),
        )
        .hint("it may be a job of this machine (--backend local counts from 1), of another cluster, or of a Slurm that counts anew")
        .hint("set EXPCTL_RUNS to a folder of this cluster's own, or start the development cluster with a higher --first-job-id"));
    }
    std::fs::rename(staged, folder.path()).map_err(|e| not_made(folder.path(), &e))
}

fn not_made(folder: &Path, e: &std::io::Error) -> Failure {
    Failure::internal(format!("cannot write to the ledger at {}: {e}", folder.display()))
}

/// Readable by all before the umask, like the rest of the ledger.
fn folder_permissions() -> std::fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    std::fs::Permissions::from_mode(0o777)
}
