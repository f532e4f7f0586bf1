//! The shared encoder against the replicated one: what the readouts make of the samples and the wild type, and gradients.
//!
//! A prediction comes from the difference of two encodings that are almost equal, and rounding is large beside it. Here
//! the samples' encodings alone have a gradient, and nothing cancels: what differs is the implementations' own rounding.

use std::sync::Arc;

use expctl_pipeline::collate::{Assembler, Batch};
use expctl_pipeline::graph::{CellGraph, EdgeType};
use expctl_pipeline::store::Sample;
use expctl_record::{Aggregation, LocalHead, Norm, Pipeline, Processor};
use rand::SeedableRng;
use rand::rand_core::Rng;
use rand_pcg::Pcg64;
use tch::{Device, Kind, Tensor, nn};

use super::LazyConfig;
use super::model::Encoded;
use super::parameters::Parameters;
use super::replicated::Replicated;
use super::shared::Shared;
use crate::models::layer_cases::GENERATOR;
use crate::models::{EdgeList, Inputs, named_parameters};

/// Relative to the largest entry of each encoding, and of the gradient of each parameter.
const TOLERANCE: f64 = 1e-4;

/// Gradients may differ by so many times what the replicated encoder's are from those in double precision, if that is more.
/// Measured over these 48 cases: encodings differ by at most 1.9e-5. Gradients of single parameters differ by up to 1.5e-3,
/// where single precision itself is up to 2e-3 from the truth in either implementation; by at most 8.3 times that distance.
const FACTOR: f64 = 10.0;

fn below(random: &mut Pcg64, n: usize) -> i64 {
    (random.next_u64() % n as u64) as i64
}

/// With self-loops, edges that are there twice and a gene without any.
fn graph(random: &mut Pcg64, genes: usize, types: usize) -> Arc<CellGraph> {
    let edge_types = (0..types).map(|t| {
        let mut edges: Vec<(i64, i64)> =
            (0..4 * genes).map(|_| (below(random, genes - 1), below(random, genes - 1))).collect();
        edges.extend((0..genes as i64 - 1).map(|gene| (gene, gene)));
        edges.extend_from_within(..genes / 4);
        let (sources, targets): (Vec<i64>, Vec<i64>) = edges.into_iter().unzip();
        EdgeType { name: format!("type{t}"), edge_index: [sources, targets].concat() }
    });
    let edge_types = edge_types.collect();
    Arc::new(CellGraph { genes: (0..genes).map(|i| format!("g{i:03}")).collect(), edge_types, metabolism: None })
}

fn batch(processor: Processor, graph: &Arc<CellGraph>, samples: &[Sample]) -> Batch {
    let names = graph.edge_types.iter().map(|e| e.name.clone()).collect();
    let mut assembler = Assembler::new(&Pipeline::new(processor, names), Arc::clone(graph)).unwrap();
    let mut batch = assembler.empty();
    assembler.mask(samples, &[], &mut batch);
    assembler.collate(samples, &mut batch);
    batch
}

/// Gradients of Σ samples · cotangent.
fn gradients(vs: &nn::VarStore, encoded: &Encoded, cotangent: &Tensor) -> Vec<(String, Tensor)> {
    (&encoded.samples * cotangent).sum(Kind::Float).backward();
    let mut all = Vec::new();
    for (name, mut parameter) in named_parameters(vs) {
        let gradient = parameter.grad();
        // The heads take no part.
        if gradient.defined() {
            all.push((name, gradient.copy()));
            parameter.zero_grad();
        }
    }
    all
}

fn largest(t: &Tensor) -> f64 {
    t.abs().max().double_value(&[])
}

/// A bias in front of a softmax: its gradient is 0 but for rounding, and has no scale of its own.
fn is_zero(name: &str) -> bool {
    name.ends_with("bias") && (name.starts_with("readout.gate.1") || name.contains("aggregation.scorer.1"))
}

/// The largest differences of any parameter, relative to its largest entry.
fn farthest(expected: &[(String, Tensor)], got: &[(String, Tensor)]) -> f64 {
    assert_eq!(expected.len(), got.len());
    let overall = expected.iter().map(|(_, g)| largest(g)).fold(0.0, f64::max);
    let apart = expected.iter().zip(got).map(|((name, a), (other, b))| {
        assert_eq!(name, other);
        largest(&(a - b)) / if is_zero(name) { overall } else { largest(a) }
    });
    apart.fold(0.0, f64::max)
}

/// The largest differences of shared and replicated.
struct Apart {
    encodings: f64,
    gradients: f64,
    /// Of the gradients of either one from those in double precision.
    replicated: f64,
    shared: f64,
}

fn compare(config: &LazyConfig, seed: u64) -> Apart {
    let _alone = GENERATOR.lock();
    let mut random = Pcg64::seed_from_u64(seed);
    tch::manual_seed(seed as i64);
    let (genes, size, types) = (20 + below(&mut random, 40) as usize, 1 + below(&mut random, 9) as usize, 3);
    let config = LazyConfig { num_genes: genes as i64, ..*config };
    let graph = graph(&mut random, genes, types);
    let samples: Vec<Sample> = (0..size)
        .map(|i| {
            let mut genes: Vec<i64> = (0..(i + seed as usize) % 5).map(|_| below(&mut random, genes)).collect();
            genes.sort_unstable();
            genes.dedup();
            Sample { genes, ..Sample::default() }
        })
        .collect();
    let vs = nn::VarStore::new(Device::Cpu);
    let names: Vec<&str> = graph.edge_types.iter().map(|e| e.name.as_str()).collect();
    let parameters = Parameters::new(&vs.root(), &config, &names);
    tch::no_grad(|| {
        for (_, mut parameter) in named_parameters(&vs).into_iter().filter(|(_, p)| p.dim() == 1) {
            // Away from 0 and 1, where a term that is left out would not be seen.
            parameter += parameter.randn_like() * 0.2;
        }
    });
    let lists = graph.edge_types.iter();
    let lists: Vec<EdgeList<'_>> =
        lists.map(|e| EdgeList { name: &e.name, sources: e.sources(), targets: e.targets() }).collect();
    let places = [0, 1, 2];
    let replicated = Replicated::new(&lists, &places, Device::Cpu).unwrap();
    let shared = Shared::new(&lists, &places, config.num_genes, Device::Cpu).unwrap();
    let (graphs, ids) = (batch(Processor::Lazy, &graph, &samples), batch(Processor::Ids, &graph, &samples));
    let expected = replicated.forward(&parameters, &Inputs::of(&graphs, &[], true, Device::Cpu).unwrap()).unwrap();
    let got = shared.forward(&parameters, &Inputs::of(&ids, &[], false, Device::Cpu).unwrap()).unwrap();
    let mut exact_vs = nn::VarStore::new(Device::Cpu);
    let exact = Parameters::new(&exact_vs.root(), &config, &names);
    exact_vs.copy(&vs).unwrap();
    exact_vs.double();
    let truth = replicated.forward(&exact, &Inputs::of(&graphs, &[], true, Device::Cpu).unwrap()).unwrap();
    let cotangent = Tensor::randn([size as i64, config.hidden], (Kind::Float, Device::Cpu));
    let pairs =
        [(&expected.genes, &got.genes), (&expected.wild_type, &got.wild_type), (&expected.samples, &got.samples)];
    let encodings = pairs.iter().map(|(a, b)| largest(&(*a - *b)) / largest(a)).fold(0.0, f64::max);
    let (expected, got) = (gradients(&vs, &expected, &cotangent), gradients(&vs, &got, &cotangent));
    let truth = gradients(&exact_vs, &truth, &cotangent);
    let (replicated, shared) = (farthest(&truth, &expected), farthest(&truth, &got));
    Apart { encodings, gradients: farthest(&expected, &got), replicated, shared }
}

#[test]
fn the_encoders_agree_over_random_graphs_and_batches() {
    let mut seed = 0;
    for norm in [Norm::Graph, Norm::Node] {
        for preprocessor_norm in [Norm::Graph, Norm::Node] {
            for aggregation in [Aggregation::PairwiseInteraction, Aggregation::Sum, Aggregation::Mean] {
                let hidden = 16;
                let config = LazyConfig {
                    hidden,
                    norm,
                    preprocessor_norm,
                    aggregation,
                    local_head: LocalHead::None,
                    ..LazyConfig::published(1)
                };
                for _ in 0..4 {
                    let Apart { encodings, gradients, replicated, shared } = compare(&config, seed);
                    let case = format!("{norm:?}, {preprocessor_norm:?}, {aggregation:?}, seed {seed}");
                    assert!(encodings < TOLERANCE, "{case}: encodings differ by {encodings:e}");
                    let allowed = TOLERANCE.max(FACTOR * replicated);
                    assert!(
                        gradients < allowed,
                        "{case}: gradients differ by {gradients:e}, and are {replicated:e} and {shared:e} from the truth"
                    );
                    seed += 1;
                }
            }
        }
    }
}
