use crate::conf::kind::Kind;

use super::spec::Preset::{Derived, Value};
use super::spec::{COUNT, KeySpec, NATURAL, NOT_NEGATIVE, key, key_also, words};

/// `[array]` and `[sampler]`.
pub(super) const KEYS: &[KeySpec] = &[
    key_also(
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
        ]),
        Value("\"none\""),
        "What rows are read from, in place of samples of a graph; any but `h5ad` is made from it first. Own files are `h5ad` or `parquet`, however they are compressed",
        &["backend", "format"],
    ),
    key_also(
        "array.files",
        Kind::TextList,
        Value("[]"),
        "Own files instead of those of the data set, from the project folder, in order; `*` and `?` stand for any names, sorted",
        &["path_list", "paths", "adata_paths", "h5ads"],
    ),
    key_also(
        "array.memory",
        Kind::Bool,
        Value("false"),
        "Read all rows into the memory of each rank before the first step",
        &["in_memory", "cache"],
    ),
    key_also(
        "array.layer",
        Kind::Text,
        Value("\"\""),
        "Where an AnnData file has the matrix: `X`, `raw`, or `layers/NAME`; empty is `X`",
        &["layers_keys", "layer_name", "x_key"],
    ),
    key(
        "array.join",
        words(&["inner", "outer"]),
        Value("\"inner\""),
        "Genes of several files: those that all have, or those that any has, with 0 where a file has not",
    ),
    key_also(
        "array.genes",
        Kind::TextList,
        Value("[]"),
        "Genes that a batch has, by name, in this order; empty is all",
        &["var_names", "gene_subset"],
    ),
    key_also(
        "array.output",
        words(&["dense", "sparse"]),
        Value("\"dense\""),
        "What a batch is: a value for every gene, or CSR",
        &["return_sparse", "to_dense", "sparse"],
    ),
    key_also(
        "array.normalize",
        NOT_NEGATIVE,
        Value("0.0"),
        "Scale each row, all its genes, to this sum; 0 leaves it",
        &["target_sum", "normalize_total"],
    ),
    key("array.log1p", Kind::Bool, Value("false"), "Then take ln(1 + x) of each value"),
    key_also(
        "array.labels",
        Kind::TextList,
        Value("[]"),
        "Columns of obs that a batch has as class numbers; models tell the first",
        &["obs_keys", "obs_columns", "label_key"],
    ),
    key_also(
        "sampler.draw",
        words(&["sequential", "uniform", "weighted", "balanced", "chunked"]),
        Value("\"uniform\""),
        "Rows in order; each once in random order; singly by weight, or every class alike often, with replacement; or chunks of rows in random order, shuffled among those held",
        &["strategy", "sampling"],
    ),
    key(
        "sampler.preset",
        words(&["none", "merlin", "census", "annbatch", "scdataset"]),
        Value("\"none\""),
        "With `chunked`: take `chunk_rows` and `chunks` from a known system where they are not set (docs/samplers.md)",
    ),
    key_also(
        "sampler.chunk_rows",
        NATURAL,
        Derived("512, or as the preset has it"),
        "With `chunked` and `sequential`: rows of a chunk, which is read at once; 0 is a row group of parquet, or what else a file has together",
        &["chunk_size", "block_size", "row_group_size"],
    ),
    key_also(
        "sampler.chunks",
        COUNT,
        Derived("32, or as the preset has it"),
        "With `chunked`: chunks that are held and shuffled together; two times as many are in memory",
        &["preload_nchunks", "fetch_factor", "parts_per_chunk", "shuffle_chunk_count"],
    ),
    key_also(
        "sampler.by",
        Kind::Text,
        Value("\"\""),
        "With `weighted`: the column of obs that holds the weights; with `balanced`: the one that holds the classes",
        &["weights", "obs_key", "weight_key", "label"],
    ),
    key_also(
        "sampler.rows",
        NATURAL,
        Value("0"),
        "With `weighted` and `balanced`: rows of an epoch, of all ranks together; 0 is as many as there are",
        &["num_samples", "total_size"],
    ),
];
