use expctl_record::{Aggregation, LocalHead, Model, Norm};

use crate::models::{EdgeList, ModelError};

/// Size and make of the model.
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
    /// How a layer joins what its convolutions yield.
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
    /// The published model over `num_genes` genes, as configs 073 to 086 have it: 64 channels, 3 layers.
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

    /// The model that a config's `[model]` asks for.
    pub fn of(model: &Model, num_genes: i64) -> Self {
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

    /// Whether the norm behind the aggregation exists.
    pub(super) fn normalises_aggregate(&self) -> bool {
        self.aggregation_norm && self.aggregation == Aggregation::PairwiseInteraction
    }

    /// # Errors
    /// A size that is not possible, or edges that do not fit the genes.
    pub(super) fn check(&self, graphs: &[EdgeList]) -> Result<(), ModelError> {
        let Self { num_genes, hidden, layers, convolution_layers, local_head, attention_layers, heads, .. } = *self;
        let with_local = local_head != LocalHead::None;
        let reason = if num_genes < 1 || num_genes > i64::from(i32::MAX) {
            format!("{num_genes} genes")
        } else if hidden < 2 {
            format!("{hidden} channels, at least 2 are needed")
        } else if layers < 1 {
            format!("{layers} message passing layers")
        } else if convolution_layers < 1 {
            format!("{convolution_layers} linear layers in a convolution")
        } else if with_local && (heads < 1 || hidden % heads != 0) {
            format!("{hidden} channels cannot be split among {heads} heads")
        } else if with_local && attention_layers < 1 {
            format!("{attention_layers} attention layers")
        } else if graphs.is_empty() {
            "no edge types".to_owned()
        } else {
            return graphs.iter().enumerate().try_for_each(|(i, list)| self.check_edges(list, &graphs[..i]));
        };
        Err(ModelError::Size(reason))
    }

    fn check_edges(&self, list: &EdgeList, earlier: &[EdgeList]) -> Result<(), ModelError> {
        let (sources, targets) = (list.sources.len(), list.targets.len());
        let outside = |gene: &&i64| !(0..self.num_genes).contains(*gene);
        let reason = if sources != targets {
            format!("{sources} sources and {targets} targets")
        } else if list.name.is_empty() || list.name.contains('.') {
            "its name names its parameters, and must not be empty or have a dot".to_owned()
        } else if earlier.iter().any(|other| other.name == list.name) {
            "it is there twice".to_owned()
        } else if let Some(gene) = list.sources.iter().chain(list.targets).find(outside) {
            format!("gene {gene} is not among {} genes", self.num_genes)
        } else {
            return Ok(());
        };
        Err(ModelError::Edges { name: list.name.to_owned(), reason })
    }
}
