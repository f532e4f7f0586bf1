//! Predictions that a job was submitted to verify: a part of `job.json`.
//!
//! Invariant: what was predicted is written before the job runs, and what was measured is in its trials and nowhere else.

use serde::{Deserialize, Serialize};

/// What a job verifies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerifiedPredictions {
    /// The job from whose record was predicted.
    pub job: u64,
    /// The predictions.
    pub predictions: Vec<VerifiedPrediction>,
}

/// A predicted rate, and the variants of the job that show whether it is right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerifiedPrediction {
    /// The variant that was predicted from, with its swept settings, as the earlier job names it.
    pub label: String,
    /// The variant with its settings.
    pub baseline: String,
    /// The variant with the change.
    pub variant: String,
    /// The change: `loader.workers=4`.
    pub setting: String,
    /// Predicted rate, samples per second of all ranks.
    pub samples_per_s: f64,
    /// Predicted rate over the rate that was measured then.
    pub gain: f64,
    /// Ends of the 95 % interval of the gain; none where the record was too short for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain_interval: Option<(f64, f64)>,
}
