//! `[model]`: which model, and its size.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// Which model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// The word used in configs and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dango => "dango",
            Self::Lazy => "lazy",
            Self::Torchscript => "torchscript",
            Self::Mlp => "mlp",
            Self::Transformer => "transformer",
        }
    }

    /// Whether it reads rows of an array, and not samples of a graph.
    pub const fn reads_array(self) -> bool {
        matches!(self, Self::Mlp | Self::Transformer)
    }
}

/// How the lazy model is computed. All have the same parameters and, on batches with the same samples and masks, the same outputs but
/// for rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Implementation {
    /// On the graph that the batch has for each sample: a masked copy, as published, or a subgraph.
    #[default]
    Replicated,
    /// On one graph for all samples, corrected for the edges that each sample lacks: with expctl's kernels on the host, as
    /// [`Implementation::Operations`] elsewhere.
    Shared,
    /// On one graph for all samples with masks made in the forward pass, in libtorch's own operations: on any device.
    Operations,
}

impl Implementation {
    /// The word used in configs and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Replicated => "replicated",
            Self::Shared => "shared",
            Self::Operations => "operations",
        }
    }

    /// What computes on the host (`on_host`) or on a GPU where this is set.
    #[must_use]
    pub const fn running(self, on_host: bool) -> Self {
        match self {
            // Its kernels are for processors.
            Self::Shared if !on_host => Self::Operations,
            other => other,
        }
    }

    /// What it computes with, for a reader of a note.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Replicated => "the graph of each sample, libtorch's operations",
            Self::Shared => "one graph for all samples, expctl's kernels",
            Self::Operations => "one graph for all samples, libtorch's operations",
        }
    }
}

/// How a layer of the lazy model joins what its convolutions, one per edge type, yield.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// An MLP for each pair of edge types, weighed by scores.
    #[default]
    PairwiseInteraction,
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
}

/// Over what a normalisation takes mean and variance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Norm {
    /// All nodes of all samples and all channels together, as published: samples of a batch influence each other.
    #[default]
    Graph,
    /// The channels of each node.
    Node,
}

/// The head of the lazy model that reads the perturbed genes themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LocalHead {
    /// As it was meant: a term for each sample, from its own genes.
    #[default]
    Full,
    /// As 062 to 069 ran, which did not know whose genes are whose: one term from all genes of the batch, for its first
    /// sample alone.
    Pooled,
    /// As 074, 075 and 077 ran: it is there, and its term is 0.
    Zero,
    /// There is none.
    None,
}

/// `[model]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// Which model.
    pub kind: ModelKind,
    /// Channels.
    pub hidden: u32,
    /// Attention heads.
    pub heads: u32,
    /// Attention layers of DANGO and the transformer, message passing layers of the lazy model, hidden layers of the MLP.
    pub layers: u32,
    /// Edge types that the model reads.
    pub edge_types: Vec<String>,
    /// Seed of the initial parameters.
    pub seed: u64,
    /// How the lazy model is computed.
    #[serde(default)]
    pub implementation: Implementation,
    /// How its layers join the edge types.
    #[serde(default)]
    pub aggregation: Aggregation,
    /// Whether they normalise what pairs of edge types yield.
    #[serde(default = "yes")]
    pub aggregation_norm: bool,
    /// Linear layers in each of its convolutions.
    #[serde(default = "four")]
    pub convolution_layers: u32,
    /// Over what its encoder normalises.
    #[serde(default)]
    pub norm: Norm,
    /// Over what the layers in front of the encoder normalise.
    #[serde(default)]
    pub preprocessor_norm: Norm,
    /// Its local head.
    #[serde(default)]
    pub local_head: LocalHead,
    /// Attention layers of its local head.
    #[serde(default = "two")]
    pub attention_layers: u32,
    /// File of a TorchScript module, absolute; empty with any other model.
    #[serde(default)]
    pub path: String,
    /// What the module's forward takes, in order.
    #[serde(default = "module_inputs")]
    pub inputs: Vec<String>,
    /// The most genes of a row that the transformer reads.
    #[serde(default = "scprint_tokens")]
    pub tokens: u32,
}

/// The context of scPRINT in training (Kalfon et al. 2025).
const fn scprint_tokens() -> u32 {
    2200
}

const fn yes() -> bool {
    true
}

const fn two() -> u32 {
    2
}

const fn four() -> u32 {
    4
}

impl Model {
    /// What a table calls it: `dango`, `lazy, replicated`, `torchscript, sum.pt`.
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
}

fn module_inputs() -> Vec<String> {
    ["genes", "gene_sample", "batch_size"].map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_of_the_host_run_nowhere_else() {
        use Implementation::{Operations, Replicated, Shared};
        assert_eq!([Replicated, Shared, Operations].map(|of| of.running(true)), [Replicated, Shared, Operations]);
        assert_eq!([Replicated, Shared, Operations].map(|of| of.running(false)), [Replicated, Operations, Operations]);
    }
}
