//! All layouts describe the same masked graph, sample by sample, as a naive reference.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod masked;

use std::sync::Arc;

use expctl_pipeline::collate::{Assembler, Batch, Layout};
use expctl_pipeline::graph::CellGraph;
use expctl_pipeline::store::Sample;
use expctl_record::{Collation, Pipeline, Processor, Walk};
use proptest::prelude::*;

use masked::described::{self, counts};
use masked::{induced, naive, random, stored, within};

/// Compare every sample of a batch with its definition.
fn check(pipeline: &Pipeline, graph: &CellGraph, samples: &[Sample], batch: &Batch) {
    let b = samples.len();
    assert_eq!(batch.common.len(), b);
    let with_ptr = pipeline.collation != Collation::LazyCollater;
    for (i, sample) in samples.iter().enumerate() {
        assert_eq!(batch.common.genes_of(i), &sample.genes[..]);
        assert_eq!(batch.common.labels[i], sample.label);
        match (&batch.layout, pipeline.processor) {
            (Layout::Graphs(graphs), processor) => {
                assert_eq!(graphs.genes.ptr.is_empty(), !with_ptr);
                assert_eq!(graphs.phenotype.type_indices, vec![0; b]);
                assert_eq!(graphs.x.batch, if with_ptr { graphs.genes.batch.clone() } else { Vec::new() });
                let expected = naive(graph, &sample.genes, false);
                if processor == Processor::Lazy {
                    let with_index = pipeline.collation != Collation::SharedIndex;
                    assert_eq!(described::lazy(graph, graphs, b, i, with_index), expected);
                } else if processor == Processor::Neighborhood {
                    let genes = within(graph, &sample.genes, pipeline.walk, pipeline.hops);
                    let (found, all, kept) = described::neighborhood(graph, graphs, b, i);
                    assert_eq!(found, genes);
                    assert_eq!(all, induced(graph, &genes));
                    let here = |(s, t): &masked::Edge| genes.contains(s) && genes.contains(t);
                    let edges = expected.edges.iter().map(|e| e.iter().copied().filter(here).collect()).collect();
                    let gpr = expected.gpr.iter().copied().filter(|(gene, _)| genes.contains(gene)).collect();
                    let kept_genes = expected.genes.intersection(&genes).copied().collect();
                    assert_eq!(kept, masked::Masked { genes: kept_genes, edges, gpr, ..expected });
                } else {
                    assert_eq!(described::subgraph(graph, graphs, b, i), naive(graph, &sample.genes, true));
                }
            }
            (Layout::Perturbation { genes, phenotype }, _) => {
                let g = graph.num_genes();
                assert_eq!(counts(genes, b), vec![g; b]);
                assert_eq!(genes.ptr.is_empty(), !with_ptr);
                let kept = &genes.kept[i * g..(i + 1) * g];
                assert!((0..).zip(kept).all(|(gene, kept)| (*kept == 0) == sample.genes.contains(&gene)));
                assert_eq!(phenotype.stat_sample_indices, vec![0; b]);
            }
            (Layout::Shared { .. } | Layout::Packed { .. }, _) => {
                assert_eq!(described::shared(graph, batch, i), naive(graph, &sample.genes, false));
            }
            (Layout::Ids, _) => {}
        }
    }
}

/// Everything that batches can be asked for.
fn pipelines() -> Vec<Pipeline> {
    use Processor::{Ids, IncidenceSubgraph, Lazy, Neighborhood, Packed, Perturbation, Shared, Subgraph};
    let mut all = Vec::new();
    for processor in [Lazy, Subgraph, IncidenceSubgraph, Neighborhood, Perturbation, Shared, Packed, Ids] {
        for collation in [Collation::Pyg, Collation::LazyCollater, Collation::SharedIndex] {
            let own_edges = matches!(processor, Subgraph | IncidenceSubgraph | Neighborhood);
            if own_edges && collation == Collation::SharedIndex {
                continue;
            }
            let pipeline = Pipeline { collation, ..Pipeline::new(processor, Vec::new()) };
            if processor == Neighborhood {
                let walks = [Walk::PerType, Walk::Union].into_iter();
                let near = walks.flat_map(|walk| (1..=3).map(move |hops| (walk, hops)));
                all.extend(near.map(|(walk, hops)| Pipeline { walk, hops, ..pipeline.clone() }));
            } else {
                all.push(pipeline);
            }
        }
    }
    all
}

proptest! {
    #[test]
    fn all_layouts_describe_the_same_masked_graph(
        (graph, batches) in random::graph().prop_flat_map(|g| {
            let n = g.num_genes();
            (Just(Arc::new(g)), proptest::collection::vec(random::samples(n), 1..4))
        }),
    ) {
        for pipeline in pipelines() {
            let mut assembler = Assembler::new(&pipeline, Arc::clone(&graph)).unwrap();
            // One batch for all: buffers are reused, and nothing of the last batch may shine through.
            let mut batch = assembler.empty();
            for form in stored::FORMS {
                for samples in &batches {
                    let (mut samples, mut bytes) = (samples.clone(), Vec::new());
                    samples.iter_mut().for_each(|sample| stored::encode(&graph, form, sample, &mut bytes));
                    assembler.mask(&samples, &bytes, &mut batch);
                    assembler.collate(&samples, &mut batch);
                    check(&pipeline, &graph, &samples, &batch);
                    let genes = samples.iter().map(|sample| sample.genes.len()).sum();
                    if let Some(bytes) = assembler.fixed_bytes(samples.len(), genes) {
                        prop_assert_eq!(bytes, batch.bytes());
                    }
                }
            }
        }
    }
}
