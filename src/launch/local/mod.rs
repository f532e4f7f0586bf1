//! Jobs on this machine: ranks as processes, one trial after another, or several side by side.
//!
//! Invariant: whatever ends a trial, its ranks are gone and its `outcome.json` is written when the next one starts.

mod launcher;
mod ranks;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::PathBuf;
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::task::Poll;
use std::time::{Duration, Instant};

use expctl_ledger::{AttemptDir, JobDir, JobRecord, Ledger, Outcome, Rates, TrialState, write_json};
use expctl_settings::{DeviceChoice, DeviceMasks, Mode, PackGpu, Precision, Settings, Trial};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, Flock, FlockArg, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use self::launcher::AnnouncedLauncher;
pub use self::launcher::{Launcher, LauncherState};
use self::ranks::{CheckpointRequest, ProgressDisplay, RankPrograms, run_attempt};
use crate::console::say;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::launch::attempt::{conclude, failed_log, last_lines_of_program, stage};
use crate::launch::backend::{Backend, SubmitOrder, submission_of};
use crate::launch::command;
use crate::launch::fault_point::fault_point;
use crate::launch::pack::{Beside, rounds};
use crate::launch::slurm::Adjustment;
use crate::program::{needed_worker, needed_worker_here};
use crate::project::Project;

/// Time for a launcher to stop: its ranks have six seconds, then it writes their tables and the note.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// Ranks per CPU that this machine may be asked to run.
const MAX_RANKS_PER_CPU: u32 = 8;

/// Runs jobs on this machine.
#[derive(Clone, Copy, Debug)]
pub struct LocalBackend;

impl Backend for LocalBackend {
    fn submit(&self, project: &Project, job: JobRecord, order: SubmitOrder<'_>) -> Result<u64, Failure> {
        Ok(allocate(project, job, order)?.job)
    }

    fn retry(&self, _project: &Project, job: &JobRecord, _which: &[(u32, Adjustment)]) -> Result<(), Failure> {
        check(job)
    }

    fn detach(&self, project: &Project, job: &JobRecord) -> Result<(), Failure> {
        let log = start_launcher(project, job)?;
        fault_point("detached");
        let id = job.job;
        if submission_of(project.job(id).path()).is_some() {
            // From another machine, which names the job with this one.
            say("the job runs in the background; it writes its note when it ends");
            return Ok(());
        }
        say(format!("job {id} runs in the background; it writes its note when it ends"));
        say(format!("  progress: expctl watch {id}, or {}\n  stop it: expctl cancel {id}", log.display()));
        Ok(())
    }

    fn wait(&self, project: &Project, job: &JobRecord, interrupt: &Interrupt) -> Result<(), Failure> {
        run(project, job, interrupt)
    }

    fn cancel(&self, project: &Project, job: &JobRecord, only: Option<u32>) -> Result<bool, Failure> {
        let id = job.job;
        if only.is_some() {
            return Err(Failure::new(Exit::Usage, "a job on this machine is cancelled as a whole")
                .hint(format!("expctl cancel {id}")));
        }
        stop_launcher(id, &project.job(id))
    }
}

/// Refuse a job that this machine cannot run; warn on stderr about threads that will share CPUs.
///
/// # Errors
/// Exit 70 if there is no worker or if it cannot start, exit 3 if a trial has far more ranks than the machine has CPUs.
pub fn check(job: &JobRecord) -> Result<(), Failure> {
    needed_worker_here(&job.trials)?;
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    for trial in &job.trials {
        let (ranks, pack) = (trial.settings.launch.ranks, trial.settings.slurm.pack);
        if ranks > MAX_RANKS_PER_CPU * cpus {
            let message = format!("trial {} has {ranks} ranks; this machine has {cpus} processors", trial.id);
            return Err(Failure::new(Exit::Config, message).hint("set launch.ranks lower, or use --backend slurm"));
        }
        if ranks.saturating_mul(pack) > MAX_RANKS_PER_CPU * cpus {
            let message = format!(
                "{pack} trials with {ranks} ranks each are to run side by side; this machine has {cpus} processors"
            );
            return Err(Failure::new(Exit::Config, message).hint("set slurm.pack lower, or use --backend slurm"));
        }
    }
    let is_on_cpu = || host_metrics::hardware(false).gpus.is_empty();
    if let Some(trial) = job.trials.iter().find(|trial| takes_first_gpus(&trial.settings)).filter(|_| !is_on_cpu()) {
        let message = format!(
            "{} trials side by side would all use the first GPU of this machine, and slurm.pack_gpu = \"own\" gives each its own",
            trial.settings.slurm.pack
        );
        return Err(Failure::new(Exit::Config, message).hint(
            "--set slurm.pack_gpu=shared lets them share it, --set launch.device=cpu uses none, --set slurm.pack=1 runs one at a time",
        ));
    }
    let side_by_side = job.trials.iter().map(|trial| trial.settings.slurm.pack).max().unwrap_or(1);
    let threads = |t: &Trial| t.settings.launch.ranks * t.settings.threads_per_rank() * t.settings.slurm.pack;
    let max_threads = job.trials.iter().map(threads).max().unwrap_or(0);
    if max_threads > cpus {
        let trials = if side_by_side > 1 { "trials side by side × " } else { "" };
        say(format!(
            "warning: up to {max_threads} threads ({trials}ranks × (loader threads + launch.threads)) will share {cpus} processors"
        ));
    }
    if side_by_side > 1 {
        say(format!(
            "note: {side_by_side} trials run side by side, and none has processors of its own on this machine"
        ));
    }
    let computes_in_bf16 = |t: &Trial| {
        let Settings { train, launch, .. } = &t.settings;
        let is_mixed = train.precision == Precision::Bf16Mixed && train.mode != Mode::ZeroLoss;
        is_mixed && t.settings.computes_model() && launch.device != DeviceChoice::Cuda
    };
    if !host_metrics::has_bfloat16() && is_on_cpu() && job.trials.iter().any(computes_in_bf16) {
        say(
            "warning: train.precision is bf16_mixed, and this processor has no instructions for bfloat16: steps may take \
             several times as long as with --set train.precision=float32",
        );
    }
    Ok(())
}

/// Whether trials with these settings run side by side, are to have GPUs of their own, and use some where there are any. Nothing on this machine
/// tells a trial which are its own: each begins with the first one.
fn takes_first_gpus(settings: &Settings) -> bool {
    let uses_gpus = match settings.launch.device {
        _ if settings.runs_command() => settings.slurm.gpus_per_rank > 0,
        DeviceChoice::Cpu => false,
        DeviceChoice::Cuda => true,
        DeviceChoice::Auto => settings.train.mode != Mode::Data || settings.pipeline.device_masks != DeviceMasks::None,
    };
    settings.slurm.pack > 1 && settings.slurm.pack_gpu == PackGpu::Own && uses_gpus
}

/// Time for a launcher in the background to write launcher.pid: the machine may be busy, the file system slow.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(10);

/// Give the job the next free id of the ledger, and write its code and then its `job.json`: a folder without one is no job.
///
/// # Errors
/// The ledger cannot be read or written; the folder is removed then.
fn allocate(project: &Project, mut job: JobRecord, order: SubmitOrder<'_>) -> Result<JobRecord, Failure> {
    std::fs::create_dir_all(project.runs()).map_err(|e| {
        Failure::new(Exit::Incomplete, format!("cannot create the ledger {}: {e}", project.runs().display()))
    })?;
    let mut id = last_local_job(project)? + 1;
    let taken = taken_ids(project)?;
    loop {
        while taken.contains(&id) {
            id += 1;
        }
        let dir = project.job(id);
        // Creating the folder takes the id: two launchers never get the same one.
        match dir.create().and_then(|()| dir.admit(job.readers())) {
            Ok(()) => {
                job.job = id;
                let written = order.place_code(&dir, &job).and_then(|()| {
                    fault_point("staged");
                    Ok(write_json(&dir.record_path(), &job)?)
                });
                fault_point("recorded");
                return written.map(|()| job).inspect_err(|_| {
                    let _ = std::fs::remove_dir_all(dir.path());
                });
            }
            Err(e) if e.kind() == ErrorKind::AlreadyExists => id += 1,
            Err(e) => {
                return Err(Failure::new(Exit::Incomplete, format!("cannot create {}: {e}", dir.path().display())));
            }
        }
    }
}

/// Ids that are in use already: of published jobs, and of notes of jobs whose ledger is elsewhere.
fn taken_ids(project: &Project) -> Result<BTreeSet<u64>, Failure> {
    let mut taken: BTreeSet<u64> = Ledger::open(project)?.published_jobs().collect();
    for entry in std::fs::read_dir(project.results()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let number: Option<u64> = name.strip_suffix(".md").and_then(|stem| stem.rsplit_once('_')?.1.parse().ok());
        taken.extend(number);
    }
    Ok(taken)
}

/// The job whose folder has this name; `None` for a name that is not written as its number is, such as `0099`.
fn job_id(name: &str) -> Option<u64> {
    name.parse().ok().filter(|id: &u64| id.to_string() == name)
}

fn last_local_job(project: &Project) -> Result<u64, Failure> {
    let mut last = 0;
    for entry in std::fs::read_dir(project.runs()).map_err(Failure::internal)? {
        let entry = entry.map_err(Failure::internal)?;
        let Some(id) = entry.file_name().to_str().and_then(job_id) else { continue };
        // A folder that another launcher is filling has no record yet; its id is taken all the same.
        let local = JobDir::new(entry.path()).record().map_or(true, |r| r.backend == "local");
        if local {
            last = last.max(id);
        }
    }
    Ok(last)
}

/// Run all trials of a job that have not completed, one after another, so that none disturbs the timing of another; those that are to run
/// side by side, together. The next trials run whether or not one fails, unless the first ones failed alike.
///
/// # Errors
/// [`Exit::Incomplete`] if the user stopped it, [`Exit::TrialsFailed`] if it stopped because trials failed alike.
pub fn run(project: &Project, job: &JobRecord, interrupt: &Interrupt) -> Result<(), Failure> {
    // Each trial of a round hears of a request by itself. The first one is listened for before anything is waited for.
    let mut checkpoints = vec![CheckpointRequest::listen()?];
    let programs = RankPrograms {
        worker: needed_worker(&job.trials)?,
        expctl: std::env::current_exe().map_err(Failure::internal)?,
        root: project.root().to_owned(),
    };
    let dir = project.job(job.job);
    let _announced = AnnouncedLauncher::new(dir.clone(), planned(&dir, job)?)?;
    let _lock = LocalLock::wait(project, job.job, interrupt)?;
    // Looked at again under the lock: another launcher of the same job may have been first.
    let planned = planned(&dir, job)?;
    let trials: Vec<&Trial> = job.trials.iter().filter(|trial| planned.contains_key(&trial.id)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::internal(format!("cannot start the runtime: {e}")))?;
    let rounds = rounds(&trials);
    let widest = rounds.iter().map(Vec::len).max().unwrap_or(0);
    while checkpoints.len() < widest {
        checkpoints.push(CheckpointRequest::listen()?);
    }
    // Where a trial has completed before, nothing is wrong with all of them.
    let mut alike = AlikeFailures { over: trials.len() < job.trials.len(), ..AlikeFailures::default() };
    let mut begun = 0;
    for round in rounds {
        let mut running = Vec::new();
        let before = begun;
        for trial in round.iter().copied() {
            begun += 1;
            if let Some(last) = dir.attempts(&trial.id)?.last()
                && conclude_lost(last, trial)?
            {
                say(format!("{} had completed, though its launcher ended before it", trial.name()));
                alike.over = true;
                continue;
            }
            let attempt = stage(&dir, trial)?;
            let progress = ProgressDisplay::new(&attempt, trial, (begun, trials.len()), round.len() > 1);
            running.push(RunningTrial { trial, attempt, progress });
        }
        let alone = running.len() == 1;
        let runs =
            running.iter_mut().zip(&checkpoints).map(|(RunningTrial { trial, attempt, progress }, checkpoint)| {
                run_attempt(&programs, attempt, trial, progress, interrupt, checkpoint, alone)
            });
        let ended = runtime.block_on(run_together(runs.collect()));
        if !alone && running.iter().any(|one| one.trial.settings.runs_command()) {
            // Processes of supervisors that were killed.
            command::end_all();
        }
        let mut outcomes = ended.into_iter().collect::<Result<Vec<Outcome>, Failure>>()?;
        record_beside(&running, &mut outcomes)?;
        let (mut done, mut failed_alike) = (before, 0);
        for (RunningTrial { trial, attempt, progress }, outcome) in running.into_iter().zip(&outcomes) {
            progress.finish(outcome.state.name(), rates(&dir, trial, outcome)?);
            let last_lines = last_lines_of_program(&attempt, trial, outcome);
            if outcome.state == TrialState::Failed {
                say(format!("    {}\n    log: {}", outcome.message, failed_log(&attempt, outcome).display()));
                last_lines.iter().for_each(|line| say(format!("    | {line}")));
            }
            done += usize::from(outcome.state == TrialState::Completed);
            failed_alike = alike.count(outcome, last_lines.last());
        }
        if interrupt.is_set() {
            let message = format!("stopped after {done} of {} trials of job {}", trials.len(), job.job);
            return Err(Failure::new(Exit::Incomplete, message).hint(format!(
                "completed trials are in `expctl report {0}`; `expctl retry {0}` runs the others again",
                job.job
            )));
        }
        let left = trials.len() - begun;
        if failed_alike >= MAX_ALIKE_FAILURES && left > 0 {
            let message = format!(
                "the first {failed_alike} trials failed alike before their first step; {left} of {} trials of job {} are not started",
                trials.len(),
                job.job
            );
            return Err(Failure::new(Exit::TrialsFailed, message)
                .hint(format!("once the reason is gone: expctl retry {} --all", job.job)));
        }
    }
    Ok(())
}

/// A trial that runs now.
struct RunningTrial<'a> {
    trial: &'a Trial,
    attempt: AttemptDir,
    progress: ProgressDisplay,
}

/// Run futures side by side on this thread; returns what each gave, in their order.
async fn run_together<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let Poll::Ready(given) = future.as_mut().poll(context)
            {
                *output = Some(given);
            }
        }
        if outputs.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}

/// Add to the outcomes of trials that were to run side by side what ran beside them.
fn record_beside(running: &[RunningTrial<'_>], outcomes: &mut [Outcome]) -> Result<(), Failure> {
    for (index, (one, outcome)) in running.iter().zip(outcomes).enumerate() {
        if one.trial.settings.slurm.pack < 2 {
            continue;
        }
        let others = running.iter().enumerate().filter(|(other, _)| *other != index);
        let others: Vec<(&str, AttemptDir)> =
            others.map(|(_, other)| (other.trial.id.as_str(), other.attempt.clone())).collect();
        Beside::from_attempts(&one.attempt, outcome.ended, &others)?.add_to(outcome);
        outcome.save(&one.attempt)?;
    }
    Ok(())
}

/// Trials that fail alike, before their first step and before any other ended otherwise, until a job is given up.
const MAX_ALIKE_FAILURES: usize = 3;

/// The trials at the start of a launch that failed for the same reason before their first step: a missing module, a wrong path. All
/// others would most likely fail with it.
#[derive(Debug, Default)]
struct AlikeFailures {
    number: usize,
    /// Reason of the first one, and the last line that its program wrote.
    first: Option<(String, Option<String>)>,
    /// A trial ended otherwise.
    over: bool,
}

impl AlikeFailures {
    /// Counts one more outcome; returns how many failed alike so far, 0 once a trial ended otherwise.
    fn count(&mut self, outcome: &Outcome, last_line: Option<&String>) -> usize {
        let before_first_step = outcome.state == TrialState::Failed && outcome.ranks.iter().all(|rank| rank.steps == 0);
        let why = (outcome.message.clone(), last_line.cloned());
        self.over |= !before_first_step || self.first.as_ref().is_some_and(|first| *first != why);
        if self.over {
            return 0;
        }
        self.first.get_or_insert(why);
        self.number += 1;
        self.number
    }
}

/// Rates of a completed trial, as in its note; `None` for any other.
fn rates(dir: &JobDir, trial: &Trial, outcome: &Outcome) -> Result<Option<Rates>, Failure> {
    if outcome.state != TrialState::Completed {
        return Ok(None);
    }
    let found = Rates::from_attempts(&dir.attempts(&trial.id)?, &trial.settings);
    // The note reports damaged tables; the next trials run all the same.
    Ok(found.unwrap_or_else(|error| {
        tracing::warn!("{error}");
        None
    }))
}

/// The trials that have not completed, each with the number of its next attempt.
fn planned(dir: &JobDir, job: &JobRecord) -> Result<BTreeMap<String, u32>, Failure> {
    let mut planned = BTreeMap::new();
    for trial in &job.trials {
        let last = dir.attempts(&trial.id)?.pop();
        let done = match &last {
            Some(last) => last.outcome()?.is_some_and(|outcome| outcome.state == TrialState::Completed),
            None => false,
        };
        if !done {
            planned.insert(trial.id.clone(), last.map_or(1, |last| last.number() + 1));
        }
    }
    Ok(planned)
}

/// Conclude an attempt whose launcher has ended; returns whether its ranks had all completed. Called under the lock, so nobody runs it.
fn conclude_lost(attempt: &AttemptDir, trial: &Trial) -> Result<bool, Failure> {
    if attempt.outcome_path().exists() {
        return Ok(false);
    }
    let mut outcome = conclude(attempt, trial, attempt.started(), &[], false)?;
    if outcome.state == TrialState::Completed {
        return Ok(true);
    }
    outcome.state = TrialState::Failed;
    outcome.failed_rank = None;
    "the launcher ended before it could write the outcome".clone_into(&mut outcome.message);
    outcome.save(attempt)?;
    Ok(false)
}

/// Run the trials of `job`, which need not be all of its record, in a process that outlives this one. Returns the path
/// of its log. On return the job's folder names the process.
fn start_launcher(project: &Project, job: &JobRecord) -> Result<PathBuf, Failure> {
    use std::os::unix::process::CommandExt;
    let path = project.job(job.job).path().join("launcher.log");
    let start = || -> std::io::Result<Child> {
        // A retry writes on below what the first launcher said.
        let log = std::fs::File::options().create(true).append(true).open(&path)?;
        Command::new(std::env::current_exe()?)
            .arg("--root")
            .arg(project.root())
            .arg("run-local")
            .arg(job.job.to_string())
            .args(job.trials.iter().flat_map(|trial| ["--only", trial.id.as_str()]))
            .stdin(Stdio::null())
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log))
            .process_group(0)
            .spawn()
    };
    let failed = |e| Failure::internal(format!("cannot start job {} in the background: {e}", job.job));
    let mut child = start().map_err(failed)?;
    let pid = child.id();
    let announced =
        || Launcher::load(&project.job(job.job)).map(|l| l.is_some_and(|l| i64::from(l.pid) == i64::from(pid)));
    let begun = Instant::now();
    while !announced()? && begun.elapsed() < ANNOUNCE_TIMEOUT && child.try_wait().map_err(failed)?.is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(path)
}

/// Ask the launcher of a job to stop, and wait until it has ended. False if there was none.
fn stop_launcher(id: u64, folder: &JobDir) -> Result<bool, Failure> {
    let Some(launcher) = Launcher::load(folder)? else { return Ok(false) };
    match launcher.state() {
        LauncherState::Gone => return Ok(false),
        LauncherState::Elsewhere => {
            let message = format!("job {id} runs on {}, and can only be cancelled there", launcher.host);
            return Err(Failure::new(Exit::Usage, message));
        }
        LauncherState::Alive => {}
    }
    // It may have ended by now.
    let _ = kill(Pid::from_raw(launcher.pid), Signal::SIGTERM);
    let asked = Instant::now();
    while launcher.state() == LauncherState::Alive {
        if asked.elapsed() > STOP_TIMEOUT {
            let message = format!("job {id} has not stopped after {} s", STOP_TIMEOUT.as_secs());
            return Err(Failure::new(Exit::Incomplete, message)
                .hint(format!("its launcher is process {}; its steps so far are on disk", launcher.pid)));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(true)
}

/// `local job 12`; the number is missing while its launcher writes it.
fn holder_words(number: &str) -> String {
    match number.trim() {
        "" => "another local job".to_owned(),
        number => format!("local job {number}"),
    }
}

/// Held while a job's trials run.
///
/// Invariant: on one ledger one local job runs at a time, so that none disturbs the timing of another. The system
/// releases the lock when its holder and the ranks that it started have ended, however they ended.
struct LocalLock {
    _file: Flock<File>,
}

impl LocalLock {
    /// Wait until no other local job runs.
    fn wait(project: &Project, job: u64, interrupt: &Interrupt) -> Result<Self, Failure> {
        let path = project.runs().join(".local.lock");
        let refused = |e: &dyn std::fmt::Display| Failure::internal(format!("cannot lock {}: {e}", path.display()));
        let mut file =
            File::options().create(true).truncate(false).read(true).write(true).open(&path).map_err(|e| refused(&e))?;
        let mut said = false;
        loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(mut lock) => {
                    // The ranks inherit it: those of a launcher that was killed may take a while to end.
                    fcntl(&*lock, FcntlArg::F_SETFD(FdFlag::empty())).map_err(|e| refused(&e))?;
                    // For the message of others who wait; it may fail.
                    let _ = lock.set_len(0).and_then(|()| lock.rewind()).and_then(|()| write!(lock, "{job}"));
                    return Ok(Self { _file: lock });
                }
                Err((mut busy, Errno::EWOULDBLOCK)) => {
                    if !said {
                        let mut holder = String::new();
                        let _ = busy.rewind().and_then(|()| busy.read_to_string(&mut holder));
                        say(format!("job {job} waits until {} has ended", holder_words(&holder)));
                        said = true;
                    }
                    file = busy;
                }
                Err((_, e)) => return Err(refused(&e)),
            }
            if interrupt.is_set() {
                return Err(Failure::new(Exit::Incomplete, format!("stopped before job {job} began")));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expctl_ledger::{RankExit, RankStatus};

    fn outcome(state: TrialState, message: &str, steps: u64) -> Outcome {
        let rank = RankExit {
            rank: 0,
            status: RankStatus::Failed,
            message: message.to_owned(),
            lost_peer: None,
            steps,
            parameters_digest: None,
            exit_code: Some(1),
            signal: None,
        };
        let ranks = vec![rank];
        let message = message.to_owned();
        Outcome {
            state,
            message,
            cause: None,
            failed_rank: Some(0),
            started: 0,
            ended: 1,
            beside_s: None,
            beside_from: None,
            beside: Vec::new(),
            ranks,
        }
    }

    #[test]
    fn failures_are_alike_with_the_same_reason_before_the_first_step() {
        use TrialState::{Completed, Failed};
        let counts = |outcomes: &[(TrialState, &str, u64, &str)]| -> Vec<usize> {
            let mut alike = AlikeFailures::default();
            let count = |(state, message, steps, log): &(TrialState, &str, u64, &str)| {
                alike.count(&outcome(*state, message, *steps), Some(&(*log).to_owned()))
            };
            outcomes.iter().map(count).collect()
        };
        let import = (Failed, "no run record", 0, "ImportError: a");
        assert_eq!(counts(&[import, import, import, import]), [1, 2, 3, 4]);
        // One that completed, one that did steps, another reason, other last words.
        for other in [
            (Completed, "", 8, ""),
            (Failed, "no run record", 3, "ImportError: a"),
            (Failed, "killed", 0, "ImportError: a"),
            (Failed, "no run record", 0, "ImportError: b"),
        ] {
            assert_eq!(counts(&[import, import, other, import, import, import]), [1, 2, 0, 0, 0, 0]);
        }
    }

    #[test]
    fn trials_side_by_side_that_use_gpus_would_all_take_the_first() {
        let text = include_str!("../../../tests/samples/release_0_1/runs/1/ids-r1-5ed22a3a/attempt-1/trial.json");
        let mut settings = serde_json::from_str::<Trial>(text).unwrap().settings;
        (settings.slurm.pack, settings.launch.device, settings.train.mode) = (2, DeviceChoice::Auto, Mode::Train);
        assert!(takes_first_gpus(&settings));
        let changes: [fn(&mut Settings); 4] = [
            |settings| settings.slurm.pack = 1,
            |settings| settings.slurm.pack_gpu = PackGpu::Shared,
            |settings| settings.launch.device = DeviceChoice::Cpu,
            |settings| settings.train.mode = Mode::Data,
        ];
        for change in changes {
            let mut other = settings.clone();
            change(&mut other);
            assert!(!takes_first_gpus(&other));
        }
    }

    #[test]
    fn folders_that_are_not_named_as_their_job_are_no_jobs() {
        let found = ["99", "0099", "+9", "nine", "0"].map(job_id);
        assert_eq!(found, [Some(99), None, None, None, Some(0)]);
    }

    #[test]
    fn who_holds_the_lock_may_not_be_known_yet() {
        assert_eq!(["", "107", "107\n"].map(holder_words), ["another local job", "local job 107", "local job 107"]);
    }
}
