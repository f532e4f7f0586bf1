//! [`Exposition`]: metrics as text, as OpenMetrics and Prometheus have it.
//!
//! All families are gauges: then the text is of both formats, and node_exporter's textfile collector, which knows neither `info` nor `stateset`, takes it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::trial_facts::TrialFacts;

/// A family of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MetricFamily {
    /// What a job is, in its labels.
    JobInfo,
    /// When it was submitted.
    JobSubmitted,
    /// Time since then.
    JobElapsed,
    /// Whether nothing will change any more.
    JobEnded,
    /// Estimated time to its end.
    JobLeft,
    /// Trials in each state.
    JobTrials,
    /// The state of a trial, in its labels.
    TrialState,
    /// Steps that a trial has done.
    StepsDone,
    /// Steps of a trial.
    StepsTotal,
    /// it/s.
    ItPerSecond,
    /// Samples/s.
    SamplesPerSecond,
    /// Share of a stage in a step.
    StageShare,
    /// Time since the last step.
    LastStepAge,
}

impl MetricFamily {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::JobInfo => "expctl_job_description",
            Self::JobSubmitted => "expctl_job_submitted_timestamp_seconds",
            Self::JobElapsed => "expctl_job_elapsed_seconds",
            Self::JobEnded => "expctl_job_ended",
            Self::JobLeft => "expctl_job_estimated_remaining_seconds",
            Self::JobTrials => "expctl_job_trials",
            Self::TrialState => "expctl_trial_state",
            Self::StepsDone => "expctl_trial_steps_done",
            Self::StepsTotal => "expctl_trial_steps_planned",
            Self::ItPerSecond => "expctl_trial_iterations_per_second",
            Self::SamplesPerSecond => "expctl_trial_samples_per_second",
            Self::StageShare => "expctl_trial_exposed_ratio",
            Self::LastStepAge => "expctl_trial_last_step_age_seconds",
        }
    }

    /// What it says.
    const fn help(self) -> &'static str {
        match self {
            Self::JobInfo => "Always 1; the labels say what the job is.",
            Self::JobSubmitted => "When the job was submitted, seconds since 1970.",
            Self::JobElapsed => "Time from then to the end of the job, or to now.",
            Self::JobEnded => "1 if nothing will change any more, else 0.",
            Self::JobLeft => "Estimated time to the end of the job.",
            Self::JobTrials => "Trials in each state.",
            Self::TrialState => "Always 1; the label says the state of the trial.",
            Self::StepsDone => "Steps that all ranks of the trial have done, warm-up included.",
            Self::StepsTotal => "Steps of the trial, warm-up included.",
            Self::ItPerSecond => "Steps per second of the slowest rank.",
            Self::SamplesPerSecond => "Samples per second of all ranks.",
            Self::StageShare => "Share of the wall time of a step for which it waited for the stage.",
            Self::LastStepAge => "Time since the last step of the rank that is silent longest.",
        }
    }
}

/// Steps that a figure is of.
pub const MEASURED_STEPS: &str = "measured_steps";
/// The same of a trial that runs.
pub const LAST_STEPS: &str = "last_steps";

/// A label with its value.
pub type Label = (&'static str, String);
/// Labels of a sample, in order.
pub type Labels = Vec<Label>;

/// Metrics that are being collected.
#[derive(Clone, Debug, Default)]
pub struct Exposition {
    families: BTreeMap<MetricFamily, Vec<(Labels, f64)>>,
}

impl Exposition {
    /// Add a sample.
    pub fn add(&mut self, family: MetricFamily, labels: Labels, value: f64) {
        self.families.entry(family).or_default().push((labels, value));
    }

    /// Add the rates of a trial, over `steps` ([`MEASURED_STEPS`] or [`LAST_STEPS`]).
    pub fn add_rates(&mut self, labels: &[Label], steps: &str, it_per_s: Option<f64>, samples_per_s: Option<f64>) {
        for (family, value) in [(MetricFamily::ItPerSecond, it_per_s), (MetricFamily::SamplesPerSecond, samples_per_s)]
        {
            if let Some(value) = value {
                self.add(family, with(labels, "of", steps), value);
            }
        }
    }

    /// Add the share of a stage in the steps of a trial, 0 to 1.
    pub fn add_share(&mut self, labels: &[Label], steps: &str, stage: &str, share: f64) {
        self.add(MetricFamily::StageShare, with(&with(labels, "of", steps), "stage", stage), share);
    }

    /// Add the state, rates and shares of a trial that has ended.
    pub fn add_trial(&mut self, facts: &TrialFacts) {
        let labels = trial_labels(facts);
        self.add(MetricFamily::TrialState, with(&labels, "state", &label_word(facts.outcome.name())), 1.0);
        self.add_rates(&labels, MEASURED_STEPS, facts.it_per_s.value, facts.samples_per_s.value);
        if let Some(step) = facts.breakdown.as_ref().filter(|step| step.wall > 0.0) {
            for (stage, ns) in &step.exposed {
                if let Some(ns) = ns {
                    self.add_share(&labels, MEASURED_STEPS, stage.name(), ns / step.wall);
                }
            }
            self.add_share(&labels, MEASURED_STEPS, "unattributed", step.open_share());
        }
    }

    /// The text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (family, samples) in &self.families {
            let name = family.name();
            // Writing into a text never fails.
            let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} gauge", family.help());
            for (labels, value) in samples {
                let labels: Vec<String> =
                    labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
                let _ = writeln!(text, "{name}{{{}}} {}", labels.join(","), number(*value));
            }
        }
        text.push_str("# EOF\n");
        text
    }
}

/// The labels that all metrics of a trial have.
pub fn trial_labels(facts: &TrialFacts) -> Labels {
    let class = facts.outcome.class();
    labels_of(&facts.job, &facts.config, &facts.trial, (&facts.variant, &facts.point_words), class)
}

/// The labels of a trial of a job, by variant and swept settings.
pub fn labels_of(job: &str, config: &str, trial: &str, (variant, point): (&str, &str), class: &str) -> Labels {
    [("job_id", job), ("config", config), ("trial", trial), ("variant", variant), ("point", point), ("class", class)]
        .map(|(label, value)| (label, value.to_owned()))
        .to_vec()
}

/// The same labels and another one.
pub fn with(labels: &[Label], label: &'static str, value: &str) -> Labels {
    labels.iter().cloned().chain([(label, value.to_owned())]).collect()
}

/// Words as one word: `not started` is `not_started`.
pub fn label_word(words: &str) -> String {
    words.replace(' ', "_")
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn number(value: f64) -> String {
    match value {
        value if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_stand_together_and_labels_are_escaped() {
        let mut all = Exposition::default();
        all.add(MetricFamily::JobEnded, vec![("job_id", "12".into())], 1.0);
        all.add(MetricFamily::JobInfo, vec![("config", "a \"b\"\\\n".into())], 1.0);
        all.add(MetricFamily::JobEnded, vec![("job_id", "13".into())], f64::NAN);
        assert_eq!(
            all.text(),
            "# HELP expctl_job_description Always 1; the labels say what the job is.\n\
             # TYPE expctl_job_description gauge\n\
             expctl_job_description{config=\"a \\\"b\\\"\\\\\\n\"} 1\n\
             # HELP expctl_job_ended 1 if nothing will change any more, else 0.\n\
             # TYPE expctl_job_ended gauge\n\
             expctl_job_ended{job_id=\"12\"} 1\n\
             expctl_job_ended{job_id=\"13\"} NaN\n\
             # EOF\n"
        );
        assert_eq!(number(f64::INFINITY), "+Inf");
        assert_eq!(Exposition::default().text(), "# EOF\n");
    }
}
