//! [`JobMetrics`]: a look at a job as metrics for Prometheus.

use std::collections::BTreeMap;
use std::path::Path;

use expctl_ledger::{AttemptDir, AttemptState, LedgerError, Run, RunRecords, write_atomic};
use expctl_settings::Trial;

use super::View;
use crate::export::TrialFacts;
use crate::export::openmetrics::{Exposition, LAST_STEPS, Labels, MetricFamily, label_word, labels_of, with};
use crate::launch::status::{Follow, JobStatus};

/// All states, so that those without a trial are 0 and not absent.
const STATES: [AttemptState; 8] = [
    AttemptState::Completed,
    AttemptState::Failed,
    AttemptState::Interrupted,
    AttemptState::Running,
    AttemptState::Waiting,
    AttemptState::Lost,
    AttemptState::NotStarted,
    AttemptState::Unknown,
];

/// Metrics of a job that is looked at again and again. Invariant: the steps of a trial that has completed are read once.
#[derive(Debug, Default)]
pub struct JobMetrics {
    /// Completed trials by index in the job and number of the attempt, with the steps that all their ranks have done.
    completed: BTreeMap<(usize, u32), (TrialFacts, u64)>,
}

impl JobMetrics {
    /// Write the metrics of a look to a file, which has the old ones or the new ones at any time.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&mut self, path: &Path, job: &Follow, view: &View) -> Result<(), LedgerError> {
        write_atomic(path, self.text(job, view).as_bytes())
    }

    /// The metrics of a look.
    pub fn text(&mut self, job: &Follow, view: &View) -> String {
        let status = job.status();
        let record = &status.record;
        let mut all = Exposition::default();
        let labels: Labels = vec![("job_id", record.job.to_string()), ("config", record.config.clone())];
        let mut description = labels.clone();
        description.extend([
            ("study", record.study.clone()),
            ("backend", record.backend.clone()),
            ("commit", record.commit.clone().unwrap_or_default()),
            ("version", record.expctl_version.clone()),
        ]);
        all.add(MetricFamily::JobInfo, description, 1.0);
        all.add(MetricFamily::JobSubmitted, labels.clone(), view.submitted as f64);
        all.add(MetricFamily::JobElapsed, labels.clone(), view.elapsed_s as f64);
        all.add(MetricFamily::JobEnded, labels.clone(), f64::from(u8::from(view.ended)));
        if let Some(left) = view.estimated_s_left {
            all.add(MetricFamily::JobLeft, labels.clone(), left);
        }
        for state in STATES {
            let count = view.trials.iter().find(|count| count.state == state).map_or(0, |count| count.trials);
            all.add(MetricFamily::JobTrials, with(&labels, "state", &label_word(state.name())), count as f64);
        }
        for (index, trial) in status.trials.iter().enumerate() {
            let labels = labels_of_trial(status, &trial.trial);
            let measure = &trial.trial.settings.measure;
            all.add(MetricFamily::StepsTotal, labels.clone(), measure.warmup.saturating_add(measure.steps) as f64);
            if trial.state == AttemptState::Completed {
                let attempt = trial.attempt.as_ref().map_or(0, AttemptDir::number);
                let (facts, steps) = self.completed(status, index, attempt, &trial.trial);
                all.add(MetricFamily::StepsDone, labels, *steps as f64);
                all.add_trial(facts);
            } else {
                all.add(MetricFamily::TrialState, with(&labels, "state", &label_word(trial.state.name())), 1.0);
            }
        }
        for running in &view.running {
            let (Some(pace), Some(trial)) = (&running.pace, status.trials.get(running.task)) else { continue };
            let labels = labels_of_trial(status, &trial.trial);
            all.add(MetricFamily::StepsDone, labels.clone(), pace.step as f64);
            all.add_rates(&labels, LAST_STEPS, pace.it_per_s, pace.samples_per_s);
            for (stage, share) in &pace.shares {
                all.add_share(&labels, LAST_STEPS, stage.name(), *share);
            }
            if !pace.shares.is_empty() {
                let shared: f64 = pace.shares.iter().map(|(_, share)| share).sum();
                all.add_share(&labels, LAST_STEPS, "unattributed", 1.0 - shared);
            }
            if let Some(age) = pace.last_step_s {
                all.add(MetricFamily::LastStepAge, labels, age);
            }
        }
        all.text()
    }

    fn completed(&mut self, job: &JobStatus, index: usize, attempt: u32, trial: &Trial) -> &(TrialFacts, u64) {
        self.completed.entry((index, attempt)).or_insert_with(|| {
            let run = Run::load(&job.folder, job.record.job, trial, RunRecords::All);
            let steps = run.ranks.iter().map(Vec::len).min().unwrap_or(0);
            (TrialFacts::from_run(&job.record, &run), steps as u64)
        })
    }
}

fn labels_of_trial(job: &JobStatus, trial: &Trial) -> Labels {
    let point = trial.point_words();
    labels_of(&job.record.job.to_string(), &job.record.config, &trial.id, (&trial.variant, &point), "measured")
}
