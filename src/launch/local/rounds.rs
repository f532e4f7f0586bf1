//! [`run`]: the trials of a job on this machine, round after round. Trials of one round run at the same time.
//!
//! Invariant: a round begins when the one before it has ended, with the outcomes of its trials and what ran beside them written.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::Poll;

use expctl_ledger::{AttemptDir, JobDir, JobRecord, Outcome, Rates, TrialState};
use expctl_settings::Trial;

use super::LocalLock;
use super::launcher::AnnouncedLauncher;
use super::ranks::{CheckpointRequest, ProgressDisplay, RankPrograms, run_attempt};
use crate::console::say;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::launch::attempt::{conclude, failed_log, last_lines_of_program, stage};
use crate::launch::command;
use crate::launch::pack::{Beside, rounds};
use crate::program::needed_worker;
use crate::project::Project;

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
                project.job_name(job.job)
            )));
        }
        let left = trials.len() - begun;
        if failed_alike >= MAX_ALIKE_FAILURES && left > 0 {
            let message = format!(
                "the first {failed_alike} trials failed alike before their first step; {left} of {} trials of job {} are not started",
                trials.len(),
                job.job
            );
            let failure = Failure::new(Exit::TrialsFailed, message);
            // A search says itself how it goes on.
            return Err(match job.search {
                Some(_) => failure,
                None => {
                    failure.hint(format!("once the reason is gone: expctl retry {} --all", project.job_name(job.job)))
                }
            });
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
}
