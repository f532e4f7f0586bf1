//! Batches of subgraphs: against copies of the graph with masks where the two are one function, and everywhere against the model over the
//! graph that the subgraph of a sample is.

use std::sync::Arc;

use expctl_settings::{Implementation, Norm};
use expctl_worker::models::lazy::LazyConfig;
use graph_loader::{Batch, CellGraph, EdgeType, Layout, Processor, Sample};
use tch::{Device, Kind, Tensor};

use super::precision::{TOLERANCE, assert_same};
use super::{AgreementCase, Built, Outcome, Start, largest};
use crate::support::{collate, generator};

const WITHOUT: [Processor; 2] = [Processor::Subgraph, Processor::IncidenceSubgraph];
const SUBGRAPHS: [Processor; 3] = [WITHOUT[0], WITHOUT[1], Processor::Neighborhood];

/// A case with parameters away from their initial values, in double precision.
struct Drawn {
    case: AgreementCase,
    parameters: Vec<Tensor>,
    weight: Tensor,
}

impl Drawn {
    fn of(case: AgreementCase) -> Self {
        let _alone = generator();
        tch::manual_seed(case.seed as i64);
        let built = Built::drawn(&case, Implementation::Replicated, Processor::Lazy);
        let parameters = built.parameters(Start::Shifted);
        Self { weight: case.weight(), case, parameters }
    }

    fn run(&self, processor: Processor) -> Outcome {
        let built = Built::new(&self.case, Implementation::Replicated, processor);
        built.with(&self.parameters, Kind::Double).run(&self.weight)
    }

    /// The same parameters for one of its samples.
    fn alone(&self, sample: usize) -> Self {
        let AgreementCase { name, config, seed, graph, samples } = &self.case;
        let (name, samples) = (format!("{name}, sample {sample}"), vec![samples[sample].clone()]);
        let case = AgreementCase { name, config: *config, seed: *seed, graph: Arc::clone(graph), samples };
        let parameters = self.parameters.iter().map(Tensor::shallow_clone).collect();
        Self { case, parameters, weight: Tensor::ones([1], (Kind::Float, Device::Cpu)) }
    }

    /// The model over the subgraph that `processor` makes of its only sample, as if it were a whole graph.
    fn induced(&self, processor: Processor) -> Self {
        let AgreementCase { name, config, seed, graph, samples } = &self.case;
        let (nodes, perturbed) = nodes(&collate(processor, graph, samples));
        let case = AgreementCase {
            name: format!("{name}, {}", processor.name()),
            config: LazyConfig { num_genes: nodes.len() as i64, ..*config },
            seed: *seed,
            graph: Arc::new(induced(graph, &nodes)),
            samples: vec![Sample { genes: perturbed, ..Sample::default() }],
        };
        let rows = Tensor::from_slice(&nodes);
        let names = Built::replicated(&self.case).names();
        let of_nodes = |(name, parameter): (String, &Tensor)| match name.as_str() {
            "embedding" => parameter.index_select(0, &rows),
            _ => parameter.shallow_clone(),
        };
        let parameters = names.into_iter().zip(&self.parameters).map(of_nodes).collect();
        Self { case, parameters, weight: self.weight.shallow_clone() }
    }
}

/// The genes of a batch's only sample by their index, and the positions among them of those that it perturbs.
fn nodes(batch: &Batch) -> (Vec<i64>, Vec<i64>) {
    let Layout::Graphs(graphs) = &batch.layout else { unreachable!() };
    let genes = &graphs.genes;
    let flagged = |flag: u8| {
        let found = (0i64..).zip(&genes.perturbed).filter(move |(_, perturbed)| **perturbed == flag);
        found.map(|(gene, _)| gene).collect::<Vec<i64>>()
    };
    // A neighborhood says which genes it has; the others have all that are not perturbed.
    if genes.original.is_empty() { (flagged(0), Vec::new()) } else { (genes.original.clone(), flagged(1)) }
}

/// The graph of these genes, numbered anew.
fn induced(graph: &CellGraph, nodes: &[i64]) -> CellGraph {
    let number = |gene: &i64| nodes.iter().position(|node| node == gene).map(|position| position as i64);
    let edge_types = graph.edge_types.iter().map(|edges| {
        let ends = edges.sources().iter().zip(edges.targets());
        let ends = ends.filter_map(|(source, target)| Some((number(source)?, number(target)?)));
        let (sources, targets): (Vec<i64>, Vec<i64>) = ends.unzip();
        EdgeType { name: edges.name.clone(), edge_index: [sources, targets].concat() }
    });
    let genes = nodes.iter().map(|node| graph.genes[*node as usize].clone());
    CellGraph { genes: genes.collect(), edge_types: edge_types.collect(), metabolism: None }
}

#[test]
fn without_the_removed_genes_all_else_is_the_same_where_norms_are_of_single_nodes() {
    for case in AgreementCase::of_single_nodes() {
        let drawn = Drawn::of(case);
        let expected = drawn.run(Processor::Lazy);
        for processor in WITHOUT {
            assert_same(&format!("{}, {}", drawn.case.name, processor.name()), &expected, &drawn.run(processor));
        }
    }
}

#[test]
fn norms_over_the_batch_are_others_without_the_removed_genes() {
    let over_batch = |case: &AgreementCase| [case.config.norm, case.config.preprocessor_norm].contains(&Norm::Graph);
    for case in AgreementCase::norms_and_aggregations().into_iter().filter(over_batch) {
        let drawn = Drawn::of(case);
        let expected = drawn.run(Processor::Lazy);
        for processor in WITHOUT {
            let apart = drawn.run(processor).from(&expected);
            // One norm in front of the encoder moves encodings by less than 1e-6, and what is made of them by more.
            let farthest = apart.encodings.max(apart.predictions);
            assert!(farthest > 1000.0 * TOLERANCE, "{}, {}: {apart:?}", drawn.case.name, processor.name());
        }
    }
}

#[test]
fn the_subgraph_of_a_sample_is_encoded_as_a_graph_of_its_own() {
    for case in AgreementCase::norms_and_aggregations() {
        let drawn = Drawn::of(case);
        let some = drawn.case.samples.iter().enumerate().filter(|(_, sample)| !sample.genes.is_empty());
        for (i, _) in some {
            let alone = drawn.alone(i);
            for processor in SUBGRAPHS {
                let induced = alone.induced(processor);
                let [expected, got] = [induced.run(Processor::Lazy), alone.run(processor)].map(|run| {
                    let [_, _, samples] = run.encodings;
                    samples
                });
                let difference = largest(&(&got - &expected));
                let name = &induced.case.name;
                assert!(difference <= TOLERANCE * largest(&expected), "{name}: {difference:e} of {expected:?}");
            }
        }
    }
}

#[test]
fn the_subgraphs_of_a_batch_are_those_of_its_samples() {
    for case in AgreementCase::of_single_nodes() {
        let drawn = Drawn::of(case);
        for processor in SUBGRAPHS {
            let together = drawn.run(processor);
            let some = drawn.case.samples.iter().enumerate().filter(|(_, sample)| !sample.genes.is_empty());
            for (i, _) in some {
                let alone = drawn.alone(i);
                let [expected, got] = [alone.run(processor).encodings[2].get(0), together.encodings[2].get(i as i64)];
                let difference = largest(&(&got - &expected));
                let name = format!("{}, {}", alone.case.name, processor.name());
                assert!(difference <= TOLERANCE * largest(&expected), "{name}: {difference:e} of {expected:?}");
            }
        }
    }
}
