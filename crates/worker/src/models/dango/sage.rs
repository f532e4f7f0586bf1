use expctl_dist::SparseMatrix;
use tch::{Tensor, nn, nn::Module};

use super::init::uniform_linear;
use crate::models::ModelError;

/// GraphSAGE convolution with mean aggregation: W_l · mean of the sources + b + W_r · x.
#[derive(Debug)]
pub(super) struct SageConv {
    neighbours: nn::Linear,
    own: nn::Linear,
}

impl SageConv {
    pub fn new(vs: nn::Path, hidden: i64) -> Self {
        Self {
            neighbours: uniform_linear(&vs / "lin_l", hidden, hidden, true),
            own: uniform_linear(&vs / "lin_r", hidden, hidden, false),
        }
    }

    /// float32 `[N, h]` to `[N, h]`.
    pub fn forward(&self, x: &Tensor, mean_of_sources: &SparseMatrix) -> Result<Tensor, ModelError> {
        Ok(self.neighbours.forward(&mean_of_sources.matmul(x)?) + self.own.forward(x))
    }
}

#[cfg(test)]
mod tests {
    use super::super::graph::Graph;
    use super::*;
    use crate::models::EdgeList;
    use expctl_rounding::gamma;
    use tch::{Device, Kind};

    #[test]
    fn equals_a_loop_over_edges() {
        // Gene 3 has no incoming edge, 0 → 1 is listed twice, 2 → 2 is a self-loop.
        let (sources, targets) = ([0, 0, 4, 2, 3, 1], [1, 1, 1, 2, 0, 4]);
        let list = EdgeList { name: "t", sources: &sources, targets: &targets };
        let graph = Graph::new(&list, 5, false, Device::Cpu).unwrap();
        let vs = nn::VarStore::new(Device::Cpu);
        let conv = SageConv::new(vs.root(), 4);
        let x = Tensor::randn([5, 4], (Kind::Float, Device::Cpu));
        let result = conv.forward(&x, &graph.mean_of_sources).unwrap();
        let value = |t: &Tensor, at: &[i64]| t.double_value(at);
        let bias = conv.neighbours.bs.as_ref().unwrap();
        for target in 0..5i64 {
            let incoming: Vec<i64> =
                sources.iter().zip(&targets).filter(|(_, t)| **t == target).map(|(s, _)| *s).collect();
            for out in 0..4i64 {
                let mut expected = value(bias, &[out]);
                // The same with the sizes of all terms.
                let mut sizes = expected.abs();
                for c in 0..4i64 {
                    let mean_of = |of: &dyn Fn(f64) -> f64| {
                        incoming.iter().map(|s| of(value(&x, &[*s, c]))).sum::<f64>() / incoming.len().max(1) as f64
                    };
                    let (neighbours, own) = (value(&conv.neighbours.ws, &[out, c]), value(&conv.own.ws, &[out, c]));
                    expected += neighbours * mean_of(&|x| x) + own * value(&x, &[target, c]);
                    sizes += neighbours.abs() * mean_of(&f64::abs) + (own * value(&x, &[target, c])).abs();
                }
                let got = value(&result, &[target, out]);
                // Up to 3 neighbours weighed by a rounded 1/3, then 4 products and the bias, then the sum of both parts.
                let bound = gamma(2 + 3 + 5 + 1) * sizes;
                assert!((got - expected).abs() <= bound, "[{target}, {out}]: {got}, expected {expected}");
            }
        }
    }
}
