//! [`TrialFacts`]: what exports say of a trial besides its steps: settings, rates with intervals, shares of stages, outcome.

use std::collections::BTreeMap;

use expctl_ledger::{Cause, JobRecord, PublishedRow, Run, RunState};
use expctl_settings::{to_json, with_point};
use serde_json::Value;

use crate::ledger::flatten_all;
use crate::report::breakdown::Breakdown;
use crate::report::rates::{completed_steps, measured_s, run_estimates, run_rates};

/// A trial of a job, or a published row, without its steps.
#[derive(Clone, Debug)]
pub struct TrialFacts {
    /// Number of its job; several of a published row (`428/430`).
    pub job: String,
    /// Name of its config.
    pub config: String,
    /// Study of the config.
    pub study: String,
    /// Id of the trial; for a published row its config and variant, which are unique in its job.
    pub trial: String,
    /// Name of the variant; empty for the only row of a published job.
    pub variant: String,
    /// Its name in tables.
    pub method: String,
    /// Number of the repeat, from 1; `None` for a published row.
    pub repeat: Option<u32>,
    /// Swept settings, by dotted key.
    pub point: BTreeMap<String, Value>,
    /// The same in words, `loader.workers=2, train.mode="data"`; empty without a sweep.
    pub point_words: String,
    /// All settings that have an effect on it, by dotted key: numbers and truth values as such, all others as text.
    pub settings: BTreeMap<String, Value>,
    /// How it ended.
    pub outcome: TrialOutcome,
    /// Why it did not complete, where that is known.
    pub cause: Option<Cause>,
    /// Number of attempts.
    pub attempts: usize,
    /// Start of the last attempt, seconds since 1970; `None` without an outcome.
    pub started: Option<i64>,
    /// End of the last attempt, seconds since 1970; `None` without an outcome.
    pub ended: Option<i64>,
    /// Nodes of the last attempt.
    pub nodes: Vec<String>,
    /// Iterations per second of the slowest rank.
    pub it_per_s: RateFigure,
    /// Samples per second of all ranks.
    pub samples_per_s: RateFigure,
    /// Measured time, s; `None` without rates.
    pub measured_s: Option<f64>,
    /// The mean measured step by stage; `None` for a trial that did not complete.
    pub breakdown: Option<Breakdown>,
    /// Commit of the code; of a published row its source.
    pub origin: String,
    /// Known defects of a published row.
    pub notes: Vec<String>,
}

/// How a trial ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrialOutcome {
    /// It ran here; its state.
    Run(RunState),
    /// Others published it; it never ran here.
    Imported,
}

impl TrialOutcome {
    /// Whether its figures count.
    pub fn completed(&self) -> bool {
        matches!(self, Self::Run(RunState::Completed) | Self::Imported)
    }

    /// The word in tables.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Run(state) => state.name(),
            Self::Imported => "imported",
        }
    }

    /// The reason of a failure; empty without one.
    pub fn reason(&self) -> &str {
        match self {
            Self::Run(RunState::Failed(reason) | RunState::Unreadable(reason)) => reason,
            _ => "",
        }
    }

    /// The class of its figures.
    pub const fn class(&self) -> &'static str {
        match self {
            Self::Run(_) => "measured",
            Self::Imported => "imported",
        }
    }
}

/// A rate with its interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RateFigure {
    /// The rate; `None` for a trial without rates, and where a source gives a range alone.
    pub value: Option<f64>,
    /// The 95 % interval within the run, or the published range.
    pub ends: Option<(f64, f64)>,
}

impl RateFigure {
    /// A published rate or range, times `factor`.
    fn published((low, high): (f64, f64), factor: f64) -> Self {
        let (low, high) = (low * factor, high * factor);
        if low == high { Self { value: Some(low), ends: None } } else { Self { value: None, ends: Some((low, high)) } }
    }
}

impl TrialFacts {
    /// The facts of a run of a job.
    pub fn from_run(record: &JobRecord, run: &Run) -> Self {
        let trial = &run.trial;
        let (mut it_per_s, mut samples_per_s) = (RateFigure::default(), RateFigure::default());
        if let Some(rates) = run_rates(run) {
            (it_per_s.value, samples_per_s.value) = (Some(rates.it_per_s), Some(rates.samples_per_s));
        }
        if let Some((iterations, samples)) = run_estimates(run) {
            it_per_s.ends = iterations.interval.map(|interval| (interval.low, interval.high));
            samples_per_s.ends = samples.interval.map(|interval| (interval.low, interval.high));
        }
        let nodes: Option<Vec<String>> =
            run.parts.last().map(|part| part.hosts().into_iter().map(str::to_owned).collect());
        Self {
            job: record.job.to_string(),
            config: record.config.clone(),
            study: record.study.clone(),
            trial: trial.id.clone(),
            variant: trial.variant.clone(),
            method: trial.method.clone(),
            repeat: Some(trial.repeat),
            point: trial.point.clone(),
            point_words: trial.point_words(),
            settings: typed_settings(run),
            outcome: TrialOutcome::Run(run.state.clone()),
            cause: run.outcome.as_ref().and_then(|outcome| outcome.cause),
            attempts: run.attempts,
            started: run.outcome.as_ref().map(|outcome| outcome.started),
            ended: run.outcome.as_ref().map(|outcome| outcome.ended),
            nodes: nodes.unwrap_or_default(),
            it_per_s,
            samples_per_s,
            measured_s: measured_s(run),
            breakdown: Breakdown::from_steps(completed_steps(&[run])),
            origin: record.commit.clone().unwrap_or_default(),
            notes: Vec::new(),
        }
    }

    /// The facts of a published row.
    pub fn from_published(row: &PublishedRow) -> Self {
        let reading = row.reading.map(|reading| reading.name());
        let words = [Some(row.config.as_str()), Some(row.variant.as_str()).filter(|name| !name.is_empty()), reading];
        let typed = |text: &String| match serde_json::from_str(text) {
            Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
            _ => Value::String(text.clone()),
        };
        Self {
            job: row.job_name(),
            config: row.config.clone(),
            study: row.study.clone(),
            trial: words.into_iter().flatten().collect::<Vec<_>>().join("."),
            variant: row.variant.clone(),
            method: row.reading.map_or_else(|| row.method.clone(), |r| format!("{}, {}", row.method, r.words())),
            repeat: None,
            point: BTreeMap::new(),
            point_words: String::new(),
            settings: row.settings.iter().map(|(key, text)| (key.clone(), typed(text))).collect(),
            outcome: TrialOutcome::Imported,
            cause: None,
            attempts: 0,
            started: None,
            ended: None,
            nodes: Vec::new(),
            it_per_s: RateFigure::published(row.it_per_s, 1.0),
            samples_per_s: RateFigure::published(row.it_per_s, row.global_batch() as f64),
            measured_s: None,
            breakdown: None,
            origin: format!("{}, {}, {}", row.source.title, row.source.from, row.source.date),
            notes: row.notes.clone(),
        }
    }

    /// Its name in messages: the id, and the swept settings if there are any.
    pub fn name(&self) -> String {
        with_point(&self.trial, &self.point_words)
    }

    /// Seconds from the start of the last attempt to its end.
    pub fn took_s(&self) -> Option<i64> {
        self.started.zip(self.ended).map(|(started, ended)| (ended - started).max(0))
    }

    /// Figures of the whole trial by name, those that are known: rates with the ends of their intervals, and the mean measured step in
    /// milliseconds.
    pub fn figures(&self) -> Vec<(String, f64)> {
        let mut figures = Vec::new();
        for (name, rate) in [("it_per_s", self.it_per_s), ("samples_per_s", self.samples_per_s)] {
            figures.extend(rate.value.map(|value| (format!("trial/{name}"), value)));
            if let Some((low, high)) = rate.ends {
                figures.extend([(format!("trial/{name}_low"), low), (format!("trial/{name}_high"), high)]);
            }
        }
        figures.extend(self.measured_s.map(|seconds| ("trial/measured_s".to_owned(), seconds)));
        if let Some(step) = &self.breakdown {
            figures.push(("trial/step_ms".to_owned(), step.wall / 1e6));
            for (stage, ns) in &step.exposed {
                figures.extend(ns.map(|ns| (format!("trial/exposed_ms/{stage}"), ns / 1e6)));
            }
            figures.push(("trial/exposed_ms/unattributed".to_owned(), step.unattributed / 1e6));
        }
        figures
    }

    /// What other tools keep as tags: by name, those that are known.
    pub fn tags(&self) -> Vec<(&'static str, String)> {
        let repeat = self.repeat.map(|repeat| repeat.to_string()).unwrap_or_default();
        let imported = self.outcome == TrialOutcome::Imported;
        let (commit, source) = if imported { ("", self.origin.as_str()) } else { (self.origin.as_str(), "") };
        let tags = [
            ("job", self.job.clone()),
            ("config", self.config.clone()),
            ("study", self.study.clone()),
            ("trial", self.trial.clone()),
            ("variant", self.variant.clone()),
            ("method", self.method.clone()),
            ("repeat", repeat),
            ("point", self.point_words.clone()),
            ("class", self.outcome.class().to_owned()),
            ("state", self.outcome.name().to_owned()),
            ("reason", self.outcome.reason().to_owned()),
            ("cause", self.cause.map(|cause| cause.name().to_owned()).unwrap_or_default()),
            ("host", self.nodes.join(", ")),
            ("commit", commit.to_owned()),
            ("source", source.to_owned()),
            ("notes", self.notes.join("; ")),
        ];
        tags.into_iter().filter(|(_, text)| !text.is_empty()).collect()
    }
}

/// The settings that have an effect on a run, by dotted key.
fn typed_settings(run: &Run) -> BTreeMap<String, Value> {
    let all = to_json(&run.trial.settings);
    let typed = |(key, text): (String, String)| {
        let value = match all.pointer(&format!("/{}", key.replace('.', "/"))) {
            Some(value @ (Value::Number(_) | Value::Bool(_))) => value.clone(),
            _ => Value::String(text),
        };
        (key, value)
    };
    flatten_all(&run.trial.settings).into_iter().map(typed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_range_has_no_value() {
        let range = RateFigure::published((0.5, 0.75), 4.0);
        assert_eq!(range, RateFigure { value: None, ends: Some((2.0, 3.0)) });
        assert_eq!(RateFigure::published((0.5, 0.5), 4.0), RateFigure { value: Some(2.0), ends: None });
    }

    #[test]
    fn a_reason_is_told_of_failures_alone() {
        let failed = TrialOutcome::Run(RunState::Failed("rank 1: no memory".into()));
        assert_eq!((failed.name(), failed.reason(), failed.completed()), ("failed", "rank 1: no memory", false));
        let imported = TrialOutcome::Imported;
        assert_eq!((imported.name(), imported.class(), imported.reason()), ("imported", "imported", ""));
        assert_eq!(TrialOutcome::Run(RunState::Completed).class(), "measured");
    }
}
