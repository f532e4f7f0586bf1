use crate::conf::kind::Kind;

use super::spec::Preset::{Derived, Value};
use super::spec::{COUNT32, KeySpec, NATURAL, key, words};

/// `[model]`.
pub(super) const KEYS: &[KeySpec] = &[
    key(
        "model.kind",
        words(&["dango", "lazy", "torchscript", "mlp", "transformer"]),
        Derived("`dango`; `mlp` with `array.format`"),
        "Which model; `mlp` and `transformer` read arrays, the others graphs",
    ),
    key(
        "model.hidden",
        COUNT32,
        Derived("64; 1024 for `mlp`, 256 for `transformer`"),
        "Channels; a multiple of `heads`",
    ),
    key("model.heads", COUNT32, Derived("4; 8 for `lazy`"), "Attention heads"),
    key(
        "model.layers",
        COUNT32,
        Derived("2 for `dango`, 3 for `lazy`, 5 for `mlp`, 8 for `transformer`"),
        "Attention layers of `dango` and `transformer`, message passing layers of `lazy`, hidden layers of `mlp`",
    ),
    key(
        "model.edge_types",
        Kind::TextList,
        Derived("for `dango` the `string12_0_*` types of pipeline.edge_types, else all of them"),
        "Edge types that the model reads",
    ),
    key(
        "model.seed",
        NATURAL,
        Value("42"),
        "Seed of the initial parameters; with `train.epochs` repeat r has this + r − 1",
    ),
    key(
        "model.implementation",
        words(&["replicated", "shared", "operations"]),
        Value("\"replicated\""),
        "With `lazy`: on the graph that the batch has for each sample, as published (`replicated`); on one graph for all, with expctl's kernels on the host and libtorch's operations on a GPU (`shared`) or with those anywhere (`operations`). Same parameters, same outputs (docs/lazy-model.md)",
    ),
    key(
        "model.aggregation",
        words(&["pairwise_interaction", "sum", "mean"]),
        Value("\"pairwise_interaction\""),
        "With `lazy`: how a layer joins its edge types",
    ),
    key("model.aggregation_norm", Kind::Bool, Value("true"), "With `pairwise_interaction`: normalise what it yields"),
    key("model.convolution_layers", COUNT32, Value("4"), "With `lazy`: linear layers of each convolution"),
    key(
        "model.norm",
        words(&["graph", "node"]),
        Value("\"graph\""),
        "With `lazy`: mean and variance over all nodes of the batch, as published, or of each node",
    ),
    key(
        "model.preprocessor_norm",
        words(&["graph", "node"]),
        Value("\"graph\""),
        "The same in front of the encoder; 062 to 065 had `node`",
    ),
    key(
        "model.local_head",
        words(&["full", "pooled", "zero", "none"]),
        Value("\"full\""),
        "With `lazy`: a term for each sample from its own genes; one for the first sample from all genes, as 062 to 069 ran; 0, as 074, 075 and 077 ran; or no such head",
    ),
    key("model.attention_layers", COUNT32, Value("2"), "With `lazy`: attention layers of the local head"),
    key("model.path", Kind::Text, Value("\"\""), "With `torchscript`: the module's file, from the project folder"),
    key(
        "model.inputs",
        Kind::TextList,
        Value("[\"genes\", \"gene_sample\", \"batch_size\"]"),
        "With `torchscript`: what its `forward` takes, in order (docs/training.md)",
    ),
    key(
        "model.tokens",
        COUNT32,
        Value("2200"),
        "With `transformer`: the most genes of a row that it reads, those with the largest values",
    ),
];
