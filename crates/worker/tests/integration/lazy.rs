//! The lazy model as a whole: computed as published, and on one graph for all samples. That both give the same is tested in `slow::lazy_agreement`.

use std::sync::Arc;

use expctl_rounding::{RATIO, assert_rounding, at_neighbours, floor, norm, values};
use expctl_settings::{Aggregation, Implementation, LocalHead, Norm};
use expctl_worker::models::lazy::{Lazy, LazyConfig};
use expctl_worker::models::{EdgeList, ModelError, SampleInputs, named_parameters};
use graph_loader::{Batch, CellGraph, EdgeType, Edges, Layout, Processor, Sample};
use tch::{Device, Kind, Tensor, nn};

use crate::support::{collate, generator};

/// The published edge types.
const TYPES: [&str; 9] = [
    "physical",
    "regulatory",
    "tflink",
    "string12_0_neighborhood",
    "string12_0_fusion",
    "string12_0_cooccurence",
    "string12_0_coexpression",
    "string12_0_experimental",
    "string12_0_database",
];

/// Edge types of the small graph.
const FEW: usize = 3;

/// A small model.
const SMALL: LazyConfig =
    LazyConfig { hidden: 8, layers: 2, convolution_layers: 3, heads: 2, ..LazyConfig::published(30) };

/// A graph of 30 genes with self-loops, some edges listed twice, and genes without others.
fn graph() -> Arc<CellGraph> {
    let genes = SMALL.num_genes;
    let edge_types = (0..FEW as i64).map(|t| {
        let sources = (0..90).map(|i| (i * i + t) % (genes - 2)).chain(0..genes);
        let targets = (0..90).map(|i| (i * 7 + t * 3) % (genes - 2)).chain(0..genes);
        EdgeType { name: TYPES[t as usize].to_owned(), edge_index: sources.chain(targets).collect() }
    });
    let genes = (0..genes).map(|gene| format!("G{gene:02}")).collect();
    Arc::new(CellGraph { genes, edge_types: edge_types.collect(), metabolism: None })
}

/// The model of `config` over the small graph, as published.
fn build(config: &LazyConfig, seed: i64) -> (nn::VarStore, Lazy) {
    build_as(Implementation::Replicated, config, seed)
}

/// The same in any implementation.
fn build_as(implementation: Implementation, config: &LazyConfig, seed: i64) -> (nn::VarStore, Lazy) {
    let _alone = generator();
    tch::manual_seed(seed);
    let vs = nn::VarStore::new(Device::Cpu);
    let graph = graph();
    let lists = graph.edge_types.iter();
    let lists: Vec<EdgeList> = lists.map(EdgeList::from).collect();
    let model = Lazy::new(&vs.root(), config, implementation, &lists, &[0, 1, 2]).unwrap();
    (vs, model)
}

/// A batch as the loader makes it.
struct LoadedBatch {
    batch: Batch,
}

impl LoadedBatch {
    /// Samples with these perturbed genes, with a graph each.
    fn new(samples: &[&[i64]]) -> Self {
        Self::with_processor(Processor::Lazy, samples)
    }

    /// The same from any processor.
    fn with_processor(processor: Processor, samples: &[&[i64]]) -> Self {
        let samples: Vec<Sample> =
            samples.iter().map(|genes| Sample { genes: genes.to_vec(), ..Sample::default() }).collect();
        Self { batch: collate(processor, &graph(), &samples) }
    }

    /// The inputs of the model.
    fn inputs(&self) -> SampleInputs<'_> {
        SampleInputs::new(&self.batch, &[], true, Device::Cpu).unwrap()
    }

    /// One of its edge types.
    fn edges(&mut self, edge_type: usize) -> &mut Edges {
        let Layout::Graphs(graphs) = &mut self.batch.layout else { unreachable!() };
        &mut graphs.edges[edge_type]
    }
}

/// Number of parameters, at the published number of genes and of edge types.
fn count(config: &LazyConfig, part: &str) -> usize {
    let _alone = generator();
    let vs = nn::VarStore::new(Device::Cpu);
    let graphs: Vec<EdgeList> = TYPES.iter().map(|name| EdgeList { name, sources: &[1], targets: &[2] }).collect();
    let places: Vec<usize> = (0..graphs.len()).collect();
    let model = Lazy::new(&vs.root(), config, Implementation::Replicated, &graphs, &places).unwrap();
    assert_eq!(model.has_unused_parameters(), config.local_head == LocalHead::Zero);
    let parameters = named_parameters(&vs);
    parameters.iter().filter(|(name, _)| name.starts_with(part)).map(|(_, p)| p.numel()).sum()
}

#[test]
fn the_published_models_have_as_many_parameters_as_published() {
    let published = LazyConfig::published(6607);
    for (part, expected) in [
        ("", 1_781_187),
        ("embedding", 422_848),
        ("preprocessor", 8_448),
        ("encoder", 1_301_886),
        ("encoder.0.convolution.physical", 16_769),
        ("encoder.2.aggregation.pair.physical-regulatory", 6_240),
        ("encoder.1.aggregation.scorer", 2_113),
        ("encoder.1.aggregation.norm", 128),
        ("local_head", 37_507),
        ("readout", 6_273),
        ("global_head", 4_225),
    ] {
        assert_eq!(count(&published, part), expected, "{part}");
    }
    assert_eq!(count(&LazyConfig { local_head: LocalHead::Zero, ..published }, ""), 1_781_187);
    assert_eq!(count(&LazyConfig { aggregation_norm: false, ..published }, ""), 1_780_803);
    let profiled =
        LazyConfig { aggregation: Aggregation::Sum, convolution_layers: 2, local_head: LocalHead::None, ..published };
    assert_eq!(count(&profiled, ""), 669_917);
}

fn predictions(config: &LazyConfig, samples: &[&[i64]]) -> Vec<f32> {
    let (_vs, model) = build(config, 3);
    let case = LoadedBatch::new(samples);
    Vec::<f32>::try_from(model.forward(&case.inputs()).unwrap().prediction).unwrap()
}

const SAMPLES: [&[i64]; 4] = [&[4, 9, 2], &[17], &[5, 0], &[1, 2, 3, 20]];

#[test]
fn with_norms_of_single_nodes_a_sample_is_predicted_alone_as_in_a_batch() {
    let config = LazyConfig { norm: Norm::Node, preprocessor_norm: Norm::Node, ..SMALL };
    let (vs, model) = build(&config, 3);
    let case = LoadedBatch::new(&SAMPLES);
    let in_batch = || values(&model.forward(&case.inputs()).unwrap().prediction);
    let all = in_batch();
    let near = at_neighbours(&vs, in_batch);
    let errors = |sample: usize| -> Vec<f64> { near.iter().map(|near| near[sample] - all[sample]).collect() };
    for (i, sample) in SAMPLES.iter().enumerate() {
        let alone = f64::from(predictions(&config, &[sample])[0]);
        // The readout sums over 30 genes.
        assert_rounding(&format!("sample {i}"), (all[i] - alone).abs(), &errors(i), floor(&[alone], 30));
    }
    assert!((all[0] - all[3]).abs() > RATIO * norm(&errors(0)), "{all:?}: samples are told apart");
    // As published they influence each other.
    let all = predictions(&SMALL, &SAMPLES);
    let alone = predictions(&SMALL, &[SAMPLES[0]])[0];
    assert!((all[0] - alone).abs() > 1e-6, "{all:?}, alone {alone}");
}

#[test]
fn the_local_head_adds_what_its_setting_says() {
    let of = |local_head| predictions(&LazyConfig { local_head, ..SMALL }, &SAMPLES);
    let [full, pooled, zero] = [LocalHead::Full, LocalHead::Pooled, LocalHead::Zero].map(of);
    for i in 0..SAMPLES.len() {
        assert!((full[i] - zero[i]).abs() > 1e-6, "sample {i}: {full:?} and {zero:?}");
        assert_eq!(pooled[i] == zero[i], i > 0, "sample {i}: {pooled:?} and {zero:?}");
    }
    assert!((pooled[0] - full[0]).abs() > 1e-6);
    // Pooled, all genes are as if they were one sample's: the head then says the same as on a first sample that has them.
    let joined: Vec<i64> = SAMPLES.concat();
    let (_vs, model) = build(&LazyConfig { local_head: LocalHead::Full, ..SMALL }, 3);
    let mut case = LoadedBatch::new(&SAMPLES);
    case.batch.common.gene_sample = vec![0; joined.len()];
    let by_hand = Vec::<f32>::try_from(model.forward(&case.inputs()).unwrap().prediction).unwrap();
    assert_eq!(by_hand, pooled);
    // Without the head the prediction is the global one, whole.
    let (vs, none) = build(&LazyConfig { local_head: LocalHead::None, ..SMALL }, 3);
    let (whole, zero_model) = build(&LazyConfig { local_head: LocalHead::Zero, ..SMALL }, 3);
    let from = whole.variables();
    tch::no_grad(|| vs.variables().iter_mut().for_each(|(name, p)| p.copy_(&from[name])));
    let case = LoadedBatch::new(&SAMPLES);
    let [none, zero] = [none, zero_model].map(|m| m.forward(&case.inputs()).unwrap().prediction);
    // Half of a float32 number, and twice that: neither is rounded.
    assert_eq!(none, zero * 2.0);
}

#[test]
fn every_parameter_gets_a_finite_gradient_whose_head_takes_part() {
    for aggregation in [Aggregation::PairwiseInteraction, Aggregation::Sum, Aggregation::Mean] {
        for local_head in [LocalHead::Full, LocalHead::Pooled, LocalHead::Zero, LocalHead::None] {
            for norm in [Norm::Graph, Norm::Node] {
                let config = LazyConfig { aggregation, local_head, norm, preprocessor_norm: norm, ..SMALL };
                let (vs, model) = build(&config, 5);
                let case = LoadedBatch::new(&[&[3], &[8, 21, 11], &[]]);
                model.forward(&case.inputs()).unwrap().prediction.square().sum(Kind::Float).backward();
                let mut left_out = 0;
                for (name, p) in named_parameters(&vs) {
                    if p.grad().defined() {
                        assert_eq!(p.grad().isfinite().all().int64_value(&[]), 1, "{name} with {config:?}");
                    } else {
                        assert!(name.starts_with("local_head"), "{name} with {config:?}");
                        left_out += 1;
                    }
                }
                assert_eq!(left_out > 0, model.has_unused_parameters(), "{config:?}");
            }
        }
    }
}

#[test]
fn the_order_of_edges_and_repeated_ones_are_as_in_a_sum() {
    let (_vs, model) = build(&SMALL, 3);
    let mut case = LoadedBatch::new(&SAMPLES);
    let before = model.forward(&case.inputs()).unwrap().prediction;
    // An edge that is masked may lead anywhere.
    let edges = case.edges(0);
    let masked = edges.mask.iter().position(|kept| *kept == 0).unwrap();
    edges.edge_index[masked] = 7;
    assert_eq!(before, model.forward(&case.inputs()).unwrap().prediction);
    case.edges(0).mask[masked] = 1;
    assert_ne!(before, model.forward(&case.inputs()).unwrap().prediction);
}

#[test]
fn batches_that_lack_something_and_impossible_models_are_refused() {
    let (_vs, model) = build(&SMALL, 3);
    let mut case = LoadedBatch::new(&SAMPLES);
    let without = SampleInputs::new(&case.batch, &[], false, Device::Cpu).unwrap();
    let refused = |inputs: &SampleInputs<'_>| model.forward(inputs).unwrap_err().to_string();
    const LACKS: &str = "the batch does not have what the model reads: ";
    assert_eq!(refused(&without), format!("{LACKS}the graph of each sample"));
    case.edges(1).edge_index.clear();
    assert!(refused(&case.inputs()).starts_with(&format!("{LACKS}edges and masks of regulatory")));

    // None of these gets as far as to draw parameters.
    let vs = nn::VarStore::new(Device::Cpu);
    let good = EdgeList { name: "physical", sources: &[1], targets: &[2] };
    let refuse = |config: LazyConfig, graphs: &[EdgeList]| {
        let places: Vec<usize> = (0..graphs.len()).collect();
        Lazy::new(&vs.root(), &config, Implementation::Replicated, graphs, &places).unwrap_err().to_string()
    };
    let heads = LazyConfig { heads: 3, ..SMALL };
    assert_eq!(refuse(heads, &[good]), "impossible model size: 8 channels cannot be split among 3 heads");
    assert_eq!(refuse(SMALL, &[good, good]), "edge type physical: it is there twice");
    let outside = EdgeList { targets: &[30], ..good };
    assert_eq!(refuse(SMALL, &[outside]), "edge type physical: gene 30 is not among 30 genes");
    let dotted = EdgeList { name: "a.b", ..good };
    assert!(refuse(SMALL, &[dotted]).contains("a dot"));
}

#[test]
fn the_batch_is_not_written_to() {
    let (_vs, model) = build(&SMALL, 3);
    let mut case = LoadedBatch::new(&SAMPLES);
    let before = format!("{:?}", case.batch);
    model.forward(&case.inputs()).unwrap().prediction.sum(Kind::Float).backward();
    assert_eq!(before, format!("{:?}", case.batch));
    assert!(Tensor::from_slice(&case.edges(0).mask).sum(Kind::Int64).int64_value(&[]) > 0);
}

const ONE_GRAPH_SAMPLES: [&[i64]; 4] = [&[4, 9, 2], &[7], &[], &[1, 2, 3, 10]];
const ONE_GRAPH: [Implementation; 2] = [Implementation::Shared, Implementation::Operations];

#[test]
fn what_the_loader_got_wrong_is_an_error() {
    for implementation in ONE_GRAPH {
        let (_vs, model) = build_as(implementation, &SMALL, 5);
        let refusal = |batch: &Batch| match model.forward(&SampleInputs::new(batch, &[], true, Device::Cpu).unwrap()) {
            Err(ModelError::Inputs(reason)) => reason.to_string(),
            other => format!("{other:?}"),
        };
        let mut batch = LoadedBatch::with_processor(Processor::Ids, &ONE_GRAPH_SAMPLES).batch;
        batch.common.genes[0] = 30;
        assert_eq!(refusal(&batch), "a gene that is not among 30");
        batch.common.genes[0] = 4;
        batch.common.gene_sample[1] = 4;
        assert_eq!(refusal(&batch), "sample 4 is not among 4");
        let mut batch = LoadedBatch::with_processor(Processor::Shared, &ONE_GRAPH_SAMPLES).batch;
        let Layout::Shared { removed } = &mut batch.layout else { unreachable!() };
        let edges = graph().edge_types[1].num_edges();
        *removed[1].positions.last_mut().unwrap() = edges as i32;
        assert_eq!(refusal(&batch), format!("regulatory: edge {edges} is not among {edges}"));
    }
}

#[test]
fn what_the_operations_lack_is_named() {
    let (_vs, model) = build_as(Implementation::Operations, &SMALL, 5);
    let refusal = |inputs: &SampleInputs<'_>| model.forward(inputs).unwrap_err().to_string();
    const LACKS: &str = "the batch does not have what the model reads: ";
    let batch = LoadedBatch::with_processor(Processor::Shared, &ONE_GRAPH_SAMPLES).batch;
    let on_the_host_alone = SampleInputs::new(&batch, &[], false, Device::Cpu).unwrap();
    assert_eq!(refusal(&on_the_host_alone), format!("{LACKS}removed edges of physical"));
    let batch = LoadedBatch::with_processor(Processor::Ids, &ONE_GRAPH_SAMPLES).batch;
    // Masks of the first type alone, and of one sample.
    let masks = [Tensor::ones([graph().edge_types[0].num_edges() as i64], (Kind::Bool, Device::Cpu))];
    let of_another_batch = SampleInputs::new(&batch, &masks, true, Device::Cpu).unwrap();
    assert_eq!(refusal(&of_another_batch), format!("{LACKS}masks of all edges of physical"));
}

#[test]
fn the_same_step_gives_the_same_bits() {
    for implementation in ONE_GRAPH {
        same_bits(implementation);
    }
}

fn same_bits(implementation: Implementation) {
    let case = LoadedBatch::with_processor(Processor::Ids, &ONE_GRAPH_SAMPLES);
    let (vs, shared) = build_as(implementation, &LazyConfig { hidden: 16, ..SMALL }, 9);
    let run = || {
        let prediction = shared.forward(&case.inputs()).unwrap().prediction;
        prediction.sum(Kind::Float).backward();
        let gradients = named_parameters(&vs).into_iter().map(|(name, mut parameter)| {
            let gradient = parameter.grad().copy();
            parameter.zero_grad();
            (name, gradient)
        });
        (prediction.detach(), gradients.collect::<Vec<(String, Tensor)>>())
    };
    let ((first, gradients), (second, others)) = (run(), run());
    assert_eq!(first, second);
    for ((name, gradient), (_, other)) in gradients.iter().zip(&others) {
        assert_eq!(gradient, other, "{name}");
    }
}
