//! Why a model cannot be built or run.

use tch::TchError;
use torch_dist::DistError;

use crate::device::DeviceError;

/// Why a model cannot be built or run.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A size is not possible.
    #[error("impossible model size: {0}")]
    Size(#[from] SizeError),
    /// An edge list does not fit the genes.
    #[error("edge type {name}: {reason}")]
    Edges {
        /// The edge type.
        name: String,
        /// The defect.
        reason: EdgeListError,
    },
    /// The batch does not have the inputs of the model.
    #[error("the batch does not have what the model reads: {0}")]
    Inputs(#[from] InputError),
    /// A TorchScript module cannot be read, or does not do what a model has to.
    #[error("TorchScript module {path}: {reason}")]
    Module {
        /// Its file.
        path: String,
        /// The defect.
        reason: String,
    },
    /// An operation of libtorch failed.
    #[error("model: {0}")]
    Tensor(#[from] TchError),
    /// The sparse product failed.
    #[error("model: {0}")]
    Sparse(#[from] DistError),
    /// The page-locked copy of a batch does not have the inputs of the model.
    #[error("the page-locked copy of a batch does not have what the model reads: {0}")]
    PinnedCopy(#[from] PinnedCopyError),
    /// The batch cannot be copied to the device.
    #[error("{0}")]
    Device(#[from] DeviceError),
}

/// A size that no model has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Fewer than one gene, or more than 32 bits index.
    #[error("{0} genes")]
    Genes(i64),
    /// Fewer than two channels.
    #[error("{0} channels, at least 2 are needed")]
    Channels(i64),
    /// The heads do not divide the channels.
    #[error("{hidden} channels cannot be split among {heads} heads")]
    Heads {
        /// Channels.
        hidden: i64,
        /// Attention heads.
        heads: i64,
    },
    /// Fewer than one attention layer.
    #[error("{0} attention layers")]
    AttentionLayers(i64),
    /// Fewer than one message passing layer.
    #[error("{0} message passing layers")]
    MessagePassingLayers(i64),
    /// Fewer than one linear layer.
    #[error("{0} linear layers in a convolution")]
    ConvolutionLayers(i64),
    /// The model reads no edge type.
    #[error("no edge types")]
    NoEdgeTypes,
    /// Edge types and their indices in a batch differ in number.
    #[error("{types} edge types at {indices} places")]
    EdgeTypeIndices {
        /// Number of edge types.
        types: usize,
        /// Number of indices.
        indices: usize,
    },
    /// A size of an MLP is below 1.
    #[error("{genes} genes, {hidden} channels, {layers} hidden layers and {classes} classes: at least 1 of each")]
    Mlp {
        /// Values of a row.
        genes: i64,
        /// Channels.
        hidden: i64,
        /// Hidden layers.
        layers: i64,
        /// Classes.
        classes: i64,
    },
    /// A size of a transformer is below 1, or the heads do not divide the channels.
    #[error(
        "{genes} genes, {hidden} channels, {heads} heads, {layers} layers, {tokens} tokens and {classes} classes: at least 1 of \
         each, and channels a multiple of heads"
    )]
    Transformer {
        /// Values of a row.
        genes: i64,
        /// Channels.
        hidden: i64,
        /// Attention heads.
        heads: i64,
        /// Layers.
        layers: i64,
        /// Tokens of a row, at most.
        tokens: i64,
        /// Classes.
        classes: i64,
    },
}

/// A defect of an edge list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EdgeListError {
    /// The two ends differ in number.
    #[error("{sources} sources and {targets} targets")]
    Ends {
        /// Number of sources.
        sources: usize,
        /// Number of targets.
        targets: usize,
    },
    /// An end is no gene of the graph.
    #[error("gene {gene} is not among {genes} genes")]
    Gene {
        /// The end.
        gene: i64,
        /// Number of genes.
        genes: i64,
    },
    /// The name cannot be part of a parameter's name.
    #[error("its name names its parameters, and must not be empty or have a dot")]
    Name,
    /// Another edge type has the same name.
    #[error("it is there twice")]
    Repeated,
}

/// A defect of a batch: an input that the model reads and the batch lacks, or a value out of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// The model does not read this kind of data.
    #[error("model `{model}` does not read {found}")]
    Data {
        /// Word of the settings for the model.
        model: &'static str,
        /// The data.
        found: &'static str,
    },
    /// The batch is one of rows.
    #[error("samples of a graph, not rows of an array")]
    NoSamples,
    /// The batch is one of samples.
    #[error("rows of an array, not samples of a graph")]
    NoRows,
    /// Rows have no labels.
    #[error("array.labels")]
    NoLabels,
    /// Rows have another width.
    #[error("rows of {expected} genes, not of {found}")]
    RowWidth {
        /// Width that the model reads.
        expected: i64,
        /// Width of the batch.
        found: i64,
    },
    /// An MLP got tokens.
    #[error("all values of a row, not its tokens")]
    NoValues,
    /// A transformer got no tokens.
    #[error("the tokens of each row")]
    NoTokens,
    /// Samples have no graphs.
    #[error("the graph of each sample")]
    NoGraphs,
    /// Graphs lack nodes of the full graph.
    #[error("all {genes} genes of each of {samples} samples")]
    NotAllNodes {
        /// Genes of the graph.
        genes: i64,
        /// Samples of the batch.
        samples: i64,
    },
    /// The list of the nodes' genes has another length than the nodes.
    #[error("the genes of the {nodes} nodes of its graphs")]
    NodeGenes {
        /// Nodes of all samples.
        nodes: i64,
    },
    /// The flags of removed genes do not fit the nodes.
    #[error("which of {genes} genes the {nodes} nodes of its graphs are not")]
    RemovedNodes {
        /// Genes of the graph.
        genes: i64,
        /// Nodes of all samples.
        nodes: i64,
    },
    /// A batch lacks an edge type.
    #[error("the edges of {0}")]
    NoEdges(String),
    /// A batch has too few edge types.
    #[error("{expected} edge types, not {found}")]
    EdgeTypes {
        /// Edge types that the model reads, at least.
        expected: usize,
        /// Edge types of the batch.
        found: usize,
    },
    /// Edges and their masks differ in shape, or one is missing.
    #[error("edges and masks of {of}: {edges:?} and {masks:?}")]
    EdgeMasks {
        /// The edge type, or `each sample`.
        of: String,
        /// Shape of the edge index.
        edges: Vec<i64>,
        /// Shape of the masks.
        masks: Vec<i64>,
    },
    /// The lists of removed edges are missing, or of another batch.
    #[error("removed edges of {0}")]
    NoRemovedEdges(String),
    /// A removed edge is out of range.
    #[error("{edge_type}: edge {position} is not among {edges}")]
    EdgeOutside {
        /// The edge type.
        edge_type: String,
        /// Position of the edge.
        position: i32,
        /// Number of edges.
        edges: usize,
    },
    /// The masks that the step made are missing, or of another batch.
    #[error("masks of all edges of {0}")]
    NoStepMasks(String),
    /// A perturbed gene is out of range.
    #[error("a gene that is not among {genes}")]
    GeneOutside {
        /// Genes of the graph.
        genes: usize,
    },
    /// A perturbed gene belongs to no sample.
    #[error("sample {sample} is not among {samples}")]
    SampleOutside {
        /// Index of the sample.
        sample: i64,
        /// Samples of the batch.
        samples: usize,
    },
}

/// A page-locked copy that was made otherwise than it is read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinnedCopyError {
    /// The graphs of the samples are copied and not read, or read and not copied.
    #[error("it was made {} the graphs of its samples, and is read {}", with(*.copied), with(!.copied))]
    Graphs {
        /// Whether they were copied.
        copied: bool,
    },
    /// The sizes of the tensors differ.
    #[error("it was made of {copied} bytes, and {read} are read")]
    Bytes {
        /// Size of the copy.
        copied: usize,
        /// Size of the tensors that are read.
        read: usize,
    },
}

const fn with(graphs: bool) -> &'static str {
    if graphs { "with" } else { "without" }
}
