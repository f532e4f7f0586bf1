//! [`RatedJobs`]: the jobs of a ledger with the rates of those that are asked for. The steps of a job that has ended are read once.

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

/// What a look at a job found.
struct RatedJob {
    origin: JobIdentity,
    rates: Option<Vec<JobRates>>,
    /// The files that it was read from, if it is not in the cache and can be.
    files: Option<JobFiles>,
}

impl RatedJobs {
    /// Read the jobs of a project's ledger: of each what it is of, and of those that are `wanted` the times of steps and what they ran with,
    /// too. What has been read of a job before, and has not changed since, comes from the cache of the user.
    pub fn load(project: &Project, ledger: &Ledger, wanted: impl Fn(&JobIdentity) -> bool + Sync) -> Self {
        let mut cache: JobCache<CachedRates> = JobCache::open(project, "rates", FilesOf::Rates);
        let folders: Vec<JobDir> = ledger.measured_ids().into_iter().map(|id| project.job(id)).collect();
        let found = parallel_map::map(&folders, |folder| look(&cache, folder, &wanted));
        let (mut jobs, mut unreadable) = (Vec::new(), Vec::new());
        for (folder, found) in folders.iter().zip(found) {
            match found {
                Ok(RatedJob { origin, rates, files }) => {
                    if let Some(files) = files {
                        let value = CachedRates::new(&mut cache, &origin, rates.as_deref());
                        cache.insert(folder, files, value);
                    }
                    jobs.push((origin, rates));
                }
                Err(e) => {
                    // The ledger names folders by numbers.
                    let job = folder.name().parse().unwrap_or_default();
                    unreadable.push(UnreadableJob { job, reason: e.to_string() });
                }
            }
        }
        cache.save(&folders);
        Self { jobs, unreadable }
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

/// Look at a job: into the cache, and into its folder where that does not say what is wanted.
fn look(
    cache: &JobCache<CachedRates>,
    folder: &JobDir,
    wanted: impl Fn(&JobIdentity) -> bool,
) -> Result<RatedJob, LedgerError> {
    if let Some(known) = cache.get_of_record(folder) {
        let origin = known.origin.clone();
        if !wanted(&origin) {
            return Ok(RatedJob { origin, rates: None, files: None });
        }
        if let Some(rates) = cache.get(folder).and_then(|cached| cached.rates(cache)) {
            return Ok(RatedJob { origin, rates: Some(rates), files: None });
        }
    }
    let begun = SystemTime::now();
    let record = folder.record()?;
    let origin = origin(&record);
    if !wanted(&origin) {
        let files = JobFiles::settled(folder, Vec::new(), FilesOf::Rates, begun);
        return Ok(RatedJob { origin, rates: None, files });
    }
    // The rates are usable without it.
    let provenance = Provenance::read(folder).unwrap_or_else(|e| {
        tracing::warn!("{e}");
        None
    });
    let job = MeasuredJob::load_step_times(folder, record, |_| true);
    let rates = JobRates::of_job(&job, provenance.as_ref());
    // What still runs changes at any time, and of what cannot be read it is not known which files it would be made of.
    let is_whole =
        |run: &Run| run.outcome.is_some() && !run.parts.is_empty() && !matches!(run.state, RunState::Unreadable(_));
    let has_ended = job.runs.iter().all(is_whole);
    let files = match has_ended {
        true => JobFiles::settled(folder, job.runs.iter().map(files_of).collect(), FilesOf::Rates, begun),
        false => None,
    };
    Ok(RatedJob { origin, rates: Some(rates), files })
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
