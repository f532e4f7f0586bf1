//! Every layer of the lazy model against a script that rebuilds it from the formulas.

use std::sync::Arc;

use expctl_settings::{Aggregation as Join, Implementation, LocalHead, Norm};
use graph_loader::{Assembler, Batch, CellGraph, EdgeType, GraphBatchOptions, Processor, Sample};
use tch::{Device, Kind, Tensor};

use crate::models::lazy::layers::{
    Aggregation, ChannelNorm, Convolution, GeluMlp, LazyParameters, Preprocessor, Readout,
};
use crate::models::lazy::replicated::MaskedEdges;
use crate::models::lazy::{Lazy, LazyConfig};
use crate::models::{EdgeList, SampleInputs};
use crate::tests::layer_cases::{Cases, number, numbers};

const TYPES: [&str; 3] = ["a", "b", "c"];
const SAMPLES: [&[i64]; 4] = [&[4, 9, 2], &[7], &[5, 0], &[1, 2, 3, 10]];

fn small() -> LazyConfig {
    LazyConfig { hidden: 8, layers: 2, convolution_layers: 3, heads: 2, ..LazyConfig::published(12) }
}

#[test]
fn every_layer_is_what_its_formula_says() {
    let mut cases = Cases::new(Kind::Float);
    let config = small();
    for (variant, over) in [("graph", Norm::Graph), ("node", Norm::Node)] {
        let of_nodes = || vec![number("of_nodes", i64::from(over == Norm::Node))];
        let name = format!("norm:{variant}");
        cases.add(
            &name,
            &[("x", &[12, 8])],
            of_nodes(),
            |vs| ChannelNorm::new(&(vs / "norm"), over, 8),
            |norm, x| norm.forward(&x[0]).unwrap(),
        );
        let with = LazyConfig { preprocessor_norm: over, ..config };
        let make = |vs: &tch::nn::Path| Preprocessor::new(vs, &with);
        let name = format!("preprocessor:{variant}");
        cases.add(&name, &[("x", &[12, 8])], of_nodes(), make, |layer, x| layer.forward(&x[0]).unwrap());
    }
    // 3 → 5 is listed twice, 0 → 5 is masked, 2 has a self-loop, nothing leads to 7.
    let index = Tensor::from_slice2(&[[3i64, 3, 0, 2, 1, 4], [5, 5, 5, 2, 0, 1]]);
    let mask = Tensor::from_slice(&[true, true, false, true, true, true]);
    let constants = vec![("index".to_owned(), index.copy()), ("mask".to_owned(), mask.copy())];
    let edges = MaskedEdges { index, mask: Some(mask.unsqueeze(1)) };
    cases.add(
        "convolution",
        &[("x", &[8, 8])],
        constants,
        |vs| Convolution::new(vs, &config),
        |layer, x| layer.forward(&edges.sums(&x[0]).unwrap(), &x[0]).unwrap(),
    );
    let make = |vs: &tch::nn::Path| Aggregation::new(vs, &config, &TYPES);
    cases.add("pairwise", &[("x", &[3, 12, 8])], Vec::new(), make, |layer, x| layer.forward(&x[0].unbind(0)).unwrap());
    cases.add(
        "global_head",
        &[("x", &[5, 8])],
        Vec::new(),
        |vs| GeluMlp::new(&(vs / "head"), &[8, 8, 1]),
        |layer, x| layer.forward(&x[0]).unwrap().squeeze_dim(1),
    );
    let sample = [0i64, 0, 0, 1, 2, 2, 3, 3, 3, 3];
    let constants = || vec![numbers("sample", &sample), number("batch", 4)];
    let sample = Tensor::from_slice(&sample);
    cases.add(
        "readout",
        &[("x", &[10, 8])],
        constants(),
        |vs| Readout::new(vs, 8),
        |layer, x| layer.forward(&x[0], &sample, 4).unwrap(),
    );
    cases.add(
        "local_head",
        &[("x", &[10, 8])],
        constants(),
        |vs| LazyParameters::local_head(vs, &config),
        |head, x| head.forward(&x[0], &sample, 4).unwrap(),
    );
    cases.check_with("lazy_layers.py");
}

#[test]
fn the_whole_model_is_what_its_formulas_say() {
    // In double precision, where a term that is slightly wrong shows: gradients are small differences of large terms.
    let mut cases = Cases::new(Kind::Double);
    let (batch, graph) = batch();
    let nodes = LazyConfig { norm: Norm::Node, preprocessor_norm: Norm::Node, ..small() };
    let without = LazyConfig { aggregation_norm: false, local_head: LocalHead::Zero, ..small() };
    let profiled = LazyConfig { aggregation: Join::Sum, local_head: LocalHead::None, ..small() };
    let mean = LazyConfig { aggregation: Join::Mean, local_head: LocalHead::Pooled, ..small() };
    let variants = [("published", small()), ("nodes", nodes), ("065", without), ("profiled", profiled), ("mean", mean)];
    for (variant, config) in variants {
        let make = |vs: &tch::nn::Path| {
            let lists = graph.edge_types.iter();
            let lists: Vec<EdgeList> =
                lists.map(|e| EdgeList { name: &e.name, sources: e.sources(), targets: e.targets() }).collect();
            Lazy::new(vs, &config, Implementation::Replicated, &lists, &[0, 1, 2]).unwrap()
        };
        let inputs = SampleInputs::new(&batch, &[], true, Device::Cpu).unwrap();
        let constants = constants(&config, &batch, &graph);
        cases.add(&format!("model:{variant}"), &[], constants, make, |model, _| {
            model.forward(&inputs).unwrap().prediction
        });
    }
    cases.check_with("lazy_layers.py");
}

fn constants(config: &LazyConfig, batch: &Batch, graph: &CellGraph) -> Vec<(String, Tensor)> {
    let joins = [Join::PairwiseInteraction, Join::Sum, Join::Mean];
    let heads = [LocalHead::Full, LocalHead::Pooled, LocalHead::Zero, LocalHead::None];
    let index = |found: Option<usize>| found.unwrap() as i64;
    let mut all = vec![
        numbers("genes", &batch.common.genes),
        numbers("gene_sample", &batch.common.gene_sample),
        number("batch", batch.common.len() as i64),
        number("of_nodes", i64::from(config.norm == Norm::Node)),
        number("preprocessor_of_nodes", i64::from(config.preprocessor_norm == Norm::Node)),
        number("aggregation", index(joins.iter().position(|join| *join == config.aggregation))),
        number("normalised", i64::from(config.normalises_aggregate())),
        number("local_head", index(heads.iter().position(|head| *head == config.local_head))),
        number("heads", config.heads),
    ];
    for (i, edges) in graph.edge_types.iter().enumerate() {
        let index = Tensor::from_slice(&edges.edge_index).view([2, -1]);
        all.extend([(format!("index.{}", edges.name), index), number(&format!("place.{}", edges.name), i as i64)]);
    }
    all
}

/// A batch as the loader makes it, of a graph with self-loops, repeated edges and an isolated gene.
fn batch() -> (Batch, Arc<CellGraph>) {
    let edge_types = (0i64..).zip(TYPES).map(|(t, name)| {
        let sources = (0..25).map(|i| (i * i + t) % 11).chain(0..12);
        let targets = (0..25).map(|i| (i * 7 + t * 3) % 11).chain(0..12);
        EdgeType { name: name.to_owned(), edge_index: sources.chain(targets).collect() }
    });
    let genes = (0..12).map(|gene| format!("G{gene:02}")).collect();
    let graph = Arc::new(CellGraph { genes, edge_types: edge_types.collect(), metabolism: None });
    let samples = SAMPLES.map(|genes| Sample { genes: genes.to_vec(), ..Sample::default() });
    let mut assembler = Assembler::new(&GraphBatchOptions::new(Processor::Lazy), Arc::clone(&graph)).unwrap();
    let mut batch = assembler.empty();
    assembler.mask(&samples, &[], &mut batch);
    assembler.collate(&samples, &mut batch);
    (batch, graph)
}
