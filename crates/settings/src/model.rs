//! `[model]`: which model, its size, and how many parameters it has.

use std::path::Path;

use expctl_settings_derive::{Words, section};
use serde::{Deserialize, Serialize};

use crate::{DeviceMasks, Mode, Processor, Settings};

/// Which model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum ModelKind {
    /// DANGO: graph encoders with reconstruction, meta-embedding, hypergraph attention.
    Dango,
    /// The published lazy model: GIN convolutions over all edge types on the graph of each sample.
    Lazy,
    /// A TorchScript module from a file.
    Torchscript,
    /// Multi-layer perceptron over the rows of an array, to the classes of a label.
    Mlp,
    /// Transformer over the genes that each row of an array expresses, to the classes of a label.
    Transformer,
}

impl ModelKind {
    /// Whether it reads rows of an array, and not samples of a graph.
    pub const fn reads_array(self) -> bool {
        matches!(self, Self::Mlp | Self::Transformer)
    }

    /// Channels, attention heads and layers where a config does not say them.
    pub const fn sizes(self) -> (u32, u32, u32) {
        match self {
            Self::Lazy => (64, 8, 3),
            Self::Mlp => (1024, 1, 5),
            Self::Transformer => (256, 4, 8),
            Self::Dango | Self::Torchscript => (64, 4, 2),
        }
    }
}

/// How the lazy model is computed. All have the same parameters and, on batches with the same samples and masks, the same outputs except
/// for rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum Implementation {
    /// On the graph that the batch has for each sample: a masked copy, as published, or a subgraph.
    #[default]
    Replicated,
    /// On one graph for all samples, corrected for the edges that each sample lacks: with expctl's kernels on the CPU, as
    /// [`Implementation::Operations`] elsewhere.
    Shared,
    /// On one graph for all samples with masks made in the forward pass, in libtorch's own operations: on any device.
    Operations,
}

impl Implementation {
    /// The implementation that runs on the CPU (`on_host`) or on a GPU when a config asks for this one.
    #[must_use]
    pub const fn running(self, on_host: bool) -> Self {
        match self {
            // Its kernels are for CPUs.
            Self::Shared if !on_host => Self::Operations,
            other => other,
        }
    }

    /// The graph and the operations that it uses, for a reader of a note.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Replicated => "the graph of each sample, libtorch's operations",
            Self::Shared => "one graph for all samples, expctl's kernels",
            Self::Operations => "one graph for all samples, libtorch's operations",
        }
    }
}

/// How a layer of the lazy model joins the outputs of its convolutions, one per edge type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum Aggregation {
    /// An MLP for each pair of edge types, weighted by scores.
    #[default]
    PairwiseInteraction,
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
}

/// Elements that mean and variance of a normalisation are taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum Norm {
    /// All nodes of all samples and all channels together, as published: samples of a batch influence each other.
    #[default]
    Graph,
    /// The channels of each node.
    Node,
}

/// The head of the lazy model that reads the perturbed genes themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum LocalHead {
    /// As intended: a term for each sample, from its own genes.
    #[default]
    Full,
    /// As in runs 062 to 069, which did not know which sample a gene belongs to: one term from all genes of the batch, added to its
    /// first sample alone.
    Pooled,
    /// As in runs 074, 075 and 077: the head's parameters exist, and its output is multiplied by 0.
    Zero,
    /// No local head.
    None,
}

/// `[model]`
#[section("model", workloads(Graph, Array))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// Which model; `mlp` and `transformer` read arrays, the others graphs.
    #[setting(derived = "`dango`; `mlp` with `array.format`")]
    pub kind: ModelKind,
    /// Channels; a multiple of `heads`.
    #[setting(derived = "64; 1024 for `mlp`, 256 for `transformer`", min = 1)]
    pub hidden: u32,
    /// Attention heads.
    #[setting(derived = "4; 8 for `lazy`", min = 1)]
    pub heads: u32,
    /// Attention layers of `dango` and `transformer`, message passing layers of `lazy`, hidden layers of `mlp`.
    #[setting(derived = "2 for `dango`, 3 for `lazy`, 5 for `mlp`, 8 for `transformer`", min = 1)]
    pub layers: u32,
    /// Edge types that the model reads.
    #[setting(
        derived = "for `dango` the `string12_0_*` types of pipeline.edge_types, else all of them",
        workloads(Graph)
    )]
    pub edge_types: Vec<String>,
    /// Seed of the initial parameters; with `train.epochs` repeat r has this + r − 1.
    #[setting(default = 42)]
    pub seed: u64,
    /// With `lazy`: on the graph that the batch has for each sample, as published (`replicated`); on one graph for all, with expctl's
    /// kernels on the host and libtorch's operations on a GPU (`shared`) or with those anywhere (`operations`). Same parameters, same
    /// outputs (docs/reference/lazy-model.md).
    #[setting(default = Implementation::Replicated, added, workloads(Graph))]
    pub implementation: Implementation,
    /// With `lazy`: how a layer joins its edge types.
    #[setting(default = Aggregation::PairwiseInteraction, added, workloads(Graph))]
    pub aggregation: Aggregation,
    /// With `pairwise_interaction`: normalise what it yields.
    #[setting(default = true, added, workloads(Graph))]
    pub aggregation_norm: bool,
    /// With `lazy`: linear layers of each convolution.
    #[setting(default = 4, added, min = 1, workloads(Graph))]
    pub convolution_layers: u32,
    /// With `lazy`: mean and variance over all nodes of the batch, as published, or of each node.
    #[setting(default = Norm::Graph, added, workloads(Graph))]
    pub norm: Norm,
    /// The same in front of the encoder; 062 to 065 had `node`.
    #[setting(default = Norm::Graph, added, workloads(Graph))]
    pub preprocessor_norm: Norm,
    /// With `lazy`: a term for each sample from its own genes; one for the first sample from all genes, as 062 to 069 ran; 0, as 074, 075
    /// and 077 ran; or no such head.
    #[setting(default = LocalHead::Full, added, workloads(Graph))]
    pub local_head: LocalHead,
    /// With `lazy`: attention layers of the local head.
    #[setting(default = 2, added, min = 1, workloads(Graph))]
    pub attention_layers: u32,
    /// With `torchscript`: the module's file, from the project folder.
    ///
    /// In a trial: an absolute path.
    #[setting(default = "", added, workloads(Graph))]
    pub path: String,
    /// With `torchscript`: what its `forward` takes, in order (docs/guide/training.md).
    #[setting(default = ["genes", "gene_sample", "batch_size"], added, workloads(Graph))]
    pub inputs: Vec<String>,
    /// With `transformer`: the most genes of a row that it reads, those with the largest values.
    ///
    /// The default is the context of scPRINT in training (Kalfon et al. 2025).
    #[setting(default = 2200, added, min = 1, workloads(Array))]
    pub tokens: u32,
}

impl Model {
    /// Its name in tables: `dango`, `lazy, replicated`, `torchscript, sum.pt`.
    pub fn words(&self) -> String {
        let name = self.kind.name();
        match self.kind {
            ModelKind::Lazy => format!("{name}, {}", self.implementation.name()),
            ModelKind::Torchscript => {
                let file = Path::new(&self.path).file_name().unwrap_or_default();
                format!("{name}, {}", file.to_string_lossy())
            }
            ModelKind::Dango | ModelKind::Mlp | ModelKind::Transformer => name.to_owned(),
        }
    }

    /// Number of trained parameters over a graph of `genes` genes. None where the settings do not tell: modules from files, and models
    /// of arrays, whose size follows from the genes and classes of the files.
    pub fn parameter_count(&self, genes: u64) -> Option<u64> {
        match self.kind {
            ModelKind::Dango => Some(self.dango(genes)),
            ModelKind::Lazy => Some(self.lazy(genes)),
            ModelKind::Torchscript | ModelKind::Mlp | ModelKind::Transformer => None,
        }
    }

    /// Embedding, for each edge type two SAGE convolutions and the reconstruction of its adjacency, scores of the edge types,
    /// attention over the genes of a sample.
    fn dango(&self, genes: u64) -> u64 {
        let (h, types) = (u64::from(self.hidden), self.edge_types.len() as u64);
        let convolution = linear(h, h) + h * h;
        genes * h + types * (2 * convolution + linear(h, genes)) + scores(h) + attention(h, u64::from(self.layers))
    }

    /// Embedding, preprocessor of two layers with one norm, encoder, readout, global head, local head.
    fn lazy(&self, genes: u64) -> u64 {
        let (h, types) = (u64::from(self.hidden), self.edge_types.len() as u64);
        let norm = 2 * h;
        let convolution = 1 + u64::from(self.convolution_layers) * linear(h, h) + norm;
        let aggregation = match self.aggregation {
            Aggregation::PairwiseInteraction => {
                let pair = linear(2 * h, h / 2) + linear(h / 2, h);
                types * (types + 1) / 2 * pair + scores(h) + if self.aggregation_norm { norm } else { 0 }
            }
            Aggregation::Sum | Aggregation::Mean => 0,
        };
        let encoder = u64::from(self.layers) * (types * convolution + aggregation);
        let local_head = match self.local_head {
            LocalHead::None => 0,
            // With `Zero` its term is 0, but it exists.
            LocalHead::Full | LocalHead::Pooled | LocalHead::Zero => attention(h, u64::from(self.attention_layers)),
        };
        let readout = scores(h) + linear(h, h);
        genes * h + 2 * linear(h, h) + norm + encoder + readout + linear(h, h) + linear(h, 1) + local_head
    }
}

/// Remarks on the figures of the lazy model, one sentence each: when it computes another function than on the whole graph with masks
/// (docs/reference/lazy-model.md), and when it does not read the masks that the step makes. Empty when no layer of it is computed.
pub fn model_remarks(settings: &Settings) -> Vec<String> {
    let Settings { model, pipeline, train, .. } = settings;
    let computes = train.mode.computes_model() && train.mode != Mode::ZeroLoss;
    if !computes || settings.runs_command() || settings.reads_array() || model.kind != ModelKind::Lazy {
        return Vec::new();
    }
    let mut all = Vec::new();
    match pipeline.processor {
        Processor::Subgraph | Processor::IncidenceSubgraph
            if [model.norm, model.preprocessor_norm].contains(&Norm::Graph) =>
        {
            all.push(
                "norms over all nodes of the batch are taken without the removed genes, so predictions and losses are not those of \
                 masked batches (model.norm and model.preprocessor_norm = \"node\" make them equal)"
                    .to_owned(),
            );
        }
        Processor::Neighborhood => {
            let hops = pipeline.hops;
            let plural = if hops == 1 { "" } else { "s" };
            all.push(format!(
                "the encoder sees the genes within {hops} hop{plural} of the perturbed ones, so predictions and losses are not those of \
                 the whole graph"
            ));
        }
        _ => {}
    }
    if pipeline.device_masks != DeviceMasks::None && model.implementation == Implementation::Shared {
        all.push(
            "on the host the masks that the step makes are not read: the kernels of the implementation \"shared\" go by the genes \
             (\"operations\" reads the masks)"
                .to_owned(),
        );
    }
    all
}

/// A linear layer with biases.
const fn linear(inputs: u64, outputs: u64) -> u64 {
    (inputs + 1) * outputs
}

/// Two layers from h channels to one score.
const fn scores(h: u64) -> u64 {
    linear(h, h / 2) + linear(h / 2, 1)
}

/// HyperSAGNN: a static layer; in each attention layer query, key, value, output and the weight of the residual; the prediction.
const fn attention(h: u64, layers: u64) -> u64 {
    linear(h, h) + layers * (4 * linear(h, h) + 1) + linear(h, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Genes of the published graph.
    const GENES: u64 = 6607;

    fn published(kind: &str, heads: u32, layers: u32, types: usize) -> Model {
        let edge_types: Vec<String> = (0..types).map(|i| format!("type_{i}")).collect();
        let model = serde_json::json!({
            "kind": kind, "hidden": 64, "heads": heads, "layers": layers, "edge_types": edge_types, "seed": 42
        });
        serde_json::from_value(model).unwrap()
    }

    #[test]
    fn the_published_models_have_as_many_as_published() {
        assert_eq!(published("dango", 4, 2, 6).parameter_count(GENES), Some(3_138_270));
        let lazy = published("lazy", 8, 3, 9);
        assert_eq!(lazy.parameter_count(GENES), Some(1_781_187));
        // 065; and the smaller model that was profiled.
        let without_norm = Model { aggregation_norm: false, ..lazy.clone() };
        assert_eq!(without_norm.parameter_count(GENES), Some(1_780_803));
        let profiled =
            Model { aggregation: Aggregation::Sum, convolution_layers: 2, local_head: LocalHead::None, ..lazy.clone() };
        assert_eq!(profiled.parameter_count(GENES), Some(669_917));
        assert_eq!(published("mlp", 1, 5, 0).parameter_count(GENES), None);
        assert_eq!(
            (lazy.words(), published("dango", 4, 2, 6).words()),
            ("lazy, replicated".to_owned(), "dango".to_owned())
        );
    }

    #[test]
    fn kernels_of_the_host_run_nowhere_else() {
        use Implementation::{Operations, Replicated, Shared};
        assert_eq!([Replicated, Shared, Operations].map(|of| of.running(true)), [Replicated, Shared, Operations]);
        assert_eq!([Replicated, Shared, Operations].map(|of| of.running(false)), [Replicated, Operations, Operations]);
    }
}
