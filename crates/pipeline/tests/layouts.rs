//! All layouts describe the same masked graph, sample by sample, as a naive reference.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod masked;

use std::sync::Arc;

use expctl_pipeline::collate::{Assembler, Batch, Graphs, Layout};
use expctl_pipeline::graph::{CellGraph, EdgeType, Metabolism};
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

/// The masks of a store that holds other ones than the genes give show who reads them.
#[test]
fn stored_masks_are_what_is_removed_and_genes_where_a_layout_goes_by_them() {
    // Genes 0 to 4 in a ring; reaction 0 needs gene 0, reaction 1 needs gene 1.
    let ring = EdgeType { name: "ring".into(), edge_index: vec![0, 1, 2, 3, 4, /* to */ 1, 2, 3, 4, 0] };
    let gpr = vec![0, 1, /* of */ 0, 1];
    let rmr = vec![0, 1, /* with */ 0, 0];
    let metabolism = Metabolism { reactions: 2, metabolites: 1, gpr, rmr, stoichiometry: vec![1.0, 2.0] };
    let genes = (0..5).map(|i| format!("G{i}")).collect();
    let graph = Arc::new(CellGraph { genes, edge_types: vec![ring], metabolism: Some(metabolism) });
    let of = |gene| Sample { genes: vec![gene], ..Sample::default() };
    for pipeline in pipelines() {
        let mut assembler = Assembler::new(&pipeline, Arc::clone(&graph)).unwrap();
        let mut layout = |sample: Sample, bytes: &[u8]| {
            let mut batch = assembler.empty();
            assembler.mask(std::slice::from_ref(&sample), bytes, &mut batch);
            assembler.collate(&[sample], &mut batch);
            batch.layout
        };
        let (own, other) = (layout(of(0), &[]), layout(of(1), &[]));
        assert_eq!(own == other, pipeline.processor == Processor::Ids, "genes 0 and 1 have other masks");
        for form in stored::FORMS.into_iter().skip(1) {
            let (mut sample, mut bytes) = (of(1), Vec::new());
            stored::encode(&graph, form, &mut sample, &mut bytes);
            sample.genes = vec![0];
            let found = layout(sample, &bytes);
            let what = format!("{} {form:?}", pipeline.processor.name());
            match pipeline.processor {
                Processor::Shared | Processor::Packed => assert_eq!(found, other, "{what}"),
                Processor::Subgraph | Processor::Neighborhood | Processor::Perturbation | Processor::Ids => {
                    assert_eq!(found, own, "{what}");
                }
                Processor::Rows => panic!("an array has no graph"),
                Processor::Lazy | Processor::IncidenceSubgraph => {
                    let (Layout::Graphs(found), Layout::Graphs(own), Layout::Graphs(other)) = (found, &own, &other)
                    else {
                        panic!("{what} makes graphs");
                    };
                    // Genes have no mask of their own in a sample: they are those that are perturbed.
                    assert_eq!(found.genes, own.genes, "{what}");
                    let masks = |graphs: &Graphs| {
                        let edges = &graphs.edges[0];
                        let metabolism = graphs.metabolism.as_ref().unwrap();
                        let reactions = (metabolism.reactions.kept.clone(), metabolism.reactions.perturbed.clone());
                        (edges.mask.clone(), edges.removed.clone(), reactions, metabolism.rmr.clone())
                    };
                    assert_eq!(masks(&found), masks(other), "{what}");
                    assert_ne!(masks(&found), masks(own), "{what}");
                    // Gene 0 is gone, and its reaction is not: the edge between them has an end that is not there.
                    let gpr = found.metabolism.unwrap().gpr;
                    if pipeline.processor == Processor::Lazy {
                        assert_eq!(gpr.mask, [1, 0], "{what}");
                    } else {
                        assert_eq!((&gpr.removed[..], &gpr.edge_index[..]), (&[1, 1][..], &[][..]), "{what}");
                    }
                }
            }
        }
    }
}
