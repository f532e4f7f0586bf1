//! `Manifest` and `StoreManifest`: the `manifest.json` of a data set of a graph and of each store made from it: counts, origins and checksums.

use std::path::Path;

use expctl_settings::{Data, StoreKind};
use serde::{Deserialize, Serialize};

use crate::build_folder::GENES_FILE;
use crate::graph::graph_file::GRAPH_FILE;
use crate::graph::networks::{BuiltNetwork, GeneNames, GeneratedMetabolism};
use crate::manifest::{DataOrigin, Family, FileInfo, MANIFEST_FILE, load, load_converted};
use crate::{Damage, DatasetError};

/// Version of the layout of a built data set.
pub const SCHEMA: u32 = 2;
/// `manifest.json`: what was built. It is written last, so a folder that has one is complete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Layout version.
    pub schema: u32,
    /// Title of the recipe.
    pub title: String,
    /// The settings of `[data]`.
    pub data: Data,
    /// blake3 of the recipe and all files that it names.
    pub recipe_blake3: String,
    /// The genes.
    pub genes: GeneCounts,
    /// The networks, in the recipe's order.
    pub networks: Vec<NetworkInfo>,
    /// The metabolism graph, all of it generated.
    pub bipartite: BipartiteInfo,
    /// The samples.
    pub samples: SampleInfo,
    /// The base store.
    pub store: StoreInfo,
    /// Every other file, and the store's.
    pub files: Vec<FileInfo>,
    /// Seconds that the build took (its last run, if it was stopped before).
    pub build_seconds: f64,
    /// Records that earlier, stopped runs had already written.
    pub resumed_at: u64,
}

/// Numbers of genes of a data set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeneCounts {
    /// All genes.
    pub count: u64,
    /// With a real systematic name.
    pub real: u64,
    /// With a generated name.
    pub generated: u64,
}

/// One network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkInfo {
    /// Name of the edge type.
    pub name: String,
    /// All edges, self-loops included.
    pub edges: u64,
    /// Edges from the real source.
    pub real: u64,
    /// Edges drawn at random.
    pub generated: u64,
    /// One per gene.
    pub self_loops: u64,
    /// Whether the source is directed.
    pub directed: bool,
    /// Origin of the edges.
    pub class: DataOrigin,
}

/// The metabolism graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BipartiteInfo {
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
    /// Origin of the metabolism.
    pub class: DataOrigin,
}

/// The samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleInfo {
    /// Number of samples.
    pub count: u64,
    /// Perturbed genes of each.
    pub genes_per_sample: u32,
    /// Mean label.
    pub label_mean: f64,
    /// Population standard deviation of the labels.
    pub label_sd: f64,
    /// Smallest label.
    pub label_min: f64,
    /// Largest label.
    pub label_max: f64,
    /// Origin of genes and labels.
    pub class: DataOrigin,
}

/// The base store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreInfo {
    /// Records.
    pub records: u64,
    /// Bytes of all values.
    pub value_bytes: u64,
    /// Length of the longest value.
    pub largest_value: u64,
    /// blake3 over each key and value in key order, each with its length before it as eight bytes, little-endian. The
    /// same recipe and options give the same digest on every machine, however often the build was stopped.
    pub content_blake3: String,
}

impl Manifest {
    /// Read the manifest of a data set.
    pub fn load(folder: &Path) -> Result<Self, DatasetError> {
        load(folder, Family::Graph, SCHEMA)
    }

    /// Edges over all networks, self-loops included.
    pub fn num_edges(&self) -> u64 {
        self.networks.iter().map(|network| network.edges).sum()
    }

    /// Apparent size of all files, in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Bytes that all files take on the disk.
    pub fn allocated_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.allocated_bytes).sum()
    }
}

impl GeneCounts {
    pub(crate) fn from_names(genes: &GeneNames) -> Self {
        Self { count: genes.len(), real: genes.real, generated: genes.len() - genes.real }
    }
}

impl NetworkInfo {
    pub(crate) fn from_built(network: &BuiltNetwork, genes: u64) -> Self {
        Self {
            name: network.name.clone(),
            edges: network.edge_index.len() as u64 / 2,
            real: network.real,
            generated: network.generated,
            self_loops: genes,
            directed: network.directed,
            class: DataOrigin::from_counts(network.real, network.generated),
        }
    }
}

impl BipartiteInfo {
    pub(crate) fn from_generated(metabolism: &GeneratedMetabolism) -> Self {
        Self {
            reactions: metabolism.reactions,
            reactions_with_genes: metabolism.reactions_with_genes,
            metabolites: metabolism.metabolites,
            gpr: metabolism.gpr.len() as u64 / 2,
            rmr: metabolism.rmr.len() as u64 / 2,
            class: DataOrigin::Generated,
        }
    }
}

/// Version of the layout of a converted store.
pub const STORE_SCHEMA: u32 = 1;
/// The LMDB store inside the folder of a converted store.
pub const CONVERTED: &str = "lmdb";

/// `stores/<kind>/manifest.json`: a store that was made from the base store. It is written last, so a folder that has one is
/// complete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreManifest {
    /// Layout version.
    pub schema: u32,
    /// Format of its records.
    pub kind: StoreKind,
    /// blake3 over the contents of base store, graph and genes that the store was made from.
    pub base_blake3: String,
    /// Length of each mask, in the order in which a record has them.
    pub masks: Vec<MaskInfo>,
    /// Its records.
    pub store: StoreInfo,
    /// Its one file.
    pub file: FileInfo,
    /// Seconds that the conversion took (its last run, if it was stopped before), checks included.
    pub build_seconds: f64,
    /// Records that earlier, stopped runs had already written.
    pub resumed_at: u64,
}

/// One mask of every record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaskInfo {
    /// Type of nodes, or `<source>__<type>__<target>`.
    pub name: String,
    /// Number of its entries.
    pub entries: u64,
}

impl StoreManifest {
    /// Read the manifest in the folder of a converted store; `None` if there is no such store.
    ///
    /// # Errors
    /// The manifest is damaged, of another version, or of a store of another kind.
    pub fn load(folder: &Path, kind: StoreKind) -> Result<Option<Self>, DatasetError> {
        let Some(manifest) = load_converted::<Self>(folder, STORE_SCHEMA)? else { return Ok(None) };
        if manifest.kind != kind {
            return Err(DatasetError::damaged(&folder.join(MANIFEST_FILE), Damage::OtherKind(manifest.kind)));
        }
        Ok(Some(manifest))
    }
}

/// blake3 over the contents of what stores are made from. Not over files: the same content may lie in another file.
pub fn base_blake3(manifest: &Manifest) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(manifest.store.content_blake3.as_bytes());
    for file in manifest.files.iter().filter(|file| [GENES_FILE, GRAPH_FILE].contains(&file.path.as_str())) {
        hasher.update(file.path.as_bytes()).update(file.blake3.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}
