//! The rounds of a search that a ledger has.

use std::collections::BTreeMap;

use expctl_ledger::{Cause, JobRecord, Ledger, MeasuredJob, Run, RunState, SearchRound, StepRecord};
use expctl_settings::Settings;
use serde_json::Value as Json;

use super::race::{Entrant, MeasuredRun, PointRun, RaceRound};
use crate::report::rates::run_rates;

/// Attempts after which a trial that is lost every time counts as failed.
const MAX_LOST_ATTEMPTS: usize = 3;

/// What a race has to know of a point with these settings.
pub fn entrant(settings: &Settings) -> Entrant {
    let (loader, ranks) = (&settings.loader, u64::from(settings.launch.ranks));
    let (workers, ahead) = (u64::from(loader.workers), u64::from(loader.prefetch_factor));
    Entrant {
        full_steps: settings.measure.steps,
        block_steps: settings.block_steps().map_or(1, |steps| (steps.ceil() as u64).max(1)),
        threads: ranks.saturating_mul(workers),
        buffered_samples: ranks.saturating_mul(loader.batch_size).saturating_mul(workers.saturating_mul(ahead).max(1)),
    }
}

/// A search that the ledger knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchStart {
    /// Its id.
    pub id: String,
    /// Its number among those with this id.
    pub start: u32,
    /// The job of its last round.
    pub last_job: u64,
}

/// All rounds of searches of one variant of a config in a ledger.
#[derive(Clone, Debug, Default)]
pub struct SearchHistory {
    /// Their jobs, in the order of their numbers.
    jobs: Vec<(SearchRound, JobRecord)>,
}

impl SearchHistory {
    /// Look through a ledger. Jobs that cannot be read are left out, with a warning.
    pub fn load(ledger: &Ledger, config: &str, variant: &str) -> Self {
        let is_of_variant = |record: &JobRecord| {
            record.config == config && record.trials.first().is_some_and(|trial| trial.variant == variant)
        };
        let jobs = ledger.measured_ids().into_iter().filter_map(|id| {
            let record = ledger.measured(id).ok()?.record();
            let record = record.map_err(|e| tracing::warn!("job {id} does not count among searches: {e}")).ok()?;
            let search = record.search.clone().filter(|_| is_of_variant(&record))?;
            Some((search, record))
        });
        Self { jobs: jobs.collect() }
    }

    /// The newest search with this id; none if there is none.
    pub fn newest(&self, id: &str) -> Option<SearchStart> {
        let of_id = self.jobs.iter().filter(|(search, _)| search.id == id);
        of_id.max_by_key(|(search, record)| (search.start, record.job)).map(start_of)
    }

    /// The last search with any other id: of the same variant, with other points, lengths or options.
    pub fn other(&self, id: &str) -> Option<SearchStart> {
        self.jobs.iter().filter(|(search, _)| search.id != id).max_by_key(|(_, record)| record.job).map(start_of)
    }

    /// The jobs of a search, the first round first.
    pub fn rounds(&self, id: &str, start: u32) -> Vec<&JobRecord> {
        let is_of = |search: &SearchRound| search.id == id && search.start == start;
        let mut rounds: Vec<_> = self.jobs.iter().filter(|(search, _)| is_of(search)).collect();
        rounds.sort_by_key(|(search, record)| (search.round, record.job));
        rounds.into_iter().map(|(_, record)| record).collect()
    }
}

fn start_of((search, record): &(SearchRound, JobRecord)) -> SearchStart {
    SearchStart { id: search.id.clone(), start: search.start, last_job: record.job }
}

/// What came of a round, if all its trials have ended for good. `points`: the swept settings of each point, as its trials have them.
pub fn race_round(job: &MeasuredJob, points: &[BTreeMap<String, Json>]) -> Option<RaceRound> {
    let runs = job.runs.iter().map(|run| {
        let point = points.iter().position(|point| *point == run.trial.point)?;
        Some((point, point_run(run)?))
    });
    Some(RaceRound { runs: runs.collect::<Option<_>>()? })
}

/// Whether a trial has ended, and does not have to run again.
pub fn has_ended(run: &Run) -> bool {
    point_run(run).is_some()
}

/// What came of a trial; none if it has not ended, or ended for a reason that says nothing of its settings.
fn point_run(run: &Run) -> Option<PointRun> {
    let failed = |reason: String| Some(PointRun::Failed { reason, seconds: trial_s(run) });
    match &run.state {
        RunState::Completed => match run_rates(run) {
            Some(rates) => Some(PointRun::Measured(MeasuredRun {
                samples_per_s: rates.samples_per_s,
                it_per_s: rates.it_per_s,
                steps: run.trial.settings.measure.steps,
                seconds: trial_s(run),
            })),
            None => failed("it has no measured steps".to_owned()),
        },
        RunState::Failed(_) if was_lost(run) && run.attempts < MAX_LOST_ATTEMPTS => None,
        RunState::Failed(reason) | RunState::Unreadable(reason) => failed(reason.clone()),
        RunState::Interrupted | RunState::Unfinished | RunState::NotStarted => None,
    }
}

/// Whether a failure was that of a node or of somebody who stopped the trial, and not of its settings.
fn was_lost(run: &Run) -> bool {
    let cause = run.outcome.as_ref().and_then(|outcome| outcome.cause);
    cause.is_some_and(|cause| matches!(cause, Cause::Node | Cause::Preempted | Cause::Cancelled))
}

/// Wall time of the last attempt of a trial, s: whole seconds, or the time of its steps if that is more.
fn trial_s(run: &Run) -> f64 {
    let whole = run.outcome.as_ref().map_or(0, |outcome| outcome.ended.saturating_sub(outcome.started));
    let all_ns = |steps: &Vec<StepRecord>| steps.iter().map(|step| step.wall_ns).sum::<u64>();
    let steps = run.ranks.iter().map(all_ns).max().unwrap_or(0) as f64 / 1e9;
    steps.max(whole as f64)
}
