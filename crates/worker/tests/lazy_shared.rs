//! The shared lazy model gives what the replicated one gives: predictions and the gradient of every parameter.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use expctl_pipeline::collate::{Assembler, Batch};
use expctl_pipeline::graph::{CellGraph, EdgeType};
use expctl_pipeline::store::Sample;
use expctl_record::{Aggregation, Implementation, LocalHead, Norm, Pipeline, Processor};
use expctl_worker::models::lazy::{Lazy, LazyConfig};
use expctl_worker::models::{EdgeList, Inputs, ModelError, named_parameters};
use tch::{Device, Kind, Tensor, nn};

/// Of predictions, and of all gradients together. Both are differences of almost equal encodings, so single precision itself is
/// further from the truth in some cases: measured, up to 1.4e-4 for all gradients together.
const TOLERANCE: f64 = 1e-4;

/// How many times as far from the gradient in double precision as the replicated model's a parameter's may be. Measured: 10.2,
/// with the base instructions and many rows; below 10 with the others.
const FACTOR: f64 = 20.0;

/// Predictions, and all gradients together, may differ by so many times what the replicated model's are from those in double
/// precision, if that is more. Measured: the gradients by up to 2.9e-4, which is 2.4 times that.
const TIMES: f64 = 4.0;

/// libtorch has one generator for the process, and tests run side by side.
static GENERATOR: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// A small generator, so that cases are the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// Edge types with self-loops, edges that are there twice, genes without edges; one of them may have none at all.
fn graph(random: &mut Random, genes: usize, types: usize) -> Arc<CellGraph> {
    let edge_types = (0..types)
        .map(|t| {
            let count = random.below(5 * genes);
            let mut sources: Vec<i64> = (0..count).map(|_| random.below(genes - 1) as i64).collect();
            let mut targets: Vec<i64> = (0..count).map(|_| random.below(genes - 2) as i64).collect();
            for i in 0..count / 8 {
                (sources[i], targets[i]) = (sources[count - 1 - i], targets[count - 1 - i]);
            }
            targets[..count / 6].copy_from_slice(&sources[..count / 6]);
            EdgeType { name: format!("type{t}"), edge_index: [sources, targets].concat() }
        })
        .collect();
    Arc::new(CellGraph { genes: (0..genes).map(|i| format!("g{i:03}")).collect(), edge_types, metabolism: None })
}

/// Samples with 0 to 5 genes each; some genes are in several.
fn samples(random: &mut Random, genes: usize, count: usize) -> Vec<Sample> {
    let one = |random: &mut Random, k: usize| {
        let mut own: Vec<i64> = Vec::new();
        while own.len() < k {
            let gene = random.below(genes) as i64;
            if !own.contains(&gene) {
                own.push(gene);
            }
        }
        own.sort_unstable();
        Sample { genes: own, ..Sample::default() }
    };
    (0..count)
        .map(|i| {
            let k = (i + 1 + random.below(2)) % 6;
            one(random, k)
        })
        .collect()
}

fn collate(processor: Processor, graph: &Arc<CellGraph>, samples: &[Sample]) -> Batch {
    let names = graph.edge_types.iter().map(|e| e.name.clone()).collect();
    let mut assembler = Assembler::new(&Pipeline::new(processor, names), Arc::clone(graph)).unwrap();
    let mut batch = assembler.empty();
    assembler.mask(samples, &[], &mut batch);
    assembler.collate(samples, &mut batch);
    batch
}

fn model(config: &LazyConfig, graph: &CellGraph, implementation: Implementation) -> (nn::VarStore, Lazy) {
    let vs = nn::VarStore::new(Device::Cpu);
    let lists: Vec<EdgeList<'_>> = graph
        .edge_types
        .iter()
        .map(|e| EdgeList { name: &e.name, sources: e.sources(), targets: e.targets() })
        .collect();
    let places: Vec<usize> = (0..lists.len()).collect();
    let lazy = Lazy::new(&vs.root(), config, implementation, &lists, &places).unwrap();
    (vs, lazy)
}

/// Prediction and gradients of Σ prediction · weight.
fn run(vs: &nn::VarStore, model: &Lazy, batch: &Batch, weight: &Tensor) -> (Tensor, Vec<(String, Tensor)>) {
    let inputs = Inputs::of(batch, &[], true, Device::Cpu).unwrap();
    let prediction = model.forward(&inputs).unwrap().prediction;
    (&prediction * weight).sum(Kind::Float).backward();
    let gradients = named_parameters(vs).into_iter().map(|(name, mut parameter)| {
        let gradient = parameter.grad().copy_or_zero(&parameter);
        parameter.zero_grad();
        (name, gradient)
    });
    (prediction.detach(), gradients.collect())
}

trait CopyOrZero {
    fn copy_or_zero(&self, like: &Tensor) -> Tensor;
}

impl CopyOrZero for Tensor {
    fn copy_or_zero(&self, like: &Tensor) -> Tensor {
        if self.defined() { self.copy() } else { like.zeros_like() }
    }
}

fn largest(t: &Tensor) -> f64 {
    if t.numel() == 0 { 0.0 } else { t.abs().max().double_value(&[]) }
}

/// Euclidean norm.
fn norm(t: &Tensor) -> f64 {
    t.to_kind(Kind::Double).norm().double_value(&[])
}

/// The norm of all of them together.
fn together(tensors: impl Iterator<Item = Tensor>) -> f64 {
    tensors.map(|t| norm(&t).powi(2)).sum::<f64>().sqrt()
}

/// Shared against replicated, and both against the replicated model in double precision.
fn compare(case: &str, config: &LazyConfig, seed: u64, batch_size: usize, types: usize) {
    let _alone = GENERATOR.lock();
    tch::manual_seed(seed as i64);
    let mut random = Random(seed);
    let genes = config.num_genes as usize;
    let graph = graph(&mut random, genes, types);
    let samples = samples(&mut random, genes, batch_size);
    let (vs, replicated) = model(config, &graph, Implementation::Replicated);
    let (other_vs, shared) = model(config, &graph, Implementation::Shared);
    let (mut exact_vs, exact) = model(config, &graph, Implementation::Replicated);
    exact_vs.double();
    tch::no_grad(|| {
        let others = named_parameters(&other_vs).into_iter().zip(named_parameters(&exact_vs));
        for ((name, mut parameter), ((_, mut other), (_, mut exact))) in named_parameters(&vs).into_iter().zip(others) {
            // Away from 0 and 1, where biases, ε and norms start: a term left out would not be seen there.
            if parameter.dim() == 1 {
                parameter += parameter.randn_like() * 0.2;
            }
            if name == "embedding" {
                parameter *= 10.0;
            }
            other.copy_(&parameter);
            exact.copy_(&parameter);
        }
    });
    // Of one sign: gradients are differences of the samples' and the wild type's as it is, and are not to cancel once more.
    let counts: Vec<f32> = samples.iter().map(|s| if s.genes.is_empty() { 0.0 } else { 1.0 }).collect();
    let weight = (Tensor::rand([batch_size as i64], (Kind::Float, Device::Cpu)) + 0.5) * Tensor::from_slice(&counts);
    let graphs = collate(Processor::Lazy, &graph, &samples);
    let (expected, gradients) = run(&vs, &replicated, &graphs, &weight);
    let (exact_prediction, truths) = run(&exact_vs, &exact, &graphs, &weight);
    let overall = together(truths.iter().map(|(_, t)| t.shallow_clone()));
    assert!(overall > 0.0);
    let scale = largest(&expected).max(1e-3);
    let own_prediction = largest(&(&expected - &exact_prediction)) / scale;
    let own = together(gradients.iter().zip(&truths).map(|((_, g), (_, t))| g - t)) / overall;
    for processor in [Processor::Shared, Processor::Ids] {
        let (prediction, others) = run(&other_vs, &shared, &collate(processor, &graph, &samples), &weight);
        let case = format!("{case}, {}", processor.name());
        let apart = largest(&(&prediction - &expected)) / scale;
        let differences = gradients.iter().zip(&others).map(|((_, g), (_, o))| g - o);
        let whole = together(differences) / together(gradients.iter().map(|(_, g)| g.shallow_clone()));
        assert!(apart < TOLERANCE.max(TIMES * own_prediction), "{case}: predictions differ by {apart:e}");
        let allowed = TOLERANCE.max(TIMES * own);
        assert!(
            whole < allowed,
            "{case}: gradients differ by {whole:e}, and single precision is {own:e} from the truth"
        );
        for (((name, gradient), (_, other)), (_, truth)) in gradients.iter().zip(&others).zip(&truths) {
            let (own, others) = (norm(&(gradient - truth)), norm(&(other - truth)));
            let times = others / (own + 1e-6 * overall);
            assert!(times < FACTOR, "{case}: {name} is {times:.1} times as far from the truth");
        }
    }
}

fn small() -> LazyConfig {
    LazyConfig { hidden: 8, heads: 2, local_head: LocalHead::None, ..LazyConfig::published(23) }
}

#[test]
fn both_norms_and_all_aggregations_agree() {
    let mut seed = 1;
    for norm in [Norm::Graph, Norm::Node] {
        for preprocessor_norm in [Norm::Graph, Norm::Node] {
            for aggregation in [Aggregation::PairwiseInteraction, Aggregation::Sum, Aggregation::Mean] {
                for aggregation_norm in [true, false] {
                    let config = LazyConfig { norm, preprocessor_norm, aggregation, aggregation_norm, ..small() };
                    let case = format!("{norm:?}, {preprocessor_norm:?}, {aggregation:?}, {aggregation_norm}");
                    compare(&case, &config, seed, 7, 3);
                    seed += 1;
                }
            }
        }
    }
}

#[test]
fn all_local_heads_agree() {
    for local_head in [LocalHead::Full, LocalHead::Pooled, LocalHead::Zero, LocalHead::None] {
        for norm in [Norm::Graph, Norm::Node] {
            compare(&format!("{local_head:?}, {norm:?}"), &LazyConfig { local_head, norm, ..small() }, 77, 6, 2);
        }
    }
}

#[test]
fn all_sizes_agree() {
    // More rows than a block has, channels that fill no tile, one layer, one type, one sample.
    for (case, hidden, layers, linears, genes, batch, types) in [
        ("odd channels", 6, 2, 2, 31, 5, 2),
        ("one layer", 8, 1, 3, 20, 9, 3),
        ("one linear", 8, 3, 1, 20, 4, 1),
        ("one sample", 16, 3, 4, 200, 1, 4),
        ("many rows", 16, 3, 2, 150, 12, 5),
    ] {
        let config =
            LazyConfig { hidden, layers, convolution_layers: linears, heads: 2, ..LazyConfig::published(genes) };
        for seed in 0..3 {
            compare(case, &config, 100 + seed, batch, types);
        }
    }
}

#[test]
fn what_the_loader_got_wrong_is_an_error() {
    let mut random = Random(5);
    let graph = graph(&mut random, 23, 2);
    let samples = samples(&mut random, 23, 4);
    let (_vs, shared) = model(&small(), &graph, Implementation::Shared);
    let refusal = |batch: &Batch| match shared.forward(&Inputs::of(batch, &[], false, Device::Cpu).unwrap()) {
        Err(ModelError::Inputs(reason)) => reason,
        other => format!("{other:?}"),
    };
    let mut batch = collate(Processor::Ids, &graph, &samples);
    batch.common.genes[0] = 23;
    assert_eq!(refusal(&batch), "a gene that is not among 23");
    let mut batch = collate(Processor::Shared, &graph, &samples);
    let expctl_pipeline::collate::Layout::Shared { removed } = &mut batch.layout else { unreachable!() };
    let place = removed.iter().position(|list| !list.positions.is_empty()).unwrap();
    let edges = graph.edge_types[place].num_edges();
    *removed[place].positions.last_mut().unwrap() = edges as i32;
    assert_eq!(refusal(&batch), format!("type{place}: edge {edges} is not among {edges}"));
}

/// The instructions are chosen once in a process: others take one of their own.
#[test]
fn slower_instructions_agree_as_well() {
    for instructions in ["avx2", "base"] {
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["all_sizes_agree", "--exact"])
            .env("EXPCTL_ROW_INSTRUCTIONS", instructions)
            .stdout(std::process::Stdio::null())
            .status();
        assert!(status.unwrap().success(), "{instructions}");
    }
}

#[test]
fn the_same_step_gives_the_same_bits() {
    let config = LazyConfig { hidden: 16, ..LazyConfig::published(150) };
    let mut random = Random(9);
    let graph = graph(&mut random, 150, 4);
    let batch = collate(Processor::Ids, &graph, &samples(&mut random, 150, 8));
    let (vs, shared) = model(&config, &graph, Implementation::Shared);
    let weight = Tensor::ones([8], (Kind::Float, Device::Cpu));
    let (first, gradients) = run(&vs, &shared, &batch, &weight);
    let (second, others) = run(&vs, &shared, &batch, &weight);
    assert_eq!(first, second);
    for ((name, gradient), (_, other)) in gradients.iter().zip(&others) {
        assert_eq!(gradient, other, "{name}");
    }
}
