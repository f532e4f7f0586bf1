//! The change to try next, as a note proposes it. Its figures are predicted by a part that is built on reports (`predict`), so a note is
//! handed the function that finds it.

use expctl_ledger::MeasuredJob;
use expctl_stats::Interval;

/// Finds the change to try next in the variant with this label.
pub type SuggestChange = fn(&MeasuredJob, &str) -> NextChange;

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
