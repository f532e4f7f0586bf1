//! Random graphs and samples: empty types, isolated genes, parallel edges, reactions without genes, no reactions at all.

use graph_loader::{CellGraph, EdgeType, Metabolism, Sample};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

fn row_major(edges: &[(i64, i64)]) -> Vec<i64> {
    edges.iter().map(|e| e.0).chain(edges.iter().map(|e| e.1)).collect()
}

fn metabolism(genes: i64) -> impl Strategy<Value = Metabolism> {
    (0usize..8, 1usize..5).prop_flat_map(move |(reactions, metabolites)| {
        // Without reactions there are no edges.
        let some = |most: usize| if reactions == 0 { 0..1 } else { 0..most };
        let reaction = 0..(reactions as i64).max(1);
        let gpr = vec((0..genes, reaction.clone()), some(12));
        let rmr = vec(((reaction, 0..metabolites as i64), -2f32..2f32), some(20));
        (gpr, rmr).prop_map(move |(mut gpr, mut rmr)| {
            gpr.sort_by_key(|edge| (edge.1, edge.0));
            gpr.dedup();
            rmr.sort_by_key(|(edge, _)| edge.0);
            let ends: Vec<_> = rmr.iter().map(|(edge, _)| *edge).collect();
            Metabolism {
                reactions,
                metabolites,
                gpr: row_major(&gpr),
                rmr: row_major(&ends),
                stoichiometry: rmr.iter().map(|(_, stoichiometry)| *stoichiometry).collect(),
            }
        })
    })
}

/// A graph of 1 to 80 genes; the larger have masks of several words and bytes.
pub fn graph() -> impl Strategy<Value = CellGraph> {
    prop_oneof![1i64..12, 40i64..80].prop_flat_map(|genes| {
        let edges = vec((0..genes, 0..genes), 0..150);
        (vec(edges, 1..4), proptest::option::of(metabolism(genes))).prop_map(move |(types, metabolism)| CellGraph {
            genes: (0..genes).map(|i| format!("G{i:02}")).collect(),
            edge_types: types
                .iter()
                .enumerate()
                .map(|(i, edges)| EdgeType { name: format!("type{i}"), edge_index: row_major(edges) })
                .collect(),
            metabolism,
        })
    })
}

/// One to five samples of 0 to 6 genes.
pub fn samples(num_genes: usize) -> impl Strategy<Value = Vec<Sample>> {
    let genes = btree_set(0..num_genes as i64, 0..=6.min(num_genes));
    let sample = (genes, -1f32..1f32).prop_map(|(genes, label)| Sample {
        genes: genes.into_iter().collect(),
        label,
        p_value: 0.5,
        ..Sample::default()
    });
    vec(sample, 1..6)
}
