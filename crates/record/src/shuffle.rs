use serde::{Deserialize, Serialize};

/// How well the rows of an epoch of one rank are shuffled, or those of its first batches: `shuffle.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShuffleQuality {
    /// Rows of the rank's epoch.
    pub epoch_rows: u64,
    /// Those of them that all else here is of: the first.
    pub metered_rows: u64,
    /// Batches of these.
    pub metered_batches: u64,
    /// Rows, of the metered ones, that had come already.
    pub duplicates: u64,
    /// Correlation of the places in the files of rows that come one after the other: 0 of a perfect shuffle, 1 of none. Missing
    /// where there are fewer than two different rows.
    pub neighbour_correlation: Option<f64>,
    /// How far rows came, mean of |place in the files − place in the epoch of all ranks|, both as shares of all: 0 of no
    /// shuffle.
    pub mean_distance: f64,
    /// What it would be if any row were alike likely at each of these places: 1/3 of whole epochs.
    pub expected_distance: f64,
    /// How the classes of a label are mixed, where a batch has one.
    pub labels: Option<LabelMixing>,
}

/// How the classes of a label are mixed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LabelMixing {
    /// The column of obs.
    pub column: String,
    /// Classes that came, of the metered rows; no class counts as one.
    pub classes: u64,
    /// Mean entropy of a batch's classes, bits.
    pub entropy: f64,
    /// What it would be of batches taken at random, bits: from all rows; where rows are drawn with replacement, which may
    /// favour classes, from those that were metered.
    pub ideal_entropy: f64,
}
