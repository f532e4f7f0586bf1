//! [`JobEntry`]: what the first page shows of a job.

use expctl_ledger::AttemptState;
use serde::{Deserialize, Serialize};

use crate::ledger::ListedJob;

/// A job on the first page.
#[derive(Debug, Serialize)]
pub struct JobEntry {
    job: u64,
    config: String,
    study: String,
    title: String,
    backend: String,
    /// Seconds since 1970.
    submitted: i64,
    state: &'static str,
    /// `2 completed, 1 running`.
    trials: String,
    /// Trials that completed, of all.
    completed: usize,
    all: usize,
    /// Names of the variants, to be searched.
    variants: Vec<String>,
    #[serde(flatten)]
    page: Option<PageSummary>,
}

/// What is known of a job from its page.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PageSummary {
    /// The page, relative to the first one.
    pub page: String,
    /// What the job answers; empty without a comparison.
    pub answer: String,
    /// The variants with their rates, in the order of the config.
    pub rates: Vec<VariantRate>,
}

/// The rate of a variant at a point of its sweep.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VariantRate {
    /// The variant, with its swept settings.
    pub label: String,
    /// Samples per second of all ranks, median over the runs.
    pub samples_per_s: f64,
    /// Iterations per second of the slowest rank, median over the runs.
    pub it_per_s: f64,
    /// 95 % interval of the mean samples per second; none without a spread.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
    /// Runs.
    pub n: usize,
}

impl JobEntry {
    /// The entry of a job, with what its page says.
    pub fn new(job: &ListedJob, page: Option<PageSummary>) -> Self {
        Self {
            job: job.job,
            config: job.config.clone(),
            study: job.study.clone(),
            title: job.title.clone(),
            backend: job.backend.clone(),
            submitted: job.submitted,
            state: state(job),
            trials: job.summary(),
            completed: job.trials_in(AttemptState::Completed),
            all: job.trials(),
            variants: job.variants.clone(),
            page,
        }
    }
}

/// The state of a whole job, in a word.
fn state(job: &ListedJob) -> &'static str {
    let any = |state: AttemptState| job.trials_in(state) > 0;
    if any(AttemptState::Running) {
        "running"
    } else if job.is_active() {
        "waiting"
    } else if job.trials_in(AttemptState::Completed) == job.trials() {
        "completed"
    } else if any(AttemptState::Failed) {
        "failed"
    } else {
        "incomplete"
    }
}
