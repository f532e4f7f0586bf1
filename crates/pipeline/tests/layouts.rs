//! All layouts describe the same masked graph, sample by sample, as a naive reference.

use std::collections::BTreeSet;
use std::sync::Arc;

use expctl_pipeline::collate::{Assembler, Batch, Layout};
use expctl_pipeline::graph::{CellGraph, EdgeType};
use expctl_pipeline::store::Sample;
use expctl_record::{Pipeline, Processor};
use proptest::prelude::*;

/// Edges as (position, source, target), so that parallel edges count.
type Kept = BTreeSet<(usize, i64, i64)>;

/// Kept edges by the definition: neither gene is perturbed.
fn naive(edges: &EdgeType, genes: &[i64]) -> Kept {
    let ends = edges.sources().iter().zip(edges.targets());
    ends.enumerate()
        .map(|(position, (&s, &t))| (position, s, t))
        .filter(|(_, s, t)| !genes.contains(s) && !genes.contains(t))
        .collect()
}

/// Kept edges of one sample and type as a batch describes them.
fn described(batch: &Batch, graph: &CellGraph, edge_type: usize, sample: usize) -> Kept {
    let edges = &graph.edge_types[edge_type];
    let e = edges.num_edges();
    let all = |keep: &dyn Fn(usize) -> bool| -> Kept {
        (0..e).filter(|p| keep(*p)).map(|p| (p, edges.sources()[p], edges.targets()[p])).collect()
    };
    match &batch.layout {
        Layout::Lazy { edges: replicated, .. } => {
            let r = &replicated[edge_type];
            let (copies, shift) = (batch.common.len() * e, sample as i64 * graph.num_genes() as i64);
            assert_eq!(r.num_edges[sample], e as i64);
            (0..e)
                .filter(|p| r.mask[sample * e + p] == 1)
                .map(|p| {
                    let at = sample * e + p;
                    (p, r.edge_index[at] - shift, r.edge_index[copies + at] - shift)
                })
                .collect()
        }
        Layout::Perturbation { nodes } => {
            let g = graph.num_genes();
            let kept = |gene: i64| nodes.kept[sample * g + gene as usize] == 1;
            all(&|p| kept(edges.sources()[p]) && kept(edges.targets()[p]))
        }
        Layout::Shared { removed } => {
            let removed = removed[edge_type].of(sample);
            assert!(removed.windows(2).all(|w| w[0] < w[1]), "ascending, each once");
            all(&|p| !removed.contains(&(p as i32)))
        }
        Layout::Ids => {
            let genes = batch.common.genes_of(sample);
            all(&|p| !genes.contains(&edges.sources()[p]) && !genes.contains(&edges.targets()[p]))
        }
    }
}

fn graph() -> impl Strategy<Value = CellGraph> {
    (1usize..12).prop_flat_map(|n| {
        let gene = 0..n as i64;
        let edges = proptest::collection::vec((gene.clone(), gene), 0..40);
        proptest::collection::vec(edges, 1..4).prop_map(move |types| CellGraph {
            genes: (0..n).map(|i| format!("G{i:02}")).collect(),
            edge_types: types
                .into_iter()
                .enumerate()
                .map(|(i, edges)| EdgeType {
                    name: format!("type{i}"),
                    edge_index: edges.iter().map(|e| e.0).chain(edges.iter().map(|e| e.1)).collect(),
                })
                .collect(),
            metabolism: None,
        })
    })
}

fn samples(num_genes: usize) -> impl Strategy<Value = Vec<Sample>> {
    let genes = proptest::collection::btree_set(0..num_genes as i64, 0..=6.min(num_genes));
    let sample = (genes, -1f32..1f32).prop_map(|(genes, label)| Sample {
        genes: genes.into_iter().collect(),
        label,
        p_value: 0.5,
        ..Sample::default()
    });
    proptest::collection::vec(sample, 1..6)
}

proptest! {
    #[test]
    fn all_layouts_describe_the_same_masked_graph(
        (graph, batches) in graph().prop_flat_map(|g| {
            let n = g.num_genes();
            (Just(Arc::new(g)), proptest::collection::vec(samples(n), 1..4))
        }),
    ) {
        for processor in [Processor::Lazy, Processor::Perturbation, Processor::Shared, Processor::Ids] {
            let mut assembler = Assembler::new(&Pipeline::new(processor, Vec::new()), Arc::clone(&graph)).unwrap();
            // One batch for all: buffers are reused, and nothing of the last batch may shine through.
            let mut batch = assembler.empty();
            for samples in &batches {
                assembler.mask(samples, &[], &mut batch);
                assembler.collate(samples, &mut batch);
                prop_assert_eq!(batch.common.len(), samples.len());
                for (i, sample) in samples.iter().enumerate() {
                    prop_assert_eq!(batch.common.genes_of(i), &sample.genes[..]);
                    prop_assert_eq!(batch.common.labels[i], sample.label);
                    for (t, edges) in graph.edge_types.iter().enumerate() {
                        prop_assert_eq!(
                            described(&batch, &graph, t, i), naive(edges, &sample.genes), "{} type {}", processor.name(), t
                        );
                    }
                }
            }
        }
    }
}

/// Byte counts of facts: 16 B of index and 1 B of mask for each edge and sample.
#[test]
fn a_replicated_batch_has_the_published_bytes() {
    let (genes, e, b) = (5, 7, 3);
    let edges = EdgeType { name: "e".into(), edge_index: vec![1; 2 * e] };
    let graph = CellGraph { genes: vec![String::new(); genes], edge_types: vec![edges], metabolism: None };
    let mut assembler = Assembler::new(&Pipeline::new(Processor::Lazy, Vec::new()), Arc::new(graph)).unwrap();
    let samples = vec![Sample { genes: vec![0, 1, 2], label: 0.0, p_value: 1.0, ..Sample::default() }; b];
    let mut batch = assembler.empty();
    assembler.mask(&samples, &[], &mut batch);
    assembler.collate(&samples, &mut batch);
    let edge_bytes = b * e * 17 + b * 8;
    let node_bytes = b * genes * (1 + 1 + 8) + (b + 1) * 8;
    let common = b * 3 * 16 + (b + 1) * 8 + b * 8;
    assert_eq!(batch.bytes(), (edge_bytes + node_bytes + common) as u64);
}
