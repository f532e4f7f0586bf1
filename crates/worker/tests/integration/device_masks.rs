//! Masks made where the batch is used are those of the definition, whichever way they are made.

use std::sync::Arc;

use expctl_settings::DeviceMasks;
use expctl_worker::device_masks::DeviceMaskMaker;
use graph_loader::{Batch, CellGraph, EdgeType, Processor, Sample};
use proptest::prelude::*;
use tch::Device;

use crate::support::collate;

const WAYS: [DeviceMasks; 2] = [DeviceMasks::Looped, DeviceMasks::Vectorised];

fn graph(num_genes: usize, types: Vec<Vec<(i64, i64)>>) -> CellGraph {
    let edge_types = types.into_iter().enumerate().map(|(i, edges)| EdgeType {
        name: format!("type{i}"),
        edge_index: edges.iter().map(|e| e.0).chain(edges.iter().map(|e| e.1)).collect(),
    });
    CellGraph { genes: vec![String::new(); num_genes], edge_types: edge_types.collect(), metabolism: None }
}

/// The batch that a loader ships, which has the genes alone.
fn batch(graph: &Arc<CellGraph>, samples: &[Vec<i64>]) -> Batch {
    let samples: Vec<Sample> =
        samples.iter().map(|genes| Sample { genes: genes.clone(), ..Sample::default() }).collect();
    collate(Processor::Ids, graph, &samples)
}

fn graphs() -> impl Strategy<Value = CellGraph> {
    (1usize..14).prop_flat_map(|n| {
        let gene = 0..n as i64;
        let edges = proptest::collection::vec((gene.clone(), gene), 0..60);
        proptest::collection::vec(edges, 1..4).prop_map(move |types| graph(n, types))
    })
}

fn batches(num_genes: usize) -> impl Strategy<Value = Vec<Vec<i64>>> {
    let genes = proptest::collection::btree_set(0..num_genes as i64, 0..=6.min(num_genes));
    proptest::collection::vec(genes.prop_map(|genes| genes.into_iter().collect()), 1..6)
}

proptest! {
    #[test]
    fn an_edge_is_kept_if_neither_gene_is_perturbed(
        (graph, batches) in graphs().prop_flat_map(|graph| {
            let batches = proptest::collection::vec(batches(graph.num_genes()), 1..3);
            (Just(Arc::new(graph)), batches)
        }),
    ) {
        for way in WAYS {
            let maker = DeviceMaskMaker::new(way, &graph, Device::Cpu).unwrap().unwrap();
            // More than one batch: nothing of one may be left in the next.
            for samples in &batches {
                let masks = maker.make(&batch(&graph, samples).common).unwrap();
                prop_assert_eq!(masks.len(), graph.edge_types.len());
                for (mask, edges) in masks.iter().zip(&graph.edge_types) {
                    let naive: Vec<bool> = samples
                        .iter()
                        .flat_map(|genes| {
                            let ends = edges.sources().iter().zip(edges.targets());
                            ends.map(|(s, t)| !genes.contains(s) && !genes.contains(t))
                        })
                        .collect();
                    prop_assert_eq!(mask.kind(), tch::Kind::Bool);
                    prop_assert_eq!(Vec::<bool>::try_from(mask).unwrap(), naive, "{}", way.name());
                }
            }
        }
    }
}

#[test]
fn a_gene_that_is_not_there_is_an_error() {
    let graph = Arc::new(graph(3, vec![vec![(0, 1), (2, 2)]]));
    let mut batch = batch(&graph, &[vec![0], vec![1, 2]]);
    for gene in [3, -1, i64::MAX] {
        batch.common.genes[2] = gene;
        for way in WAYS {
            let maker = DeviceMaskMaker::new(way, &graph, Device::Cpu).unwrap().unwrap();
            let error = maker.make(&batch.common).unwrap_err().to_string();
            assert_eq!(error, format!("sample 1 of the batch perturbs gene {gene}, but the graph has 3 genes"));
        }
    }
    assert!(DeviceMaskMaker::new(DeviceMasks::None, &graph, Device::Cpu).unwrap().is_none());
}
