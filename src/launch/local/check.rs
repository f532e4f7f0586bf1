use expctl_record::JobRecord;

use crate::console::say;
use crate::exit::{Exit, Failure};
use crate::launch::needed_worker;

/// Ranks per processor that this machine is asked to run at the most.
const RANKS_PER_CPU: u32 = 8;

/// Whether this machine can run the job at all; says on stderr where its figures will suffer.
///
/// # Errors
/// There is no worker to start, or a trial has far more ranks than the machine has processors.
pub fn check(job: &JobRecord) -> Result<(), Failure> {
    needed_worker(&job.trials)?;
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    for trial in &job.trials {
        let ranks = trial.settings.launch.ranks;
        if ranks > RANKS_PER_CPU * cpus {
            let message = format!("trial {} has {ranks} ranks; this machine has {cpus} processors", trial.id);
            return Err(Failure::new(Exit::Config, message).hint("set launch.ranks lower, or use --backend slurm"));
        }
    }
    let threads = |t: &expctl_record::Trial| t.settings.launch.ranks * t.settings.threads_per_rank();
    let most = job.trials.iter().map(threads).max().unwrap_or(0);
    if most > cpus {
        say(format!(
            "warning: up to {most} threads (ranks × (loader threads + launch.threads)) will share {cpus} processors"
        ));
    }
    Ok(())
}
