use std::time::{Duration, Instant};

use expctl_record::JobDir;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::job_name::JobName;
use super::say;
use crate::exit::{Exit, Failure};
use crate::launch::local::{Launcher, LauncherState};
use crate::launch::slurm::SlurmBackend;
use crate::launch::status::JobStatus;
use crate::ledger::Ledger;
use crate::project::Project;

/// Longest that a launcher may take to stop: its ranks have six seconds, then it writes their tables and the note.
const STOPPED_WITHIN: Duration = Duration::from_secs(15);

/// Arguments of `expctl cancel`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The job, or on Slurm one trial of it: 12, 12_3
    #[arg(value_name = "JOB[_TASK]")]
    job: JobName,
}

/// Stop a job, wait until it has stopped, and say what is kept.
pub fn run(project: &Project, args: &Args) -> Result<(), Failure> {
    let id = args.job.job;
    let folder = Ledger::open(project)?.measured(id)?;
    let record = folder.record()?;
    let only = args.job.index(&record)?;
    let stopped = if record.on_slurm() {
        let only = only.map(|index| u32::try_from(index).map_err(Failure::internal)).transpose()?;
        let tasks = only.as_slice();
        let mut shown = String::new();
        SlurmBackend::for_job(&record.backend)?.cancel(project, id, only.is_some().then_some(tasks), &mut |progress| {
            let line = progress.to_string();
            if line != shown {
                say(format!("job {id}: {line}"));
                shown = line;
            }
        })? > 0
    } else {
        if only.is_some() {
            return Err(Failure::new(Exit::Usage, "a job on this machine is cancelled as a whole")
                .hint(format!("expctl cancel {id}")));
        }
        stop_launcher(id, &folder)?
    };
    let (job, _) = JobStatus::load(&folder)?;
    if !stopped {
        say(format!("job {id} does not run: {}", job.summary()));
        return Ok(());
    }
    say(format!("job {id} is cancelled: {}", job.summary()));
    for trial in job.trials.iter().filter(|trial| !trial.state.is_active()) {
        if let Some(attempt) = &trial.attempt {
            let steps = attempt.steps(0)?.len();
            say(format!("  {} {}, {steps} steps are kept", trial.trial.id, trial.state.name()));
        }
    }
    say(format!("  hint: `expctl retry {id}` runs again what did not complete"));
    Ok(())
}

/// Ask the launcher of a local job to stop, and wait until it is gone. False if there was none.
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
    // It may have ended since.
    let _ = kill(Pid::from_raw(launcher.pid), Signal::SIGTERM);
    let asked = Instant::now();
    while launcher.state() == LauncherState::Alive {
        if asked.elapsed() > STOPPED_WITHIN {
            let message = format!("job {id} has not stopped after {} s", STOPPED_WITHIN.as_secs());
            return Err(Failure::new(Exit::Incomplete, message)
                .hint(format!("its launcher is process {}; what was measured so far is kept", launcher.pid)));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(true)
}
