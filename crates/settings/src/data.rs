//! `[data]` and `[select]`: which data set a trial reads, and which of its samples.
//!
//! The first paragraph of each field's documentation is its help, which `docs/reference/config.md` quotes.

use expctl_settings_derive::{Words, section};
use serde::{Deserialize, Serialize};

/// The edges of the STRING networks (protein–protein associations) of a data set of graphs. Those of STRING 9.1 ship with
/// expctl.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum Networks {
    /// The real STRING 9.1 edges, as they are.
    Real,
    /// The real edges, completed with generated ones to the edge counts of STRING 12.0.
    Completed,
    /// The data set is an array and has no networks.
    #[word(not_in_configs)]
    None,
}

/// Source of the labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum LabelSource {
    /// Drawn at random, with the published mean and standard deviation: nothing can be learned from them.
    #[default]
    Random,
    /// A function of the three perturbed genes and some noise, with the same mean and standard deviation: a model can
    /// learn it.
    Planted,
}

/// `[data]`: the data set, and how much of its recipe is built.
#[section("data")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Data {
    /// Data set: a folder in `experiments/` with a `dataset.toml`.
    #[setting(derived = "`006-kuzmin-tmi`; `arrayloader` with `array.format`")]
    pub set: String,
    /// Number of samples, at most what the recipe has; of an array any number of rows.
    #[setting(derived = "all that the recipe has", min = 1)]
    pub samples: u64,
    /// Share of the genes that the graph has, or the array.
    #[setting(default = 1.0, above = 0.0, max = 1.0)]
    pub scale: f64,
    /// STRING networks as they are, or completed with generated edges to the published counts.
    #[setting(derived = "`real`; none with `array.format`", workloads(Graph, Program))]
    pub networks: Networks,
    /// Seed of everything that is generated.
    #[setting(default = 42)]
    pub seed: u64,
    /// Labels drawn at random, from which nothing can be learned, or a function of the three perturbed genes; mean and
    /// deviation are the published ones.
    #[setting(default = LabelSource::Random, added, workloads(Graph, Program))]
    pub labels: LabelSource,
    /// With `array.format`: number of files that the rows are in.
    #[setting(default = 1, added, min = 1, workloads(Array, Program))]
    pub files: u32,
    /// With `array.format`: number of genes, in place of `scale`; beyond those of the recipe genes are rare, and a row has
    /// no more values. 0 goes by `scale`.
    #[setting(default = 0, added, max = 1_000_000, workloads(Array, Program))]
    pub genes: u64,
}

impl Data {
    /// Name of the folder that the data set is built in, below that of [`Self::set`]: all settings that determine its
    /// content, as in `scale-0.5_samples-10_completed_seed-42`.
    ///
    /// The name of an existing data set must not change, because its digest contains it: the data set would be built
    /// again. So a setting that is `added` is in the name only where it does not have its default.
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

/// Which samples of a split a subset is drawn from: the candidates, by their perturbed genes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum SampleSet {
    /// All of them, as in the published DANGO script.
    #[default]
    All,
    /// Those that perturb at least one gene of a metabolic reaction, as in the published lazy script.
    Metabolic,
}

/// The usual split of a data set for training, validation and testing, drawn at random.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum Split {
    /// All samples.
    #[default]
    All,
    /// The samples that are in neither of the other two, about 80 %.
    Train,
    /// 10 %, rounded down.
    Val,
    /// 10 %, rounded down.
    Test,
}

impl Split {
    /// Number of samples in this split of `n` samples.
    pub const fn size(self, n: u64) -> u64 {
        match self {
            Self::All => n,
            Self::Train => n - 2 * (n / 10),
            Self::Val | Self::Test => n / 10,
        }
    }
}

/// `[select]`: which samples of the data set a trial uses. First all samples are split, then the candidates are chosen
/// from the split, then a subset of the candidates is drawn.
#[section("select", workloads(Graph, Program))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Select {
    /// Candidates: all samples, or those that perturb a gene of a reaction.
    #[setting(default = SampleSet::All, added)]
    pub samples: SampleSet,
    /// The most samples that are taken of the candidates, drawn per number of perturbed genes; a split takes its share of
    /// it; 0 takes all.
    #[setting(default = 0, added)]
    pub subset: u64,
    /// Part of all samples: 80 %, 10 % and 10 %, drawn at random before anything else.
    #[setting(default = Split::All, added)]
    pub split: Split,
    /// Seed of subset and split.
    #[setting(default = 42, added)]
    pub seed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With another name, every data set of that kind that a user has would be built again.
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
