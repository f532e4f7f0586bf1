//! [`Follow`]: a job that is looked at again and again, and when it will have ended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use expctl_ledger::{AttemptDir, AttemptState, JobDir, Rates};
use expctl_stats::mean;
use slurm_client::PollInterval;

use super::pace::{Pace, TrialWindows};
use super::{JobStatus, StatusSource, TrialStatus, ended, standings_of};
use crate::exit::{Exit, Failure};
use crate::launch::slurm::Standings;

/// Interval at which a job on this machine is looked at as a whole; in between only its trials that have not ended are.
const WHOLE_EVERY: Duration = Duration::from_secs(10);
/// After this a trial on Slurm without task and outcome is lost: network file systems show outcomes late.
const GRACE: Duration = Duration::from_secs(10);
/// Time that the controller may be away.
const MAX_SILENCE: Duration = Duration::from_secs(600);

/// A job that is looked at again and again, with few questions to Slurm and few files read.
///
/// Invariant: a look asks Slurm at most once, and not before a growing interval has passed since the last question. A
/// trial that has ended is read again only when Slurm is asked.
pub struct Follow {
    status: JobStatus,
    standings: Standings,
    /// Number of the last attempt of each trial, and whether it had an outcome, when Slurm was asked.
    asked: Vec<(u32, bool)>,
    windows: BTreeMap<usize, TrialWindows>,
    interval: PollInterval,
    next: Option<Instant>,
    silent_since: Option<Instant>,
    /// Since when nothing runs a trial any more.
    over_since: Vec<Option<Instant>>,
    trouble: Option<String>,
    /// The trials that had completed when the rates of completed ones were first asked for.
    completed_before: Option<BTreeSet<usize>>,
    /// Rates of the trials that completed since; `None` if the steps of one cannot be read.
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
            interval: PollInterval::new(),
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

    /// The pace of each running trial, by its index in the job, with the seconds since it began. Reads what is new in
    /// the journals.
    pub fn paces(&mut self) -> BTreeMap<usize, (Pace, f64)> {
        // An attempt with an outcome is not the one that runs, which has no folder yet.
        let running = |t: &TrialStatus| t.state == AttemptState::Running && t.outcome.is_none();
        let mut windows = BTreeMap::new();
        for (index, trial) in self.status.trials.iter().enumerate().filter(|(_, t)| running(t)) {
            let Some(attempt) = &trial.attempt else { continue };
            let known = self.windows.remove(&index).filter(|known| known.attempt() == attempt);
            windows.insert(index, known.unwrap_or_else(|| TrialWindows::new(attempt, &trial.trial)));
        }
        self.windows = windows;
        let now = jiff::Timestamp::now().as_second();
        let mut paces = BTreeMap::new();
        for (index, windows) in &mut self.windows {
            windows.read();
            let since = (now - windows.attempt().started()).max(0);
            paces.insert(*index, (windows.pace(&self.status.trials[*index].trial), since as f64));
        }
        paces
    }

    /// The trials that completed since the first call, by index in the job, with their rates as in the note. Each is
    /// read once.
    pub fn completed(&mut self) -> &BTreeMap<usize, Option<Rates>> {
        let trials = self.status.trials.iter().enumerate();
        let now: BTreeSet<usize> =
            trials.filter(|(_, t)| t.state == AttemptState::Completed).map(|(index, _)| index).collect();
        let before = self.completed_before.get_or_insert_with(|| now.clone());
        for index in now.difference(before) {
            self.completed.entry(*index).or_insert_with(|| {
                let trial = &self.status.trials[*index].trial;
                let attempts = self.status.folder.attempts(&trial.id).ok()?;
                // The note reports damaged tables.
                Rates::from_attempts(&attempts, &trial.settings).ok()?
            });
        }
        &self.completed
    }

    /// Whether nothing will change any more.
    pub fn ended(&self) -> bool {
        (0..self.status.trials.len()).all(|index| self.over(index))
    }

    /// Whether nothing will happen any more to the trial at `index`.
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
                // Its last answer still holds, as far as anybody knows.
                Some(_) if !self.standings.trials.is_empty() => {}
                _ => self.standings = standings,
            }
            if self.trouble.is_none() {
                self.silent_since = None;
            } else if self.silent_since.get_or_insert_with(Instant::now).elapsed() > MAX_SILENCE {
                let said = self.trouble.clone().unwrap_or_default();
                let job = record.job;
                return Err(
                    Failure::new(Exit::Cluster, said).hint(format!("job {job} may go on; watch it again later"))
                );
            }
        }
        self.status = JobStatus::from_standings(folder, record, &self.standings)?;
        let trials = &self.status.trials;
        self.asked = trials.iter().map(attempt_and_outcome).collect();
        let same =
            |(a, b): (&TrialStatus, &TrialStatus)| (a.state, &a.reason, &a.attempt) == (b.state, &b.reason, &b.attempt);
        let changed = before.len() != trials.len() || !before.iter().zip(trials).all(same);
        // Whoever waits for a late outcome looks often.
        let wait = if slurm { self.interval.next(changed || !self.status.is_active()) } else { WHOLE_EVERY };
        self.next = Some(Instant::now() + wait);
        Ok(())
    }

    /// Like [`Self::look_at_all`], without asking Slurm: changes in the ledger since its last answer take precedence
    /// over that.
    fn look_at_active(&mut self) -> Result<(), Failure> {
        let JobStatus { record, folder, trials } = &self.status;
        let source = StatusSource::new(folder, record, &self.standings)?;
        let open = |t: &TrialStatus| t.state.is_active() || t.outcome.is_none();
        let active: Vec<usize> = (0..trials.len()).filter(|index| open(&trials[*index])).collect();
        let seen = parallel_map::map(&active, |index| source.status(folder, *index, &trials[*index].trial));
        let is_slurm = matches!(source, StatusSource::Slurm(..));
        for (index, now) in active.into_iter().zip(seen) {
            let mut now = now?;
            let changed = self.asked.get(index).is_some_and(|asked| *asked != attempt_and_outcome(&now));
            if is_slurm && changed {
                (now.state, now.reason) = match &now.outcome {
                    Some(outcome) => ended(outcome),
                    None => (AttemptState::Running, String::new()),
                };
            }
            self.status.trials[index] = now;
        }
        Ok(())
    }
}

fn attempt_and_outcome(trial: &TrialStatus) -> (u32, bool) {
    (trial.attempt.as_ref().map_or(0, AttemptDir::number), trial.outcome.is_some())
}

/// Estimated time until the last trial of a job has ended, s; `None` if no trial has ended or made a step. `running`
/// are the running trials with the seconds since each began.
///
/// Waiting trials are taken to last as long as those that ended, or, before there are any, as long as the running ones
/// will have taken. They start as others end: as many at a time as the throttle allows, or, without one, as run now.
/// Time in the queue before the first start is not included.
pub fn estimated_s_left(job: &JobStatus, running: &[(&Pace, f64)]) -> Option<f64> {
    let waiting = job.trials.iter().filter(|t| t.state == AttemptState::Waiting).count();
    let active = job.trials.iter().filter(|t| t.state == AttemptState::Running).count();
    let took = job.trials.iter().filter(|t| t.state == AttemptState::Completed).filter_map(|t| {
        let outcome = t.outcome.as_ref()?;
        Some((outcome.ended - outcome.started).max(0) as f64)
    });
    let ended = mean(&took.collect::<Vec<_>>());
    let will_take: Vec<f64> = running.iter().filter_map(|(pace, since)| Some(pace.estimated_s_left? + since)).collect();
    let each = ended.or_else(|| mean(&will_take));
    // A trial without a step has almost all of its time before it.
    let mut left: Vec<f64> = running
        .iter()
        .filter_map(|(pace, since)| pace.estimated_s_left.or_else(|| Some((each? - since).max(0.0))))
        .collect();
    while left.len() < active {
        left.push(each?);
    }
    if active + waiting == 0 {
        return None;
    }
    let throttle = job.record.trials.first().map_or(0, |t| t.settings.slurm.throttle) as usize;
    let lanes = match job.record.on_slurm() {
        true if throttle > 0 => throttle,
        true => active.max(1),
        false => 1,
    };
    last_end(left, lanes, waiting, each)
}

/// Seconds until the last trial ends, on `lanes` lanes: `running` are the remaining seconds of the running trials;
/// `waiting` more of
/// `each` seconds start one by one as lanes become free.
fn last_end(mut running: Vec<f64>, lanes: usize, waiting: usize, each: Option<f64>) -> Option<f64> {
    running.resize(running.len().max(lanes), 0.0);
    for _ in 0..waiting {
        let first = running.iter_mut().min_by(|a, b| a.total_cmp(b))?;
        *first += each?;
    }
    running.into_iter().max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_wait_take_the_first_free_place() {
        assert_eq!(last_end(vec![3.0], 1, 2, Some(10.0)), Some(23.0));
        assert_eq!(last_end(vec![3.0, 8.0], 2, 2, Some(10.0)), Some(18.0));
        assert_eq!(last_end(vec![3.0, 8.0], 2, 3, Some(10.0)), Some(23.0));
        // Places that are free now.
        assert_eq!(last_end(Vec::new(), 4, 5, Some(10.0)), Some(20.0));
        assert_eq!(last_end(vec![3.0], 1, 0, None), Some(3.0));
        assert_eq!(last_end(vec![3.0], 1, 1, None), None);
    }
}
