//! [`StepSeries`]: the steps of a trial over all its ranks, as curves for tools that show one value a step.

use std::collections::BTreeMap;

use expctl_ledger::{AttemptDir, Run, Stage, StepRecord};

/// A step of a trial over all its ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct StepPoint {
    /// Number of the step, from 0, warm-up included.
    pub step: u64,
    /// When it ended, seconds since 1970: the start of its attempt and the step's time on the clock of its loop, so early by the time of the
    /// set-up.
    pub at: f64,
    /// Its values by name, finite or not.
    pub values: Vec<(String, f64)>,
}

/// The steps of a trial over all its ranks.
pub struct StepSeries<'a> {
    run: &'a Run,
    /// Stages that the steps of any rank waited for, with the name of their curve.
    stages: Vec<(Stage, String)>,
    /// Start of each attempt, seconds since 1970, by number.
    starts: BTreeMap<u32, i64>,
}

impl<'a> StepSeries<'a> {
    /// The series of a run; `attempts` are those of its trial.
    pub fn new(run: &'a Run, attempts: &[AttemptDir]) -> Self {
        let waited = |stage: &Stage| run.ranks.iter().flatten().any(|step| step.exposed[*stage] > 0);
        let stages = Stage::ALL.into_iter().filter(waited).map(|stage| (stage, format!("exposed_ms/{stage}")));
        let started = |attempt: &AttemptDir| {
            let outcome = attempt.outcome().ok().flatten();
            (attempt.number(), outcome.map_or_else(|| attempt.started(), |outcome| outcome.started))
        };
        Self { run, stages: stages.collect(), starts: attempts.iter().map(started).collect() }
    }

    /// Start of the first attempt whose steps count, seconds since 1970; that of the first attempt, if no step counts.
    pub fn start(&self) -> i64 {
        let first = self.run.parts.first().and_then(|part| self.starts.get(&part.attempt));
        first.or_else(|| self.starts.values().next()).copied().unwrap_or_default()
    }

    /// The steps that all ranks have done, in order.
    pub fn points(&self) -> impl Iterator<Item = StepPoint> {
        let count = self.run.ranks.iter().map(Vec::len).min().unwrap_or(0);
        (0..count).map(move |index| {
            let ranks: Vec<&StepRecord> = self.run.ranks.iter().map(|steps| &steps[index]).collect();
            self.point(&ranks)
        })
    }

    /// A step of all ranks, of which there is one at least.
    fn point(&self, ranks: &[&StepRecord]) -> StepPoint {
        let step = ranks[0].step;
        let part = self.run.parts.iter().find(|part| part.steps.contains(&step));
        let start = part.and_then(|part| self.starts.get(&part.attempt)).copied().unwrap_or_else(|| self.start());
        let end_ns = ranks.iter().map(|rank| rank.start_ns.saturating_add(rank.wall_ns)).max().unwrap_or(0);
        let wall_ns = ranks.iter().map(|rank| rank.wall_ns).max().unwrap_or(0);
        let mean =
            |of: &dyn Fn(&StepRecord) -> f64| ranks.iter().map(|rank| of(rank)).sum::<f64>() / ranks.len() as f64;
        let mut values = Vec::new();
        let losses: Vec<f64> = ranks.iter().filter_map(|rank| rank.loss).collect();
        if !losses.is_empty() {
            values.push(("loss".to_owned(), losses.iter().sum::<f64>() / losses.len() as f64));
        }
        if ranks.iter().all(|rank| rank.wall_ns > 0) {
            let samples: f64 = ranks.iter().map(|rank| rank.samples as f64 * 1e9 / rank.wall_ns as f64).sum();
            values.push(("rate/it_per_s".to_owned(), 1e9 / wall_ns as f64));
            values.push(("rate/samples_per_s".to_owned(), samples));
        }
        values.push(("time/step_ms".to_owned(), wall_ns as f64 / 1e6));
        for (stage, name) in &self.stages {
            values.push((name.clone(), mean(&|rank| rank.exposed[*stage] as f64 / 1e6)));
        }
        let unattributed = |rank: &StepRecord| (rank.wall_ns as f64 - rank.exposed.total() as f64) / 1e6;
        values.push(("exposed_ms/unattributed".to_owned(), mean(&unattributed)));
        StepPoint { step, at: start as f64 + end_ns as f64 / 1e9, values }
    }
}
