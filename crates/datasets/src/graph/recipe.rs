//! `Recipe`: the `dataset.toml` of a graph: published sizes, files with gene names and edges, and statistics of the labels.
//! Invariant: its digest covers all files that it names, so a data set of an older state of them is noticed.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::graph::manifest::SCHEMA;
use crate::graph::networks::genes_at;
use crate::graph::samples::GENES_PER_SAMPLE;
use crate::manifest::{Family, recipe_text};
use crate::{DatasetError, RequestError};

/// `experiments/<set>/dataset.toml`: what a data set is made of, at its full published scale.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// `graph`, which need not be said.
    #[serde(default)]
    pub family: Family,
    /// One line.
    pub title: String,
    /// Number of genes.
    pub genes: u64,
    /// File of real gene names, relative to the recipe; generated names fill up to `genes`.
    pub gene_names: PathBuf,
    /// The samples.
    pub samples: Samples,
    /// Networks between genes, in order.
    pub network: Vec<Network>,
    /// The bipartite graph of metabolism.
    pub bipartite: Bipartite,
    /// Folder of the recipe.
    #[serde(skip)]
    pub folder: PathBuf,
}

/// The samples of a data set. Their labels have these statistics.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Samples {
    /// Published number, and the most that can be asked for.
    pub count: u64,
    /// Perturbed genes of a sample.
    pub genes_per_sample: u32,
    /// Template of a record, relative to the recipe.
    pub record: PathBuf,
    /// Mean label.
    pub label_mean: f64,
    /// Standard deviation of the labels.
    pub label_sd: f64,
    /// Smallest label.
    pub label_min: f64,
    /// Largest label.
    pub label_max: f64,
}

/// Origin of the edges of a network.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkSource {
    /// All edges are generated.
    Generated,
    /// A file of real edges, relative to the recipe.
    File(PathBuf),
}

/// One network.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Name of the edge type.
    pub name: String,
    /// Published number of edges, with one self-loop per gene.
    pub edges: u64,
    /// Whether the source is directed.
    pub directed: bool,
    /// Origin of the edges.
    pub source: NetworkSource,
}

/// Published sizes of the metabolism graph.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bipartite {
    /// Reactions.
    pub reactions: u64,
    /// Reactions that have genes.
    pub reactions_with_genes: u64,
    /// Metabolites.
    pub metabolites: u64,
    /// Edges gene to reaction.
    pub gpr: u64,
    /// Edges reaction to metabolite.
    pub rmr: u64,
}

impl Recipe {
    /// Read the recipe in `folder`.
    pub fn load(folder: &Path) -> Result<Self, DatasetError> {
        let (path, text) = recipe_text(folder, Family::Graph)?;
        let mut recipe: Self = toml::from_str(&text).map_err(|e| DatasetError::damaged(&path, e))?;
        recipe.folder = folder.to_owned();
        Ok(recipe)
    }

    /// Name of the data set: that of its folder.
    pub fn name(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Number of genes of a data set of this scale.
    pub fn genes_at(&self, scale: f64) -> u64 {
        genes_at(self.genes, scale)
    }

    /// Check that `data` can be built from this recipe.
    ///
    /// # Errors
    /// The first thing that cannot be made.
    pub fn check(&self, data: &expctl_settings::Data) -> Result<(), RequestError> {
        let Samples { count: max, genes_per_sample: genes, .. } = self.samples;
        let (set, samples, scale) = (self.name(), data.samples, data.scale);
        if samples == 0 || samples > max {
            return Err(RequestError::SampleCount { set, max, samples });
        }
        if !(scale > 0.0 && scale <= 1.0) {
            return Err(RequestError::Scale { scale });
        }
        if data.networks == expctl_settings::Networks::None || data.files != 1 {
            return Err(RequestError::NotAnArray { set });
        }
        if genes as usize != GENES_PER_SAMPLE {
            return Err(RequestError::GenesPerSample { genes });
        }
        Ok(())
    }

    /// blake3 over the recipe and every file that it names, and over `data`: all that a built data set depends on.
    ///
    /// # Errors
    /// One of these files cannot be read.
    pub fn digest(&self, data: &expctl_settings::Data) -> Result<String, DatasetError> {
        let mut hasher = blake3::Hasher::new();
        let networks = self.network.iter().filter_map(|network| match &network.source {
            NetworkSource::File(file) => Some(file.as_path()),
            NetworkSource::Generated => None,
        });
        let own = [Path::new("dataset.toml"), &self.gene_names, &self.samples.record];
        for file in own.into_iter().chain(networks) {
            let path = self.folder.join(file);
            let content = std::fs::read(&path).map_err(DatasetError::io("read", &path))?;
            hasher.update(&(content.len() as u64).to_le_bytes()).update(&content);
        }
        hasher.update(&SCHEMA.to_le_bytes()).update(data.folder_name().as_bytes());
        Ok(hasher.finalize().to_hex().to_string())
    }
}
