//! [`SlurmBackend`]: submits, retries and cancels jobs.
//!
//! Invariant: an array is released only when its job's folder is in the ledger, under the job's own id.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use expctl_config::ClusterProfile;
use expctl_ledger::{AttemptDir, JobArrays, JobDir, JobRecord, SubmittedArray, TaskTrial, write_atomic, write_json};
use slurm_client::{Availability, JobId, Slurm, SubmitOptions, sbatch_variables};

use super::array_plan::{ArrayPlan, Limits, Resources, plan_arrays};
use super::array_task::job_id;
use super::rest_options;
use super::script::{JobScripts, ScriptJobId, profile_of};
use super::wait::{Standing, WaitProgress};
use crate::console::say;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::launch::backend::{Backend, SubmitOrder};
use crate::launch::fault_point::fault_point;
use crate::program::{Programs, needed_worker};
use crate::project::Project;

/// Runs jobs on a Slurm cluster.
#[derive(Clone, Debug, Default)]
pub struct SlurmBackend {
    slurm: Slurm,
}

/// Resources that a trial asks for differently in its next attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adjustment {
    /// Memory of the trial, MiB.
    pub memory_mib: Option<u64>,
    /// Time limit, minutes.
    pub time_min: Option<u64>,
    /// Nodes to exclude.
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

impl SlurmBackend {
    /// The backend on a given Slurm.
    pub fn new(slurm: Slurm) -> Self {
        Self { slurm }
    }

    /// The backend with this name: `slurm` speaks through Slurm's commands, `slurmrest` through slurmrestd.
    ///
    /// # Errors
    /// Exit 4 if the address of slurmrestd, the user or the token is missing or malformed.
    pub fn from_name(name: &str) -> Result<Self, Failure> {
        let slurm = Slurm::from_environment();
        if name != "slurmrest" {
            return Ok(Self::new(slurm));
        }
        let options = rest_options(&slurm);
        Ok(Self::new(slurm.with_rest(options)?))
    }

    /// The backend that knows the jobs submitted under this name. Where slurmrestd cannot be used, Slurm's commands do
    /// as well: on a node, for example.
    ///
    /// # Errors
    /// As [`SlurmBackend::from_name`].
    pub fn for_job(name: &str) -> Result<Self, Failure> {
        Self::from_name(name).or_else(|failure| {
            let commands = Self::default();
            if commands.slurm.availability() == Availability::Ready { Ok(commands) } else { Err(failure) }
        })
    }

    /// Its client of Slurm.
    pub fn client(&self) -> &Slurm {
        &self.slurm
    }

    /// The batch scripts of a job, one per array, within the limits of this cluster.
    ///
    /// # Errors
    /// As [`super::render`].
    pub fn scripts(&self, project: &Project, job: &JobRecord) -> Result<Vec<String>, Failure> {
        let profile = profile_of(project, job)?;
        let limits = self.limits(&profile);
        JobScripts { project, job, programs: &Programs::find()?, profile: &profile }.arrays(limits)
    }

    /// Submit `job`, whose id is not known yet; returns the id that Slurm gives to its first array, which becomes the
    /// job's.
    ///
    /// The arrays are queued on hold, the folder enters the ledger under its id, and only then are the arrays released:
    /// no rank looks for a folder that is not there. If a step fails, all is cancelled and the folder removed.
    ///
    /// # Errors
    /// Exit 3 if a script cannot be written; exit 4, with Slurm's own words, if the cluster cannot be reached or
    /// refuses the job; exit 70 if the ledger cannot be written.
    pub fn submit_job(
        &self,
        project: &Project,
        mut job: JobRecord,
        programs: &Programs,
        order: SubmitOrder<'_>,
    ) -> Result<u64, Failure> {
        if self.slurm.uses_rest() { "slurmrest" } else { "slurm" }.clone_into(&mut job.backend);
        let profile = profile_of(project, &job)?;
        let all: Vec<u32> = (0..).take(job.trials.len()).collect();
        let plans = plan_arrays(&job, &all, self.limits(&profile), &|_, resources| resources);
        let Some((first, others)) = plans.split_first() else {
            return Err(Failure::new(Exit::Config, "the job has no trials"));
        };
        let scripts = JobScripts { project, job: &job, programs, profile: &profile };
        let script = scripts.array(first, ScriptJobId::OwnArray)?;
        let variables = sbatch_variables();
        if !variables.is_empty() {
            say(format_args!("note: not used, since they would override the config: {}", variables.join(", ")));
        }
        std::fs::create_dir_all(project.runs()).map_err(|e| not_written(project.runs(), &e))?;
        // Removed when dropped, on every way out but the last.
        let staged = tempfile::Builder::new()
            .prefix(".staged-")
            .tempdir_in(project.runs())
            .map_err(|e| not_written(project.runs(), &e))?;
        let folder = JobDir::new(staged.path());
        folder.admit(job.readers()).map_err(|e| not_written(folder.path(), &e))?;
        write_json(&folder.record_path(), &job)?;
        order.place_code(&folder, &job)?;
        fault_point("staged");
        let held = SubmitOptions { hold: true, ..SubmitOptions::default() };
        let submitted = self.queue(&folder, "batch.sh", &script, &held)?;
        fault_point("queued");
        job.job = submitted.id;
        let scripts = JobScripts { project, job: &job, programs, profile: &profile };
        let mut arrays = JobArrays { cluster: submitted.cluster.clone(), ..JobArrays::default() };
        arrays.arrays.push(submitted_array(&submitted, "batch.sh", first, &|_| 1));
        let result = self
            .queue_others(scripts, others, &folder, &mut arrays)
            .and_then(|()| Ok(arrays.save(&folder)?))
            .and_then(|()| enter_ledger(project, &job, folder.path()))
            .and_then(|()| {
                // The folder is the job's own now: it is not removed with `staged`.
                let _ = staged.keep();
                fault_point("entered");
                let folder = project.job(job.job);
                let chained = if order.chain { self.chain(scripts, order, &folder, &mut arrays) } else { Ok(()) };
                chained
                    .and_then(|()| self.alone_last(&plans, &arrays))
                    .and_then(|()| {
                        arrays.arrays.iter().try_for_each(|array| {
                            self.slurm.release(&job_id(&arrays, array.id))?;
                            fault_point("released");
                            Ok(())
                        })
                    })
                    .inspect_err(|_| {
                        let _ = std::fs::remove_dir_all(folder.path());
                    })
            });
        match result {
            Ok(()) => Ok(job.job),
            Err(failure) => Err(self.withdraw(&arrays, failure)),
        }
    }

    /// Queue the trials `which` (indices in job `id`) once more; returns Slurm's ids of the new arrays. As at the first
    /// submission, an array is released only when the ledger knows it.
    ///
    /// # Errors
    /// Exit 4, with Slurm's own words, if the cluster cannot be reached or refuses; exit 6 if another attempt is queued
    /// already; exit 70 if the ledger cannot be written.
    pub fn retry_trials(
        &self,
        project: &Project,
        id: u64,
        which: &[(u32, Adjustment)],
        programs: &Programs,
    ) -> Result<Vec<u64>, Failure> {
        let folder = project.job(id);
        let record = folder.record()?;
        let profile = profile_of(project, &record)?;
        let scripts = JobScripts { project, job: &record, programs, profile: &profile };
        let _lock = JobArrays::lock(&folder)?;
        let mut arrays = JobArrays::load(&folder, id, record.trials.len())?;
        let tasks = arrays.newest_tasks(record.trials.len());
        let mut attempts = BTreeMap::new();
        for (index, _) in which {
            let trial = record
                .trials
                .get(*index as usize)
                .ok_or_else(|| Failure::internal(format!("job {id} has no trial number {index}")))?;
            let last = folder.attempts(&trial.id)?.last().map_or(0, AttemptDir::number);
            if let Some(task) = tasks.get(*index as usize).and_then(Option::as_ref).filter(|task| task.attempt > last) {
                let message = format!("another attempt of trial {} is queued already, as {}", trial.id, task.name());
                return Err(
                    Failure::new(Exit::Incomplete, message).hint(format!("expctl status {}", project.job_name(id)))
                );
            }
            attempts.insert(*index, last + 1);
        }
        let indices: Vec<u32> = which.iter().map(|(index, _)| *index).collect();
        let adjust = |index: u32, resources: Resources| match which.iter().find(|(i, _)| *i == index) {
            Some((_, adjustment)) => adjustment.apply(resources),
            None => resources,
        };
        let mut new = Vec::new();
        for plan in plan_arrays(&record, &indices, self.limits(&profile), &adjust) {
            let name = format!("batch-{}.sh", arrays.arrays.len() + 1);
            let script = scripts.array(&plan, ScriptJobId::Known(id))?;
            let held = SubmitOptions { hold: true, cluster: arrays.cluster.clone(), dependency: None };
            let submitted =
                self.queue(&folder, &name, &script, &held).map_err(|failure| and_what_runs(failure, &new))?;
            let attempt = |index: u32| attempts.get(&index).copied().unwrap_or(1);
            arrays.arrays.push(submitted_array(&submitted, &name, &plan, &attempt));
            let released =
                arrays.save(&folder).map_err(Failure::from).and_then(|()| Ok(self.slurm.release(&submitted)?));
            if let Err(failure) = released {
                // Its id stays in the ledger: the next look at the job sees it as cancelled.
                return Err(self.cancel_again(&submitted, and_what_runs(failure, &new)));
            }
            new.push(submitted.id);
        }
        if let Some(note) = arrays.note {
            // It would wait for these arrays inside its own allocation.
            self.cancel_quietly(&arrays, note);
            self.queue_note(scripts, &folder, &mut arrays)?;
        }
        Ok(new)
    }

    /// Cancel the trials `only` of a job (indices in it), or all, and wait until each has an outcome. Trials that have
    /// ended stay as they are. Returns the number of cancelled trials.
    ///
    /// # Errors
    /// Exit 2 for a trial that shares its task with others that have not ended; exit 4 with Slurm's own words; else as
    /// [`SlurmBackend::wait_for_job`].
    pub fn cancel_trials(
        &self,
        project: &Project,
        id: u64,
        only: Option<&[u32]>,
        progress: &mut dyn FnMut(WaitProgress),
    ) -> Result<usize, Failure> {
        let folder = project.job(id);
        let record = folder.record()?;
        let trials = &record.trials;
        let arrays = JobArrays::load(&folder, id, trials.len())?;
        let standings = self.standings(&[(folder.clone(), record.clone())])?;
        let mut open: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
        let mut cancelled = Vec::new();
        let mut spared = Vec::new();
        for (index, task) in (0..).zip(arrays.newest_tasks(trials.len())) {
            let (Some(task), Some(trial)) = (task, trials.get(index as usize)) else { continue };
            if standings.trials.get(&(id, index as usize)) == Some(&Standing::Ended) {
                continue;
            }
            if only.is_none_or(|only| only.contains(&index)) {
                open.entry(task.array).or_default().insert(task.task);
                cancelled.push(index);
            } else {
                spared.push((task.key(), trial));
            }
        }
        let shares = |((array, task), _): &&((u64, u32), _)| open.get(array).is_some_and(|tasks| tasks.contains(task));
        if let Some((_, other)) = spared.iter().find(shares) {
            let message =
                format!("trial {} runs in the same task: one of its trials cannot be cancelled alone", other.id);
            return Err(Failure::new(Exit::Usage, message).hint(format!("expctl cancel {}", project.job_name(id))));
        }
        if only.is_none() {
            // Nothing is left for it to wait for, and the arrays must not start when it ends.
            if let Some(build) = arrays.build {
                self.cancel_quietly(&arrays, build);
            }
        }
        for (array, tasks) in &open {
            let tasks: Vec<u32> = tasks.iter().copied().collect();
            self.slurm.cancel_tasks(&job_id(&arrays, *array), &tasks)?;
        }
        if !cancelled.is_empty() {
            self.wait_for_trials(project, id, Some(&cancelled), progress)?;
        }
        Ok(cancelled.len())
    }

    /// Limits of the cluster: those of the profile, else those that Slurm names.
    fn limits(&self, profile: &ClusterProfile) -> Limits {
        let array_size = profile.max_array_size.or_else(|| self.slurm.max_array_size());
        Limits { array_size, submit: profile.max_submit }
    }

    /// Write a script into the job's folder and submit it.
    fn queue(&self, folder: &JobDir, name: &str, script: &str, options: &SubmitOptions) -> Result<JobId, Failure> {
        let path = folder.path().join(name);
        write_atomic(&path, script.as_bytes())?;
        Ok(self.slurm.submit(&path, options)?)
    }

    /// Queue the arrays after the first one, on hold.
    fn queue_others(
        &self,
        scripts: JobScripts<'_>,
        others: &[ArrayPlan],
        folder: &JobDir,
        arrays: &mut JobArrays,
    ) -> Result<(), Failure> {
        let held = SubmitOptions { hold: true, cluster: arrays.cluster.clone(), dependency: None };
        for (plan, number) in others.iter().zip(2..) {
            let name = format!("batch-{number}.sh");
            let script = scripts.array(plan, ScriptJobId::Known(scripts.job.job))?;
            let submitted = self.queue(folder, &name, &script, &held)?;
            arrays.arrays.push(submitted_array(&submitted, &name, plan, &|_| 1));
        }
        Ok(())
    }

    /// Have the arrays of trials that run alone wait until those of trials side by side have ended, which on a shared node would slow
    /// them.
    fn alone_last(&self, plans: &[ArrayPlan], arrays: &JobArrays) -> Result<(), Failure> {
        let submitted = || plans.iter().zip(&arrays.arrays);
        let packs: Vec<String> =
            submitted().filter(|(plan, _)| plan.resources.pack > 1).map(|(_, array)| array.id.to_string()).collect();
        if packs.is_empty() {
            return Ok(());
        }
        // It replaces what the array waits for.
        let build = arrays.build.map(|build| format!("afterok:{build},")).unwrap_or_default();
        let after = format!("{build}afterany:{}", packs.join(":"));
        for (_, array) in submitted().filter(|(plan, _)| plan.resources.pack < 2 && !plan.resources.exclusive) {
            self.slurm.set_dependency(&job_id(arrays, array.id), &after)?;
        }
        Ok(())
    }

    /// Queue a job that builds the data before the arrays, which are still on hold, and one that writes the note after
    /// them.
    fn chain(
        &self,
        scripts: JobScripts<'_>,
        order: SubmitOrder<'_>,
        folder: &JobDir,
        arrays: &mut JobArrays,
    ) -> Result<(), Failure> {
        if order.builds_data {
            let script = scripts.build()?;
            let options = SubmitOptions { cluster: arrays.cluster.clone(), ..SubmitOptions::default() };
            let build = self.queue(folder, "build.sh", &script, &options)?.id;
            arrays.build = Some(build);
            arrays.save(folder)?;
            let after = format!("afterok:{build}");
            arrays.arrays.iter().try_for_each(|array| self.slurm.set_dependency(&job_id(arrays, array.id), &after))?;
        }
        self.queue_note(scripts, folder, arrays)
    }

    /// Queue the job that writes the note once all arrays have ended, whatever their outcome.
    fn queue_note(&self, scripts: JobScripts<'_>, folder: &JobDir, arrays: &mut JobArrays) -> Result<(), Failure> {
        let ids: Vec<String> = arrays.arrays.iter().map(|array| array.id.to_string()).collect();
        let options = SubmitOptions {
            dependency: Some(format!("afterany:{}", ids.join(":"))),
            cluster: arrays.cluster.clone(),
            hold: false,
        };
        let script = scripts.note()?;
        arrays.note = Some(self.queue(folder, "note.sh", &script, &options)?.id);
        Ok(arrays.save(folder)?)
    }

    /// Cancel everything that was queued for a job that cannot run; returns the failure that made it so.
    fn withdraw(&self, arrays: &JobArrays, failure: Failure) -> Failure {
        arrays.ids().fold(failure, |failure, id| self.cancel_again(&job_id(arrays, id), failure))
    }

    /// Cancel a job that was just queued; adds the result to `failure`.
    fn cancel_again(&self, job: &JobId, failure: Failure) -> Failure {
        let id = job.id;
        match self.slurm.cancel(job) {
            Ok(()) => failure.hint(format_args!("job {id} was cancelled again")),
            Err(e) => {
                let e = Failure::from(e);
                failure.hint(format_args!("job {id} is left on hold ({e}); cancel it: scancel {id}"))
            }
        }
    }

    /// Cancel a job that may have ended.
    pub(crate) fn cancel_quietly(&self, arrays: &JobArrays, id: u64) {
        if let Err(e) = self.slurm.cancel(&job_id(arrays, id)) {
            tracing::debug!("{e}");
        }
    }
}

impl Backend for SlurmBackend {
    fn submit(&self, project: &Project, job: JobRecord, order: SubmitOrder<'_>) -> Result<u64, Failure> {
        // Checked here, before a job waits in the queue for nothing.
        needed_worker(&job.trials)?;
        self.submit_job(project, job, &Programs::find()?, order)
    }

    fn retry(&self, project: &Project, job: &JobRecord, which: &[(u32, Adjustment)]) -> Result<(), Failure> {
        let arrays = self.retry_trials(project, job.job, which, &Programs::find()?)?;
        let arrays: Vec<String> = arrays.iter().map(u64::to_string).collect();
        say(format!("job {} goes on as Slurm's job {}", job.job, arrays.join(", ")));
        Ok(())
    }

    /// Slurm runs the job.
    fn detach(&self, _project: &Project, _job: &JobRecord) -> Result<(), Failure> {
        Ok(())
    }

    /// An interrupt ends this process, not the job.
    fn wait(&self, project: &Project, job: &JobRecord, interrupt: &Interrupt) -> Result<(), Failure> {
        leave_on_interrupt(project.job_name(job.job), interrupt.clone());
        self.wait_for_job(project, job.job, &mut say_changes(job.job))
    }

    fn cancel(&self, project: &Project, job: &JobRecord, only: Option<u32>) -> Result<bool, Failure> {
        let only = only.as_ref().map(std::slice::from_ref);
        Ok(self.cancel_trials(project, job.job, only, &mut say_changes(job.job))? > 0)
    }
}

/// Says on stderr how far a job is, whenever that has changed.
fn say_changes(job: u64) -> impl FnMut(WaitProgress) {
    let mut shown = String::new();
    move |progress| {
        let line = progress.to_string();
        if line != shown {
            say(format!("job {job}: {line}"));
            shown = line;
        }
    }
}

/// End this process with exit code 6 at the first interrupt.
fn leave_on_interrupt(job: String, interrupt: Interrupt) {
    std::thread::spawn(move || {
        while !interrupt.is_set() {
            std::thread::sleep(Duration::from_millis(100));
        }
        say(format!(
            "job {job} goes on without me\n  hint: stop it with `expctl cancel {job}`; `expctl report {job}` shows what it has"
        ));
        std::process::exit(Exit::Incomplete as i32)
    });
}

/// An array as the ledger keeps it. `attempt` gives the number of the attempt that a trial makes.
fn submitted_array(job: &JobId, script: &str, plan: &ArrayPlan, attempt: &dyn Fn(u32) -> u32) -> SubmittedArray {
    let entries = |trials: &Vec<u32>| trials.iter().map(|trial| TaskTrial(*trial, attempt(*trial))).collect();
    let resources = &plan.resources;
    SubmittedArray {
        id: job.id,
        script: script.to_owned(),
        requeue: resources.requeues.is_some(),
        memory_mib: resources.memory_mib,
        time_min: resources.time_min,
        exclude: resources.exclude.clone(),
        tasks: plan.tasks.iter().map(|(task, trials)| (*task, entries(trials))).collect(),
    }
}

/// Give the staged folder the job's id as its name.
fn enter_ledger(project: &Project, job: &JobRecord, staged: &Path) -> Result<(), Failure> {
    write_json(&JobDir::new(staged).record_path(), job)?;
    let folder = project.job(job.job);
    // A rename would replace an empty folder without an error.
    if folder.path().exists() {
        return Err(Failure::new(
            Exit::Cluster,
            format!("Slurm gave the job number {}, but {} exists already", job.job, folder.path().display()),
        )
        .hint("it may be a job of this machine (--backend local counts from 1), of another cluster, or of a Slurm that counts anew")
        .hint("set EXPCTL_RUNS to a folder of this cluster's own, or start the development cluster with a higher --first-job-id"));
    }
    std::fs::rename(staged, folder.path()).map_err(|e| not_written(folder.path(), &e))
}

fn not_written(folder: &Path, e: &std::io::Error) -> Failure {
    Failure::new(Exit::Incomplete, format!("cannot write to the ledger at {}: {e}", folder.display()))
}

/// Adds to the failure of a retry that has queued some of its arrays already.
fn and_what_runs(failure: Failure, queued: &[u64]) -> Failure {
    if queued.is_empty() {
        return failure;
    }
    let ids: Vec<String> = queued.iter().map(u64::to_string).collect();
    failure.hint(format!("other trials of this retry are queued, as Slurm's job {}", ids.join(", ")))
}
