//! `[array]` and `[sampler]`: rows of an array (cells × genes) in place of a graph's samples, and which row comes when.

use serde::{Deserialize, Serialize};

/// What rows are read from. A data set is built as `h5ad`; all others are made from it by `expctl data convert`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArrayFormat {
    /// No array: the trial reads samples of a graph.
    #[default]
    None,
    /// AnnData files, CSR, HDF5 chunks as h5py makes them, uncompressed. The base format.
    H5ad,
    /// The same with gzip (level 4, as `anndata.write(compression="gzip")`).
    H5adGzip,
    /// The same with LZF.
    H5adLzf,
    /// The same with Zstandard (HDF5 filter 32015, level 3).
    H5adZstd,
    /// The same, contiguous: no chunks at all.
    H5adContiguous,
    /// AnnData files with a dense float32 matrix.
    H5adDense,
    /// AnnData files, CSC: rows can be had at the price of reading whole columns only.
    H5adCsc,
    /// AnnData files, CSR, whose rows were shuffled over the whole collection.
    H5adShuffled,
    /// Parquet, a list of all genes' values for each row, as NVIDIA Merlin reads.
    Parquet,
    /// Parquet, a list of gene numbers and one of values for each row.
    ParquetSparse,
    /// MDS shards as MosaicML's streaming has them, an array of gene numbers and one of values for each row, uncompressed.
    Mds,
    /// The same with Zstandard (level 3), each shard as a whole.
    MdsZstd,
    /// AnnData folders in zarr (version 3, sharded, Blosc with LZ4), as annbatch writes them.
    Zarr,
}

impl ArrayFormat {
    /// All formats but none; the base format first.
    pub const ALL: [Self; 13] = [
        Self::H5ad,
        Self::H5adGzip,
        Self::H5adLzf,
        Self::H5adZstd,
        Self::H5adContiguous,
        Self::H5adDense,
        Self::H5adCsc,
        Self::H5adShuffled,
        Self::Parquet,
        Self::ParquetSparse,
        Self::Mds,
        Self::MdsZstd,
        Self::Zarr,
    ];

    /// The word used in configs, tables and folder names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::H5ad => "h5ad",
            Self::H5adGzip => "h5ad_gzip",
            Self::H5adLzf => "h5ad_lzf",
            Self::H5adZstd => "h5ad_zstd",
            Self::H5adContiguous => "h5ad_contiguous",
            Self::H5adDense => "h5ad_dense",
            Self::H5adCsc => "h5ad_csc",
            Self::H5adShuffled => "h5ad_shuffled",
            Self::Parquet => "parquet",
            Self::ParquetSparse => "parquet_sparse",
            Self::Mds => "mds",
            Self::MdsZstd => "mds_zstd",
            Self::Zarr => "zarr",
        }
    }

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Join {
    /// Genes that every file has, in the order of the first.
    #[default]
    Inner,
    /// Genes that any file has; what a file does not have is 0.
    Outer,
}

/// What a batch holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// float32 `[B, genes]`.
    #[default]
    Dense,
    /// CSR: int32 `[B + 1]`, int32 `[nnz]`, float32 `[nnz]`.
    Sparse,
}

/// How the rows of a batch are read, where they are drawn singly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Array {
    /// What rows are read from; `none` where the trial reads samples of a graph.
    pub format: ArrayFormat,
    /// Own files instead of those of the data set, absolute or URLs, in order; empty takes the data set's.
    pub files: Vec<String>,
    /// Number of parquet files that the rows of the data set are put into; 0 is as many as it has base files, or as lie there.
    pub file_count: u32,
    /// Read all rows into memory (CSR, counts in 3 or 4 bytes a value) before the first step.
    pub memory: bool,
    /// Where the matrix is in an AnnData file: `X`, `raw`, or `layers/NAME`; empty is `X`.
    pub layer: String,
    /// How the genes of several files become one list.
    pub join: Join,
    /// Genes that a batch has, by name, in this order; empty is all.
    pub genes: Vec<String>,
    /// What a batch holds.
    pub output: Output,
    /// How the rows of a batch are read, where they are drawn singly.
    pub fetch: Fetch,
    /// Scale each row to this sum; 0 leaves it.
    pub normalize: f64,
    /// Then take ln(1 + x) of every value.
    pub log1p: bool,
    /// Columns of obs that a batch has as class numbers.
    pub labels: Vec<String>,
    /// MiB of a node's disk that keep blocks of remote files, for all ranks there together; 0 reads all from the server.
    pub cache_mib: u64,
    /// Folder of that; empty is `EXPCTL_CACHE_DIR`, or else a folder of the user's in `TMPDIR`.
    pub cache_dir: String,
    /// Requests for parts of remote files that a rank has under way at a time.
    pub requests: u32,
}

impl Default for Array {
    fn default() -> Self {
        Self {
            format: ArrayFormat::None,
            files: Vec::new(),
            file_count: 0,
            memory: false,
            layer: String::new(),
            join: Join::Inner,
            genes: Vec::new(),
            output: Output::Dense,
            fetch: Fetch::Batch,
            normalize: 0.0,
            log1p: false,
            labels: Vec::new(),
            cache_mib: 0,
            cache_dir: String::new(),
            requests: 32,
        }
    }
}

/// How rows are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Draw {
    /// In the order of the files.
    Sequential,
    /// Each row once an epoch, all orders alike likely.
    #[default]
    Uniform,
    /// Single rows with replacement, by weight.
    Weighted,
    /// Single rows with replacement, every class of a label alike often.
    Balanced,
    /// Chunks of rows in random order; as many as are held at once are shuffled among each other.
    Chunked,
}

impl Draw {
    /// The word used in configs and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Uniform => "uniform",
            Self::Weighted => "weighted",
            Self::Balanced => "balanced",
            Self::Chunked => "chunked",
        }
    }
}

/// A known system whose chunks are taken where a config does not say how large they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SamplerPreset {
    /// None.
    #[default]
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
    /// All presets but none.
    pub const ALL: [Self; 4] = [Self::Merlin, Self::Census, Self::Annbatch, Self::Scdataset];

    /// The word used in configs and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Merlin => "merlin",
            Self::Census => "census",
            Self::Annbatch => "annbatch",
            Self::Scdataset => "scdataset",
        }
    }

    /// Rows of a chunk, 0 being a run of the store, and chunks that are shuffled together.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sampler {
    /// How rows are drawn.
    pub draw: Draw,
    /// The system that the chunks are as those of, as far as the config does not say more; the numbers below are what counts.
    pub preset: SamplerPreset,
    /// With `chunked` and `sequential`: rows of a chunk, which is read at once; 0 is a run of the store (a row group, the rows of
    /// an HDF5 chunk).
    pub chunk_rows: u64,
    /// With `chunked`: chunks that are held and shuffled together.
    pub chunks: u64,
    /// With `weighted`: the column of obs with the weights; with `balanced`: that with the classes.
    pub by: String,
    /// With `weighted` and `balanced`: rows of an epoch, of all ranks together; 0 is as many as there are.
    pub rows: u64,
}

impl Default for Sampler {
    fn default() -> Self {
        Self {
            draw: Draw::Uniform,
            preset: SamplerPreset::None,
            chunk_rows: 512,
            chunks: 32,
            by: String::new(),
            rows: 0,
        }
    }
}
