use crate::models::{EdgeList, ModelError};

/// Size of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DangoConfig {
    /// Number of genes, N.
    pub num_genes: i64,
    /// Channels, h.
    pub hidden: i64,
    /// Attention heads; divides `hidden`.
    pub heads: i64,
    /// Attention layers.
    pub layers: i64,
    /// Weight λ of the absent edges in the reconstruction loss; the published runs used 1.
    pub absent_weight: f64,
}

impl DangoConfig {
    /// The published model over `num_genes` genes: 64 channels, 4 heads, 2 layers, λ = 1.
    pub const fn published(num_genes: i64) -> Self {
        Self { num_genes, hidden: 64, heads: 4, layers: 2, absent_weight: 1.0 }
    }
}

impl DangoConfig {
    pub(super) fn check(&self, graphs: &[EdgeList]) -> Result<(), ModelError> {
        let Self { num_genes, hidden, heads, layers, .. } = *self;
        let reason = if num_genes < 1 || num_genes > i64::from(i32::MAX) {
            format!("{num_genes} genes")
        } else if hidden < 2 {
            format!("{hidden} channels, at least 2 are needed")
        } else if heads < 1 || hidden % heads != 0 {
            format!("{hidden} channels cannot be split among {heads} heads")
        } else if layers < 1 {
            format!("{layers} attention layers")
        } else if graphs.is_empty() {
            "no edge types".to_owned()
        } else {
            return Ok(());
        };
        Err(ModelError::Size(reason))
    }
}
