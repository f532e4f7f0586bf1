//! A history as text: markdown, a table for a terminal, CSV, JSON. Findings come first.

use expctl_stats::RateOverRuns;
use expctl_text::Table;
use expctl_text::format::{self, MISSING};
use serde_json::json;

use super::environment::{Facts, environment_changes, words_of};
use super::gate::NewestCheck;
use super::job_rates::JobRates;
use super::percent::change_words;
use super::rate_history::RateHistory;
use super::series::{RateChange, RateSeries};
use crate::report::compare::Format;
use crate::report::line::too_short_words;
use crate::report::recorded_facts::fact_name;

/// Newest jobs of a series that a table has, where nothing else is asked for.
pub const DEFAULT_ROWS: usize = 20;

/// Trials and jobs that do not count, named one by one at most.
const MAX_NAMED: usize = 12;

/// Facts that stand above the table of a series, as its newest job has them.
const SHOWN_FACTS: [&str; 13] = [
    "gpu",
    "gpu_driver",
    "cuda_runtime",
    "nccl",
    "cpu",
    "cpus_per_rank",
    "memory",
    "node",
    "kernel",
    "libtorch",
    "program",
    "worker",
    "expctl",
];

/// Facts that have a column in CSV.
const CSV_FACTS: [&str; 11] =
    ["commit", "changes", "node", "cpu", "gpu", "gpu_driver", "cuda_runtime", "nccl", "kernel", "libtorch", "worker"];

impl RateHistory {
    /// All of it as text, without a final line feed. A table has the newest `rows` jobs of a series; 0 shows all. `checks` are those of a
    /// gate.
    ///
    /// # Errors
    /// Values that have no JSON.
    pub fn render(&self, form: Format, rows: usize, checks: &[NewestCheck]) -> serde_json::Result<String> {
        match form {
            Format::Markdown => Ok(self.text(Table::markdown, rows)),
            Format::Table => Ok(self.text(Table::terminal, rows)),
            Format::Csv => Ok(self.csv()),
            Format::Json => {
                let mut all = json!({ "schema": 1 });
                if let (Some(all), serde_json::Value::Object(own)) = (all.as_object_mut(), serde_json::to_value(self)?)
                {
                    all.extend(own);
                    all.insert("gate".to_owned(), serde_json::to_value(checks)?);
                }
                serde_json::to_string_pretty(&all)
            }
        }
    }

    fn text(&self, render: impl Fn(&Table) -> String, rows: usize) -> String {
        let (several, single): (Vec<&RateSeries>, Vec<&RateSeries>) =
            self.series.iter().partition(|series| series.jobs.len() > 1);
        let mut parts = vec![self.findings(&several)];
        for series in &several {
            let title = match several.len() + single.len() {
                1 => None,
                _ => Some(format!("Series: {}", format::code(&series.name))),
            };
            parts.extend(title);
            parts.extend(newest_facts(series));
            if !series.changes.is_empty() {
                parts.push(render(&changes_table(series)));
            }
            let (table, left_out) = jobs_table(series, rows);
            parts.push(render(&table));
            if left_out > 0 {
                let n = format::count(left_out as u64, "older job");
                parts.push(format!("{n} of this series with --last 0."));
            }
        }
        if !single.is_empty() {
            parts.push("Series of one job, which have nothing to be compared with:".to_owned());
            parts.push(render(&single_table(&single)));
        }
        if !self.published.is_empty() {
            parts.push("Published by others (imported), and in no series:".to_owned());
            parts.push(render(&self.published_table()));
        }
        parts.extend(self.remarks());
        parts.join("\n\n")
    }

    /// A sentence for each series of several jobs.
    fn findings(&self, several: &[&RateSeries]) -> String {
        let said: Vec<String> = several.iter().map(|series| format!("**{}**", series.finding())).collect();
        match (&said[..], &self.series[..]) {
            ([], []) => format!("**No job of this ledger measured {}**", format::code(&self.name)),
            ([], _) => {
                "**No two jobs have the same settings on the same hardware: there is nothing to compare**".to_owned()
            }
            ([one], _) => one.clone(),
            (all, _) => all.iter().map(|said| format!("- {said}")).collect::<Vec<_>>().join("\n"),
        }
    }

    fn published_table(&self) -> Table {
        let header = ["Job", "Published", "Config", "Method", "samples/s", "it/s", "Figures", "Source"];
        let mut table = Table::new(header).right([4, 5]);
        for rate in &self.published {
            table.row([
                rate.jobs.clone(),
                rate.source.date.clone(),
                rate.config.clone(),
                rate.method.clone(),
                format::range(rate.samples_per_s.0, rate.samples_per_s.1),
                format::range(rate.it_per_s.0, rate.it_per_s.1),
                rate.class.to_owned(),
                rate.source.title.clone(),
            ]);
        }
        table
    }

    /// What does not count, and how the figures are to be read.
    fn remarks(&self) -> Vec<String> {
        let mut left_out: Vec<String> = Vec::new();
        for (series, job) in self.series.iter().flat_map(|series| series.jobs.iter().map(move |job| (series, job))) {
            left_out.extend(job.not_counted.iter().map(|why| format!("job {}, {why}", job.job)));
            if let Some(seconds) = job.too_short() {
                let name = format::code(&series.name);
                left_out.push(format!("job {}, {name}: {}: in no level", job.job, too_short_words(seconds)));
            }
        }
        left_out.extend(self.unreadable.iter().map(|job| format!("job {} cannot be read: {}", job.job, job.reason)));
        let mut said = Vec::new();
        if !left_out.is_empty() {
            let more = left_out.len().saturating_sub(MAX_NAMED);
            left_out.truncate(MAX_NAMED);
            if more > 0 {
                left_out.push(format!("and {more} more, in --json"));
            }
            let lines: Vec<String> = left_out.iter().map(|line| format!("- {line}")).collect();
            said.push(format!("Not counted:\n\n{}", lines.join("\n")));
        }
        if self.series.iter().any(|series| series.jobs.iter().any(JobRates::counts)) {
            said.push(
                "Measured; rates are geometric means over the runs of a job (tables of notes have medians), their intervals and all of \
                 changes are derived."
                    .to_owned(),
            );
        }
        said
    }

    /// One line per job, raw values.
    fn csv(&self) -> String {
        let header = [
            "series",
            "class",
            "config",
            "job",
            "submitted",
            "n",
            "samples_per_s",
            "samples_per_s_ci_low",
            "samples_per_s_ci_high",
            "ci_scope",
            "it_per_s",
            "it_per_s_ci_low",
            "it_per_s_ci_high",
            "level_samples_per_s",
            "change_ratio",
            "change_low",
            "change_high",
            "change_p",
            "counts",
        ];
        let mut table = Table::new(header.into_iter().chain(CSV_FACTS));
        let number = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
        for (series, job) in self.series.iter().flat_map(|series| series.jobs.iter().map(move |job| (series, job))) {
            let [samples, its] = [job.samples_per_s_rate, job.it_per_s_rate];
            let interval = |rate: Option<RateOverRuns>| rate.and_then(|rate| rate.interval);
            let change = series.change_at(job.job).map(|change| change.ratio);
            let ends = change.and_then(|ratio| ratio.interval);
            let cells = [
                series.name.clone(),
                crate::report::variant_row::RateClass::Measured.name().to_owned(),
                job.config.clone(),
                job.job.to_string(),
                job.submitted.to_string(),
                job.samples_per_s.len().to_string(),
                number(samples.map(|rate| rate.value)),
                number(interval(samples).map(|ends| ends.low)),
                number(interval(samples).map(|ends| ends.high)),
                samples
                    .filter(|rate| rate.interval.is_some())
                    .map(|rate| rate.scope.words())
                    .unwrap_or_default()
                    .to_owned(),
                number(its.map(|rate| rate.value)),
                number(interval(its).map(|ends| ends.low)),
                number(interval(its).map(|ends| ends.high)),
                number(level_at(series, job)),
                number(change.map(|ratio| ratio.value)),
                number(ends.map(|ends| ends.low)),
                number(ends.map(|ends| ends.high)),
                number(change.and_then(|ratio| ratio.p)),
                job.counts().to_string(),
            ];
            let facts = CSV_FACTS.iter().map(|key| job.environment.get(*key).cloned().unwrap_or_default());
            table.row(cells.into_iter().chain(facts));
        }
        for rate in &self.published {
            let (low, high) = rate.samples_per_s;
            let mean = (low == high).then_some(low);
            let mut cells = vec![rate.method.clone(), rate.class.to_owned(), rate.config.clone(), rate.jobs.clone()];
            cells.extend([
                rate.source.date.clone(),
                String::new(),
                number(mean),
                number(Some(low)),
                number(Some(high)),
            ]);
            cells.extend([String::new(), number(mean.map(|_| rate.it_per_s.0))]);
            cells.extend([number(Some(rate.it_per_s.0)), number(Some(rate.it_per_s.1))]);
            cells.resize(header.len() - 1, String::new());
            cells.push("false".to_owned());
            table.row(cells);
        }
        table.csv()
    }
}

/// Samples/s of the level that a job is at; `None` if it does not count.
fn level_at(series: &RateSeries, job: &JobRates) -> Option<f64> {
    let mut counted = series.jobs.iter().filter(|job| job.counts());
    let place = counted.position(|other| other.job == job.job)?;
    let mut end = 0;
    let level = series.levels.iter().find(|level| {
        end += level.jobs;
        place < end
    })?;
    Some(level.samples_per_s)
}

/// What the newest job of a series ran with, in a line.
fn newest_facts(series: &RateSeries) -> Option<String> {
    let newest = series.newest()?;
    let fact = |key: &&str| Some(format!("{} {}", fact_name(key), newest.environment.get(*key)?));
    let facts: Vec<String> = SHOWN_FACTS.iter().filter_map(fact).collect();
    (!facts.is_empty()).then(|| format!("Job {}, the newest: {}.", newest.job, facts.join(" · ")))
}

fn changes_table(series: &RateSeries) -> Table {
    let header = [
        "Since job",
        "Change (samples/s)",
        "p",
        "Jobs before",
        "Jobs since",
        "Commit",
        "Changed for good",
        "Differs, but not for good",
    ];
    let mut table = Table::new(header).right([2, 3, 4]);
    for change in series.changes.iter().rev() {
        let of_code = |key: &str| change.environment.iter().find(|changed| changed.key == key);
        let commit = of_code("commit").map_or_else(
            || {
                series
                    .jobs
                    .iter()
                    .find(|job| job.job == change.job)
                    .map_or_else(format::missing, |job| job.commit().to_owned())
            },
            |changed| format!("{} → {}", changed.before, changed.after),
        );
        let listed =
            |lasting: bool| or_missing(words_of(change.environment.iter().filter(|one| one.lasting == lasting)));
        table.row([
            change.job.to_string(),
            change_words(&change.ratio),
            change.ratio.p.map_or_else(format::missing, format::figure),
            change.jobs.0.to_string(),
            change.jobs.1.to_string(),
            commit,
            listed(true),
            listed(false),
        ]);
    }
    table
}

/// The newest `rows` jobs of a series, the newest first, and how many are left out; 0 shows all. Jobs at which the rate changed are bold.
fn jobs_table(series: &RateSeries, rows: usize) -> (Table, usize) {
    let several = series.jobs.iter().any(|job| job.config != series.jobs[0].config);
    let mut header =
        vec!["Job", "Submitted", "samples/s", "95 %", "it/s", "n", "Commit", "Changed since the job before"];
    if several {
        header.insert(1, "Config");
    }
    let numbers: Vec<usize> = (0..header.len()).filter(|i| ["samples/s", "it/s", "n"].contains(&header[*i])).collect();
    let mut table = Table::new(header).right(numbers);
    let shown = if rows == 0 { series.jobs.len() } else { rows.min(series.jobs.len()) };
    for (place, job) in series.jobs.iter().enumerate().rev().take(shown) {
        let before: Option<&Facts> = place.checked_sub(1).map(|before| &series.jobs[before].environment);
        let changes = before.map(|before| environment_changes(&[before], &[&job.environment])).unwrap_or_default();
        let change = series.change_at(job.job).map(|change: &RateChange| change_words(&change.ratio));
        let words = words_of(&changes);
        let said: Vec<String> = change.into_iter().chain((!words.is_empty()).then_some(words)).collect();
        let mut cells = rate_cells(job);
        if several {
            cells.insert(1, job.config.clone());
        }
        cells.push(or_missing(said.join("; ")));
        match series.change_at(job.job) {
            Some(_) => table.bold_row(cells),
            None => table.row(cells),
        }
    }
    (table, series.jobs.len() - shown)
}

fn single_table(single: &[&RateSeries]) -> Table {
    let mut table =
        Table::new(["Series", "Job", "Submitted", "samples/s", "95 %", "it/s", "n", "Commit"]).right([3, 5, 6]);
    for (series, job) in single.iter().filter_map(|series| Some((series, series.newest()?))) {
        table.row(std::iter::once(format::code(&series.name)).chain(rate_cells(job)));
    }
    table
}

/// Job, moment, rates and commit.
fn rate_cells(job: &JobRates) -> Vec<String> {
    let rate = |rate: Option<RateOverRuns>| rate.map_or_else(format::missing, |rate| format::rate(rate.value));
    vec![
        job.job.to_string(),
        format::moment(job.submitted),
        rate(job.samples_per_s_rate),
        job.samples_per_s_rate.and_then(|rate| format::rate_interval(&rate)).unwrap_or_else(format::missing),
        rate(job.it_per_s_rate),
        job.samples_per_s.len().to_string(),
        job.commit().to_owned(),
    ]
}

fn or_missing(text: String) -> String {
    if text.is_empty() { MISSING.to_owned() } else { text }
}
