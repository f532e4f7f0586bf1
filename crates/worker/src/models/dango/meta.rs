use tch::{Kind, Tensor, nn, nn::Module};

use super::init::xavier_linear;

/// Weighs the embeddings that a gene has in the single edge types: an MLP h → h/2 → 1, one for all types, scores each.
#[derive(Debug)]
pub(super) struct MetaEmbedding {
    first: nn::Linear,
    second: nn::Linear,
}

impl MetaEmbedding {
    pub fn new(vs: nn::Path, hidden: i64) -> Self {
        Self { first: xavier_linear(&vs / "0", hidden, hidden / 2), second: xavier_linear(&vs / "2", hidden / 2, 1) }
    }

    /// `embeddings` float32 `[n, types, h]` to their softmax-weighted sum `[n, h]`.
    pub fn forward(&self, embeddings: &Tensor) -> Tensor {
        let scores = self.second.forward(&self.first.forward(embeddings).relu());
        (embeddings * scores.softmax(1, Kind::Float)).sum_dim_intlist([1i64].as_slice(), false, Kind::Float)
    }
}
