//! All layouts describe the same masked graph, sample by sample, as a naive reference.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use graph_loader::{
    Assembler, Batch, CellGraph, Collation, EdgeType, GraphBatchOptions, Graphs, Layout, Marks, MaskSource, Metabolism,
    Processor, Sample, Walk,
};
use loader_core::{BatchOperations, Stage, StageOperation};
use proptest::prelude::*;

use crate::masked::described::counts;
use crate::masked::{self, described, edges_between, encode_masks, naive, random, within};

/// Compare every sample of a batch with its definition.
fn check(pipeline: &GraphBatchOptions, graph: &CellGraph, samples: &[Sample], batch: &Batch) {
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
                    // The edges that the walk followed end at genes that it found one hop before the last.
                    let targets = match pipeline.walk {
                        Walk::PerType | Walk::Union => genes.clone(),
                        Walk::Incoming => within(graph, &sample.genes, pipeline.walk, pipeline.hops - 1),
                    };
                    assert_eq!(all, edges_between(graph, &genes, &targets));
                    let here = |(s, t): &masked::Edge| genes.contains(s) && targets.contains(t);
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
fn pipelines() -> Vec<GraphBatchOptions> {
    use Processor::{Ids, IncidenceSubgraph, Lazy, Neighborhood, Packed, Perturbation, Shared, Subgraph};
    let mut all = Vec::new();
    for processor in [Lazy, Subgraph, IncidenceSubgraph, Neighborhood, Perturbation, Shared, Packed, Ids] {
        for collation in [Collation::Pyg, Collation::LazyCollater, Collation::SharedIndex] {
            let own_edges = matches!(processor, Subgraph | IncidenceSubgraph | Neighborhood);
            if own_edges && collation == Collation::SharedIndex {
                continue;
            }
            let pipeline = GraphBatchOptions { collation, ..GraphBatchOptions::new(processor) };
            if processor == Neighborhood {
                let walks = [Walk::PerType, Walk::Union, Walk::Incoming].into_iter();
                let near = walks.flat_map(|walk| (1..=3).map(move |hops| (walk, hops)));
                all.extend(near.map(|(walk, hops)| GraphBatchOptions { walk, hops, ..pipeline.clone() }));
            } else {
                all.push(pipeline);
            }
        }
    }
    for processor in [Lazy, IncidenceSubgraph, Shared, Packed] {
        all.push(GraphBatchOptions { mask_source: MaskSource::GeneMasks, ..GraphBatchOptions::new(processor) });
    }
    all
}

/// Make a batch with marks.
fn marked(assembler: &mut Assembler, samples: &[Sample], bytes: &[u8], batch: &mut Batch) -> BatchOperations {
    let mut marks = Marks::new(Instant::now(), assembler.edge_types());
    marks.begin(Stage::Mask);
    assembler.mask_marked(samples, bytes, batch, &mut marks);
    marks.begin(Stage::Collate);
    assembler.collate_marked(samples, batch, &mut marks);
    marks.finish()
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
            let (mut batch, mut with_marks) = (assembler.empty(), assembler.empty());
            for form in masked::FORMS {
                for samples in &batches {
                    let (mut samples, mut bytes) = (samples.clone(), Vec::new());
                    samples.iter_mut().for_each(|sample| encode_masks(&graph, form, sample, &mut bytes));
                    assembler.mask(&samples, &bytes, &mut batch);
                    assembler.collate(&samples, &mut batch);
                    check(&pipeline, &graph, &samples, &batch);
                    marked(&mut assembler, &samples, &bytes, &mut with_marks);
                    prop_assert_eq!(&with_marks, &batch, "marks change nothing");
                    let genes = samples.iter().map(|sample| sample.genes.len()).sum();
                    if let Some(bytes) = assembler.fixed_bytes(samples.len(), genes) {
                        prop_assert_eq!(bytes, batch.bytes());
                    }
                }
            }
        }
    }
}

/// A graph of two edge types with reactions, and two samples.
fn small() -> (Arc<CellGraph>, [Sample; 2]) {
    let edge = |name: &str, edge_index| EdgeType { name: name.to_owned(), edge_index };
    let edge_types = vec![edge("a", vec![0, 1, 2, /* to */ 1, 2, 0]), edge("b", vec![3, 0, /* to */ 0, 3])];
    let gpr = vec![0, 1, /* of */ 0, 1];
    let rmr = vec![0, 1, /* with */ 0, 0];
    let metabolism = Metabolism { reactions: 2, metabolites: 1, gpr, rmr, stoichiometry: vec![1.0, 2.0] };
    let genes = (0..4).map(|i| format!("G{i}")).collect();
    let of = |genes: &[i64]| Sample { genes: genes.to_vec(), ..Sample::default() };
    (Arc::new(CellGraph { genes, edge_types, metabolism: Some(metabolism) }), [of(&[0, 2]), of(&[3])])
}

#[test]
fn each_stage_is_marked_operation_by_operation_and_edge_type_by_edge_type() {
    use StageOperation::{Allocate, Copy, Fill, Filter, Lookup};
    let (graph, samples) = small();
    type Named = BTreeSet<(StageOperation, String)>;
    let named = |operations: &[(StageOperation, &[&str])]| -> Named {
        let each = operations.iter().flat_map(|(of, operands)| operands.iter().map(move |operand| (*of, *operand)));
        each.map(|(operation, operand)| (operation, operand.to_owned())).collect()
    };
    let (types, all, around_genes): (&[&str], &[&str], &[&str]) =
        (&["a", "b"], &["a", "b", "metabolism"], &["genes", "metabolism"]);
    for (processor, mask, collate) in [
        (
            Processor::Lazy,
            named(&[(Allocate, all), (Lookup, all), (Fill, all), (Fill, &["genes"])]),
            named(&[(Allocate, all), (Copy, all), (Copy, &["labels", "genes"])]),
        ),
        (Processor::Packed, named(&[(Allocate, all), (Lookup, all), (Fill, all)]), named(&[(Copy, &["labels"])])),
        (Processor::Shared, named(&[(Lookup, all), (Fill, all)]), named(&[(Copy, &["labels"])])),
        (
            Processor::Subgraph,
            named(&[(Allocate, all), (Filter, all), (Fill, &["genes"])]),
            named(&[(Allocate, all), (Copy, all), (Copy, &["labels", "genes"])]),
        ),
        (
            Processor::IncidenceSubgraph,
            named(&[(Allocate, all), (Lookup, all), (Fill, all), (Fill, &["genes"])]),
            named(&[(Allocate, all), (Copy, all), (Copy, &["labels", "genes"])]),
        ),
        (
            Processor::Neighborhood,
            named(&[(Allocate, &["metabolism"]), (Lookup, around_genes), (Fill, around_genes), (Filter, all)]),
            named(&[(Allocate, all), (Copy, all), (Copy, &["labels", "genes"])]),
        ),
        (Processor::Perturbation, named(&[(Fill, &["genes"])]), named(&[(Copy, &["labels", "genes"])])),
        (Processor::Ids, named(&[]), named(&[(Copy, &["labels"])])),
    ] {
        let mut assembler = Assembler::new(&GraphBatchOptions::new(processor), Arc::clone(&graph)).unwrap();
        assert_eq!(assembler.edge_types().collect::<Vec<_>>(), types);
        let mut batch = assembler.empty();
        let operations = marked(&mut assembler, &samples, &[], &mut batch);
        let of = |stage: Stage| -> Named {
            let inside = operations.times().into_iter().filter(|time| time.stage == stage);
            inside.map(|time| (time.operation, time.operand.to_string())).collect()
        };
        assert_eq!((of(Stage::Mask), of(Stage::Collate)), (mask, collate), "{}", processor.name());
        // One after another, each once among the times; only the neighborhood marks each sample by itself.
        let intervals: Vec<_> = operations.intervals().map(|(interval, _)| *interval).collect();
        assert!(intervals.windows(2).all(|two| two[0].end <= two[1].start), "{intervals:?}");
        let times = operations.times();
        let distinct: BTreeSet<_> = times.iter().map(|time| (time.stage, time.operation, &time.operand)).collect();
        assert_eq!(distinct.len(), times.len());
        let each_sample = intervals.iter().filter(|of| of.operation == Filter).count() > all.len();
        assert_eq!(each_sample, processor == Processor::Neighborhood, "{}", processor.name());
    }
}

#[test]
fn approximate_masks_leave_some_of_the_removed_edges_and_are_the_same_each_time() {
    let (graph, samples) = small();
    let masks = |fraction: f64, seed: u64| -> Vec<Vec<u8>> {
        let pipeline =
            GraphBatchOptions { mask_fraction: fraction, mask_seed: seed, ..GraphBatchOptions::new(Processor::Lazy) };
        let mut assembler = Assembler::new(&pipeline, Arc::clone(&graph)).unwrap();
        let mut batch = assembler.empty();
        // Neither the position in the batch matters nor what the batch had before.
        assembler.mask(&samples[..1], &[], &mut batch);
        assembler.mask(&samples, &[], &mut batch);
        let Layout::Graphs(graphs) = batch.layout else { panic!("lazy makes graphs") };
        // Reactions and their edges are always exact.
        assert_eq!(graphs.metabolism.as_ref().unwrap().reactions.kept, [0, 1, 1, 1]);
        graphs.edges.into_iter().map(|edges| edges.mask).collect()
    };
    let exact = masks(1.0, 42);
    assert_eq!(exact, [vec![0, 0, 0, 1, 1, 1], vec![0, 0, 0, 0]]);
    let mut differing = 0;
    for seed in 0..50 {
        let some = masks(0.5, seed);
        assert_eq!(some, masks(0.5, seed));
        let ones = |masks: &[Vec<u8>]| masks.concat().iter().map(|entry| u64::from(*entry)).sum::<u64>();
        // No edge is removed that the exact masks keep.
        assert!(some.concat().iter().zip(exact.concat()).all(|(some, exact)| *some >= exact), "{some:?}");
        differing += usize::from(ones(&some) > ones(&exact));
    }
    // Of seven edges all are masked with a probability of 1/128: 50 times in a row with 1e-105.
    assert!(differing > 0);
}

#[test]
fn ways_to_make_masks_that_do_not_fit_are_refused() {
    let (graph, _) = small();
    let refused = |pipeline: GraphBatchOptions| Assembler::new(&pipeline, Arc::clone(&graph)).unwrap_err().to_string();
    let new = |processor| GraphBatchOptions::new(processor);
    let message = refused(GraphBatchOptions { mask_fraction: 0.5, ..new(Processor::Packed) });
    assert_eq!(message, "approximate masks are of processor `lazy`, not of `packed`");
    let gene_masks = MaskSource::GeneMasks;
    for pipeline in [
        GraphBatchOptions { mask_source: gene_masks, ..new(Processor::Ids) },
        GraphBatchOptions { mask_source: gene_masks, mask_fraction: 0.5, ..new(Processor::Lazy) },
    ] {
        assert!(refused(pipeline).contains("masks of single genes are of processors that make exact masks"));
    }
    // Four genes, two types, a word each.
    let within = |gene_mask_bytes: u64| {
        let options = GraphBatchOptions { mask_source: gene_masks, gene_mask_bytes, ..new(Processor::Shared) };
        Assembler::new(&options, Arc::clone(&graph))
    };
    assert!(within(4 * 2 * 8).is_ok());
    assert!(within(4 * 2 * 8 - 1).unwrap_err().to_string().contains("a mask for each of 4 genes over 5 edges takes"));
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
        for form in masked::FORMS.into_iter().skip(1) {
            let (mut sample, mut bytes) = (of(1), Vec::new());
            encode_masks(&graph, form, &mut sample, &mut bytes);
            sample.genes = vec![0];
            let found = layout(sample, &bytes);
            let what = format!("{} {form:?}", pipeline.processor.name());
            match pipeline.processor {
                Processor::Shared | Processor::Packed => assert_eq!(found, other, "{what}"),
                Processor::Subgraph | Processor::Neighborhood | Processor::Perturbation | Processor::Ids => {
                    assert_eq!(found, own, "{what}");
                }
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
