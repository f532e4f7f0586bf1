//! All implementations of the lazy model against the replicated one, over random graphs and batches.
//!
//! In double precision all results are equal to 1e-9: they are one function. In float32 the error of an implementation is bounded by that of the
//! replicated one, both measured from double precision: no constant would do, because a prediction comes from the difference of two almost equal
//! encodings, and its gradient from the difference of two gradients.

use std::sync::Arc;

use expctl_settings::{Aggregation, DeviceMasks, Implementation, LocalHead, Norm, Precision};
use expctl_worker::device_masks::DeviceMaskMaker;
use expctl_worker::models::lazy::{Lazy, LazyConfig};
use expctl_worker::models::{EdgeList, SampleInputs, named_parameters};
use graph_loader::{Batch, CellGraph, EdgeType, Processor, Sample};
use rand::SeedableRng;
use rand::rand_core::Rng;
use rand_pcg::Pcg64;
use tch::{Device, Kind, Tensor, nn};
use torch_dist::Autocast;

use crate::support::{collate, generator};

mod precision;
mod subgraphs;

/// A model, a graph and a batch for it, all drawn from `seed`.
pub struct AgreementCase {
    pub name: String,
    pub config: LazyConfig,
    pub seed: u64,
    pub graph: Arc<CellGraph>,
    pub samples: Vec<Sample>,
}

fn below(random: &mut Pcg64, n: usize) -> usize {
    (random.next_u64() % n as u64) as usize
}

/// Edge types with self-loops, edges that are there twice, genes without edges; one of them may have none at all.
fn graph(random: &mut Pcg64, genes: usize, types: usize) -> Arc<CellGraph> {
    let edge_types = (0..types).map(|t| {
        let count = below(random, 5 * genes);
        let mut sources: Vec<i64> = (0..count).map(|_| below(random, genes - 1) as i64).collect();
        let mut targets: Vec<i64> = (0..count).map(|_| below(random, genes - 2) as i64).collect();
        for i in 0..count / 8 {
            (sources[i], targets[i]) = (sources[count - 1 - i], targets[count - 1 - i]);
        }
        targets[..count / 6].copy_from_slice(&sources[..count / 6]);
        EdgeType { name: format!("type{t}"), edge_index: [sources, targets].concat() }
    });
    let edge_types = edge_types.collect();
    Arc::new(CellGraph { genes: (0..genes).map(|i| format!("g{i:03}")).collect(), edge_types, metabolism: None })
}

/// Samples with 0 to 5 genes each; some genes are in several.
fn samples(random: &mut Pcg64, genes: usize, count: usize) -> Vec<Sample> {
    let one = |i: usize| {
        let count = (i + 1 + below(random, 2)) % 6;
        let mut own: Vec<i64> = Vec::new();
        while own.len() < count {
            let gene = below(random, genes) as i64;
            if !own.contains(&gene) {
                own.push(gene);
            }
        }
        own.sort_unstable();
        Sample { genes: own, ..Sample::default() }
    };
    (0..count).map(one).collect()
}

impl AgreementCase {
    fn new(name: String, config: LazyConfig, seed: u64, batch: usize, types: usize) -> Self {
        let mut random = Pcg64::seed_from_u64(seed);
        let genes = config.num_genes as usize;
        let graph = graph(&mut random, genes, types);
        Self { name, config, seed, samples: samples(&mut random, genes, batch), graph }
    }

    /// Both norms of encoder and preprocessor, and all aggregations.
    pub fn norms_and_aggregations() -> Vec<Self> {
        let mut cases = Vec::new();
        for norm in [Norm::Graph, Norm::Node] {
            for preprocessor_norm in [Norm::Graph, Norm::Node] {
                for (aggregation, aggregation_norm) in [
                    (Aggregation::PairwiseInteraction, true),
                    (Aggregation::PairwiseInteraction, false),
                    (Aggregation::Sum, true),
                    (Aggregation::Mean, true),
                ] {
                    let seed = 1 + cases.len() as u64;
                    let (genes, batch) = (20 + seed as i64 * 7 % 40, 1 + (seed as usize * 5) % 9);
                    let local_head = LocalHead::None;
                    let config = LazyConfig { norm, preprocessor_norm, aggregation, aggregation_norm, ..small(genes) };
                    let name = format!("{norm:?}, {preprocessor_norm:?}, {aggregation:?}, {aggregation_norm}");
                    cases.push(Self::new(name, LazyConfig { local_head, ..config }, seed, batch, 3));
                }
            }
        }
        cases
    }

    /// All aggregations and local heads with norms of single nodes: a node that is left out then changes no other one.
    pub fn of_single_nodes() -> Vec<Self> {
        let mut cases = Self::norms_and_aggregations();
        cases.extend(Self::local_heads());
        for case in &mut cases {
            (case.config.norm, case.config.preprocessor_norm) = (Norm::Node, Norm::Node);
            case.name.push_str(", of single nodes");
        }
        cases
    }

    /// All local heads with both norms.
    pub fn local_heads() -> Vec<Self> {
        let heads = [LocalHead::Full, LocalHead::Pooled, LocalHead::Zero, LocalHead::None];
        let with = |local_head| {
            [Norm::Graph, Norm::Node].map(|norm| {
                let config = LazyConfig { local_head, norm, ..small(23) };
                Self::new(format!("{local_head:?}, {norm:?}"), config, 77, 6, 2)
            })
        };
        heads.into_iter().flat_map(with).collect()
    }

    /// More rows than a block has, channels that fill no tile, one layer, one type, one sample.
    pub fn sizes() -> Vec<Self> {
        let mut cases = Vec::new();
        for (name, hidden, layers, convolution_layers, genes, batch, types) in [
            ("odd channels", 6, 2, 2, 31, 5, 2),
            ("one layer", 8, 1, 3, 20, 9, 3),
            ("one linear", 8, 3, 1, 20, 4, 1),
            ("one sample", 16, 3, 4, 200, 1, 4),
            ("many rows", 16, 3, 2, 150, 12, 5),
        ] {
            let config = LazyConfig { hidden, layers, convolution_layers, ..small(genes) };
            cases.extend((100..103).map(|seed| Self::new(format!("{name}, {seed}"), config, seed, batch, types)));
        }
        cases
    }
}

fn small(genes: i64) -> LazyConfig {
    LazyConfig { hidden: 8, heads: 2, ..LazyConfig::published(genes) }
}

/// Origin of the parameters of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The initial ones.
    Initial,
    /// After some steps of training.
    Trained,
    /// Biases, norms and ε away from 0 and 1, where a missing term would have no effect.
    Shifted,
}

/// The results of one implementation, converted to double precision.
pub struct Outcome {
    /// Wild type's genes, its readout, the samples' readouts.
    pub encodings: [Tensor; 3],
    pub prediction: Tensor,
    /// Gradient of Σ prediction · weight, by parameter.
    pub gradients: Vec<(String, Tensor)>,
}

/// The case's model in one implementation and one precision.
pub struct Built {
    vs: nn::VarStore,
    model: Lazy,
    batch: Batch,
    /// Masks that the step makes; empty where it makes none.
    masks: Vec<Tensor>,
}

impl Built {
    pub fn new(case: &AgreementCase, implementation: Implementation, processor: Processor) -> Self {
        let _alone = generator();
        Self::drawn(case, implementation, processor)
    }

    /// The same for a caller that holds the generator.
    pub fn drawn(case: &AgreementCase, implementation: Implementation, processor: Processor) -> Self {
        let vs = nn::VarStore::new(Device::Cpu);
        let lists = case.graph.edge_types.iter();
        let lists: Vec<EdgeList<'_>> = lists.map(EdgeList::from).collect();
        let indices: Vec<usize> = (0..lists.len()).collect();
        let model = Lazy::new(&vs.root(), &case.config, implementation, &lists, &indices).unwrap();
        Self { vs, model, batch: collate(processor, &case.graph, &case.samples), masks: Vec::new() }
    }

    /// On gene ids and masks that the step makes in this way.
    pub fn with_device_masks(case: &AgreementCase, way: DeviceMasks) -> Self {
        let built = Self::new(case, Implementation::Operations, Processor::Ids);
        let maker = DeviceMaskMaker::new(way, &case.graph, Device::Cpu).unwrap().unwrap();
        let masks = maker.make(&built.batch.common).unwrap();
        Self { masks, ..built }
    }

    /// With edge types and pairs computed at once, as on a GPU.
    pub fn batched(mut self) -> Self {
        self.model.batch_types().unwrap();
        self
    }

    pub fn replicated(case: &AgreementCase) -> Self {
        Self::new(case, Implementation::Replicated, Processor::Lazy)
    }

    /// Names of its parameters, in their order.
    pub fn names(&self) -> Vec<String> {
        named_parameters(&self.vs).into_iter().map(|(name, _)| name).collect()
    }

    /// With these parameters, which are float32 numbers.
    pub fn with(mut self, parameters: &[Tensor], kind: Kind) -> Self {
        self.vs.set_kind(kind);
        tch::no_grad(|| {
            for ((_, mut own), given) in named_parameters(&self.vs).into_iter().zip(parameters) {
                own.copy_(given);
            }
        });
        self
    }

    /// Parameters as a run would have them; the caller holds the generator.
    pub fn parameters(&self, start: Start) -> Vec<Tensor> {
        if start == Start::Trained {
            let mut optimizer = nn::OptimizerConfig::build(nn::AdamW::default(), &self.vs, 1e-3).unwrap();
            let inputs = SampleInputs::new(&self.batch, &[], true, Device::Cpu).unwrap();
            let labels = Tensor::randn([inputs.batch_size], (Kind::Float, Device::Cpu));
            for _ in 0..40 {
                let prediction = self.model.forward(&inputs).unwrap().prediction;
                optimizer.backward_step(&(prediction - &labels).square().mean(None));
            }
        }
        let one = |(_, parameter): (String, Tensor)| {
            let shifted = start == Start::Shifted && parameter.dim() == 1;
            tch::no_grad(|| if shifted { &parameter + parameter.randn_like() * 0.2 } else { parameter.copy() })
        };
        named_parameters(&self.vs).into_iter().map(one).collect()
    }

    pub fn run(&self, weight: &Tensor) -> Outcome {
        self.run_in(Precision::Float32, weight)
    }

    pub fn run_in(&self, precision: Precision, weight: &Tensor) -> Outcome {
        let inputs = SampleInputs::new(&self.batch, &self.masks, true, Device::Cpu).unwrap();
        let region = (precision == Precision::Bf16Mixed).then(|| Autocast::bf16(Device::Cpu));
        let encoded = self.model.encode(&inputs).unwrap();
        let prediction = self.model.predict(&encoded, &inputs).unwrap();
        drop(region);
        (&prediction * weight.to_kind(prediction.kind())).sum(None).backward();
        let double = |t: &Tensor| t.detach().to_kind(Kind::Double);
        let gradients = named_parameters(&self.vs).into_iter().map(|(name, mut parameter)| {
            let gradient = parameter.grad();
            // A local head whose term is 0 has none.
            let gradient = if gradient.defined() { double(&gradient).copy() } else { double(&parameter.zeros_like()) };
            parameter.zero_grad();
            (name, gradient)
        });
        Outcome {
            encodings: [double(&encoded.genes), double(&encoded.wild_type), double(&encoded.samples)],
            prediction: double(&prediction),
            gradients: gradients.collect(),
        }
    }
}

impl AgreementCase {
    /// Weights of one sign, so that the samples' gradients do not cancel; 0 for samples without genes, which are the wild type.
    pub fn weight(&self) -> Tensor {
        let some: Vec<f32> = self.samples.iter().map(|s| f32::from(!s.genes.is_empty())).collect();
        (Tensor::rand([some.len() as i64], (Kind::Float, Device::Cpu)) + 0.5) * Tensor::from_slice(&some)
    }
}

/// Distances of an outcome from another, relative to the latter.
#[derive(Clone, Copy, Debug)]
pub struct Apart {
    /// Largest difference of an encoding, of its largest entry.
    pub encodings: f64,
    /// Largest difference of a prediction, of the largest.
    pub predictions: f64,
    /// Euclidean norm of the difference of all gradients together.
    pub gradients: f64,
}

pub fn largest(t: &Tensor) -> f64 {
    t.abs().max().double_value(&[])
}

/// Euclidean norm.
pub fn norm(t: &Tensor) -> f64 {
    t.norm().double_value(&[])
}

impl Outcome {
    pub fn from(&self, other: &Self) -> Apart {
        let encodings = self.encodings.iter().zip(&other.encodings).map(|(a, b)| largest(&(a - b)) / largest(b));
        let pairs = self.gradients.iter().zip(&other.gradients);
        let gradients = pairs.map(|((_, a), (_, b))| norm(&(a - b)).powi(2)).sum::<f64>().sqrt() / other.size();
        Apart {
            encodings: encodings.fold(0.0, f64::max),
            predictions: largest(&(&self.prediction - &other.prediction)) / largest(&other.prediction),
            gradients,
        }
    }

    /// Euclidean norm of all gradients together.
    pub fn size(&self) -> f64 {
        self.gradients.iter().map(|(_, g)| norm(g).powi(2)).sum::<f64>().sqrt()
    }
}
