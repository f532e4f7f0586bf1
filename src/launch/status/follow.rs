//! A job that is looked at again and again, with few questions to Slurm and few files read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use expctl_record::{JobDir, Rates};

use super::look::{Who, ended, look_at, standings_of};
use super::pace::{Pace, TrialWindows};
use super::state::{JobStatus, State, TrialStatus};
use crate::exit::{Exit, Failure};
use crate::launch::slurm::{Interval, Standings};
use crate::parallel;

/// A job on this machine is looked at as a whole so often; in between only its trials that have not ended are.
const WHOLE_EVERY: Duration = Duration::from_secs(10);
/// A trial on Slurm without task and outcome is lost only after this: network file systems show its outcome late.
const GRACE: Duration = Duration::from_secs(10);
/// Longest that the controller may be away.
const LONGEST_SILENCE: Duration = Duration::from_secs(600);

/// Follows a job.
///
/// Invariant: Slurm is asked at most once a look, and not at all between two growing intervals; a trial that ended is read
/// again only when Slurm is asked.
pub struct Follow {
    status: JobStatus,
    standings: Standings,
    /// Last attempt of each trial, and whether it had an outcome, when Slurm was asked.
    asked: Vec<(u32, bool)>,
    windows: BTreeMap<usize, TrialWindows>,
    interval: Interval,
    next: Option<Instant>,
    silent_since: Option<Instant>,
    /// Since when nothing is at work on a trial any more.
    over_since: Vec<Option<Instant>>,
    trouble: Option<String>,
    /// The trials that had completed when the rates of completed ones were first asked for.
    completed_before: Option<BTreeSet<usize>>,
    /// Rates of those that completed since; none of a trial whose steps cannot be read.
    completed: BTreeMap<usize, Option<Rates>>,
}

impl Follow {
    /// Follow the job in `folder`; its record is read once.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn new(folder: &JobDir) -> Result<Self, Failure> {
        let status = JobStatus { record: folder.record()?, folder: folder.clone(), trials: Vec::new() };
        Ok(Self {
            status,
            standings: Standings::default(),
            asked: Vec::new(),
            windows: BTreeMap::new(),
            interval: Interval::new(),
            next: None,
            silent_since: None,
            over_since: Vec::new(),
            trouble: None,
            completed_before: None,
            completed: BTreeMap::new(),
        })
    }

    /// The job, as seen last.
    pub fn status(&self) -> &JobStatus {
        &self.status
    }

    /// Why Slurm could not be asked, if it could not.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Look again, without the ranks' steps.
    ///
    /// # Errors
    /// A file of the ledger cannot be read, or Slurm has not answered for ten minutes (exit 4).
    pub fn look(&mut self) -> Result<(), Failure> {
        if self.next.is_none_or(|next| Instant::now() >= next) {
            self.look_at_all()?;
        } else {
            let was_active = self.status.is_active();
            self.look_at_active()?;
            // The ledger alone cannot tell an end from a task that Slurm puts back into its queue.
            if was_active && !self.status.is_active() {
                self.look_at_all()?;
            }
        }
        self.over_since.resize(self.status.trials.len(), None);
        for (since, trial) in self.over_since.iter_mut().zip(&self.status.trials) {
            *since = if trial.state.is_active() { None } else { since.or_else(|| Some(Instant::now())) };
        }
        Ok(())
    }

    /// How each running trial goes, by its place in the job, with the seconds since it began. Reads what is new in the
    /// journals.
    pub fn paces(&mut self) -> BTreeMap<usize, (Pace, f64)> {
        // An attempt that has an outcome is not the one that runs: that one has no folder yet.
        let running = |t: &TrialStatus| t.state == State::Running && t.outcome.is_none();
        let mut windows = BTreeMap::new();
        for (index, trial) in self.status.trials.iter().enumerate().filter(|(_, t)| running(t)) {
            let Some(attempt) = &trial.attempt else { continue };
            let kept = self.windows.remove(&index).filter(|kept| kept.attempt() == attempt);
            windows.insert(index, kept.unwrap_or_else(|| TrialWindows::new(attempt, &trial.trial)));
        }
        self.windows = windows;
        let now = jiff::Timestamp::now().as_second();
        let mut paces = BTreeMap::new();
        for (index, windows) in &mut self.windows {
            windows.read();
            let since = (now - crate::launch::started(windows.attempt())).max(0);
            paces.insert(*index, (windows.pace(&self.status.trials[*index].trial), since as f64));
        }
        paces
    }

    /// The trials that completed since this was first called, by place in the job, with their rates as the note has them. Each is
    /// read once.
    pub fn completed(&mut self) -> &BTreeMap<usize, Option<Rates>> {
        let trials = self.status.trials.iter().enumerate();
        let now: BTreeSet<usize> =
            trials.filter(|(_, t)| t.state == State::Completed).map(|(index, _)| index).collect();
        let before = self.completed_before.get_or_insert_with(|| now.clone());
        for index in now.difference(before) {
            self.completed.entry(*index).or_insert_with(|| {
                let trial = &self.status.trials[*index].trial;
                let attempts = self.status.folder.attempts(&trial.id).ok()?;
                // What is wrong with a table is the note's to say.
                Rates::of_attempts(&attempts, &trial.settings).ok()?
            });
        }
        &self.completed
    }

    /// Whether nothing will change any more.
    pub fn ended(&self) -> bool {
        (0..self.status.trials.len()).all(|index| self.over(index))
    }

    /// Whether nothing will happen any more to the trial at place `index`.
    pub fn over(&self, index: usize) -> bool {
        let late =
            self.status.record.on_slurm() && self.status.trials.get(index).is_some_and(|trial| trial.outcome.is_none());
        let grace = if late { GRACE } else { Duration::ZERO };
        self.over_since.get(index).is_some_and(|since| since.is_some_and(|since| since.elapsed() >= grace))
    }

    fn look_at_all(&mut self) -> Result<(), Failure> {
        let JobStatus { record, folder, trials: before } = self.status.clone();
        let slurm = record.on_slurm();
        if slurm {
            let mut standings = standings_of(&record.backend, &[(folder.clone(), record.clone())])?;
            self.trouble = standings.trouble.take();
            match &self.trouble {
                // What it said last still holds, as far as anybody knows.
                Some(_) if !self.standings.trials.is_empty() => {}
                _ => self.standings = standings,
            }
            if self.trouble.is_none() {
                self.silent_since = None;
            } else if self.silent_since.get_or_insert_with(Instant::now).elapsed() > LONGEST_SILENCE {
                let said = self.trouble.clone().unwrap_or_default();
                let job = record.job;
                return Err(
                    Failure::new(Exit::Cluster, said).hint(format!("job {job} may go on; watch it again later"))
                );
            }
        }
        self.status = look_at(folder, record, &self.standings)?;
        let trials = &self.status.trials;
        self.asked = trials.iter().map(attempt_and_outcome).collect();
        let same =
            |(a, b): (&TrialStatus, &TrialStatus)| (a.state, &a.reason, &a.attempt) == (b.state, &b.reason, &b.attempt);
        let changed = before.len() != trials.len() || !before.iter().zip(trials).all(same);
        // Somebody who waits for a late outcome looks often.
        let wait = if slurm { self.interval.next(changed || !self.status.is_active()) } else { WHOLE_EVERY };
        self.next = Some(Instant::now() + wait);
        Ok(())
    }

    /// As [`Self::look_at_all`], without a question: what changed in the ledger since the last one comes before what Slurm
    /// said then.
    fn look_at_active(&mut self) -> Result<(), Failure> {
        let JobStatus { record, folder, trials } = &self.status;
        let who = Who::runs(folder, record, &self.standings)?;
        let open = |t: &TrialStatus| t.state.is_active() || t.outcome.is_none();
        let active: Vec<usize> = (0..trials.len()).filter(|index| open(&trials[*index])).collect();
        let seen = parallel::map(&active, |index| who.status(folder, *index, &trials[*index].trial));
        let is_slurm = matches!(who, Who::Slurm(..));
        for (index, now) in active.into_iter().zip(seen) {
            let mut now = now?;
            let changed = self.asked.get(index).is_some_and(|asked| *asked != attempt_and_outcome(&now));
            if is_slurm && changed {
                (now.state, now.reason) = match &now.outcome {
                    Some(outcome) => ended(outcome),
                    None => (State::Running, String::new()),
                };
            }
            self.status.trials[index] = now;
        }
        Ok(())
    }
}

fn attempt_and_outcome(trial: &TrialStatus) -> (u32, bool) {
    (trial.attempt.as_ref().map_or(0, expctl_record::AttemptDir::number), trial.outcome.is_some())
}
