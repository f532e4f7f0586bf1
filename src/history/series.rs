//! Jobs with equal settings on equal hardware, in order, with the levels of their rates and the changes between them.

use std::collections::BTreeMap;

use expctl_settings::with_point;
use expctl_stats::{Interval, RateLevels, Ratio, rate_levels};
use expctl_text::format;
use serde::Serialize;

use super::environment::{EnvironmentChange, Facts, environment_changes, words_of};
use super::job_rates::{JobRates, RateIdentity};
use super::percent::change_words;
use crate::ledger::shown_setting;
use crate::report::differences::{class_name, in_order, setting_name};

/// Settings up to which a series is named by all that set it apart.
const MAX_NAMED: usize = 4;

/// The rates of one variant, with the same settings on the same class of hardware, over the jobs of a ledger.
#[derive(Clone, Debug, Serialize)]
pub struct RateSeries {
    /// Its name: the variant, and what sets it apart from other series of that variant.
    pub name: String,
    /// What its jobs share.
    #[serde(flatten)]
    pub identity: RateIdentity,
    /// Its jobs, oldest first.
    pub jobs: Vec<JobRates>,
    /// Stretches without a change, of the jobs that count.
    pub levels: Vec<SeriesLevel>,
    /// Changes from one level to the next, oldest first.
    pub changes: Vec<RateChange>,
}

/// A stretch of a series without a change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SeriesLevel {
    /// Its first job.
    pub first: u64,
    /// Its last job.
    pub last: u64,
    /// Number of jobs that count.
    pub jobs: usize,
    /// Geometric mean of the samples/s of these jobs.
    pub samples_per_s: f64,
    /// 95 % interval of it, over jobs.
    pub interval: Option<Interval>,
}

/// A change of the rate.
#[derive(Clone, Debug, Serialize)]
pub struct RateChange {
    /// The last job before it.
    pub before: u64,
    /// The first job behind it.
    pub job: u64,
    /// Jobs of the level before it and of that behind it.
    pub jobs: (usize, usize),
    /// The level behind it over that before it. The p value is that of the test by which it was found.
    pub ratio: Ratio,
    /// What differs between these two jobs.
    pub environment: Vec<EnvironmentChange>,
}

impl RateSeries {
    /// The series of jobs that share an identity, without levels and changes; `jobs` are not empty, in order.
    fn of_jobs(identity: RateIdentity, jobs: Vec<JobRates>) -> Self {
        Self { name: identity.label.clone(), identity, jobs, levels: Vec::new(), changes: Vec::new() }
    }

    /// The same with its levels and changes, which take a test for each change.
    #[must_use]
    pub fn with_levels(mut self) -> Self {
        if let Some(found) = self.rate_levels(self.jobs.len()) {
            self.take(&found);
        }
        self
    }

    /// The first `n` jobs that count.
    pub fn counted(&self, n: usize) -> Vec<&JobRates> {
        self.jobs.iter().take(n).filter(|job| job.counts()).collect()
    }

    /// Levels of the first `n` jobs, as far as they count; `None` if none does.
    pub fn rate_levels(&self, n: usize) -> Option<RateLevels> {
        let rates: Vec<f64> = self.counted(n).iter().filter_map(|job| Some(job.samples_per_s_rate?.value)).collect();
        rate_levels(&rates)
    }

    fn take(&mut self, found: &RateLevels) {
        let counted = self.counted(self.jobs.len());
        let facts: Vec<&Facts> = counted.iter().map(|job| &job.environment).collect();
        let level = |level: &expctl_stats::RateLevel| {
            let jobs = counted.get(level.rates.clone())?;
            let (first, last) = (jobs.first()?.job, jobs.last()?.job);
            let (samples_per_s, interval) = (level.value, level.interval);
            Some(SeriesLevel { first, last, jobs: jobs.len(), samples_per_s, interval })
        };
        let levels: Vec<SeriesLevel> = found.levels.iter().filter_map(level).collect();
        let change = |(change, pair): (&expctl_stats::LevelChange, &[expctl_stats::RateLevel])| {
            let [before, behind] = [pair[0].rates.clone(), pair[1].rates.clone()];
            Some(RateChange {
                before: counted.get(change.at.checked_sub(1)?)?.job,
                job: counted.get(change.at)?.job,
                jobs: (before.len(), behind.len()),
                ratio: change.ratio,
                environment: environment_changes(facts.get(before)?, facts.get(behind)?),
            })
        };
        let changes: Vec<RateChange> = found.changes.iter().zip(found.levels.windows(2)).filter_map(change).collect();
        (self.levels, self.changes) = (levels, changes);
    }

    /// The newest job; a series has one.
    pub fn newest(&self) -> Option<&JobRates> {
        self.jobs.last()
    }

    /// The change at a job, if there is one.
    pub fn change_at(&self, job: u64) -> Option<&RateChange> {
        self.changes.iter().find(|change| change.job == job)
    }

    /// What became of its rate, in one sentence.
    pub fn finding(&self) -> String {
        let counted = self.levels.iter().map(|level| level.jobs).sum::<usize>();
        let Some(level) = self.levels.last() else {
            return format!("{}: no run of its jobs counts", format::code(&self.name));
        };
        let rate = format::rate(level.samples_per_s);
        let ends = level.interval.map(|ends| format!(" [{}–{}]", format::rate(ends.low), format::rate(ends.high)));
        let rate = format!("{rate} samples/s{}", ends.unwrap_or_default());
        let name = format::code(&self.name);
        let Some(change) = self.changes.last() else {
            let few = expctl_stats::MIN_RATES_FOR_CHANGE;
            return match counted {
                1 => format!("{name}: {rate} in job {}, which has nothing to be compared with", level.first),
                n if n < few => format!("{name}: {rate} over {n} jobs, too few to look for changes: {few} are needed"),
                n => format!("{name}: no change over {n} jobs, {rate}"),
            };
        };
        let commit = self.jobs.iter().find(|job| job.job == change.job).map_or("none", |job| job.commit());
        let changed = words_of(change.environment.iter().filter(|changed| changed.lasting));
        let with = match changed.is_empty() {
            true if change.environment.iter().any(EnvironmentChange::is_of_code) => {
                "nothing else that is recorded changed at the same time".to_owned()
            }
            true => "nothing that is recorded changed at the same time".to_owned(),
            false => format!("at the same time changed: {changed}"),
        };
        let earlier = match self.changes.len() - 1 {
            0 => String::new(),
            n => format!("; {} before that", format::count(n as u64, "change")),
        };
        format!(
            "{name}: since job {} (commit {commit}) {}, {rate} over {}; {with}{earlier}",
            change.job,
            change_words(&change.ratio),
            format::count(level.jobs as u64, "job"),
        )
    }
}

/// Group jobs by their identity, and find the levels of each series. The series with the newest job stands first; of one job in the order
/// of its variants.
pub fn series_of(rates: Vec<JobRates>) -> Vec<RateSeries> {
    parallel_map::map(&grouped(rates), |series| series.clone().with_levels())
}

/// `series_of` without levels and changes.
pub fn grouped(mut rates: Vec<JobRates>) -> Vec<RateSeries> {
    // The sort is stable: the variants of a job stay in order.
    rates.sort_by_key(|rates| (rates.submitted, rates.job));
    let mut groups: Vec<(RateIdentity, Vec<JobRates>)> = Vec::new();
    let mut index_by_identity: BTreeMap<RateIdentity, usize> = BTreeMap::new();
    for one in rates {
        let index = *index_by_identity.entry(one.identity.clone()).or_insert_with(|| {
            groups.push((one.identity.clone(), Vec::new()));
            groups.len() - 1
        });
        groups[index].1.push(one);
    }
    let mut all: Vec<RateSeries> =
        groups.into_iter().map(|(identity, jobs)| RateSeries::of_jobs(identity, jobs)).collect();
    let age = |series: &RateSeries| series.newest().map(|job| std::cmp::Reverse((job.submitted, job.job)));
    all.sort_by_key(age);
    name_apart(&mut all);
    all
}

/// Name series of the same variant by what differs between them.
fn name_apart(all: &mut [RateSeries]) {
    let mut of_label: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, series) in all.iter().enumerate() {
        of_label.entry(series.identity.label.clone()).or_default().push(index);
    }
    for indices in of_label.into_values().filter(|indices| indices.len() > 1) {
        let known: Vec<BTreeMap<String, String>> = indices.iter().map(|index| told_by(&all[*index])).collect();
        let keys = in_order(known.iter().flat_map(|of| of.keys().map(String::as_str)));
        let differs = |key: &&str| known.iter().any(|of| of.get(*key) != known[0].get(*key));
        let differing: Vec<&str> = keys.into_iter().filter(differs).collect();
        let words = |of: &BTreeMap<String, String>| -> Vec<String> {
            let said = differing.iter().filter_map(|key| {
                let name = class_name(key).unwrap_or_else(|| setting_name(key));
                Some(format!("{name} {}", shown_setting(of.get(*key)?)))
            });
            said.take(MAX_NAMED).collect()
        };
        let names: Vec<String> = known.iter().map(|of| words(of).join(", ")).collect();
        for (index, name) in indices.iter().zip(&names) {
            let series = &mut all[*index];
            // Where words do not tell two of them apart, the hash of their settings does.
            let alone = names.iter().filter(|other| *other == name).count() == 1;
            let hash = format!("settings {}", series.identity.settings_hash);
            let name = match (alone, name.is_empty()) {
                (true, false) => name.clone(),
                (_, true) => hash,
                (false, false) => format!("{name}, {hash}"),
            };
            series.name = with_point(&series.identity.label, &name);
        }
    }
}

/// Settings and class of a series, as those of its newest job.
fn told_by(series: &RateSeries) -> BTreeMap<String, String> {
    let mut known = series.newest().map(|job| job.settings.clone()).unwrap_or_default();
    known.extend(series.identity.class.clone());
    known
}

#[cfg(test)]
mod tests {
    use expctl_stats::{Estimate, rate_over_runs};

    use super::*;

    /// A job with one rate, of this variant with these settings and facts.
    fn job(job: u64, rate: f64, workers: &str, driver: &str) -> JobRates {
        let one = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        JobRates {
            job,
            submitted: 1000 + job as i64,
            config: "small".into(),
            samples_per_s: vec![rate],
            it_per_s: vec![rate / 10.0],
            samples_per_s_rate: rate_over_runs(&[Estimate::plain(rate)]),
            it_per_s_rate: rate_over_runs(&[Estimate::plain(rate / 10.0)]),
            shortest_s: Some(5.0),
            not_counted: Vec::new(),
            environment: Facts::from([("gpu_driver".into(), driver.into()), ("commit".into(), format!("c{job}"))]),
            identity: RateIdentity {
                variant: "lazy".into(),
                label: "lazy".into(),
                settings_hash: format!("hash{workers}"),
                class: one("cpu", "X"),
            },
            settings: one("loader.workers", workers),
        }
    }

    #[test]
    fn a_change_names_its_jobs_and_what_changed_with_them() {
        let noise = |i: u64| 1.0 + 0.002 * ((i * 7) % 5) as f64;
        let jobs = (1..=30).map(|i| match i < 21 {
            true => job(i, 100.0 * noise(i), "4", "550"),
            false => job(i, 88.0 * noise(i), "4", "560"),
        });
        let series = series_of(jobs.collect());
        let [series] = &series[..] else { panic!("{series:#?}") };
        let change = &series.changes[0];
        assert_eq!((change.before, change.job, change.jobs), (20, 21, (20, 10)));
        let said = series.finding();
        assert!(said.starts_with("`lazy`: since job 21 (commit c21) 12 % slower ["), "{said}");
        assert!(said.ends_with("over 10 jobs; at the same time changed: GPU driver 550 → 560"), "{said}");
    }

    #[test]
    fn other_settings_are_another_series_and_named() {
        let all = series_of(vec![job(1, 100.0, "4", "550"), job(3, 101.0, "4", "550"), job(2, 50.0, "1", "550")]);
        let names: Vec<&str> = all.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["lazy (workers 4)", "lazy (workers 1)"]);
        assert_eq!(all[0].jobs.iter().map(|job| job.job).collect::<Vec<_>>(), [1, 3]);
        assert!(all[0].finding().ends_with("over 2 jobs, too few to look for changes: 5 are needed"));
        assert!(all[1].finding().ends_with("in job 2, which has nothing to be compared with"));
    }

    #[test]
    fn settings_without_words_are_told_apart_by_their_hash() {
        let mut other = job(2, 100.0, "4", "550");
        other.identity.settings_hash = "other".into();
        let all = series_of(vec![job(1, 100.0, "4", "550"), other]);
        let names: Vec<&str> = all.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["lazy (settings other)", "lazy (settings hash4)"]);
    }
}
