//! `[array]` and `[sampler]`: rows of an array (cells × genes) instead of a graph's samples, and in which order they come.

use expctl_settings_derive::{Words, section};
use serde::{Deserialize, Serialize};

/// The format of the files that rows are read from. A data set is built as `h5ad`; `expctl data convert` makes the others from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Words)]
pub enum ArrayFormat {
    /// No array: the trial reads samples of a graph.
    #[default]
    #[word(not_listed)]
    None,
    /// AnnData files, CSR, HDF5 chunks as h5py makes them, uncompressed. The base format.
    H5ad,
    /// AnnData files, CSR, gzip (level 4, as `anndata.write(compression="gzip")`).
    H5adGzip,
    /// AnnData files, CSR, LZF.
    H5adLzf,
    /// AnnData files, CSR, Zstandard (HDF5 filter 32015, level 3).
    H5adZstd,
    /// AnnData files, CSR, contiguous: no chunks at all.
    H5adContiguous,
    /// AnnData files with a dense float32 matrix.
    H5adDense,
    /// AnnData files, CSC: reading a row takes reading whole columns.
    H5adCsc,
    /// AnnData files, CSR, whose rows were shuffled over the whole collection.
    H5adShuffled,
    /// Parquet, a list of all genes' values for each row, as NVIDIA Merlin reads.
    Parquet,
    /// Parquet, a list of gene indices and one of values for each row.
    ParquetSparse,
    /// MDS shards of MosaicML's streaming, an array of gene indices and one of values for each row, uncompressed.
    Mds,
    /// MDS shards, each compressed as a whole with Zstandard (level 3).
    MdsZstd,
    /// AnnData folders in zarr (version 3, sharded, Blosc with LZ4), as annbatch writes them.
    Zarr,
}

impl ArrayFormat {
    /// Extension of its files, or folders.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Parquet | Self::ParquetSparse => "parquet",
            Self::Mds | Self::MdsZstd => "mds",
            Self::Zarr => "zarr",
            _ => "h5ad",
        }
    }
}

/// How the genes of several files become one list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum GeneJoin {
    /// Genes that every file has, in the order of the first.
    #[default]
    Inner,
    /// Genes that any file has; genes that a file lacks are 0.
    Outer,
}

/// The tensors of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum Output {
    /// float32 `[B, genes]`.
    #[default]
    Dense,
    /// CSR: int32 `[B + 1]`, int32 `[nnz]`, float32 `[nnz]`.
    Sparse,
}

/// How the rows of a batch are read when they are drawn singly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum Fetch {
    /// All rows of a batch together.
    #[default]
    Batch,
    /// Row after row, each read and decoded by itself, as a map-style data set behind a `DataLoader` of torch does.
    Row,
}

/// Whether a file is named by a URL: an object of S3, of Google Cloud Storage, or of a server.
pub fn is_url(name: &str) -> bool {
    ["s3://", "gs://", "http://", "https://"].iter().any(|scheme| name.starts_with(scheme))
}

/// `[array]`
#[section("array", workloads(Array, Program))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Array {
    /// What rows are read from, in place of samples of a graph; any but `h5ad` is made from it first. Own files are `h5ad`, `parquet`,
    /// `mds` or `zarr`, however they are compressed.
    #[setting(default = ArrayFormat::None, added, workloads(Graph, Array, Program))]
    pub format: ArrayFormat,
    /// Own files, or folders in zarr or of MDS shards, instead of those of the data set, from the project folder, in order; `*` and `?`
    /// stand for any names, sorted. `s3://`, `gs://`, `http://` and `https://` name objects of servers, each by itself.
    ///
    /// In a trial: absolute paths, or URLs, without patterns.
    #[setting(default = [], added)]
    pub files: Vec<String>,
    /// With `parquet` and `parquet_sparse` of a data set: number of files that its rows are put into, in order; 0 is as many as
    /// `data.files`, or as there are already.
    #[setting(default = 0, added)]
    pub file_count: u32,
    /// Read all rows into the memory of each rank before the first step.
    ///
    /// They are kept as CSR, counts in 3 or 4 bytes a value.
    #[setting(default = false, added)]
    pub memory: bool,
    /// Where an AnnData file has the matrix: `X`, `raw`, or `layers/NAME`; empty is `X`.
    #[setting(default = "", added)]
    pub layer: String,
    /// Genes of several files: those that all have, or those that any has, with 0 where a file has not.
    #[setting(default = GeneJoin::Inner, added)]
    pub join: GeneJoin,
    /// Genes that a batch has, by name, in this order; empty is all.
    #[setting(default = [], added)]
    pub genes: Vec<String>,
    /// What a batch is: a value for every gene, or CSR.
    #[setting(default = Output::Dense, added)]
    pub output: Output,
    /// With `uniform`, `weighted` and `balanced`: read the rows of a batch together, or one after another, as a map-style data set behind
    /// a `DataLoader` does.
    #[setting(default = Fetch::Batch, added)]
    pub fetch: Fetch,
    /// Scale each row, all its genes, to this sum; 0 leaves it.
    #[setting(default = 0.0, added, min = 0.0)]
    pub normalize: f64,
    /// Then take ln(1 + x) of each value.
    #[setting(default = false, added)]
    pub log1p: bool,
    /// Columns of obs that a batch has as class numbers; models tell the first.
    #[setting(default = [], added)]
    pub labels: Vec<String>,
    /// Of remote files: MiB of a node's disk that keep what was read, for all ranks there together; 0 reads all from the server.
    #[setting(default = 0, added)]
    pub cache_mib: u64,
    /// With `cache_mib`: the folder, on a disk of the node; empty is `EXPCTL_CACHE_DIR`, or else one in `TMPDIR`.
    #[setting(default = "", added)]
    pub cache_dir: String,
    /// Of remote files: requests that a rank has under way at a time.
    #[setting(default = 32, added, min = 1)]
    pub requests: u32,
}

/// How rows are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum Draw {
    /// In the order of the files.
    Sequential,
    /// Each row once an epoch, all orders equally likely.
    #[default]
    Uniform,
    /// Single rows with replacement, by weight.
    Weighted,
    /// Single rows with replacement, every class of a label equally often.
    Balanced,
    /// Chunks of rows in random order; the rows of the chunks that are in memory together are shuffled.
    Chunked,
}

impl Draw {
    /// Whether single rows are drawn with replacement.
    pub const fn with_replacement(self) -> bool {
        matches!(self, Self::Weighted | Self::Balanced)
    }

    /// Whether a key of `[sampler]` has an effect on rows that are drawn so.
    pub fn uses(self, key: &str) -> bool {
        let is_one_of = |keys: &[&str]| keys.contains(&key);
        if is_one_of(&[Sampler::PRESET.name(), Sampler::CHUNKS.name()]) {
            self == Self::Chunked
        } else if is_one_of(&[Sampler::CHUNK_ROWS.name()]) {
            matches!(self, Self::Chunked | Self::Sequential)
        } else if is_one_of(&[Sampler::BY.name(), Sampler::ROWS.name()]) {
            self.with_replacement()
        } else {
            true
        }
    }
}

/// A known system whose chunk size a config takes where it gives none of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum SamplerPreset {
    /// None.
    #[default]
    #[word(not_listed)]
    None,
    /// NVIDIA Merlin: row groups of parquet files, 16 of which are shuffled together.
    Merlin,
    /// cellxgene_census and tiledbsoma-ml: chunks of 64 rows, of which 65,536 rows are shuffled together.
    Census,
    /// annbatch: chunks of 512 rows, 32 of them together.
    Annbatch,
    /// scDataset: blocks of 16 rows, 256 batches of 64 rows together.
    Scdataset,
}

impl SamplerPreset {
    /// Rows of a chunk (0: the store's natural chunk), and chunks that are shuffled together.
    pub const fn chunks(self) -> (u64, u64) {
        match self {
            Self::None | Self::Annbatch => (512, 32),
            Self::Merlin => (0, 16),
            Self::Census => (64, 1024),
            Self::Scdataset => (16, 1024),
        }
    }
}

/// `[sampler]`
#[section("sampler", workloads(Array, Program))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampler {
    /// Rows in order; each once in random order; singly by weight, or every class alike often, with replacement; or chunks of rows in random
    /// order, shuffled among those held.
    #[setting(default = Draw::Uniform, added)]
    pub draw: Draw,
    /// With `chunked`: take `chunk_rows` and `chunks` from a known system where they are not set (docs/guide/samplers.md).
    ///
    /// A trial has both numbers; they are what counts.
    #[setting(default = SamplerPreset::None, added)]
    pub preset: SamplerPreset,
    /// With `chunked` and `sequential`: rows of a chunk, which is read at once; 0 is a row group of parquet, or what else a file has
    /// together.
    #[setting(derived = "512, or as the preset has it", added = 512)]
    pub chunk_rows: u64,
    /// With `chunked`: chunks that are held and shuffled together; two times as many are in memory.
    #[setting(derived = "32, or as the preset has it", added = 32, min = 1)]
    pub chunks: u64,
    /// With `weighted`: the column of obs that holds the weights; with `balanced`: the one that holds the classes.
    #[setting(default = "", added)]
    pub by: String,
    /// With `weighted` and `balanced`: rows of an epoch, of all ranks together; 0 is as many as there are.
    #[setting(default = 0, added)]
    pub rows: u64,
}
