use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use expctl_record::{AttemptDir, JobDir, JobRecord, Ledger, Outcome, Rates, Trial, TrialState, write_json};

use super::checkpoint_request::CheckpointRequest;
use super::launcher::{Announced, Launcher};
use super::lock::LocalLock;
use super::progress::Progress;
use super::ranks::{RankPrograms, run_attempt};
use crate::console::say;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::launch::{conclude, needed_worker, started};
use crate::project::Project;

/// Longest that a launcher in the background may take to write itself down: a busy machine, a slow file system.
const ANNOUNCED_WITHIN: Duration = Duration::from_secs(10);

/// Give the job the next free number of the ledger and write its `job.json`.
pub fn allocate(project: &Project, mut job: JobRecord) -> Result<JobRecord, Failure> {
    std::fs::create_dir_all(project.runs())
        .map_err(|e| Failure::internal(format!("cannot create the ledger {}: {e}", project.runs().display())))?;
    let mut id = last_local_job(project)? + 1;
    let taken = numbers_taken(project)?;
    loop {
        while taken.contains(&id) {
            id += 1;
        }
        let dir = project.job(id);
        // Creating the folder is what takes the number: two launchers never get the same one.
        match std::fs::create_dir(dir.path()) {
            Ok(()) => {
                job.job = id;
                write_json(&dir.record_path(), &job)?;
                return Ok(job);
            }
            Err(e) if e.kind() == ErrorKind::AlreadyExists => id += 1,
            Err(e) => return Err(Failure::internal(format!("cannot create {}: {e}", dir.path().display()))),
        }
    }
}

/// Numbers that name something else already: published jobs, and notes of jobs whose ledger is elsewhere.
fn numbers_taken(project: &Project) -> Result<BTreeSet<u64>, Failure> {
    let mut taken: BTreeSet<u64> = Ledger::open(project)?.published_jobs().collect();
    for entry in std::fs::read_dir(project.results()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let number: Option<u64> = name.strip_suffix(".md").and_then(|stem| stem.rsplit_once('_')?.1.parse().ok());
        taken.extend(number);
    }
    Ok(taken)
}

fn last_local_job(project: &Project) -> Result<u64, Failure> {
    let mut last = 0;
    for entry in std::fs::read_dir(project.runs()).map_err(Failure::internal)? {
        let entry = entry.map_err(Failure::internal)?;
        let Some(id) = entry.file_name().to_str().and_then(|n| n.parse::<u64>().ok()) else { continue };
        // A folder that another launcher is just filling has no record yet; its number is taken all the same.
        let local = JobDir::new(entry.path()).record().map_or(true, |r| r.backend == "local");
        if local {
            last = last.max(id);
        }
    }
    Ok(last)
}

/// Run all trials of a job that have not completed, one after another, so that none disturbs the timing of another. A trial
/// that fails does not keep the next ones from running; its outcome says so.
///
/// # Errors
/// [`Exit::Incomplete`] if the user stopped it.
pub fn run(project: &Project, job: &JobRecord, interrupt: &Interrupt) -> Result<(), Failure> {
    let checkpoint = CheckpointRequest::listen()?;
    let programs = RankPrograms {
        worker: needed_worker(&job.trials)?,
        expctl: std::env::current_exe().map_err(Failure::internal)?,
        root: project.root().to_owned(),
    };
    let dir = project.job(job.job);
    let _announced = Announced::new(dir.clone(), planned(&dir, job)?)?;
    let _alone = LocalLock::wait(project, job.job, interrupt)?;
    // Looked at again under the lock: another launcher of the same job may have been first.
    let planned = planned(&dir, job)?;
    let trials: Vec<&Trial> = job.trials.iter().filter(|trial| planned.contains_key(&trial.id)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::internal(format!("cannot start the runtime: {e}")))?;
    for (i, trial) in trials.iter().enumerate() {
        if let Some(last) = dir.attempts(&trial.id)?.last() {
            close_lost(last, trial)?;
        }
        let attempt = dir.next_attempt(&trial.id)?;
        write_json(&attempt.trial_path(), trial)?;
        let mut progress = Progress::new(&attempt, trial, i + 1, trials.len());
        let run = run_attempt(&programs, &attempt, trial, &mut progress, interrupt, &checkpoint);
        let outcome = runtime.block_on(run)?;
        progress.finish(outcome.state.name(), rates(&dir, trial, &outcome)?);
        if outcome.state == TrialState::Failed {
            let log = attempt.log_path(outcome.failed_rank.unwrap_or(0));
            say(format!("    {}\n    log: {}", outcome.message, log.display()));
        }
        if interrupt.is_set() {
            let done = i + usize::from(outcome.state == TrialState::Completed);
            let message = format!("stopped after {done} of {} trials of job {}", trials.len(), job.job);
            return Err(Failure::new(Exit::Incomplete, message)
                .hint(format!("what was measured is kept: `expctl report {}`", job.job)));
        }
    }
    Ok(())
}

/// Rates of a trial that completed, as its note has them; none of any other.
fn rates(dir: &JobDir, trial: &Trial, outcome: &Outcome) -> Result<Option<Rates>, Failure> {
    if outcome.state != TrialState::Completed {
        return Ok(None);
    }
    let found = Rates::from_attempts(&dir.attempts(&trial.id)?, &trial.settings);
    // A damaged table is the note's to report; the next trials run all the same.
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

/// Give an attempt that its launcher left behind an outcome and its tables. Under the lock, so nobody runs it.
fn close_lost(attempt: &AttemptDir, trial: &Trial) -> Result<(), Failure> {
    if attempt.outcome_path().exists() {
        return Ok(());
    }
    let mut outcome = conclude(attempt, trial, started(attempt), &[], false)?;
    if outcome.state == TrialState::Completed {
        return Ok(());
    }
    outcome.state = TrialState::Failed;
    outcome.failed_rank = None;
    "the launcher ended before it could write the outcome".clone_into(&mut outcome.message);
    Ok(outcome.save(attempt)?)
}

/// Run the trials of `job`, which need not be all that it was submitted with, in the background: a process of its own that
/// outlives this one. Returns its id and where it logs. When this returns, the job's folder names the process.
pub fn detach(project: &Project, job: &JobRecord) -> Result<(u32, PathBuf), Failure> {
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
        || Launcher::of(&project.job(job.job)).map(|l| l.is_some_and(|l| i64::from(l.pid) == i64::from(pid)));
    let begun = Instant::now();
    while !announced()? && begun.elapsed() < ANNOUNCED_WITHIN && child.try_wait().map_err(failed)?.is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok((pid, path))
}
