use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use expctl_record::{AttemptDir, JobDir, JobRecord, Trial};

use super::job_name::JobName;
use super::say;
use super::tail::Tail;
use crate::exit::{Exit, Failure};
use crate::launch::status::Follow;
use crate::launch::slurm;
use crate::ledger::Ledger;
use crate::project::Project;

/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often it is asked what began and what ended. Slurm is asked less often.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Arguments of `expctl logs`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A job, or one trial of it: 12, 12_3, 12_lazy-r1-0123abcd
    #[arg(value_name = "JOB[_TASK]")]
    job: JobName,
    /// Only this rank
    #[arg(long, value_name = "N")]
    rank: Option<u32>,
    /// Stay and print what comes, from all ranks at once, until the job or the trial ends
    #[arg(short, long)]
    follow: bool,
    /// Of what is there already, only the last N lines of each file
    #[arg(long, value_name = "N")]
    tail: Option<u64>,
}

/// Print what the ranks and Slurm printed, in the last attempt of each trial.
pub fn run(project: &Project, args: &Args) -> Result<(), Failure> {
    let folder = Ledger::open(project)?.measured(args.job.job)?;
    let record = folder.record()?;
    let wanted: Vec<usize> = match args.job.index(&record)? {
        Some(index) => vec![index],
        None => (0..record.trials.len()).collect(),
    };
    let trials: Vec<&Trial> = wanted.iter().filter_map(|index| record.trials.get(*index)).collect();
    for trial in &trials {
        let ranks = trial.settings.launch.ranks;
        if let Some(rank) = args.rank.filter(|rank| *rank >= ranks) {
            let message = format!("trial {} has {ranks} rank(s), counted from 0; there is no rank {rank}", trial.id);
            return Err(Failure::new(Exit::Usage, message));
        }
    }
    let opened = RefCell::default();
    let files = Files { folder: &folder, record: &record, rank: args.rank, several: wanted.len() > 1, opened };
    if args.follow {
        return follow(&files, &wanted, args.tail);
    }
    for (index, trial) in wanted.into_iter().zip(trials) {
        let Some(attempt) = folder.attempts(&trial.id)?.pop() else {
            say(format!("trial {}: no attempt yet", trial.id));
            continue;
        };
        if files.several {
            say(format!("trial {}, attempt {}", trial.id, attempt.number()));
        }
        for mut tail in files.of(index, &attempt, args.tail)? {
            tail.finish()?;
        }
    }
    Ok(())
}

/// Which files are shown, and how their lines begin.
struct Files<'a> {
    folder: &'a JobDir,
    record: &'a JobRecord,
    rank: Option<u32>,
    several: bool,
    /// Logs of tasks that several trials share, as far as they are shown already.
    opened: RefCell<BTreeSet<PathBuf>>,
}

impl Files<'_> {
    /// The files of an attempt of the trial at place `index`. Not all of them need exist.
    fn of(&self, index: usize, attempt: &AttemptDir, tail: Option<u64>) -> Result<Vec<Tail>, Failure> {
        let Some(trial) = self.record.trials.get(index) else { return Ok(Vec::new()) };
        let prefix = |who: &str| if self.several { format!("[{} {who}] ", trial.id) } else { format!("[{who}] ") };
        let of_rank = |rank: u32, prefix: String| Tail::new(attempt.log_path(rank), prefix);
        let mut tails: Vec<Tail> = match self.rank {
            // Nothing to tell apart.
            Some(rank) if !self.several => vec![of_rank(rank, String::new())],
            Some(rank) => vec![of_rank(rank, prefix(&format!("r{rank}")))],
            None => (0..trial.settings.launch.ranks).map(|rank| of_rank(rank, prefix(&format!("r{rank}")))).collect(),
        };
        if self.rank.is_none() && self.record.on_slurm() {
            tails.push(Tail::new(attempt.path().join("srun.log"), prefix("srun")));
            // A retry is another array: asked for again with each attempt.
            let logs = slurm::script_logs(self.folder, self.record)?;
            if let Some(Some(log)) = logs.get(index) {
                // Trials of one task share it: it is shown once, and is nobody's.
                let shared = logs.iter().flatten().filter(|other| *other == log).count() > 1;
                let name = log.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                if !shared {
                    tails.push(Tail::new(log.clone(), prefix("slurm")));
                } else if self.opened.borrow_mut().insert(log.clone()) {
                    tails.push(Tail::new(log.clone(), format!("[{name}] ")));
                }
            }
        }
        if let Some(lines) = tail {
            tails.iter_mut().try_for_each(|tail| tail.skip_to_last(lines))?;
        }
        Ok(tails)
    }
}

/// Print what comes, until each trial has ended. A trial's next attempt (a retry, a requeue) is followed as it begins.
fn follow(files: &Files<'_>, wanted: &[usize], tail: Option<u64>) -> Result<(), Failure> {
    let mut job = Follow::new(files.folder)?;
    let mut open: BTreeMap<usize, (u32, Vec<Tail>)> = BTreeMap::new();
    // Last attempt that was shown of each trial.
    let mut shown: BTreeMap<usize, u32> = BTreeMap::new();
    let mut first = true;
    loop {
        job.look()?;
        let asked = Instant::now();
        let over: Vec<usize> = wanted.iter().copied().filter(|index| job.over(*index)).collect();
        for index in wanted.iter().copied() {
            let trial = job.status().trials.get(index);
            let Some(attempt) = trial.and_then(|trial| trial.attempt.clone()) else { continue };
            let number = attempt.number();
            if shown.get(&index).is_none_or(|last| *last < number) {
                if let Some((_, mut before)) = open.remove(&index) {
                    before.iter_mut().try_for_each(Tail::finish)?;
                }
                // What begins while we watch is shown from its beginning.
                open.insert(index, (number, files.of(index, &attempt, tail.filter(|_| first))?));
                shown.insert(index, number);
            }
        }
        first = false;
        // Looked at first: what was printed before the end is then printed here, too.
        for index in &over {
            if let Some((_, mut ended)) = open.remove(index) {
                ended.iter_mut().try_for_each(Tail::finish)?;
            }
        }
        if over.len() == wanted.len() {
            let never = wanted.iter().filter(|index| !shown.contains_key(index));
            for trial in never.filter_map(|index| files.record.trials.get(*index)) {
                say(format!("trial {}: it never began", trial.id));
            }
            return Ok(());
        }
        while asked.elapsed() < ASK_EVERY {
            open.values_mut().flat_map(|(_, tails)| tails).try_for_each(Tail::print)?;
            std::thread::sleep(LOOK_EVERY);
        }
    }
}
