//! One job that a fault befalls: what is asked about it meanwhile, and the proof that nothing was lost.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use expctl_ledger::{AttemptDir, JobDir, TrialState, joined_steps};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::bench::{Bench, STEPS, ranks_below};
use crate::common::local::stepped;
use crate::common::{text, wait_until};

/// Longest that anything may take here. Generous: the machine may be busy with other tests.
const LONG: Duration = Duration::from_secs(300);
/// Ranks of every trial.
const RANKS: u32 = 2;

/// A job of one trial.
pub struct FaultCase<'a> {
    bench: &'a Bench,
    pub job: String,
    sets: Vec<String>,
}

impl<'a> FaultCase<'a> {
    pub fn new(bench: &'a Bench, job: &str, sets: &[&str]) -> Self {
        Self { bench, job: job.to_owned(), sets: sets.iter().map(|set| (*set).to_owned()).collect() }
    }

    pub fn folder(&self) -> JobDir {
        self.bench.project.job(&self.job)
    }

    /// Its array task, as Slurm names it.
    pub fn task(&self) -> String {
        format!("{}_0", self.job)
    }

    pub fn attempts(&self) -> Vec<AttemptDir> {
        let record = self.folder().record().unwrap();
        self.folder().attempts(&record.trials[0].id).unwrap()
    }

    /// The trial's row of `expctl status JOB --json`.
    pub fn status(&self) -> Value {
        let output = self.bench.expctl(&["status", &self.job, "--json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(rows.len(), 1, "{rows:?}");
        rows[0].clone()
    }

    /// Wait until `status` says one of `states`; returns it with its reason.
    pub fn becomes(&self, states: &[&str]) -> Said {
        let begun = Instant::now();
        loop {
            let row = self.status();
            let word = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
            let said = Said { state: word("state"), reason: word("reason") };
            if states.contains(&said.state.as_str()) {
                return said;
            }
            let queue = || self.bench.cluster.ask("squeue", &["--array", "--states=all"]);
            assert!(begun.elapsed() < LONG, "waited for job {} to be {states:?}, not {row}\n{}", self.job, queue());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Wait until attempt `number` has done steps beyond the first checkpoint of its own, on every rank.
    pub fn steps_in(&self, number: u32) -> AttemptDir {
        wait_until(&format!("attempt {number} of job {} to step", self.job), LONG, || {
            let attempt = self.attempts().into_iter().find(|attempt| attempt.number() == number)?;
            stepped(&attempt, RANKS, 45).then_some(attempt)
        })
    }

    /// Steps that the journals or tables of all attempts hold now, by attempt and rank.
    pub fn recorded(&self) -> Vec<Vec<usize>> {
        let steps = |attempt: &AttemptDir| (0..RANKS).map(|rank| attempt.steps(rank).unwrap().len()).collect();
        self.attempts().iter().map(steps).collect()
    }

    /// What Slurm says of the task, or of the task of its newest array.
    pub fn slurm_says(&self) -> String {
        let said = self
            .bench
            .cluster
            .ask("squeue", &["--noheader", "--array", "--states=all", "--format=%T", &format!("--jobs={}", self.job)]);
        said.split_whitespace().next().unwrap_or("nothing").to_owned()
    }

    /// Send a signal to these ranks.
    pub fn signal(&self, ranks: &[u32], signal: Signal) {
        let found = ranks_below(self.folder().path());
        for rank in ranks {
            let of_rank = found.iter().filter(|(r, _)| r == rank);
            let sent = of_rank.filter(|(_, pid)| kill(Pid::from_raw(*pid), signal).is_ok()).count();
            assert!(sent > 0, "rank {rank} runs: {found:?}");
        }
    }

    /// Stop all ranks, so that they do not reach their end while Slurm takes its time. Stopped all together they miss each
    /// other as little as on a node that was suspended.
    pub fn pause(&self) {
        self.signal(&[0, 1], Signal::SIGSTOP);
    }

    /// Wake ranks that were stopped, if they are still there.
    pub fn wake(&self) {
        for (_, pid) in ranks_below(self.folder().path()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
        }
    }

    /// `expctl VERB JOB` with an exit code; returns what it said.
    pub fn code(&self, args: &[&str], code: i32) -> String {
        let output = self.bench.expctl(&[&[args[0], &self.job], &args[1..]].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "expctl {args:?} on job {}: {said}", self.job);
        said
    }

    /// `expctl retry JOB --wait` completes the job; returns what is different in the new attempt, as `retry` says it.
    pub fn retry(&self) -> String {
        let said = self.code(&["retry", "--wait"], 0);
        let line = said.lines().find(|line| line.contains(": another attempt")).unwrap_or_else(|| panic!("{said}"));
        let words = line.split_once(": another attempt").unwrap().1.trim_start_matches(", ");
        if words.is_empty() { "another attempt".to_owned() } else { format!("another attempt, {words}") }
    }

    /// The job is complete, and its ledger holds every step of every rank exactly once after joining; no record that was
    /// there at the fault (`before`) has gone, every file can be read, and the parameters are those of an undisturbed run.
    pub fn proven(&self, fault: &'static str, before: &[Vec<usize>]) -> Row {
        let row = self.becomes(&["completed"]);
        assert_eq!(row.reason, "");
        let attempts = self.attempts();
        let (mut lost, mut twice) = (0, 0);
        for rank in 0..RANKS {
            let joined: Vec<u64> =
                joined_steps(&attempts, rank, 0).unwrap().steps.iter().map(|step| step.step).collect();
            let once: std::collections::BTreeSet<u64> = joined.iter().copied().collect();
            lost += (0..STEPS).filter(|step| !once.contains(step)).count();
            twice += joined.len() - once.len();
            assert_eq!(joined, (0..STEPS).collect::<Vec<_>>(), "{fault}: rank {rank}");
        }
        let now = self.recorded();
        for (attempt, (before, now)) in before.iter().zip(&now).enumerate() {
            let kept = before.iter().zip(now).all(|(before, now)| now >= before);
            assert!(kept, "{fault}: attempt {} had {before:?} steps and has {now:?}", attempt + 1);
        }
        for attempt in &attempts {
            let outcome = attempt.outcome().unwrap().unwrap_or_else(|| panic!("{fault}: {attempt:?} has no outcome"));
            for exit in &outcome.ranks {
                assert_eq!(exit.steps as usize, attempt.steps(exit.rank).unwrap().len(), "{fault}: {outcome:?}");
                assert!(!attempt.journal_path(exit.rank).exists(), "{fault}: a journal is left: {attempt:?}");
            }
        }
        readable(self.folder().path());
        let last = attempts.last().unwrap().outcome().unwrap().unwrap();
        assert_eq!(last.state, TrialState::Completed);
        let sets: Vec<&str> = self.sets.iter().map(String::as_str).collect();
        let expected = self.bench.undisturbed(&sets);
        for exit in &last.ranks {
            assert_eq!(exit.parameters_digest.as_ref(), Some(&expected), "{fault}: rank {}", exit.rank);
        }
        let first: usize = before.iter().map(|ranks| ranks[0]).sum();
        let all: usize = now.iter().map(|ranks| ranks[0]).sum();
        Row { fault, first, later: all - first, lost, twice, ..Row::default() }
    }
}

/// A state of `status`, and why.
#[derive(Clone, Debug)]
pub struct Said {
    pub state: String,
    pub reason: String,
}

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.reason.is_empty() { f.write_str(&self.state) } else { write!(f, "{}: {}", self.state, self.reason) }
    }
}

/// Every JSON file and every table under its final name is whole.
fn readable(folder: &Path) {
    let mut seen = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            // What a killed writer left stands under a temporary name.
            if name.starts_with(".writing-") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".json") {
                let read: Result<Value, _> = serde_json::from_slice(&std::fs::read(&path).unwrap());
                assert!(read.is_ok(), "{} is not whole", path.display());
                seen += 1;
            } else if name.ends_with(".samples.parquet") {
                expctl_ledger::read_samples(&path).unwrap();
                seen += 1;
            } else if name.ends_with(".parquet") {
                expctl_ledger::read_steps(&path).unwrap();
                seen += 1;
            }
        }
    }
    assert!(seen > 4, "there are files to read");
}

/// Every fault, in the order of the table, and the test that makes it.
pub const FAULTS: [(&str, &str); 16] = [
    ("a rank crashes", "ranks"),
    ("a rank hangs", "ranks"),
    ("`scancel`", "tasks"),
    ("the time limit", "tasks"),
    ("requeue, three times", "tasks"),
    ("preemption", "tasks"),
    ("the controller is killed and started again", "nodes"),
    ("a node is set down", "nodes"),
    ("a node is killed", "nodes"),
    ("a node is killed, no checkpoints", "nodes"),
    ("the network of a node is cut, its ranks go on", "networks"),
    ("the network between the ranks is cut", "networks"),
    ("the disk of the ledger is full", "ledger"),
    ("the ledger cannot be written", "ledger"),
    ("out of memory", "memory"),
    ("the accounting is down", "accounting"),
];

/// What befell a job, and what became of it.
#[derive(Default)]
pub struct Row {
    pub fault: &'static str,
    /// Slurm's word.
    pub slurm: String,
    /// What `status` said while the fault lasted, or after it, before anything was done about it.
    pub status: String,
    /// What finished the job.
    pub cure: String,
    /// Steps of rank 0 recorded when the fault came, and after it.
    pub first: usize,
    pub later: usize,
    pub lost: usize,
    pub twice: usize,
}

impl Row {
    /// Add what was seen, and print the row for tests/faults/run.
    pub fn seen(self, slurm: &str, status: impl ToString, cure: impl ToString) {
        let row = Self { slurm: slurm.to_owned(), status: status.to_string(), cure: cure.to_string(), ..self };
        let test = FAULTS.iter().find(|(fault, _)| *fault == row.fault).expect("a fault of the table").1;
        // Where a test had its ledger is of no interest.
        let word = |word: &str| match word.strip_prefix('/').and_then(|path| path.rsplit_once('/')) {
            Some((_, name)) => format!("…/{name}"),
            None => word.replace('|', "\\|"),
        };
        let cell = |text: &str| text.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
        println!(
            "FAULT | {} | {} | {} | {} | {} / {} | {} | {} | `{test}` |",
            row.fault,
            cell(&row.slurm),
            cell(&row.status),
            cell(&row.cure),
            row.first,
            row.later,
            row.lost,
            row.twice
        );
    }
}

/// The rows of docs/guide/faults.md are those of the matrix, in its order.
#[test]
fn the_documented_rows_are_those_of_the_matrix() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide/faults.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, table) = text.split_once("<!-- faults -->").expect("a begin");
    let (table, _) = table.split_once("<!-- /faults -->").expect("an end");
    let rows: Vec<(&str, String)> = table
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(1)
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            assert_eq!((cells.len(), &cells[5..7]), (8, &["0", "0"][..]), "{line}");
            (cells[0], cells[7].trim_matches(|c: char| "`| ".contains(c)).to_owned())
        })
        .collect();
    let expected: Vec<(&str, String)> = FAULTS.iter().map(|(fault, test)| (*fault, (*test).to_owned())).collect();
    assert_eq!(rows, expected, "UPDATE_DOCS=1 tests/faults/run writes the table");
}
