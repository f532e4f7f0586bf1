use crate::conf::kind::Kind;

use super::spec::Preset::{Derived, Value};
use super::spec::{COUNT, KeySpec, NATURAL, NATURAL32, NOT_NEGATIVE, key, words};

/// `[array]` and `[sampler]`.
pub(super) const KEYS: &[KeySpec] = &[
    key(
        "array.format",
        words(&[
            "none",
            "h5ad",
            "h5ad_gzip",
            "h5ad_lzf",
            "h5ad_zstd",
            "h5ad_contiguous",
            "h5ad_dense",
            "h5ad_csc",
            "h5ad_shuffled",
            "parquet",
            "parquet_sparse",
            "mds",
            "mds_zstd",
            "zarr",
        ]),
        Value("\"none\""),
        "What rows are read from, in place of samples of a graph; any but `h5ad` is made from it first. Own files are `h5ad`, `parquet`, `mds` or `zarr`, however they are compressed",
    ),
    key(
        "array.files",
        Kind::TextList,
        Value("[]"),
        "Own files, or folders in zarr or of MDS shards, instead of those of the data set, from the project folder, in order; `*` and `?` stand for any names, sorted. `s3://`, `gs://`, `http://` and `https://` name objects of servers, each by itself",
    ),
    key(
        "array.file_count",
        NATURAL32,
        Value("0"),
        "With `parquet` and `parquet_sparse` of a data set: number of files that its rows are put into, in order; 0 is as many as `data.files`, or as there are already",
    ),
    key("array.memory", Kind::Bool, Value("false"), "Read all rows into the memory of each rank before the first step"),
    key(
        "array.layer",
        Kind::Text,
        Value("\"\""),
        "Where an AnnData file has the matrix: `X`, `raw`, or `layers/NAME`; empty is `X`",
    ),
    key(
        "array.join",
        words(&["inner", "outer"]),
        Value("\"inner\""),
        "Genes of several files: those that all have, or those that any has, with 0 where a file has not",
    ),
    key("array.genes", Kind::TextList, Value("[]"), "Genes that a batch has, by name, in this order; empty is all"),
    key(
        "array.output",
        words(&["dense", "sparse"]),
        Value("\"dense\""),
        "What a batch is: a value for every gene, or CSR",
    ),
    key(
        "array.fetch",
        words(&["batch", "row"]),
        Value("\"batch\""),
        "With `uniform`, `weighted` and `balanced`: read the rows of a batch together, or one after another, as a map-style data set behind a `DataLoader` does",
    ),
    key("array.normalize", NOT_NEGATIVE, Value("0.0"), "Scale each row, all its genes, to this sum; 0 leaves it"),
    key("array.log1p", Kind::Bool, Value("false"), "Then take ln(1 + x) of each value"),
    key(
        "array.labels",
        Kind::TextList,
        Value("[]"),
        "Columns of obs that a batch has as class numbers; models tell the first",
    ),
    key(
        "array.cache_mib",
        NATURAL,
        Value("0"),
        "Of remote files: MiB of a node's disk that keep what was read, for all ranks there together; 0 reads all from the server",
    ),
    key(
        "array.cache_dir",
        Kind::Text,
        Value("\"\""),
        "With `cache_mib`: the folder, on a disk of the node; empty is `EXPCTL_CACHE_DIR`, or else one in `TMPDIR`",
    ),
    key("array.requests", COUNT, Value("32"), "Of remote files: requests that a rank has under way at a time"),
    key(
        "sampler.draw",
        words(&["sequential", "uniform", "weighted", "balanced", "chunked"]),
        Value("\"uniform\""),
        "Rows in order; each once in random order; singly by weight, or every class alike often, with replacement; or chunks of rows in random order, shuffled among those held",
    ),
    key(
        "sampler.preset",
        words(&["none", "merlin", "census", "annbatch", "scdataset"]),
        Value("\"none\""),
        "With `chunked`: take `chunk_rows` and `chunks` from a known system where they are not set (docs/samplers.md)",
    ),
    key(
        "sampler.chunk_rows",
        NATURAL,
        Derived("512, or as the preset has it"),
        "With `chunked` and `sequential`: rows of a chunk, which is read at once; 0 is a row group of parquet, or what else a file has together",
    ),
    key(
        "sampler.chunks",
        COUNT,
        Derived("32, or as the preset has it"),
        "With `chunked`: chunks that are held and shuffled together; two times as many are in memory",
    ),
    key(
        "sampler.by",
        Kind::Text,
        Value("\"\""),
        "With `weighted`: the column of obs that holds the weights; with `balanced`: the one that holds the classes",
    ),
    key(
        "sampler.rows",
        NATURAL,
        Value("0"),
        "With `weighted` and `balanced`: rows of an epoch, of all ranks together; 0 is as many as there are",
    ),
];
