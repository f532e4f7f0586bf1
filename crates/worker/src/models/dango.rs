use expctl_dist::Autocast;
use tch::{Kind, Tensor, nn, nn::Init};

use super::graph::Graph;
use super::init::NORMAL;
use crate::models::ModelError;

/// Edges whose products are held at once, where single edges are needed: 2¹⁷ × 64 channels are 32 MiB a side.
const EDGES_AT_ONCE: i64 = 1 << 17;

/// Linear head h → N whose output R = H Wᵀ + 1 bᵀ is to be the adjacency matrix.
///
/// Invariant: R, `[N, N]`, is never made. The loss needs it only in sums, and those follow from `[h, h]` Gram matrices
/// and one product with the adjacency matrix.
#[derive(Debug)]
pub(super) struct Reconstruction {
    weight: Tensor,
    bias: Tensor,
}

impl Reconstruction {
    pub fn new(vs: nn::Path, hidden: i64, num_genes: i64) -> Self {
        Self {
            weight: vs.var("weight", &[num_genes, hidden], NORMAL),
            bias: vs.var("bias", &[num_genes], Init::Const(0.0)),
        }
    }

    /// (Σ over edges (1 − R)² + λ Σ over non-edges R²) / N², scalar; `h` is float32 `[N, h]`.
    ///
    /// With E edges this is (E − 2 Σ_edges R + (1 − λ) Σ_edges R² + λ Σ R²) / N².
    pub fn loss(&self, h: &Tensor, graph: &Graph, absent_weight: f64) -> Result<Tensor, ModelError> {
        // A small difference of large sums: not for bfloat16.
        let _float32 = Autocast::paused(h.device());
        let h = &h.f_to_kind(Kind::Float)?;
        let genes = h.size()[0] as f64;
        let edges = graph.adjacency.num_entries() as f64;
        let over_edges = (h * graph.adjacency.matmul(&self.weight)?).sum(Kind::Float) + graph.in_degree.dot(&self.bias);
        let mut sum = self.square_sum(h) * absent_weight - over_edges * 2.0 + edges;
        if let Some((sources, targets)) = &graph.edges {
            sum += self.square_sum_of_edges(h, sources, targets) * (1.0 - absent_weight);
        }
        Ok(sum / (genes * genes))
    }

    /// Σ R² = Σ (HᵀH ∘ WᵀW) + 2 (Σ_i H_i) · (Wᵀ b) + N bᵀb.
    fn square_sum(&self, h: &Tensor) -> Tensor {
        let grams = (h.tr().matmul(h) * self.weight.tr().matmul(&self.weight)).sum(Kind::Float);
        let cross = h.sum_dim_intlist([0i64].as_slice(), false, Kind::Float).dot(&self.weight.tr().mv(&self.bias));
        grams + cross * 2.0 + self.bias.dot(&self.bias) * h.size()[0] as f64
    }

    fn square_sum_of_edges(&self, h: &Tensor, sources: &Tensor, targets: &Tensor) -> Tensor {
        let mut total = Tensor::zeros([], (Kind::Float, h.device()));
        for (sources, targets) in sources.split(EDGES_AT_ONCE, 0).iter().zip(targets.split(EDGES_AT_ONCE, 0)) {
            let products = h.index_select(0, sources) * self.weight.index_select(0, &targets);
            let r =
                products.sum_dim_intlist([1i64].as_slice(), false, Kind::Float) + self.bias.index_select(0, &targets);
            total += r.square().sum(Kind::Float);
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::EdgeList;
    use expctl_rounding::{NEIGHBOURS, assert_rounding, distance, floor, nudged, values};
    use tch::Device;

    const GENES: i64 = 23;

    /// The head and its input, to be used with gradients of their own each time.
    struct Start {
        weight: Tensor,
        bias: Tensor,
        h: Tensor,
    }

    impl Start {
        fn nudged(&self, neighbour: u32) -> Self {
            let [weight, bias, h] = [&self.weight, &self.bias, &self.h].map(|tensor| nudged(tensor, neighbour));
            Self { weight, bias, h }
        }
    }

    /// Value and gradients by `loss`, in `kind`.
    fn run(start: &Start, kind: Kind, loss: &dyn Fn(&Reconstruction, &Tensor) -> Tensor) -> [Vec<f64>; 4] {
        let leaf = |t: &Tensor| t.to_kind(kind).copy().set_requires_grad(true);
        let head = Reconstruction { weight: leaf(&start.weight), bias: leaf(&start.bias) };
        let h = leaf(&start.h);
        let value = loss(&head, &h);
        value.backward();
        [value, h.grad(), head.weight.grad(), head.bias.grad()].each_ref().map(values)
    }

    #[test]
    fn equals_the_dense_formula_in_value_and_gradients() {
        let mut sources: Vec<i64> = (0..120).map(|i| i * i % GENES).collect();
        let mut targets: Vec<i64> = (0..120).map(|i| (i * 5 + 3) % GENES).collect();
        sources.extend([0, 0]);
        targets.extend([1, 1]); // listed twice
        let list = EdgeList { name: "t", sources: &sources, targets: &targets };
        let dense = Tensor::zeros([GENES, GENES], (Kind::Float, Device::Cpu));
        for (s, t) in sources.iter().zip(&targets) {
            let _ = dense.get(*s).get(*t).fill_(1.0);
        }
        let float = (Kind::Float, Device::Cpu);
        let start = Start {
            weight: Tensor::randn([GENES, 6], float) * 0.1,
            bias: Tensor::rand([GENES], float) - 0.5,
            h: Tensor::randn([GENES, 6], float).relu(),
        };
        for absent_weight in [1.0, 0.1] {
            let graph = Graph::new(&list, GENES, absent_weight != 1.0, Device::Cpu).unwrap();
            let got = run(&start, Kind::Float, &|head, h| head.loss(h, &graph, absent_weight).unwrap());
            let by_formula = |start: &Start, kind: Kind| {
                let dense = dense.to_kind(kind);
                run(start, kind, &|head, h| {
                    let r = h.matmul(&head.weight.tr()) + &head.bias;
                    let weight: Tensor = &dense + (1.0 - &dense) * absent_weight;
                    let squares: Tensor = (&dense - r).square();
                    (weight * squares).sum(kind) / (GENES * GENES) as f64
                })
            };
            let exact = by_formula(&start, Kind::Double);
            let mut peers: [Vec<f64>; 4] = Default::default();
            for neighbour in 0..NEIGHBOURS {
                let near = start.nudged(neighbour);
                let (single, double) = (by_formula(&near, Kind::Float), by_formula(&near, Kind::Double));
                for ((peers, single), double) in peers.iter_mut().zip(&single).zip(&double) {
                    peers.push(distance(single, double));
                }
            }
            for (i, name) in ["value", "h", "weight", "bias"].into_iter().enumerate() {
                let what = format!("{name} at λ {absent_weight}");
                let floor = floor(&exact[i], (GENES * GENES) as usize);
                assert_rounding(&what, distance(&got[i], &exact[i]), &peers[i], floor);
            }
        }
    }
}
