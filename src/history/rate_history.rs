//! All series of a config or variant in a ledger, the published rates of it, and what could not be read.

use std::collections::BTreeSet;

use expctl_ledger::{FindJobError, Ledger, MeasuredJob, Provenance, PublishedRow, PublishedSource};
use serde::Serialize;

use super::job_rates::JobRates;
use super::query::HistoryQuery;
use super::series::{RateSeries, series_of};

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

/// What was found of a job.
enum FoundRates {
    Wanted(Vec<JobRates>),
    Other { config: String, variants: BTreeSet<String> },
    Unreadable(UnreadableJob),
}

impl RateHistory {
    /// Read what a ledger has. Of each job `job.json` is read; of those that are asked for the times of steps and what they ran with, too.
    ///
    /// # Errors
    /// Nothing was found, or the job to begin with is not there.
    pub fn load(ledger: &Ledger, query: &HistoryQuery) -> Result<Self, HistoryError> {
        let since = match query.since {
            Some(job) => {
                let record = ledger.measured(job)?.record().map_err(FindJobError::from)?;
                Some((record.submitted, record.job))
            }
            None => None,
        };
        let ids: Vec<u64> = ledger.measured_ids().into_iter().collect();
        let found = parallel_map::map(&ids, |id| read_job(ledger, query, since, *id));
        let (mut rates, mut unreadable) = (Vec::new(), Vec::new());
        let (mut configs, mut variants) = (BTreeSet::new(), BTreeSet::new());
        for one in found {
            match one {
                FoundRates::Wanted(of_job) => rates.extend(of_job),
                FoundRates::Unreadable(job) => unreadable.push(job),
                FoundRates::Other { config, variants: others } => {
                    configs.insert(config);
                    variants.extend(others);
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

fn read_job(ledger: &Ledger, query: &HistoryQuery, since: Option<(i64, u64)>, id: u64) -> FoundRates {
    let read = || -> Result<FoundRates, FindJobError> {
        let folder = ledger.measured(id)?;
        let record = folder.record()?;
        let is_late = since.is_none_or(|since| (record.submitted, record.job) >= since);
        let wanted = if is_late { query.wanted_trials(&record) } else { BTreeSet::new() };
        if wanted.is_empty() {
            let variants = record.trials.into_iter().map(|trial| trial.variant).collect();
            return Ok(FoundRates::Other { config: record.config, variants });
        }
        // The rates are usable without it.
        let provenance = Provenance::read(&folder).unwrap_or_else(|e| {
            tracing::warn!("{e}");
            None
        });
        let job = MeasuredJob::load_step_times(&folder, record, |trial| wanted.contains(&trial.id));
        Ok(FoundRates::Wanted(JobRates::of_job(&job, provenance.as_ref())))
    };
    read().unwrap_or_else(|e| FoundRates::Unreadable(UnreadableJob { job: id, reason: e.to_string() }))
}

/// Published rates of the config or variant: by their own names, or because they are repeated by a variant that was found.
fn published_rates(ledger: &Ledger, query: &HistoryQuery, rates: &[JobRates]) -> Vec<PublishedRate> {
    let full_name = |rates: &JobRates| format!("{}.{}", rates.config, rates.identity.variant);
    let repeats: BTreeSet<String> = rates.iter().map(full_name).collect();
    let is_wanted = |row: &&PublishedRow| {
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
    ledger.published_rows().iter().filter(is_wanted).map(rate).collect()
}
