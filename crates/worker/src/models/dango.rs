//! DANGO: graph encoders with reconstruction, meta-embedding, hypergraph attention. Formulas and shapes: docs/reference/dango.md.
//!
//! Invariant: with the same seed, configuration and graphs, every rank builds the same parameters in the same order.

use tch::nn::{self, Init, Module};
use tch::{Device, Kind, Tensor};
use torch_dist::{Autocast, MatrixEntry, SparseMatrix};

use crate::models::layers::{Activation, HyperSagnn, HyperSagnnOptions};
use crate::models::{EdgeList, ModelError, ModelOutput, SizeError};

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

    fn check(&self, graphs: &[EdgeList]) -> Result<(), ModelError> {
        let Self { num_genes, hidden, heads, layers, .. } = *self;
        let error = if num_genes < 1 || num_genes > i64::from(i32::MAX) {
            SizeError::Genes(num_genes)
        } else if hidden < 2 {
            SizeError::Channels(hidden)
        } else if heads < 1 || hidden % heads != 0 {
            SizeError::Heads { hidden, heads }
        } else if layers < 1 {
            SizeError::AttentionLayers(layers)
        } else if graphs.is_empty() {
            SizeError::NoEdgeTypes
        } else {
            return Ok(());
        };
        Err(error.into())
    }
}

/// The layers of one edge type.
#[derive(Debug)]
struct DangoEncoder {
    graph: DangoGraph,
    first: SageConv,
    second: SageConv,
    reconstruction: ReconstructionHead,
}

/// The DANGO model.
#[derive(Debug)]
pub struct Dango {
    embedding: Tensor,
    encoders: Vec<DangoEncoder>,
    meta: MetaEmbedding,
    hyper_sagnn: HyperSagnn,
    absent_weight: f64,
}

impl Dango {
    /// Build the model; its parameters go into `vs`, drawn from libtorch's generator (call [`tch::manual_seed`] before).
    ///
    /// # Errors
    /// A size is not possible, or an edge names a gene that does not exist.
    pub fn new(vs: &nn::Path, config: &DangoConfig, graphs: &[EdgeList]) -> Result<Self, ModelError> {
        config.check(graphs)?;
        let DangoConfig { num_genes, hidden, heads, layers, absent_weight } = *config;
        let encoders = graphs
            .iter()
            .enumerate()
            .map(|(i, list)| {
                let vs = vs / "encoders" / i;
                Ok(DangoEncoder {
                    graph: DangoGraph::new(list, num_genes, absent_weight != 1.0, vs.device())?,
                    first: SageConv::new(&vs / "conv1", hidden),
                    second: SageConv::new(&vs / "conv2", hidden),
                    reconstruction: ReconstructionHead::new(&vs / "reconstruction", hidden, num_genes),
                })
            })
            .collect::<Result<_, ModelError>>()?;
        let options = HyperSagnnOptions { activation: Activation::Relu, moves_lone_gene: true, linear: &xavier_linear };
        Ok(Self {
            embedding: vs.var("embedding", &[num_genes, hidden], NORMAL),
            encoders,
            meta: MetaEmbedding::new(vs / "meta", hidden),
            hyper_sagnn: HyperSagnn::new(&(vs / "hyper_sagnn"), hidden, heads, layers, options),
            absent_weight,
        })
    }

    /// Predict the interaction of the genes perturbed in each of `batch` samples.
    ///
    /// `genes` int64 `[Σk]` are the perturbed genes of all samples, `sample` int64 `[Σk]` is the sample of each, ascending. The reconstruction
    /// loss does not depend on them; without `reconstruct` it is left out, and the reconstruction heads get no gradient.
    ///
    /// # Errors
    /// A gene is out of range, `sample` has an entry that is not below `batch` or another length than `genes`, or libtorch has no memory.
    pub fn forward(
        &self,
        genes: &Tensor,
        sample: &Tensor,
        batch: i64,
        reconstruct: bool,
    ) -> Result<ModelOutput, ModelError> {
        let mut embeddings = Vec::with_capacity(self.encoders.len());
        let mut losses = Vec::new();
        for encoder in &self.encoders {
            let h = encoder.first.forward(&self.embedding, &encoder.graph.mean_of_sources)?.relu();
            let h = encoder.second.forward(&h, &encoder.graph.mean_of_sources)?.relu();
            if reconstruct {
                losses.push(encoder.reconstruction.loss(&h, &encoder.graph, self.absent_weight)?);
            }
            // Only the perturbed genes are used below, so only theirs are weighted: the same values, N / Σk times cheaper.
            embeddings.push(h.f_index_select(0, genes)?);
        }
        let genes = self.meta.forward(&Tensor::f_stack(&embeddings, 1)?);
        Ok(ModelOutput {
            prediction: self.hyper_sagnn.forward(&genes, sample, batch)?,
            reconstruction: if reconstruct { Some(Tensor::f_stack(&losses, 0)?.mean(tch::Kind::Float)) } else { None },
        })
    }
}

/// One edge type as the model uses it: constants, which are not trained.
#[derive(Debug)]
pub(crate) struct DangoGraph {
    /// `[N, N]`: row t averages the rows of t's sources; an edge that is listed twice counts twice. A gene without incoming edges has an empty
    /// row, so its mean is 0.
    pub mean_of_sources: SparseMatrix,
    /// A, `[N, N]`: 1 at (source, target) of each edge.
    pub adjacency: SparseMatrix,
    /// Number of distinct edges into each gene, float32 `[N]`.
    pub in_degree: Tensor,
    /// Distinct edges, as int64 `[E]` sources and targets; only where the loss weights absent edges differently.
    pub edges: Option<(Tensor, Tensor)>,
}

impl DangoGraph {
    pub fn new(list: &EdgeList, num_genes: i64, with_edges: bool, device: Device) -> Result<Self, ModelError> {
        let genes = u32::try_from(num_genes).map_err(|_| SizeError::Genes(num_genes))?;
        list.check_ends(num_genes)?;
        let mut edges: Vec<(u32, u32)> =
            list.sources.iter().zip(list.targets).map(|(s, t)| (*s as u32, *t as u32)).collect();
        let mut listed = vec![0u32; genes as usize];
        for &(_, target) in &edges {
            listed[target as usize] += 1;
        }
        let means = edges
            .iter()
            .map(|&(source, target)| MatrixEntry {
                row: target,
                column: source,
                value: 1.0 / listed[target as usize] as f32,
            })
            .collect();
        edges.sort_unstable();
        edges.dedup();
        let mut in_degree = vec![0f32; genes as usize];
        for &(_, target) in &edges {
            in_degree[target as usize] += 1.0;
        }
        let ones = edges.iter().map(|&(row, column)| MatrixEntry { row, column, value: 1.0 }).collect();
        let side = |pick: fn(&(u32, u32)) -> u32| -> Result<Tensor, ModelError> {
            let genes: Vec<i64> = edges.iter().map(|e| i64::from(pick(e))).collect();
            Ok(Tensor::f_from_slice(&genes)?.f_to_device(device)?)
        };
        Ok(Self {
            mean_of_sources: SparseMatrix::new(genes, genes, means, device)?,
            adjacency: SparseMatrix::new(genes, genes, ones, device)?,
            in_degree: Tensor::f_from_slice(&in_degree)?.f_to_device(device)?,
            edges: if with_edges { Some((side(|e| e.0)?, side(|e| e.1)?)) } else { None },
        })
    }
}

/// GraphSAGE convolution with mean aggregation: W_l · mean of the sources + b + W_r · x.
#[derive(Debug)]
pub(crate) struct SageConv {
    sources: nn::Linear,
    target: nn::Linear,
}

impl SageConv {
    pub fn new(vs: nn::Path, hidden: i64) -> Self {
        Self {
            sources: uniform_linear(&vs / "lin_l", hidden, hidden, true),
            target: uniform_linear(&vs / "lin_r", hidden, hidden, false),
        }
    }

    /// float32 `[N, h]` to `[N, h]`.
    pub fn forward(&self, x: &Tensor, mean_of_sources: &SparseMatrix) -> Result<Tensor, ModelError> {
        Ok(self.sources.forward(&mean_of_sources.matmul(x)?) + self.target.forward(x))
    }
}

/// Number of edges whose products are in memory at the same time: 2¹⁷ × 64 channels are 32 MiB a side.
const EDGE_BLOCK: i64 = 1 << 17;

/// Linear head h → N whose output R = H Wᵀ + 1 bᵀ is to equal the adjacency matrix.
///
/// Invariant: R, `[N, N]`, is never computed. The loss needs only sums over it, and those follow from `[h, h]` Gram matrices and one product
/// with the adjacency matrix.
#[derive(Debug)]
pub(crate) struct ReconstructionHead {
    weight: Tensor,
    bias: Tensor,
}

impl ReconstructionHead {
    pub fn new(vs: nn::Path, hidden: i64, num_genes: i64) -> Self {
        Self {
            weight: vs.var("weight", &[num_genes, hidden], NORMAL),
            bias: vs.var("bias", &[num_genes], Init::Const(0.0)),
        }
    }

    /// (Σ over edges (1 − R)² + λ Σ over non-edges R²) / N², scalar; `h` is float32 `[N, h]`.
    ///
    /// With E edges this is (E − 2 Σ_edges R + (1 − λ) Σ_edges R² + λ Σ R²) / N².
    pub fn loss(&self, h: &Tensor, graph: &DangoGraph, absent_weight: f64) -> Result<Tensor, ModelError> {
        // The loss is a small difference of large sums: too small for bfloat16.
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
        for (sources, targets) in sources.split(EDGE_BLOCK, 0).iter().zip(targets.split(EDGE_BLOCK, 0)) {
            let products = h.index_select(0, sources) * self.weight.index_select(0, &targets);
            let r =
                products.sum_dim_intlist([1i64].as_slice(), false, Kind::Float) + self.bias.index_select(0, &targets);
            total += r.square().sum(Kind::Float);
        }
        total
    }
}

/// Weighted mean of the embeddings that a gene has in the edge types: an MLP h → h/2 → 1, one for all types, scores each.
#[derive(Debug)]
pub(crate) struct MetaEmbedding {
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

/// Linear layer, initialised as in PyTorch Geometric: uniform within 1/√fan_in, weight and bias.
fn uniform_linear(vs: nn::Path, inputs: i64, outputs: i64, bias: bool) -> nn::Linear {
    let bound = 1.0 / (inputs as f64).sqrt();
    let within = Init::Uniform { lo: -bound, up: bound };
    nn::linear(vs, inputs, outputs, nn::LinearConfig { ws_init: within, bs_init: Some(within), bias })
}

/// Linear layer with Xavier-uniform weights at ReLU's gain √2, and zero bias.
pub(crate) fn xavier_linear(vs: nn::Path, inputs: i64, outputs: i64) -> nn::Linear {
    let bound = 2f64.sqrt() * (6.0 / (inputs + outputs) as f64).sqrt();
    let config = nn::LinearConfig {
        ws_init: Init::Uniform { lo: -bound, up: bound },
        bs_init: Some(Init::Const(0.0)),
        bias: true,
    };
    nn::linear(vs, inputs, outputs, config)
}

/// Normal with mean 0 and standard deviation 0.1.
const NORMAL: Init = Init::Randn { mean: 0.0, stdev: 0.1 };

#[cfg(test)]
mod tests {
    use expctl_rounding::{NEIGHBOURS, assert_rounding, distance, floor, gamma, nudged, values};
    use tch::{Device, Kind};

    use super::*;
    use crate::models::EdgeList;

    #[test]
    fn equals_a_loop_over_edges() {
        // Gene 3 has no incoming edge, 0 → 1 is listed twice, 2 → 2 is a self-loop.
        let (sources, targets) = ([0, 0, 4, 2, 3, 1], [1, 1, 1, 2, 0, 4]);
        let list = EdgeList { name: "t", sources: &sources, targets: &targets };
        let graph = DangoGraph::new(&list, 5, false, Device::Cpu).unwrap();
        let vs = nn::VarStore::new(Device::Cpu);
        let conv = SageConv::new(vs.root(), 4);
        let x = Tensor::randn([5, 4], (Kind::Float, Device::Cpu));
        let result = conv.forward(&x, &graph.mean_of_sources).unwrap();
        let value = |t: &Tensor, at: &[i64]| t.double_value(at);
        let bias = conv.sources.bs.as_ref().unwrap();
        for target in 0..5i64 {
            let incoming: Vec<i64> =
                sources.iter().zip(&targets).filter(|(_, t)| **t == target).map(|(s, _)| *s).collect();
            for out in 0..4i64 {
                let mut expected = value(bias, &[out]);
                // The same sum over the sizes of all terms.
                let mut sizes = expected.abs();
                for c in 0..4i64 {
                    let mean_of = |of: &dyn Fn(f64) -> f64| {
                        incoming.iter().map(|s| of(value(&x, &[*s, c]))).sum::<f64>() / incoming.len().max(1) as f64
                    };
                    let (neighbours, own) = (value(&conv.sources.ws, &[out, c]), value(&conv.target.ws, &[out, c]));
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
    fn run(start: &Start, kind: Kind, loss: &dyn Fn(&ReconstructionHead, &Tensor) -> Tensor) -> [Vec<f64>; 4] {
        let leaf = |t: &Tensor| t.to_kind(kind).copy().set_requires_grad(true);
        let head = ReconstructionHead { weight: leaf(&start.weight), bias: leaf(&start.bias) };
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
            let graph = DangoGraph::new(&list, GENES, absent_weight != 1.0, Device::Cpu).unwrap();
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
