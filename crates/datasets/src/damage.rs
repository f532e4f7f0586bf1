//! `Damage`: what is wrong with one file or folder. `DatasetError::Damaged` puts its path in front.

use std::path::PathBuf;

use expctl_ledger::LedgerError;
use expctl_settings::{ArrayFormat, StoreKind};
use safetensors::SafeTensorError;
use safetensors::tensor::Dtype;

use crate::manifest::Family;

/// What is wrong with a file or folder of a data set, as the end of a sentence about it.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// It is no JSON of the documented layout.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// It is no TOML of the documented layout.
    #[error(transparent)]
    Toml(Box<toml::de::Error>),
    /// It is no file of tensors.
    #[error(transparent)]
    Tensors(#[from] SafeTensorError),
    /// It could not be written.
    #[error(transparent)]
    Unwritten(#[from] LedgerError),
    /// It is not there.
    #[error("is missing")]
    Missing,
    /// It ends too early.
    #[error("is cut short")]
    CutShort,
    /// The target exists already.
    #[error("is there; it is not replaced")]
    Exists,
    /// It is a folder without a manifest.
    #[error("exists, but {contents} (it has no manifest)")]
    NoManifest {
        /// What it is not, for example `is no store`.
        contents: &'static str,
    },
    /// It is of another family.
    #[error("of {}, not of {}", found.things(), expected.things())]
    Family {
        /// Its family.
        found: Family,
        /// The family that is asked for.
        expected: Family,
    },
    /// It is of another version of the layout.
    #[error("layout version {found}, but this program reads {expected}{}", if found < expected { "" } else { ": a newer expctl made it" })]
    Version {
        /// Its version.
        found: u32,
        /// The version that can be read.
        expected: u32,
    },
    /// It is the manifest of a store of another kind.
    #[error("of a {} store", .0.name())]
    OtherKind(StoreKind),
    /// It is the manifest of files of another format.
    #[error("of {} files", .0.name())]
    OtherFormat(ArrayFormat),
    /// Another number is known from elsewhere.
    #[error("{found} {things}, but {known_from} {expected}")]
    Count {
        /// Number that it has.
        found: u64,
        /// What is counted.
        things: &'static str,
        /// Where the other number stands, for example `the manifest says`.
        known_from: &'static str,
        /// The other number.
        expected: u64,
    },
    /// Other files are asked for.
    #[error("holds {found} files, and {asked} are asked for")]
    FileCount {
        /// Files that there are.
        found: usize,
        /// Files that are asked for.
        asked: u32,
    },
    /// The recipe has changed since.
    #[error("was built from another state of the recipe; remove it to build again")]
    OtherRecipe,
    /// It is a store of another base store.
    #[error("was made from another base store or graph than lies beside it")]
    OtherBaseStore,
    /// It is made from other files.
    #[error("was made from other base files than lie beside it")]
    OtherBaseFiles,
    /// It is shuffled otherwise than asked for.
    #[error("was made with shards of {rows} rows and seed {seed}")]
    OtherShuffle {
        /// Rows of a shard.
        rows: u64,
        /// Seed of the order.
        seed: u64,
    },
    /// It has another number of files than asked for.
    #[error("was made with {0} files")]
    OtherFiles(usize),
    /// It has other row groups than asked for.
    #[error("was made with row groups of {0} rows")]
    OtherRowGroups(u64),
    /// Records are not those that a stopped run leaves.
    #[error("holds other records than a {run} leaves")]
    OtherRecords {
        /// The run: a build or a conversion.
        run: &'static str,
    },
    /// Rows are not those that were built.
    #[error("holds other rows than were built")]
    OtherRows,
    /// Rows are not those that were shuffled.
    #[error("holds other rows than the files that were shuffled")]
    OtherShuffledRows,
    /// It reads back otherwise than it was written.
    #[error("reads back as other rows than were written")]
    ReadBack,
    /// A converted file reads back otherwise than its source.
    #[error("reads back as other rows than {source_file} has; it is removed")]
    OtherThanSource {
        /// The source.
        source_file: String,
    },
    /// Files have other genes.
    #[error("its genes are not those of {}, in their order", first.display())]
    OtherGenes {
        /// The file that it does not fit.
        first: PathBuf,
    },
    /// Files have other columns of obs.
    #[error("its columns of obs are not those of {}", first.display())]
    OtherColumns {
        /// The file that it does not fit.
        first: PathBuf,
    },
    /// Files have other names of columns of obs.
    #[error("obs has the columns {}, but {} in {}", found.join(", "), expected.join(", "), first.display())]
    ColumnNames {
        /// Its columns.
        found: Vec<String>,
        /// Columns of the first file.
        expected: Vec<String>,
        /// The file that it does not fit.
        first: PathBuf,
    },
    /// A column of obs is of another kind than in another file.
    #[error("{column} of obs is {found}, but {expected} in {}", first.display())]
    ColumnKind {
        /// The column.
        column: String,
        /// Its kind.
        found: &'static str,
        /// Its kind in the first file.
        expected: &'static str,
        /// The file that it does not fit.
        first: PathBuf,
    },
    /// A number of a recipe is out of its range.
    #[error("{field} is {range}, not {value}")]
    RecipeValue {
        /// Its field in the recipe.
        field: &'static str,
        /// Its range, for example `between 0 and 5`.
        range: &'static str,
        /// The number.
        value: f64,
    },
    /// A template of records has no place for something.
    #[error("{0} does not occur in it")]
    NoPlace(String),
    /// A line of a file of edges is no pair of genes.
    #[error("line {0}: not two rows of the gene names")]
    EdgeLine(usize),
    /// A gene cannot have this name.
    #[error("`{0}` cannot be a gene name")]
    GeneName(String),
    /// A gene name occurs twice.
    #[error("`{0}` is listed twice")]
    RepeatedGene(String),
    /// A tensor is missing, or cannot be read.
    #[error("{name}: {source}")]
    Tensor {
        /// The tensor.
        name: String,
        /// Why.
        source: SafeTensorError,
    },
    /// A tensor is of another dtype or shape.
    #[error("{name} is {dtype:?} {shape:?}, not {expected}")]
    TensorForm {
        /// The tensor.
        name: String,
        /// Its dtype.
        dtype: Dtype,
        /// Its shape.
        shape: Vec<usize>,
        /// The dtype and shape that it should have.
        expected: String,
    },
    /// An edge type has no edge.
    #[error("{0} has no edges")]
    NoEdges(String),
    /// An end of an edge is out of range.
    #[error("{name}[{row}, {column}]: {node} {value} is not one of {count}")]
    EdgeEnd {
        /// The tensor.
        name: String,
        /// Row of the tensor: 0 of sources, 1 of targets.
        row: usize,
        /// The edge.
        column: usize,
        /// Kind of the node.
        node: &'static str,
        /// The node.
        value: i64,
        /// How many of its kind there are.
        count: usize,
    },
    /// Edges are not sorted by reaction.
    #[error("{name}: reaction {reaction} at {at} is followed by {next}")]
    ReactionOrder {
        /// The tensor.
        name: String,
        /// The edge.
        at: usize,
        /// Its reaction.
        reaction: i64,
        /// The reaction of the next edge.
        next: i64,
    },
    /// The manifest does not have the edge type.
    #[error("{0} is not in the manifest")]
    UnknownEdges(String),
    /// The manifest has another number of edges.
    #[error("{name} has {found} edges, but the manifest says {expected}")]
    EdgeCount {
        /// The tensor.
        name: String,
        /// Its edges.
        found: u64,
        /// Edges by the manifest.
        expected: u64,
    },
    /// The genes of samples are not divided among these.
    #[error("ptr does not divide genes")]
    SamplePointers,
    /// The genes of a sample do not ascend, or are none of the graph's.
    #[error("sample {sample}: {genes:?} are not ascending genes below {count}")]
    SampleGenes {
        /// The sample.
        sample: u64,
        /// Its genes.
        genes: Vec<i32>,
        /// Genes of the graph.
        count: u64,
    },
}

impl From<toml::de::Error> for Damage {
    fn from(error: toml::de::Error) -> Self {
        Self::Toml(Box::new(error))
    }
}
