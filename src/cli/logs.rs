//! `expctl logs`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use expctl_ledger::{AttemptDir, JobArrays, JobDir, JobRecord, Ledger};
use expctl_settings::Trial;

use super::JobName;
use crate::console::{out, say};
use crate::exit::{Exit, Failure};
use crate::launch::status::Follow;
use crate::project::Project;

/// How often files are read.
const READ_EVERY: Duration = Duration::from_millis(200);
/// How often the states of trials are read. Slurm is asked less often.
const STATUS_EVERY: Duration = Duration::from_secs(1);

/// Arguments of `expctl logs`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  expctl logs 12_0 -f\n  expctl logs 12 --rank 1 --tail 20")]
pub struct LogsArgs {
    /// A job, or one trial of it: 12, 12_3, 12_lazy-r1-0123abcd
    #[arg(value_name = "JOB[_TASK]")]
    job: JobName,
    /// Only this rank
    #[arg(long, value_name = "N")]
    rank: Option<u32>,
    /// Stay and print what comes, from all ranks at once, until the job or the trial ends
    #[arg(short, long)]
    follow: bool,
    /// Print only the last N existing lines of each file
    #[arg(long, value_name = "N")]
    tail: Option<u64>,
}

impl LogsArgs {
    /// The job.
    pub fn job(&self) -> u64 {
        self.job.job
    }
}

/// Print what the ranks and Slurm printed, in the last attempt of each trial.
pub fn run(project: &Project, args: &LogsArgs) -> Result<(), Failure> {
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
    let files = LogFiles { folder: &folder, record: &record, rank: args.rank, several: wanted.len() > 1, opened };
    if args.follow {
        return follow(&files, &wanted, args.tail);
    }
    for (index, trial) in wanted.into_iter().zip(trials) {
        let Some(attempt) = folder.attempts(&trial.id)?.pop() else {
            say(format!("trial {}: no attempt yet", trial.name()));
            continue;
        };
        if files.several {
            say(format!("trial {}, attempt {}", trial.name(), attempt.number()));
        }
        for mut tail in files.of_attempt(index, &attempt, args.tail)? {
            tail.finish()?;
        }
    }
    Ok(())
}

/// The files that are shown, and the prefixes of their lines.
struct LogFiles<'a> {
    folder: &'a JobDir,
    record: &'a JobRecord,
    rank: Option<u32>,
    several: bool,
    /// Logs of tasks shared by several trials that are already shown.
    opened: RefCell<BTreeSet<PathBuf>>,
}

impl LogFiles<'_> {
    /// The files of an attempt of the trial at `index`; some may not exist yet.
    fn of_attempt(&self, index: usize, attempt: &AttemptDir, tail: Option<u64>) -> Result<Vec<LogTail>, Failure> {
        let Some(trial) = self.record.trials.get(index) else { return Ok(Vec::new()) };
        let prefix = |who: &str| if self.several { format!("[{} {who}] ", trial.id) } else { format!("[{who}] ") };
        let of_rank = |rank: u32, prefix: String| LogTail::new(attempt.log_path(rank), prefix);
        let mut tails: Vec<LogTail> = match self.rank {
            // A single file needs no prefix.
            Some(rank) if !self.several => vec![of_rank(rank, String::new())],
            Some(rank) => vec![of_rank(rank, prefix(&format!("r{rank}")))],
            None => (0..trial.settings.launch.ranks).map(|rank| of_rank(rank, prefix(&format!("r{rank}")))).collect(),
        };
        if self.rank.is_none() && self.record.on_slurm() {
            tails.push(LogTail::new(attempt.path().join("srun.log"), prefix("srun")));
            // A retry is another array, so the logs are looked up for each attempt.
            let trials = self.record.trials.len();
            let logs = JobArrays::load(self.folder, self.record.job, trials)?.script_logs(self.folder, trials);
            if let Some(Some(log)) = logs.get(index) {
                // Trials of one task share its log: it is shown once, without the name of a trial.
                let shared = logs.iter().flatten().filter(|other| *other == log).count() > 1;
                let name = log.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                if !shared {
                    tails.push(LogTail::new(log.clone(), prefix("slurm")));
                } else if self.opened.borrow_mut().insert(log.clone()) {
                    tails.push(LogTail::new(log.clone(), format!("[{name}] ")));
                }
            }
        }
        if let Some(lines) = tail {
            tails.iter_mut().try_for_each(|tail| tail.skip_to_last(lines))?;
        }
        Ok(tails)
    }
}

/// Print new lines until each trial has ended. A trial's next attempt (a retry, a requeue) is followed when it begins.
fn follow(files: &LogFiles<'_>, wanted: &[usize], tail: Option<u64>) -> Result<(), Failure> {
    let mut job = Follow::new(files.folder)?;
    let mut open: BTreeMap<usize, (u32, Vec<LogTail>)> = BTreeMap::new();
    // The last attempt of each trial that was shown.
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
                    before.iter_mut().try_for_each(LogTail::finish)?;
                }
                // An attempt that begins while following is shown from its beginning.
                open.insert(index, (number, files.of_attempt(index, &attempt, tail.filter(|_| first))?));
                shown.insert(index, number);
            }
        }
        first = false;
        // The states were read first, so all that a trial printed before its end is in its files by now.
        for index in &over {
            if let Some((_, mut ended)) = open.remove(index) {
                ended.iter_mut().try_for_each(LogTail::finish)?;
            }
        }
        if over.len() == wanted.len() {
            let never = wanted.iter().filter(|index| !shown.contains_key(index));
            for trial in never.filter_map(|index| files.record.trials.get(*index)) {
                say(format!("trial {}: it never began", trial.name()));
            }
            return Ok(());
        }
        while asked.elapsed() < STATUS_EVERY {
            open.values_mut().flat_map(|(_, tails)| tails).try_for_each(LogTail::print)?;
            std::thread::sleep(READ_EVERY);
        }
    }
}

/// Bytes per read: a log may be larger than the memory.
const CHUNK_BYTES: u64 = 1 << 20;

/// A growing text file, which may not exist yet.
pub struct LogTail {
    path: PathBuf,
    prefix: String,
    offset: u64,
    /// The start of a line whose end is not written yet.
    rest: Vec<u8>,
}

impl LogTail {
    /// A file that is printed from its beginning, each line with `prefix`.
    pub fn new(path: PathBuf, prefix: String) -> Self {
        Self { path, prefix, offset: 0, rest: Vec::new() }
    }

    /// Skip the lines that are there already, except the last `lines`.
    pub fn skip_to_last(&mut self, lines: u64) -> Result<(), Failure> {
        if let Some(mut file) = self.open()? {
            self.offset = start_of_last(&mut file, lines).map_err(|e| self.failed(&e))?;
        }
        Ok(())
    }

    /// Print new complete lines.
    pub fn print(&mut self) -> Result<(), Failure> {
        let Some(mut file) = self.open()? else { return Ok(()) };
        let size = file.metadata().map_err(|e| self.failed(&e))?.len();
        if size < self.offset {
            // The file was rewritten.
            (self.offset, self.rest) = (0, Vec::new());
        }
        file.seek(SeekFrom::Start(self.offset)).map_err(|e| self.failed(&e))?;
        loop {
            let n = file.by_ref().take(CHUNK_BYTES).read_to_end(&mut self.rest).map_err(|e| self.failed(&e))?;
            self.offset += n as u64;
            let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            let lines: Vec<u8> = self.rest.drain(..whole).collect();
            for line in String::from_utf8_lossy(&lines).lines() {
                out(format_args!("{}{line}", self.prefix));
            }
            if n == 0 {
                return Ok(());
            }
        }
    }

    /// Print all that is new, including a last line without an end.
    pub fn finish(&mut self) -> Result<(), Failure> {
        self.print()?;
        if !self.rest.is_empty() {
            out(format_args!("{}{}", self.prefix, String::from_utf8_lossy(&std::mem::take(&mut self.rest))));
        }
        Ok(())
    }

    fn open(&self) -> Result<Option<File>, Failure> {
        match File::open(&self.path) {
            Ok(file) => Ok(Some(file)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(self.failed(&e)),
        }
    }

    fn failed(&self, e: &std::io::Error) -> Failure {
        Failure::internal(format!("cannot read {}: {e}", self.path.display()))
    }
}

/// Offset of the last `lines` lines; a line without an end counts. Reads backwards from the end, as far as needed.
fn start_of_last(file: &mut File, lines: u64) -> std::io::Result<u64> {
    let size = file.metadata()?.len();
    if lines == 0 {
        return Ok(size);
    }
    let mut from = size;
    let mut ends = 0;
    let mut chunk = Vec::new();
    while from > 0 {
        let to = from;
        from = from.saturating_sub(CHUNK_BYTES);
        file.seek(SeekFrom::Start(from))?;
        chunk.clear();
        file.by_ref().take(to - from).read_to_end(&mut chunk)?;
        for (at, _) in chunk.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let after = from + at as u64 + 1;
            // No line follows the end of the last one.
            if after < size {
                ends += 1;
                if ends == lines {
                    return Ok(after);
                }
            }
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_jobs_and_trials() {
        let name = |text: &str| text.parse::<JobName>().ok().map(|n| (n.job, n.task));
        assert_eq!(name("12"), Some((12, None)));
        assert_eq!(name("12_3"), Some((12, Some("3".to_owned()))));
        assert_eq!(name("12_big_ids-r1-ab"), Some((12, Some("big_ids-r1-ab".to_owned()))));
        assert!(["", "x", "_3", "12_", "x_3"].iter().all(|text| name(text).is_none()));
    }

    #[test]
    fn the_last_lines_of_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let last = |text: &str, lines: u64| {
            std::fs::write(&path, text).unwrap();
            let start = start_of_last(&mut File::open(&path).unwrap(), lines).unwrap();
            text[start as usize..].to_owned()
        };
        for (lines, expected) in [(0, ""), (1, "c\n"), (2, "b\nc\n"), (3, "a\nb\nc\n"), (9, "a\nb\nc\n")] {
            assert_eq!(last("a\nb\nc\n", lines), expected);
        }
        assert_eq!((last("a\nb", 1), last("a\nb", 2), last("", 3)), ("b".into(), "a\nb".into(), String::new()));
        // A line that is longer than what is read at once.
        let long = "x".repeat(CHUNK_BYTES as usize + 5);
        assert_eq!(last(&format!("a\n{long}\nb\n"), 2), format!("{long}\nb\n"));
    }
}
