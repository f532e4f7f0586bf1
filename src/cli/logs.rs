use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use expctl_record::{AttemptDir, JobDir};

use super::job_name::JobName;
use super::{out, say};
use crate::exit::{Exit, Failure};
use crate::launch::life::{JobStatus, State};
use crate::ledger::Ledger;
use crate::project::Project;

/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often it is asked whether anything still writes: on Slurm that is a question to the controller.
const ALIVE_EVERY: Duration = Duration::from_secs(5);

/// Arguments of `expctl logs`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A job, or one trial of it: 12, 12_3, 12_lazy-r1-0123abcd
    #[arg(value_name = "JOB[_TASK]")]
    job: JobName,
    /// Only this rank
    #[arg(long, value_name = "N")]
    rank: Option<u32>,
    /// Stay and print what comes, until the trial ends
    #[arg(short, long)]
    follow: bool,
}

/// Print what the ranks printed, in the last attempt of each trial.
pub fn run(project: &Project, args: &Args) -> Result<(), Failure> {
    let folder = Ledger::open(project)?.measured(args.job.job)?;
    let record = folder.record()?;
    let only = args.job.index(&record)?;
    for (index, trial) in record.trials.iter().enumerate().filter(|(i, _)| only.is_none_or(|only| only == *i)) {
        let ranks = trial.settings.launch.ranks;
        if let Some(rank) = args.rank.filter(|rank| *rank >= ranks) {
            let message = format!("trial {} has {ranks} rank(s), counted from 0; there is no rank {rank}", trial.id);
            return Err(Failure::new(Exit::Usage, message));
        }
        let attempt = if args.follow { awaited(&folder, index)? } else { folder.attempts(&trial.id)?.pop() };
        let Some(attempt) = attempt else {
            say(format!("trial {}: no attempt yet", trial.id));
            continue;
        };
        if only.is_none() {
            say(format!("trial {}, attempt {}", trial.id, attempt.number()));
        }
        let mut tails: Vec<Tail> = match args.rank {
            Some(rank) => vec![Tail::new(attempt.log_path(rank), String::new())],
            None => (0..ranks).map(|rank| Tail::new(attempt.log_path(rank), format!("rank {rank} | "))).collect(),
        };
        if args.follow {
            follow(&folder, index, &attempt, &mut tails)?;
        } else {
            tails.iter_mut().try_for_each(Tail::print)?;
        }
        tails.iter_mut().for_each(Tail::print_rest);
    }
    Ok(())
}

/// The attempt that runs or ran last; waits for one that is about to begin.
fn awaited(folder: &JobDir, index: usize) -> Result<Option<AttemptDir>, Failure> {
    loop {
        let (mut job, _) = JobStatus::of(folder)?;
        let trial = job.trials.swap_remove(index);
        match trial.state {
            State::Waiting => std::thread::sleep(if job.record.backend == "slurm" { ALIVE_EVERY } else { LOOK_EVERY }),
            _ => return Ok(trial.attempt),
        }
    }
}

/// Print until the attempt has an outcome, or nothing runs it any more.
fn follow(folder: &JobDir, index: usize, attempt: &AttemptDir, tails: &mut [Tail]) -> Result<(), Failure> {
    let mut asked = Instant::now();
    loop {
        // Looked at first: what was printed before the end is then printed here, too.
        let mut ended = attempt.outcome_path().exists();
        if !ended && asked.elapsed() >= ALIVE_EVERY {
            let (mut job, _) = JobStatus::of(folder)?;
            ended = !job.trials.swap_remove(index).state.is_active();
            asked = Instant::now();
        }
        tails.iter_mut().try_for_each(Tail::print)?;
        if ended {
            return Ok(());
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// A file that grows, and may not be there yet.
struct Tail {
    path: PathBuf,
    prefix: String,
    offset: u64,
    /// A line without its end.
    rest: Vec<u8>,
}

impl Tail {
    fn new(path: PathBuf, prefix: String) -> Self {
        Self { path, prefix, offset: 0, rest: Vec::new() }
    }

    /// Print the whole lines that are new.
    fn print(&mut self) -> Result<(), Failure> {
        let new = read_from(&self.path, self.offset)
            .map_err(|e| Failure::internal(format!("cannot read {}: {e}", self.path.display())))?;
        self.offset += new.len() as u64;
        self.rest.extend(new);
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<u8> = self.rest.drain(..whole).collect();
        for line in String::from_utf8_lossy(&lines).lines() {
            out(format_args!("{}{line}", self.prefix));
        }
        Ok(())
    }

    /// Print the last line, if it has no end.
    fn print_rest(&mut self) {
        if !self.rest.is_empty() {
            out(format_args!("{}{}", self.prefix, String::from_utf8_lossy(&std::mem::take(&mut self.rest))));
        }
    }
}

/// What a file holds behind `offset`; nothing, if it does not exist.
fn read_from(path: &Path, offset: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match std::fs::File::open(path) {
        Ok(mut file) => {
            file.seek(SeekFrom::Start(offset))?;
            file.read_to_end(&mut bytes)?;
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    Ok(bytes)
}
