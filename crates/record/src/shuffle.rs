use serde::{Deserialize, Serialize};

/// How well the rows of an epoch of one rank are shuffled: `shuffle.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShuffleQuality {
    /// Rows of the epoch.
    pub rows: u64,
    /// Batches of the epoch.
    pub batches: u64,
    /// Rows that had come in the epoch already.
    pub duplicates: u64,
    /// Correlation of the places in the files of rows that come one after the other: 0 of a perfect shuffle, 1 of none. Missing
    /// where there are fewer than two different rows.
    pub neighbour_correlation: Option<f64>,
    /// How far rows came, mean of |place in the files − place in the epoch|, both as shares of all: 1/3 of a perfect shuffle
    /// of a single rank, 0 of none.
    pub mean_distance: f64,
    /// How the classes of a label are mixed, where a batch has one.
    pub labels: Option<LabelMixing>,
}

/// How the classes of a label are mixed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LabelMixing {
    /// The column of obs.
    pub column: String,
    /// Classes that came; no class counts as one.
    pub classes: u64,
    /// Mean entropy of a batch's classes, bits.
    pub entropy: f64,
    /// What it would be of batches that are taken at random from the rows of the epoch, bits.
    pub ideal_entropy: f64,
}
