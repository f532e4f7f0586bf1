//! What one job says of a variant at one point: the rates of its runs, and with what they ran.

use std::collections::BTreeMap;

use expctl_ledger::{MeasuredJob, Provenance, Run};
use expctl_stats::{Estimate, MIN_SECONDS_FOR_VERDICT, RateOverRuns, rate_over_runs};
use serde::{Deserialize, Serialize};

use super::environment::{Facts, environment, identity};
use crate::ledger::run_settings;
use crate::report::differences::class_settings;
use crate::report::rates::{measured_s, run_rates};
use crate::report::side_by_side::{Pack, packs};

/// The rates of a variant in one job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobRates {
    /// Number of the job.
    pub job: u64,
    /// Submitted, seconds since the epoch.
    pub submitted: i64,
    /// Name of its config.
    pub config: String,
    /// Samples per second over all ranks, one value for each run that counts.
    pub samples_per_s: Vec<f64>,
    /// Iterations per second, in the same order.
    pub it_per_s: Vec<f64>,
    /// Geometric mean of the samples/s with its interval over the runs, or within a single run; `None` if no run counts.
    pub samples_per_s_rate: Option<RateOverRuns>,
    /// The same of the it/s.
    pub it_per_s_rate: Option<RateOverRuns>,
    /// Measured time of the shortest run, s; `None` if no run counts.
    pub shortest_s: Option<f64>,
    /// Trials that do not count, each with the reason.
    pub not_counted: Vec<String>,
    /// What it ran with and on, by key.
    pub environment: Facts,
    /// Settings and hardware by which jobs are of one series or not.
    #[serde(skip)]
    pub identity: RateIdentity,
    /// The settings of its identity in words, by key.
    #[serde(skip)]
    pub settings: BTreeMap<String, String>,
}

/// What must be equal in the jobs of a series.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RateIdentity {
    /// The variant.
    pub variant: String,
    /// Variant with its swept settings.
    pub label: String,
    /// Hash of all settings that change what runs.
    pub settings_hash: String,
    /// Class of hardware and data.
    pub class: BTreeMap<String, String>,
}

impl JobRates {
    /// The rates of each variant and point among the runs of a job.
    pub fn of_job(job: &MeasuredJob, provenance: Option<&Provenance>) -> Vec<Self> {
        let of_label = |(label, runs): (String, Vec<&Run>)| Self::from_runs(job, label, &runs, provenance);
        job.by_label().into_iter().map(of_label).collect()
    }

    fn from_runs(job: &MeasuredJob, label: String, runs: &[&Run], provenance: Option<&Provenance>) -> Self {
        let packs = packs(runs);
        let rates: Vec<_> = packs.iter().filter_map(Pack::rates).collect();
        let counted: Vec<&Run> = runs.iter().copied().filter(|run| run_rates(run).is_some()).collect();
        // Only of a single run is the interval that of its steps, which takes a bootstrap.
        let (it_per_s, samples_per_s): (Vec<Estimate>, Vec<Estimate>) = match &packs[..] {
            [pack] => pack.estimates().into_iter().unzip(),
            _ => {
                let plain = |(it_per_s, samples_per_s)| (Estimate::plain(it_per_s), Estimate::plain(samples_per_s));
                rates.iter().map(|rates| plain((rates.it_per_s, rates.samples_per_s))).unzip()
            }
        };
        let all = run_settings(job, runs);
        let trial = runs.first().map(|run| &run.trial);
        let settings_hash = trial.map(|trial| trial.settings_hash().to_owned()).unwrap_or_default();
        let variant = trial.map(|trial| trial.variant.clone()).unwrap_or_default();
        let class = class_settings(&all).into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let not_counted = runs.iter().filter(|run| run_rates(run).is_none()).map(|run| reason(run)).collect();
        Self {
            job: job.record.job,
            submitted: job.record.submitted,
            config: job.record.config.clone(),
            samples_per_s: rates.iter().map(|rates| rates.samples_per_s).collect(),
            it_per_s: rates.iter().map(|rates| rates.it_per_s).collect(),
            samples_per_s_rate: rate_over_runs(&samples_per_s),
            it_per_s_rate: rate_over_runs(&it_per_s),
            shortest_s: counted.iter().filter_map(|run| measured_s(run)).reduce(f64::min),
            not_counted,
            environment: environment(runs, &all, provenance),
            identity: RateIdentity { variant, label, settings_hash, class },
            settings: identity(&all),
        }
    }

    /// Measured time of its shortest run, s, if that is too short for the rate to stand beside others.
    pub fn too_short(&self) -> Option<f64> {
        self.shortest_s.filter(|seconds| *seconds < MIN_SECONDS_FOR_VERDICT)
    }

    /// Whether it counts where the levels of a series are looked for.
    pub fn counts(&self) -> bool {
        self.samples_per_s_rate.is_some() && self.too_short().is_none()
    }

    /// Its commit; `none` outside a repository.
    pub fn commit(&self) -> &str {
        self.environment.get("commit").map_or("none", String::as_str)
    }
}

/// `trial lazy-r1-0a1b2c3d: failed: rank 0 was killed`.
fn reason(run: &Run) -> String {
    let why = if run.completed() { "it has no measured steps".to_owned() } else { run.state.words() };
    format!("trial {}: {why}", run.trial.name())
}
