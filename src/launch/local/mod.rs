//! Jobs on this machine: ranks as processes, one trial after another, or several side by side.
//!
//! Invariant: whatever ends a trial, its ranks are gone and its `outcome.json` is written when the next one starts.

mod launcher;
mod ranks;
mod rounds;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use expctl_ledger::{JobDir, JobRecord, Ledger, write_json};
use expctl_settings::{DeviceChoice, DeviceMasks, Mode, PackGpu, Precision, Settings, Trial};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, Flock, FlockArg, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub use self::launcher::{Launcher, LauncherState};
pub use self::rounds::run;
use crate::console::say;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::launch::backend::{Backend, SubmitOrder, submission_of};
use crate::launch::fault_point::fault_point;
use crate::launch::slurm::Adjustment;
use crate::program::needed_worker_here;
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
        let name = project.job_name(id);
        // The log is of this machine.
        let log = project.machine().map_or_else(|| format!(", or {}", log.display()), |_| String::new());
        say(format!("job {id} runs in the background; it writes its note when it ends"));
        say(format!("  progress: expctl watch {name}{log}\n  stop it: expctl cancel {name}"));
        Ok(())
    }

    fn wait(&self, project: &Project, job: &JobRecord, interrupt: &Interrupt) -> Result<(), Failure> {
        run(project, job, interrupt)
    }

    fn cancel(&self, project: &Project, job: &JobRecord, only: Option<u32>) -> Result<bool, Failure> {
        let id = job.job;
        if only.is_some() {
            return Err(Failure::new(Exit::Usage, "a job on this machine is cancelled as a whole")
                .hint(format!("expctl cancel {}", project.job_name(id))));
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
