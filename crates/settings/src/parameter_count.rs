//! How many parameters a model has, from its settings: known before it is built.

use crate::{Aggregation, LocalHead, Model, ModelKind};

impl Model {
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
}
