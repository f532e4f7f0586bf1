//! An attempt of a trial: created in the ledger, concluded with its outcome, and followed by another one, as its [`Remedy`] says.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use expctl_ledger::{
    AttemptDir, Cause, CheckpointDir, EXIT_STORAGE, EXIT_STUCK, JobDir, LedgerError, Outcome, RankExit, RankStatus,
    RendezvousFile, SubmittedArray, TrialState, close_sample_journal, close_step_journal, write_json,
};
use expctl_settings::Trial;

use crate::exit::Failure;
use crate::launch::slurm::Adjustment;
use crate::snapshot::unpack;

/// Create the next attempt of a trial, with its `trial.json`. The code of a program is unpacked again, if it was removed meanwhile.
///
/// # Errors
/// The ledger cannot be written, or the code is gone.
pub fn stage(job: &JobDir, trial: &Trial) -> Result<AttemptDir, Failure> {
    if trial.settings.runs_command() {
        unpack(job)?;
    }
    let attempt = job.next_attempt(&trial.id)?;
    write_json(&attempt.trial_path(), trial)?;
    Ok(attempt)
}

/// Create attempt `number` of a trial, and no other; `None` if it is there already.
///
/// # Errors
/// The ledger cannot be written.
pub fn stage_exactly(job: &JobDir, trial: &Trial, number: u32) -> Result<Option<AttemptDir>, Failure> {
    let Some(attempt) = job.new_attempt(&trial.id, number)? else { return Ok(None) };
    write_json(&attempt.trial_path(), trial)?;
    Ok(Some(attempt))
}

/// End of a rank's process, as its parent saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessEnd {
    /// Exit code, if it exited.
    pub code: Option<i32>,
    /// Signal, if one ended it.
    pub signal: Option<i32>,
    /// It was ended by the launcher or srun, because another rank had ended before.
    pub forced: bool,
}

/// Close an attempt: recover the tables of ranks that could not write their own, and write `outcome.json`.
///
/// `ends` has the end of each rank's process; a rank without one is judged by its exit record alone. `interrupted`: the user,
/// not a fault, stopped the attempt. `started` is its start, seconds since the epoch.
///
/// # Errors
/// The ledger cannot be written. A file of a rank that cannot be read becomes part of the outcome instead.
pub fn conclude(
    attempt: &AttemptDir,
    trial: &Trial,
    started: i64,
    ends: &[Option<ProcessEnd>],
    interrupted: bool,
) -> Result<Outcome, Failure> {
    let world_size = trial.settings.launch.ranks;
    // Ranks may still run on a node that was given up.
    attempt.begin_closing()?;
    let mut ranks = Vec::new();
    for rank in 0..world_size {
        let end = ends.get(rank as usize).copied().flatten();
        // A record that cannot be read becomes part of the reason; the outcome is written in any case.
        let (said, unreadable) = match attempt.rank_exit(rank) {
            Ok(said) => (said, None),
            Err(e) => (None, Some(format!("rank {rank} left last words that cannot be read: {e}"))),
        };
        let mut exit = said.unwrap_or_else(|| RankExit {
            rank,
            status: RankStatus::Killed,
            message: unreadable.unwrap_or_else(|| silent_end(rank, end)),
            lost_peer: None,
            steps: 0,
            parameters_digest: None,
            exit_code: None,
            signal: None,
        });
        match recover_steps(attempt, trial, rank) {
            Ok(steps) => exit.steps = steps,
            Err(e) => {
                exit.status = RankStatus::Failed;
                exit.message = format!("the steps of rank {rank} cannot be kept: {e}");
            }
        }
        // Samples add to the steps: without the table their journal is read.
        if let Err(e) = close_sample_journal(attempt, rank) {
            tracing::warn!("the hardware samples of rank {rank} stay a journal: {e}");
        }
        exit.exit_code = end.and_then(|e| e.code);
        exit.signal = end.and_then(|e| e.signal);
        ranks.push(exit);
    }
    let forced = |rank: u32| ends.get(rank as usize).copied().flatten().is_some_and(|end| end.forced);
    let outcome = judge(ranks, &forced, started, interrupted);
    outcome.save(attempt)?;
    attempt.end_closing();
    if outcome.state == TrialState::Completed {
        // Nothing resumes from checkpoints any more. Not before the outcome is written: until then the trial may still
        // need them.
        CheckpointDir::new(attempt).clear()?;
    }
    for rank in 0..world_size {
        // Its content is in outcome.json now.
        let _ = std::fs::remove_file(attempt.exit_path(rank));
    }
    RendezvousFile::new(attempt).clear();
    Ok(outcome)
}

fn silent_end(rank: u32, end: Option<ProcessEnd>) -> String {
    match end {
        Some(ProcessEnd { signal: Some(signal), .. }) => {
            let name = nix::sys::signal::Signal::try_from(signal).map_or("", nix::sys::signal::Signal::as_str);
            format!("rank {rank} was killed by signal {signal} {name}")
        }
        Some(ProcessEnd { code: Some(EXIT_STORAGE), .. }) => {
            format!("rank {rank} could not write its records; see rank-{rank}.log")
        }
        Some(ProcessEnd { code: Some(code), .. }) => {
            format!("rank {rank} ended with exit code {code} and left no reason; see rank-{rank}.log")
        }
        _ => format!("rank {rank} ended without a word (killed, or its node was lost)"),
    }
}

/// The log of the rank at the root of a failure.
pub fn failed_log(attempt: &AttemptDir, outcome: &Outcome) -> PathBuf {
    attempt.log_path(outcome.failed_rank.unwrap_or(0))
}

/// Lines of the log of a program that failed that are shown, and bytes of it that are read for them.
const LAST_LINES: usize = 5;
const LAST_BYTES: u64 = 1 << 14;

/// The last lines that the program of a failed trial wrote. The outcome says that the program ended; its own last words say why. None
/// for expctl's own worker, whose outcome has the reason.
pub fn last_lines_of_program(attempt: &AttemptDir, trial: &Trial, outcome: &Outcome) -> Vec<String> {
    if outcome.state != TrialState::Failed || !trial.settings.runs_command() {
        return Vec::new();
    }
    last_lines(&failed_log(attempt, outcome), KnownReason::of(outcome))
}

/// The reason that the outcome of a failed trial has. It stands in the log as well: as what the supervisor wrote at the end, and where a
/// program reported its own error, as what it wrote itself.
#[derive(Clone, Copy, Debug)]
struct KnownReason<'a> {
    /// `rank 1: the program ended with exit code 7; see rank-1.log`: the supervisor logs the same text.
    message: &'a str,
    /// The same without the rank in front and the log behind.
    bare: &'a str,
}

impl<'a> KnownReason<'a> {
    fn of(outcome: &'a Outcome) -> Self {
        let message = outcome.message.as_str();
        let rank = outcome.failed_rank.unwrap_or(0);
        let bare = message.strip_prefix(&format!("rank {rank}: ")).unwrap_or(message);
        Self { message, bare: bare.strip_suffix(&format!("; see rank-{rank}.log")).unwrap_or(bare) }
    }

    /// A line of plain text without the reason: nothing of one that says no more than that, what is in front where the supervisor wrote
    /// behind an unfinished line, as bars leave it. Any other line, one with the reason in a longer sentence as well, is whole.
    fn without<'l>(&self, line: &'l str) -> &'l str {
        if [self.message, self.bare].contains(&line.trim()) {
            return "";
        }
        self.before_log_line(line).unwrap_or(line)
    }

    /// What is in front of the line that the supervisor logged, `2026-11-27T22:10:49.123456Z ERROR` and the message.
    fn before_log_line<'l>(&self, line: &'l str) -> Option<&'l str> {
        let stamped = line.trim_end().strip_suffix(self.message)?.trim_end().strip_suffix("ERROR")?.trim_end();
        let at = stamped.len().checked_sub("2026-11-27T22:10:49.123456Z".len())?;
        let (before, time) = stamped.split_at_checked(at)?;
        time.parse::<jiff::Timestamp>().is_ok().then_some(before)
    }
}

/// The last lines of a log that are not empty, without colours, control characters and the reason that is `known`; none if it cannot be
/// read.
fn last_lines(log: &Path, known: KnownReason<'_>) -> Vec<String> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(LAST_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(LAST_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    // Of a bar that was drawn over and over, the last state.
    let lines = text.lines().filter_map(|line| line.rsplit('\r').find(|part| !part.trim().is_empty()));
    let plain = |line: &str| console::strip_ansi_codes(line).chars().filter(|c| !c.is_control()).collect::<String>();
    let new = |line: String| known.without(&line).to_owned();
    let mut lines: Vec<String> = lines.map(plain).map(new).filter(|line| !line.trim().is_empty()).collect();
    lines.split_off(lines.len().saturating_sub(LAST_LINES))
}

/// Turn the journal that a rank left into its table; returns the number of steps.
fn recover_steps(attempt: &AttemptDir, trial: &Trial, rank: u32) -> Result<u64, LedgerError> {
    close_step_journal(attempt, trial, rank, 0)?;
    Ok(attempt.steps(rank)?.len() as u64)
}

/// The outcome of an attempt. If it failed, names the rank at the root: one that reports a failure itself, else the one
/// that others lost, else one that was killed from outside, before those that only stopped because of it.
fn judge(ranks: Vec<RankExit>, forced: &dyn Fn(u32) -> bool, started: i64, interrupted: bool) -> Outcome {
    let ended = jiff::Timestamp::now().as_second();
    let with = |state, cause, message, failed_rank| Outcome {
        state,
        message,
        cause,
        failed_rank,
        started,
        ended,
        beside_s: None,
        beside_from: None,
        beside: Vec::new(),
        ranks: ranks.clone(),
    };
    if ranks.iter().all(|r| r.status == RankStatus::Completed) {
        return with(TrialState::Completed, None, String::new(), None);
    }
    let failed = ranks.iter().find(|r| r.status == RankStatus::Failed);
    let on_request = interrupted && failed.is_none();
    if on_request || ranks.iter().all(|r| matches!(r.status, RankStatus::Completed | RankStatus::Interrupted)) {
        return with(TrialState::Interrupted, Some(Cause::Cancelled), "stopped on request".to_owned(), None);
    }
    let lost = || {
        let lost = ranks.iter().find_map(|r| r.lost_peer)?;
        ranks.iter().find(|r| r.rank == lost && r.status != RankStatus::PeerLost)
    };
    let killed = |by_us: bool| ranks.iter().find(|r| r.status == RankStatus::Killed && forced(r.rank) == by_us);
    let root = failed
        .or_else(lost)
        .or_else(|| killed(false))
        .or_else(|| ranks.iter().find(|r| r.status == RankStatus::PeerLost))
        .or_else(|| killed(true));
    match root {
        // It was silent until the launcher or srun told it to stop.
        Some(root) if root.status == RankStatus::Interrupted && forced(root.rank) => {
            let said = ranks.iter().find(|r| r.lost_peer == Some(root.rank)).map_or("", |r| r.message.as_str());
            with(TrialState::Failed, Some(Cause::Hang), said.to_owned(), Some(root.rank))
        }
        Some(root) if root.status == RankStatus::Interrupted => {
            let message = format!("rank {} alone was told to stop (TERM) from outside", root.rank);
            with(TrialState::Failed, Some(Cause::Killed), message, Some(root.rank))
        }
        Some(root) => {
            let cause = match root.status {
                _ if root.exit_code == Some(EXIT_STORAGE) => Cause::Storage,
                _ if root.exit_code == Some(EXIT_STUCK) => Cause::Hang,
                RankStatus::Failed => Cause::Error,
                _ => Cause::Killed,
            };
            with(TrialState::Failed, Some(cause), root.message.clone(), Some(root.rank))
        }
        None => with(TrialState::Failed, None, "no rank says why".to_owned(), None),
    }
}

/// The next step for a trial that did not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Another attempt, with adjusted resources; the text says what is different, and may be empty.
    Again(Adjustment, String),
    /// Another attempt would end the same way.
    NotByItself,
}

/// The remedy for a trial whose last attempt ended with `outcome`, if it left one. `array` is Slurm's array that ran
/// it, if one did.
///
/// # Errors
/// The attempt's env.json or slurm.json cannot be read.
pub fn remedy(
    trial: &Trial,
    attempt: Option<&AttemptDir>,
    outcome: Option<&Outcome>,
    array: Option<&SubmittedArray>,
) -> Result<Remedy, Failure> {
    let mut adjustment = Adjustment::default();
    let mut changes = Vec::new();
    if let Some(array) = array {
        let slurm = &trial.settings.slurm;
        // The resources of an earlier retry stay.
        adjustment.memory_mib = (array.memory_mib != slurm.memory_mib).then_some(array.memory_mib);
        adjustment.time_min = (array.time_min != slurm.time_min).then_some(array.time_min);
    }
    match outcome.and_then(|outcome| outcome.cause) {
        Some(Cause::Error) => return Ok(Remedy::NotByItself),
        Some(Cause::OutOfMemory) => match array.map_or(0, |array| array.memory_mib) {
            0 => changes.push("set slurm.memory_mib if it runs out of memory again".to_owned()),
            memory => {
                adjustment.memory_mib = Some(memory.saturating_mul(2));
                changes.push(format!("with {} MiB of memory instead of {memory}", memory.saturating_mul(2)));
            }
        },
        Some(Cause::TimeLimit) => match array.map_or(0, |array| array.time_min) {
            _ if trial.settings.can_resume() => changes.push("goes on from its last checkpoint".to_owned()),
            0 => {}
            time => {
                adjustment.time_min = Some(time.saturating_mul(2));
                changes.push(format!("with {} min instead of {time}", time.saturating_mul(2)));
            }
        },
        Some(Cause::Node) => {
            if let (Some(_), Some(attempt)) = (array, attempt) {
                // For this retry alone: a node may come back.
                adjustment.exclude = nodes(attempt)?;
                if !adjustment.exclude.is_empty() {
                    changes.push(format!("not on {}", adjustment.exclude.join(", ")));
                }
            }
        }
        _ => {}
    }
    Ok(Remedy::Again(adjustment, changes.join("; ")))
}

/// The nodes of an attempt as Slurm names them; where it does not, the ranks' host names up to the first dot.
fn nodes(attempt: &AttemptDir) -> Result<Vec<String>, Failure> {
    let said = attempt.slurm_usage()?.and_then(|usage| usage.usage.nodes);
    let mut nodes = match said.map(|list| expctl_ledger::hostlist::expand(&list)) {
        Some(Ok(nodes)) => nodes,
        _ => {
            let ranks = attempt.environment()?.unwrap_or_default().ranks;
            ranks.into_iter().filter_map(|rank| Some(rank.host.split('.').next()?.to_owned())).collect()
        }
    };
    nodes.retain(|node| !node.is_empty());
    nodes.sort();
    nodes.dedup();
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expctl_ledger::{Journal, StepRecord};

    fn exit(rank: u32, status: RankStatus, lost_peer: Option<u32>) -> RankExit {
        let message = format!("rank {rank} {status:?}");
        RankExit { rank, status, message, lost_peer, steps: 0, parameters_digest: None, exit_code: None, signal: None }
    }

    /// The last lines of a log with this text, of a trial that failed with this message on rank 0.
    fn lines_of(text: &str, message: &str) -> Vec<String> {
        let outcome = judge(vec![exit(0, RankStatus::Failed, None)], &|_| false, 0, false);
        let outcome = Outcome { message: message.to_owned(), ..outcome };
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("rank-0.log");
        assert!(last_lines(&log, KnownReason::of(&outcome)).is_empty());
        std::fs::write(&log, text).unwrap();
        last_lines(&log, KnownReason::of(&outcome))
    }

    const ENDED: &str =
        "rank 0: the program ended with exit code 1 before it called expctl.Run() (no run record); see rank-0.log";

    /// A node that is set down is given up while its ranks still run. A checkpoint that they write meanwhile has its steps in the tables.
    #[test]
    fn an_attempt_is_closed_before_its_journals_are_read() {
        let text = include_str!("../../tests/samples/release_0_1/runs/1/ids-r1-5ed22a3a/attempt-1/trial.json");
        let trial: Trial = serde_json::from_str(text).unwrap();
        for _ in 0..20 {
            let dir = tempfile::tempdir().unwrap();
            let attempt = stage(&JobDir::new(dir.path()), &trial).unwrap();
            let mut journal = Journal::create(&attempt.journal_path(0)).unwrap();
            let (begun, has_begun) = std::sync::mpsc::channel();
            let rank = std::thread::spawn({
                let attempt = attempt.clone();
                move || {
                    // What a rank does: record a step, and where nobody has closed the attempt, a checkpoint behind it.
                    for step in 0.. {
                        journal.append(&StepRecord { step, ..StepRecord::default() }).unwrap();
                        if attempt.is_closed() {
                            return step;
                        }
                        let _ = begun.send(());
                    }
                    unreachable!()
                }
            });
            has_begun.recv().unwrap();
            conclude(&attempt, &trial, 0, &[], true).unwrap();
            let checkpoint = rank.join().unwrap();
            let steps = attempt.steps(0).unwrap().len() as u64;
            assert!(steps >= checkpoint, "a checkpoint in front of step {checkpoint}, a table of {steps} steps");
            assert!(attempt.is_closed() && !attempt.closing_path().exists());
        }
    }

    #[test]
    fn the_last_lines_of_a_log_are_plain_text() {
        let text = "1\n2\n\n3\n4\n10%\r20%\r\n\x1b[31mImportError\x1b[0m: no module\n";
        assert_eq!(lines_of(text, ENDED), ["2", "3", "4", "20%", "ImportError: no module"]);
        let long = "x".repeat(1 << 15) + "\nend\n";
        assert_eq!(lines_of(&long, ENDED).last().map(String::as_str), Some("end"));
    }

    #[test]
    fn lines_that_repeat_the_outcome_are_left_out() {
        let stamp = "2026-11-27T22:10:49.123456Z ERROR ";
        assert_eq!(lines_of(&format!("why\n{stamp}{ENDED}\n"), ENDED), ["why"]);
        assert_eq!(lines_of(&format!("why\n\x1b[2m{stamp}\x1b[0m{ENDED}\n"), ENDED), ["why"]);
        // Behind a bar that had no end.
        assert_eq!(lines_of(&format!("  0%\r 30%|###  | 3/10 {stamp}{ENDED}\n"), ENDED), [" 30%|###  | 3/10 "]);
        // An error that the program reported, as the traceback has it.
        assert_eq!(
            lines_of("Traceback\n  at line 3\nValueError: bad\n", "rank 0: ValueError: bad"),
            ["Traceback", "  at line 3"]
        );
    }

    #[test]
    fn lines_that_say_more_than_the_outcome_stay() {
        let whole = |line: &str, message: &str| assert_eq!(lines_of(&format!("{line}\n"), message), [line]);
        whole("ValueError: bad, in column 7 of cells.h5ad", "rank 0: ValueError: bad");
        whole("while loading: ValueError: bad", "rank 0: ValueError: bad");
        whole("the killed job was restored", "rank 0: killed");
        whole("see rank-0.log", ENDED);
        whole("not a time ERROR rank 0: killed", "rank 0: killed");
        whole("anything", "");
        // Of another rank.
        whole("2026-11-27T22:10:49.123456Z ERROR rank 1: lost", "rank 0: lost");
    }

    #[test]
    fn a_ledger_that_could_not_be_written_is_no_error_of_the_trial() {
        let cause = |code| {
            let own = RankExit { exit_code: Some(code), ..exit(0, RankStatus::Failed, None) };
            judge(vec![own, exit(1, RankStatus::PeerLost, Some(0))], &|_| false, 0, false).cause
        };
        assert_eq!((cause(EXIT_STORAGE), cause(EXIT_STUCK)), (Some(Cause::Storage), Some(Cause::Hang)));
        assert_eq!(cause(1), Some(Cause::Error));
    }

    #[test]
    fn the_rank_at_the_root_is_named() {
        use RankStatus::{Completed, Failed, Interrupted, Killed, PeerLost};
        let root = |ranks: &[RankExit], forced: &[u32], interrupted| {
            let outcome = judge(ranks.to_vec(), &|rank| forced.contains(&rank), 0, interrupted);
            (outcome.state, outcome.failed_rank)
        };
        let failed = |rank| (TrialState::Failed, Some(rank));
        // The peer's report comes before the rank that it names by position.
        assert_eq!(root(&[exit(0, PeerLost, Some(1)), exit(1, Killed, None)], &[], false), failed(1));
        assert_eq!(root(&[exit(0, PeerLost, Some(1)), exit(1, Failed, None)], &[], false), failed(1));
        // One rank alone was stopped from outside: the survivor is not to blame.
        assert_eq!(root(&[exit(0, PeerLost, Some(1)), exit(1, Interrupted, None)], &[], false), failed(1));
        let frozen = [exit(0, Interrupted, None), exit(1, PeerLost, Some(0))];
        let outcome = judge(frozen.to_vec(), &|rank| rank == 0, 0, false);
        assert_eq!((outcome.failed_rank, outcome.cause), (Some(0), Some(Cause::Hang)));
        assert_eq!(outcome.message, "rank 1 PeerLost");
        // A rank that the launcher had to kill is not the root.
        assert_eq!(root(&[exit(0, Killed, None), exit(1, Killed, None)], &[0], false), failed(1));
        // A failure before the user's Ctrl-C stays a failure; otherwise the user stopped it.
        assert_eq!(root(&[exit(0, Failed, None), exit(1, Interrupted, None)], &[], true), failed(0));
        let stopped = (TrialState::Interrupted, None);
        assert_eq!(root(&[exit(0, Killed, None), exit(1, Interrupted, None)], &[0], true), stopped);
        assert_eq!(root(&[exit(0, Completed, None), exit(1, Interrupted, None)], &[], false), stopped);
    }
}
