//! The whole graph for each sample, with masks: the published LazySubgraphRepresentation.

use super::nodes::{complement, keep_all, mask_genes, refill};
use super::replicate::{replicate, replicate_shifted};
use super::tensors::{Edges, Graphs};
use super::work::Work;
use crate::graph::CellGraph;
use crate::mask::MaskSources;
use crate::store::Sample;

/// Masks of all samples, straight into their place in the batch.
pub(super) fn mask(
    graph: &CellGraph,
    sources: &MaskSources,
    samples: &[Sample],
    bytes: &[u8],
    work: &mut Work,
    graphs: &mut Graphs,
) {
    mask_genes(samples, graph.num_genes(), &mut graphs.genes);
    let mut masks: Vec<&mut Vec<u8>> = graphs.edges.iter_mut().map(|edges| &mut edges.mask).collect();
    if let Some(joined) = &mut graphs.metabolism {
        masks.extend([&mut joined.reactions.kept, &mut joined.gpr.mask, &mut joined.rmr.mask]);
    }
    for (mask, entries) in masks.iter_mut().zip(sources.entries()) {
        mask.resize(samples.len() * entries, 0);
    }
    for (at, sample) in samples.iter().enumerate() {
        sources.for_each(sample, bytes, &mut work.removed, |mask, source| {
            let entries = sources.entries()[mask];
            source.to_bytes(&mut masks[mask][at * entries..(at + 1) * entries]);
        });
    }
    if let (Some(joined), Some(metabolism)) = (&mut graphs.metabolism, &graph.metabolism) {
        complement(&joined.reactions.kept, &mut joined.reactions.perturbed);
        keep_all(samples.len(), metabolism.metabolites, &mut joined.metabolites);
        refill(&mut joined.w_growth, samples.len() * metabolism.reactions, 0.0);
    }
}

/// Edge indices of all samples, and the stoichiometry; nothing but the counts if the index stays with the graph.
pub(super) fn join_edges(graph: &CellGraph, samples: usize, with_index: bool, graphs: &mut Graphs) {
    let genes = graph.num_genes() as i64;
    for (edge_type, edges) in graph.edge_types.iter().zip(&mut graphs.edges) {
        join(edge_type.sources(), edge_type.targets(), (genes, genes), samples, with_index, edges);
    }
    if let (Some(joined), Some(metabolism)) = (&mut graphs.metabolism, &graph.metabolism) {
        let (reactions, metabolites) = (metabolism.reactions as i64, metabolism.metabolites as i64);
        let gpr = (metabolism.gpr_genes(), metabolism.gpr_reactions());
        join(gpr.0, gpr.1, (genes, reactions), samples, with_index, &mut joined.gpr);
        let rmr = (metabolism.rmr_reactions(), metabolism.rmr_metabolites());
        join(rmr.0, rmr.1, (reactions, metabolites), samples, with_index, &mut joined.rmr);
        if with_index {
            replicate(&metabolism.stoichiometry, samples, &mut joined.stoichiometry);
        }
    }
}

/// One edge type, once per sample.
pub(super) fn join(
    sources: &[i64],
    targets: &[i64],
    stride: (i64, i64),
    samples: usize,
    with_index: bool,
    edges: &mut Edges,
) {
    refill(&mut edges.num_edges, samples, sources.len() as i64);
    if with_index {
        let all = samples * sources.len();
        edges.edge_index.resize(2 * all, 0);
        let (to_sources, to_targets) = edges.edge_index.split_at_mut(all);
        replicate_shifted(sources, samples, stride.0, to_sources);
        replicate_shifted(targets, samples, stride.1, to_targets);
    }
}
