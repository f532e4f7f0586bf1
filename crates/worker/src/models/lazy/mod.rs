//! The published lazy model: graph isomorphism convolutions over every edge type on the graph of each sample, pairwise interaction,
//! attentional readout, a global and a local head. Formulas and shapes: docs/reference/lazy-model.md.
//!
//! Invariant: with the same seed, configuration and names of edge types, every rank and every implementation builds the same parameters in
//! the same order.

use expctl_settings::{Aggregation, Implementation, LocalHead, Model, Norm};
use tch::{Device, TchError, Tensor, nn};

use crate::models::layers::upcast;
use crate::models::{EdgeList, EdgeListError, ModelError, ModelOutput, SampleInputs, SizeError};

mod batched;
pub(crate) mod layers;
mod operations;
pub(crate) mod replicated;
mod shared_graph;

use layers::LazyParameters;
use operations::OperationsEncoder;
use replicated::ReplicatedEncoder;
use shared_graph::SharedEncoder;

/// Sizes and variant of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LazyConfig {
    /// Number of genes, N.
    pub num_genes: i64,
    /// Channels, h.
    pub hidden: i64,
    /// Message passing layers.
    pub layers: i64,
    /// Linear layers in the MLP of each convolution.
    pub convolution_layers: i64,
    /// Combination of the results of a layer's convolutions.
    pub aggregation: Aggregation,
    /// Whether pairwise interaction is followed by a norm; the other aggregations never are.
    pub aggregation_norm: bool,
    /// Norm of the encoder.
    pub norm: Norm,
    /// Norm of the preprocessor.
    pub preprocessor_norm: Norm,
    /// The local head.
    pub local_head: LocalHead,
    /// Attention layers of the local head.
    pub attention_layers: i64,
    /// Heads of each; divides `hidden`.
    pub heads: i64,
}

impl LazyConfig {
    /// The published model over `num_genes` genes, as in configs 073 to 086: 64 channels, 3 layers.
    pub const fn published(num_genes: i64) -> Self {
        Self {
            num_genes,
            hidden: 64,
            layers: 3,
            convolution_layers: 4,
            aggregation: Aggregation::PairwiseInteraction,
            aggregation_norm: true,
            norm: Norm::Graph,
            preprocessor_norm: Norm::Graph,
            local_head: LocalHead::Full,
            attention_layers: 2,
            heads: 8,
        }
    }

    /// The config of the settings `model`, over `num_genes` genes.
    pub fn from_model(model: &Model, num_genes: i64) -> Self {
        Self {
            num_genes,
            hidden: i64::from(model.hidden),
            layers: i64::from(model.layers),
            convolution_layers: i64::from(model.convolution_layers),
            aggregation: model.aggregation,
            aggregation_norm: model.aggregation_norm,
            norm: model.norm,
            preprocessor_norm: model.preprocessor_norm,
            local_head: model.local_head,
            attention_layers: i64::from(model.attention_layers),
            heads: i64::from(model.heads),
        }
    }

    /// Whether a norm follows the aggregation.
    pub(crate) fn normalises_aggregate(&self) -> bool {
        self.aggregation_norm && self.aggregation == Aggregation::PairwiseInteraction
    }

    /// # Errors
    /// A size is not possible, or edges do not fit the genes.
    fn check(&self, graphs: &[EdgeList], indices: &[usize]) -> Result<(), ModelError> {
        let Self { num_genes, hidden, layers, convolution_layers, local_head, attention_layers, heads, .. } = *self;
        let with_local = local_head != LocalHead::None;
        let error = if num_genes < 1 || num_genes > i64::from(i32::MAX) {
            SizeError::Genes(num_genes)
        } else if hidden < 2 {
            SizeError::Channels(hidden)
        } else if layers < 1 {
            SizeError::MessagePassingLayers(layers)
        } else if convolution_layers < 1 {
            SizeError::ConvolutionLayers(convolution_layers)
        } else if with_local && (heads < 1 || hidden % heads != 0) {
            SizeError::Heads { hidden, heads }
        } else if with_local && attention_layers < 1 {
            SizeError::AttentionLayers(attention_layers)
        } else if graphs.is_empty() {
            SizeError::NoEdgeTypes
        } else if graphs.len() != indices.len() {
            SizeError::EdgeTypeIndices { types: graphs.len(), indices: indices.len() }
        } else {
            return graphs.iter().enumerate().try_for_each(|(i, list)| self.check_edges(list, &graphs[..i]));
        };
        Err(error.into())
    }

    fn check_edges(&self, list: &EdgeList, earlier: &[EdgeList]) -> Result<(), ModelError> {
        if list.name.is_empty() || list.name.contains('.') {
            return Err(list.defect(EdgeListError::Name));
        }
        if earlier.iter().any(|other| other.name == list.name) {
            return Err(list.defect(EdgeListError::Repeated));
        }
        list.check_ends(self.num_genes)
    }
}

/// The lazy model.
#[derive(Debug)]
pub struct Lazy {
    config: LazyConfig,
    parameters: LazyParameters,
    encoder: GraphEncoder,
}

/// The implementation that encodes graphs.
#[derive(Debug)]
enum GraphEncoder {
    Replicated(ReplicatedEncoder),
    Shared(SharedEncoder),
    Operations(OperationsEncoder),
}

/// Encodings of the wild type and of a batch of B samples.
#[doc(hidden)]
#[derive(Debug)]
pub struct Encodings {
    /// float32 `[N, h]`: the wild type's genes.
    pub genes: Tensor,
    /// float32 `[1, h]`: the readout of the wild type.
    pub wild_type: Tensor,
    /// float32 `[B, h]`: the readouts of the samples.
    pub samples: Tensor,
}

impl Lazy {
    /// Build the model; its parameters go into `vs`, drawn from libtorch's generator (call [`tch::manual_seed`] before). `graphs` are the edge
    /// types that it reads, and `indices` their indices among the edge types of a batch. The encoder is [`Implementation::running`] on the
    /// device of `vs`.
    ///
    /// # Errors
    /// A size is not possible, an edge names a gene that does not exist, or there is no memory.
    pub fn new(
        vs: &nn::Path,
        config: &LazyConfig,
        implementation: Implementation,
        graphs: &[EdgeList],
        indices: &[usize],
    ) -> Result<Self, ModelError> {
        config.check(graphs, indices)?;
        let types: Vec<&str> = graphs.iter().map(|list| list.name).collect();
        let parameters = LazyParameters::new(vs, config, &types);
        let (genes, device) = (config.num_genes, vs.device());
        let encoder = match implementation.running(device == Device::Cpu) {
            Implementation::Replicated => GraphEncoder::Replicated(ReplicatedEncoder::new(graphs, indices, device)?),
            Implementation::Shared => GraphEncoder::Shared(SharedEncoder::new(graphs, indices, genes)?),
            Implementation::Operations => {
                GraphEncoder::Operations(OperationsEncoder::new(graphs, indices, genes, device)?)
            }
        };
        Ok(Self { config: *config, parameters, encoder })
    }

    /// Compute edge types and pairs at once, as on a GPU, wherever the tensors are: for tests.
    ///
    /// # Errors
    /// libtorch has no memory.
    #[doc(hidden)]
    pub fn batch_types(&mut self) -> Result<(), ModelError> {
        let (genes, device) = (self.config.num_genes, self.parameters.embedding.device());
        match &mut self.encoder {
            GraphEncoder::Operations(operations) => operations.batch_types(genes, device),
            GraphEncoder::Replicated(_) | GraphEncoder::Shared(_) => Ok(()),
        }
    }

    /// Whether some parameters get no gradient: those of a local head whose term is 0.
    pub fn has_unused_parameters(&self) -> bool {
        self.config.local_head == LocalHead::Zero
    }

    /// Predictions for a batch. Its memory is read, never written.
    ///
    /// # Errors
    /// The batch does not have what the implementation reads, a gene is out of range, or libtorch has no memory.
    pub fn forward(&self, inputs: &SampleInputs<'_>) -> Result<ModelOutput, ModelError> {
        let encoded = self.encode(inputs)?;
        Ok(ModelOutput { prediction: self.predict(&encoded, inputs)?, reconstruction: None })
    }

    /// The encodings that [`Lazy::predict`] reads: the two halves of [`Lazy::forward`], for tests.
    ///
    /// # Errors
    /// As with [`Lazy::forward`].
    #[doc(hidden)]
    pub fn encode(&self, inputs: &SampleInputs<'_>) -> Result<Encodings, ModelError> {
        match &self.encoder {
            GraphEncoder::Replicated(replicated) => replicated.forward(&self.parameters, inputs),
            GraphEncoder::Shared(shared) => shared.forward(&self.parameters, inputs),
            GraphEncoder::Operations(operations) => operations.forward(&self.parameters, inputs),
        }
    }

    /// The heads: float32 `[B]`, float64 where the parameters are.
    ///
    /// # Errors
    /// libtorch has no memory.
    #[doc(hidden)]
    pub fn predict(&self, encoded: &Encodings, inputs: &SampleInputs<'_>) -> Result<Tensor, TchError> {
        let difference = encoded.wild_type.f_sub(&encoded.samples)?;
        let global = upcast(&self.parameters.global_head.forward(&difference)?.f_squeeze_dim(1)?)?;
        let Some(head) = &self.parameters.local_head else { return Ok(global) };
        let batch = inputs.batch_size;
        let rows = || encoded.genes.f_index_select(0, &inputs.genes);
        let global = global.f_mul_scalar(0.5)?;
        let local = match self.config.local_head {
            LocalHead::Full => head.forward(&rows()?, &inputs.gene_sample, batch)?,
            LocalHead::Pooled => head.forward(&rows()?, &inputs.gene_sample.f_zeros_like()?, batch)?,
            LocalHead::Zero | LocalHead::None => return Ok(global),
        };
        global.f_add(&local.f_mul_scalar(0.5)?)
    }
}
