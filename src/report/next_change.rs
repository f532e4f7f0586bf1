//! The change to try next, as a note proposes it. Its figures are predicted by a part that is built on reports (`predict`), so a note is
//! handed the function that finds it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use expctl_ledger::MeasuredJob;
use expctl_stats::Interval;

/// Finds the change to try next in the variant with this label.
pub type FindChange = fn(&MeasuredJob, &str) -> NextChange;

/// Finds the change to try next in a variant.
#[derive(Clone, Debug)]
pub struct SuggestChange {
    find: FindChange,
    /// What was found, by label, if all questions are about one reading of a job.
    found: Option<Arc<Mutex<BTreeMap<String, NextChange>>>>,
}

impl SuggestChange {
    /// Find changes with this function.
    pub fn new(find: FindChange) -> Self {
        Self { find, found: None }
    }

    /// The same for one reading of a job: its note and its page ask for the same, which takes seconds in a large job.
    #[must_use]
    pub fn for_one_job(self) -> Self {
        Self { found: Some(Arc::default()), ..self }
    }

    /// The change to try next in the variant with this label.
    pub fn of_variant(&self, job: &MeasuredJob, label: &str) -> NextChange {
        let Some(found) = &self.found else { return (self.find)(job, label) };
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        found.entry(label.to_owned()).or_insert_with(|| (self.find)(job, label)).clone()
    }
}

/// The change to try next in a variant.
#[derive(Clone, Debug, PartialEq)]
pub enum NextChange {
    /// The setting of the loader that is predicted to bring most.
    Setting(PredictedChange),
    /// No setting is predicted to bring anything; of changes to code, data or hardware the one that brings most, if one brings anything.
    NoSetting(Option<PredictedChange>),
    /// Nothing is predicted, for this reason.
    NotPredicted(String),
}

/// A change with what it is predicted to bring. All figures are estimated.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictedChange {
    /// In words: `2 loader threads`.
    pub change: String,
    /// The setting that makes it, as `--set` takes it; `None`: no setting does.
    pub setting: Option<String>,
    /// Predicted rate over the measured one.
    pub gain: f64,
    /// 95 % interval of the gain; `None` if the record is too short to say.
    pub gain_interval: Option<Interval>,
    /// Predicted samples per second of all ranks.
    pub samples_per_s: f64,
    /// What a step would take longest for, in words.
    pub bottleneck: Option<String>,
    /// Threads that would compute at once, and the processors that they share, if these are too few.
    pub crowded: Option<(f64, f64)>,
}
