use crate::conf::kind::Kind;

use super::spec::Preset::{Derived, Required, Value};
use super::spec::{COUNT, COUNT32, KeySpec, NATURAL, NATURAL32, key, words};

/// `[pipeline]` and `[loader]`.
pub(super) const KEYS: &[KeySpec] = &[
    key(
        "pipeline.store",
        words(&["json", "compressed", "full_masks", "packed_masks", "ids"]),
        Value("\"json\""),
        "What records are read from; any but `json` is made from it first. `lazy`, `packed`, `shared` and `incidence_subgraph` take stored masks, other processors go by the genes",
    ),
    key(
        "pipeline.processor",
        words(&[
            "lazy",
            "subgraph",
            "incidence_subgraph",
            "neighborhood",
            "perturbation",
            "shared",
            "packed",
            "ids",
            "rows",
        ]),
        Required,
        "What a loader thread makes of a record; not to be set with `array.format`",
    ),
    key(
        "pipeline.hops",
        Kind::Integer { min: 1, max: 3 },
        Value("1"),
        "With `neighborhood`: how far from the perturbed genes",
    ),
    key(
        "pipeline.walk",
        words(&["per_type", "union"]),
        Value("\"per_type\""),
        "With `neighborhood`: against the edges within each type, as published, or either way along all types",
    ),
    key(
        "pipeline.edge_types",
        Kind::TextList,
        Derived("all networks of the recipe, in its order"),
        "Edge types of the graph, in order",
    ),
    key(
        "pipeline.merge_edge_types",
        Kind::TextList,
        Value("[]"),
        "Edge types that are one together, the union of their edges: `\"NAME=TYPE+TYPE\"`, or `\"NAME=PREFIX*\"` for all whose names begin so",
    ),
    key(
        "pipeline.metabolism",
        Kind::Bool,
        Value("false"),
        "Reactions and metabolites as well, with the edges gpr and rmr",
    ),
    key(
        "pipeline.collation",
        words(&["pyg", "lazy_collater", "shared_index"]),
        Value("\"pyg\""),
        "How samples become a batch: as PyTorch Geometric does, as the published collater was written, or without edge index",
    ),
    key(
        "pipeline.follow_batch",
        Kind::TextList,
        Value("[\"x\", \"x_pert\", \"perturbation_indices\"]"),
        "With `pyg`: fields for which the batch names the sample of each entry; for `perturbation_indices` every batch does",
    ),
    key(
        "pipeline.mask_source",
        words(&["incidence", "gene_masks"]),
        Value("\"incidence\""),
        "What `lazy`, `packed`, `shared` and `incidence_subgraph` make masks of edges from: lists of the edges of each gene, or a mask of a bit per edge for each gene",
    ),
    key(
        "pipeline.gene_masks_mib",
        NATURAL,
        Value("0"),
        "With `gene_masks`: the most MiB that these masks may take in each rank; more is refused. 0 is a rank's share of six tenths of the free memory",
    ),
    key(
        "pipeline.mask_fraction",
        Kind::Number { min: 0.0, from: false, max: 1.0 },
        Value("1.0"),
        "With `lazy`: probability with which an edge that a sample removes is masked. Below 1 masks are approximate, and so is whatever is computed with them",
    ),
    key("pipeline.mask_seed", NATURAL, Value("42"), "With `mask_fraction` below 1: seed of the edges that are masked"),
    key(
        "pipeline.device_masks",
        words(&["none", "looped", "vectorised"]),
        Value("\"none\""),
        "Edge masks made where the batch is used: sample by sample, or all samples at once",
    ),
    key("loader.batch_size", COUNT, Required, "Samples per rank and step"),
    key("loader.workers", NATURAL32, Value("0"), "Loader threads per rank; 0 loads on the step's own thread"),
    key("loader.prefetch_factor", COUNT32, Value("2"), "Batches that each thread may be ahead"),
    key(
        "loader.pin_memory",
        Kind::Bool,
        Value("false"),
        "Copy batches into page-locked memory, for a GPU to copy from; without effect where ranks compute on the host",
    ),
    key("loader.shuffle", Kind::Bool, Value("true"), "A new order in each epoch; of an array `sampler.draw` says it"),
    key(
        "loader.drop_last",
        Kind::Bool,
        Value("false"),
        "Leave out the samples that do not fill all ranks, and the last batch that is not full",
    ),
    key("loader.seed", NATURAL, Value("42"), "Seed of the order; with `train.epochs` repeat r has this + r − 1"),
    key(
        "loader.buffer_mib",
        NATURAL,
        Value("0"),
        "The most MiB of batches that a rank holds, in the making, ready and in the step; 0 is its share of six tenths of the free memory",
    ),
];
