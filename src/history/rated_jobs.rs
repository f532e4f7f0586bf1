//! [`RatedJobs`]: the jobs of a ledger with the rates of those that are asked for. The steps of a job that has ended are read twice
//! ([`JobCache`]).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::SystemTime;

use expctl_ledger::{JobDir, JobRecord, Ledger, LedgerError, MeasuredJob, Provenance, Run, RunState};
use serde::{Deserialize, Serialize};

use super::job_rates::{JobRates, RateIdentity};
use super::rate_history::UnreadableJob;
use crate::ledger::{CachedValue, FilesOf, JobCache, JobFiles, TrialFiles};
use crate::project::Project;

/// What a job is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobIdentity {
    /// Its number.
    pub job: u64,
    /// Submitted, seconds since the epoch.
    pub submitted: i64,
    /// Name of its config.
    pub config: String,
    /// The config file, as given.
    pub config_path: PathBuf,
    /// Its variants, in the order of their first trials.
    pub variants: Vec<String>,
}

/// The jobs of a ledger.
pub struct RatedJobs {
    /// Those that can be read, with their rates if they were asked for.
    pub jobs: Vec<(JobIdentity, Option<Vec<JobRates>>)>,
    /// Those that cannot be read.
    pub unreadable: Vec<UnreadableJob>,
    /// Whether all that was asked for could be read: of no job a run or its provenance is missing for an error, which may pass.
    pub is_complete: bool,
}

/// What is cached of a job.
#[derive(Debug, Serialize, Deserialize)]
struct CachedRates {
    origin: JobIdentity,
    /// `None`: nobody has asked for them.
    rates: Option<Vec<CachedRate>>,
}

/// Rates, with the names of the facts that other jobs have, too.
#[derive(Debug, Serialize, Deserialize)]
struct CachedRate {
    /// Without environment.
    rates: JobRates,
    /// Without class.
    identity: RateIdentity,
    environment: String,
    class: String,
    settings: String,
}

impl CachedValue for CachedRates {
    fn facts(&self) -> Vec<&str> {
        let all = self.rates.iter().flatten();
        all.flat_map(|cached| [&cached.environment, &cached.class, &cached.settings]).map(String::as_str).collect()
    }
}

/// A job that was read.
struct RatedJob {
    origin: JobIdentity,
    rates: Option<Vec<JobRates>>,
    /// The files that it was read from, if it is to be put into the cache.
    files: Option<JobFiles>,
    /// Whether the files that the cache has of it were unchanged before.
    unchanged_before: bool,
    is_complete: bool,
}

impl RatedJob {
    /// A job that is in the cache.
    fn known(origin: JobIdentity, rates: Option<Vec<JobRates>>) -> Self {
        Self { origin, rates, files: None, unchanged_before: true, is_complete: true }
    }
}

impl RatedJobs {
    /// Read the jobs of a project's ledger: of each what it is of, and of those that are `selected` the times of steps and what they ran
    /// with, too. What has been read of a job before, and has not changed since, comes from the cache of the user.
    pub fn load(project: &Project, ledger: &Ledger, selected: impl Fn(&JobIdentity) -> bool + Sync) -> Self {
        let mut cache: JobCache<CachedRates> = JobCache::open(project, "rates", FilesOf::Rates);
        let folders: Vec<JobDir> = ledger.measured_ids().into_iter().map(|id| project.job(id)).collect();
        let found = parallel_map::map(&folders, |folder| read_job(&cache, folder, &selected));
        let (mut jobs, mut unreadable, mut is_complete) = (Vec::new(), Vec::new(), true);
        for (folder, found) in folders.iter().zip(found) {
            match found {
                Ok(RatedJob { origin, rates, files, unchanged_before, is_complete: is_whole }) => {
                    if let Some(files) = files {
                        let value = CachedRates::new(&mut cache, &origin, rates.as_deref());
                        cache.insert(folder, files, value, unchanged_before);
                    }
                    is_complete &= is_whole;
                    jobs.push((origin, rates));
                }
                Err(e) => {
                    is_complete = false;
                    // The ledger names folders by numbers.
                    let job = folder.name().parse().unwrap_or_default();
                    unreadable.push(UnreadableJob { job, reason: e.to_string() });
                }
            }
        }
        cache.save(&folders);
        Self { jobs, unreadable, is_complete }
    }
}

impl CachedRates {
    fn new(cache: &mut JobCache<Self>, origin: &JobIdentity, rates: Option<&[JobRates]>) -> Self {
        let one = |rates: &JobRates| CachedRate {
            environment: cache.share(&rates.environment),
            class: cache.share(&rates.identity.class),
            settings: cache.share(&rates.settings),
            identity: RateIdentity { class: BTreeMap::new(), ..rates.identity.clone() },
            rates: JobRates { environment: BTreeMap::new(), ..rates.clone() },
        };
        Self { origin: origin.clone(), rates: rates.map(|all| all.iter().map(one).collect()) }
    }

    /// The rates as they were read. `None`: nobody has asked for them, or facts of them are not there.
    fn rates(&self, cache: &JobCache<Self>) -> Option<Vec<JobRates>> {
        let one = |cached: &CachedRate| {
            let [environment, class, settings] =
                [&cached.environment, &cached.class, &cached.settings].map(|name| cache.shared(name).cloned());
            let identity = RateIdentity { class: class?, ..cached.identity.clone() };
            Some(JobRates { environment: environment?, identity, settings: settings?, ..cached.rates.clone() })
        };
        self.rates.as_ref()?.iter().map(one).collect()
    }
}

/// What is asked of a job: from the cache, and from its folder where the cache does not have it.
fn read_job(
    cache: &JobCache<CachedRates>,
    folder: &JobDir,
    selected: impl Fn(&JobIdentity) -> bool,
) -> Result<RatedJob, LedgerError> {
    if let Some(known) = cache.get_of_record(folder) {
        let origin = known.origin.clone();
        if !selected(&origin) {
            return Ok(RatedJob::known(origin, None));
        }
        if let Some(rates) = cache.get(folder).and_then(|cached| cached.rates(cache)) {
            return Ok(RatedJob::known(origin, Some(rates)));
        }
    }
    let unconfirmed = cache.unconfirmed(folder);
    let begun = SystemTime::now();
    let record = folder.record()?;
    let origin = origin(&record);
    if !selected(&origin) {
        // Rates that wait for a second reading stay in the cache.
        let files = match unconfirmed.is_some_and(|known| known.rates.is_some()) {
            true => None,
            false => JobFiles::settled(folder, Vec::new(), FilesOf::Rates, begun),
        };
        let unchanged_before = unconfirmed.is_some();
        return Ok(RatedJob { origin, rates: None, files, unchanged_before, is_complete: true });
    }
    // The rates are usable without it.
    let provenance = Provenance::read(folder).map_err(|e| tracing::warn!("{e}"));
    let job = MeasuredJob::load_step_times(folder, record, |_| true);
    let rates = JobRates::of_job(&job, provenance.as_ref().ok().and_then(Option::as_ref));
    // What still runs changes at any time, and of what cannot be read it is not known which files it would be read from.
    let is_whole =
        |run: &Run| run.outcome.is_some() && !run.parts.is_empty() && !matches!(run.state, RunState::Unreadable(_));
    let has_ended = job.runs.iter().all(is_whole);
    let files = match has_ended && provenance.is_ok() {
        true => JobFiles::settled(folder, job.runs.iter().map(files_of).collect(), FilesOf::Rates, begun),
        false => None,
    };
    let is_complete = provenance.is_ok() && !job.runs.iter().any(|run| matches!(run.state, RunState::Unreadable(_)));
    Ok(RatedJob { origin, rates: Some(rates), files, unchanged_before: unconfirmed.is_some(), is_complete })
}

fn origin(record: &JobRecord) -> JobIdentity {
    let mut variants: Vec<String> = Vec::new();
    for trial in &record.trials {
        // Repeats and points of a variant follow each other or take turns; there are few variants.
        if !variants.contains(&trial.variant) {
            variants.push(trial.variant.clone());
        }
    }
    let (config, config_path) = (record.config.clone(), record.config_path.clone());
    JobIdentity { job: record.job, submitted: record.submitted, config, config_path, variants }
}

fn files_of(run: &Run) -> TrialFiles {
    let last = run.parts.last().map_or(0, |part| part.attempt);
    TrialFiles(run.trial.id.clone(), last, run.trial.settings.launch.ranks)
}
