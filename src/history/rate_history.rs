//! All series of a config or variant in a ledger, the published rates of it, and what could not be read.

use std::collections::BTreeSet;

use expctl_ledger::{FindJobError, Ledger, PublishedRow, PublishedSource};
use serde::Serialize;

use super::job_rates::JobRates;
use super::query::HistoryQuery;
use super::rated_jobs::{JobIdentity, RatedJobs};
use super::series::{RateSeries, series_of};
use crate::project::Project;

/// The rates of a config or variant over the jobs of a ledger.
#[derive(Clone, Debug, Serialize)]
pub struct RateHistory {
    /// The config or variant, as it was asked for.
    pub name: String,
    /// Its series, the one with the newest job first.
    pub series: Vec<RateSeries>,
    /// Rates that others published of it. They are in no series: their hardware and settings are known in part only.
    pub published: Vec<PublishedRate>,
    /// Jobs of the ledger that cannot be read, whatever they are of.
    pub unreadable: Vec<UnreadableJob>,
}

/// A published rate.
#[derive(Clone, Debug, Serialize)]
pub struct PublishedRate {
    /// Numbers of its jobs in the source.
    pub jobs: String,
    /// Name of its config in the source.
    pub config: String,
    /// Name of the method in the source.
    pub method: String,
    /// Where the figure comes from: always `imported`.
    pub class: &'static str,
    /// Lowest and highest published it/s.
    pub it_per_s: (f64, f64),
    /// The same in samples/s over all ranks.
    pub samples_per_s: (f64, f64),
    /// Origin.
    pub source: PublishedSource,
}

/// A job that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnreadableJob {
    /// Its number.
    pub job: u64,
    /// Why.
    pub reason: String,
}

/// Why there is no history.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// No job has the config or variant.
    #[error("no job of this ledger is of a config or variant `{name}`{}", only.as_ref().map(|only| format!(" with a variant `{only}`")).unwrap_or_default())]
    NothingFound {
        /// The name.
        name: String,
        /// The only variant that was asked for.
        only: Option<String>,
        /// Configs of the ledger.
        configs: BTreeSet<String>,
        /// Variants of the ledger.
        variants: BTreeSet<String>,
    },
    /// The job from which on jobs count is not there.
    #[error(transparent)]
    Since(#[from] FindJobError),
}

impl RateHistory {
    /// Read what a project's ledger has. Of each job `job.json` is read; of those that are asked for the times of steps and what they ran
    /// with, too ([`RatedJobs::load`]).
    ///
    /// # Errors
    /// Nothing was found, or the job to begin with is not there.
    pub fn load(project: &Project, ledger: &Ledger, query: &HistoryQuery) -> Result<Self, HistoryError> {
        let since = match query.since {
            Some(job) => {
                let record = ledger.measured(job)?.record().map_err(FindJobError::from)?;
                Some((record.submitted, record.job))
            }
            None => None,
        };
        let is_late = |job: &JobIdentity| since.is_none_or(|since| (job.submitted, job.job) >= since);
        let selected = |job: &JobIdentity| is_late(job) && !query.selected_variants(job).is_empty();
        let RatedJobs { jobs, unreadable, .. } = RatedJobs::load(project, ledger, selected);
        let mut rates: Vec<JobRates> = Vec::new();
        let (mut configs, mut variants) = (BTreeSet::new(), BTreeSet::new());
        for (job, of_job) in jobs {
            match of_job {
                Some(of_job) => {
                    let named = query.selected_variants(&job);
                    rates.extend(of_job.into_iter().filter(|rates| named.contains(rates.identity.variant.as_str())));
                }
                None => {
                    configs.insert(job.config);
                    variants.extend(job.variants);
                }
            }
        }
        let published = published_rates(ledger, query, &rates);
        if rates.is_empty() && published.is_empty() {
            let (name, only) = (query.name.clone(), query.only.clone());
            return Err(HistoryError::NothingFound { name, only, configs, variants });
        }
        Ok(Self { name: query.name.clone(), series: series_of(rates), published, unreadable })
    }

    /// The newest job of all series.
    pub fn newest(&self) -> Option<u64> {
        let newest = self.series.iter().filter_map(RateSeries::newest);
        newest.max_by_key(|job| (job.submitted, job.job)).map(|job| job.job)
    }

    /// Trials of the newest job that do not count.
    pub fn incomplete_of_newest(&self) -> usize {
        let newest = self.newest();
        let jobs = self.series.iter().filter_map(RateSeries::newest).filter(|job| Some(job.job) == newest);
        jobs.map(|job| job.not_counted.len()).sum()
    }
}

/// Published rates of the config or variant: by their own names, or because they are repeated by a variant that was found.
fn published_rates(ledger: &Ledger, query: &HistoryQuery, rates: &[JobRates]) -> Vec<PublishedRate> {
    let full_name = |rates: &JobRates| format!("{}.{}", rates.config, rates.identity.variant);
    let repeats: BTreeSet<String> = rates.iter().map(full_name).collect();
    let is_selected = |row: &&PublishedRow| {
        let named = query.only.is_none() && (row.config == query.config_name() || row.variant == query.name);
        named || row.repeated_by.iter().any(|name| repeats.contains(name))
    };
    let rate = |row: &PublishedRow| {
        let (low, high) = row.it_per_s;
        let batch = row.global_batch() as f64;
        PublishedRate {
            jobs: row.job_name(),
            config: row.config.clone(),
            method: row.method.clone(),
            class: crate::report::variant_row::RateClass::Imported.name(),
            it_per_s: (low, high),
            samples_per_s: (low * batch, high * batch),
            source: row.source.clone(),
        }
    };
    ledger.published_rows().iter().filter(is_selected).map(rate).collect()
}
