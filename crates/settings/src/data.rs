//! `[data]` and `[select]`: which data set, and which of its samples.

use serde::{Deserialize, Serialize};

/// Which edges the STRING networks that ship have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Networks {
    /// The real STRING 9.1 edges, as they are.
    Real,
    /// The real edges, completed with generated ones to the edge counts of STRING 12.0.
    Completed,
    /// There are none: the data set is an array.
    None,
}

/// Where the labels come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LabelSource {
    /// Drawn at random with the published statistics: nothing can be learned from them.
    #[default]
    Random,
    /// A function of the three perturbed genes, with the same mean and deviation: a model can find it.
    Planted,
}

/// `[data]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Data {
    /// Name of the recipe: a folder in experiments/.
    pub set: String,
    /// Number of samples.
    pub samples: u64,
    /// Share of the genes, in (0, 1].
    pub scale: f64,
    /// Which edges the shipped networks have.
    pub networks: Networks,
    /// Seed of everything that is generated.
    pub seed: u64,
    /// Where the labels come from.
    #[serde(default)]
    pub labels: LabelSource,
    /// Number of files that the rows of an array are in.
    #[serde(default = "one")]
    pub files: u32,
    /// Number of genes of an array, in place of a share of the recipe's; 0 goes by `scale`.
    #[serde(default)]
    pub genes: u64,
}

const fn one() -> u32 {
    1
}

impl Data {
    /// Name of the folder that such a data set is built in: everything that determines its content. It is part of the recipe's digest,
    /// so a setting that is younger than data sets that are built leaves the name as it was where it has its default.
    pub fn folder_name(&self) -> String {
        let networks = match self.networks {
            Networks::Real => "_real",
            Networks::Completed => "_completed",
            Networks::None => "",
        };
        let labels = match self.labels {
            LabelSource::Random => "",
            LabelSource::Planted => "_planted",
        };
        let files = if self.files == 1 { String::new() } else { format!("_files-{}", self.files) };
        let genes = if self.genes == 0 { format!("scale-{}", self.scale) } else { format!("genes-{}", self.genes) };
        format!("{genes}_samples-{}{networks}_seed-{}{labels}{files}", self.samples, self.seed)
    }
}

/// Which samples are candidates, by their perturbed genes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SampleSet {
    /// All of them, as the published DANGO script.
    #[default]
    All,
    /// Those that perturb at least one gene of a reaction, as the published lazy script.
    Metabolic,
}

impl SampleSet {
    /// The word used in configs and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Metabolic => "metabolic",
        }
    }
}

/// Which part of all samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// All of them.
    #[default]
    All,
    /// Four fifths, and what rounding leaves.
    Train,
    /// A tenth.
    Val,
    /// A tenth.
    Test,
}

impl Split {
    /// The word used in configs and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Train => "train",
            Self::Val => "val",
            Self::Test => "test",
        }
    }
}

/// `[select]`: a split of all samples, of this the candidates by genes, of these a subset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Select {
    /// Candidates.
    pub samples: SampleSet,
    /// The most samples that are taken, drawn per number of perturbed genes; 0 takes all.
    pub subset: u64,
    /// Which part.
    pub split: Split,
    /// Seed of subset and split.
    pub seed: u64,
}

impl Default for Select {
    fn default() -> Self {
        Self { samples: SampleSet::All, subset: 0, split: Split::All, seed: 42 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Changing a name makes every data set of that kind that users have built another one.
    #[test]
    fn folders_have_the_names_that_they_had() {
        let graph = r#"{ "set": "s", "samples": 10, "scale": 0.5, "networks": "completed", "seed": 42 }"#;
        let mut data: Data = serde_json::from_str(graph).unwrap();
        assert_eq!(data.folder_name(), "scale-0.5_samples-10_completed_seed-42");
        data.labels = LabelSource::Planted;
        assert_eq!(data.folder_name(), "scale-0.5_samples-10_completed_seed-42_planted");
        let array = r#"{ "set": "s", "samples": 10, "scale": 1.0, "networks": "none", "seed": 42, "files": 8 }"#;
        let mut data: Data = serde_json::from_str(array).unwrap();
        assert_eq!(data.folder_name(), "scale-1_samples-10_seed-42_files-8");
        data.genes = 60_000;
        assert_eq!(data.folder_name(), "genes-60000_samples-10_seed-42_files-8");
    }
}
