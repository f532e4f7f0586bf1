//! The whole graph for each sample, with masks: the published LazySubgraphRepresentation.

use expctl_record::Operation;

use super::nodes::{complement, keep_all, mask_genes, refill};
use super::replicate::{replicate, replicate_shifted};
use super::tensors::{Edges, Graphs};
use super::work::Work;
use crate::graph::CellGraph;
use crate::marks::{Marker, Operand};
use crate::mask::MaskSources;
use crate::store::Sample;

/// Masks of all samples, straight into their place in the batch.
pub(super) fn mask<M: Marker>(
    graph: &CellGraph,
    sources: &MaskSources,
    samples: &[Sample],
    bytes: &[u8],
    work: &mut Work,
    graphs: &mut Graphs,
    marks: &mut M,
) {
    mask_genes(samples, graph.num_genes(), &mut graphs.genes);
    marks.mark(Operation::Fill, Operand::Genes);
    let mut masks: Vec<&mut Vec<u8>> = graphs.edges.iter_mut().map(|edges| &mut edges.mask).collect();
    if let Some(joined) = &mut graphs.metabolism {
        masks.extend([&mut joined.reactions.kept, &mut joined.gpr.mask, &mut joined.rmr.mask]);
    }
    for (number, (mask, entries)) in masks.iter_mut().zip(sources.entries()).enumerate() {
        mask.resize(samples.len() * entries, 0);
        marks.mark(Operation::Allocate, sources.operand(number));
    }
    sources.for_each(samples, bytes, &mut work.removed, marks, |mask, at, source| {
        let entries = sources.entries()[mask];
        source.to_bytes(&mut masks[mask][at * entries..(at + 1) * entries]);
    });
    if let (Some(joined), Some(metabolism)) = (&mut graphs.metabolism, &graph.metabolism) {
        complement(&joined.reactions.kept, &mut joined.reactions.perturbed);
        keep_all(samples.len(), metabolism.metabolites, &mut joined.metabolites);
        refill(&mut joined.w_growth, samples.len() * metabolism.reactions, 0.0);
        marks.mark(Operation::Fill, Operand::Metabolism);
    }
}

/// Edge indices of all samples, and the stoichiometry; nothing but the counts if the index stays with the graph.
pub(super) fn join_edges<M: Marker>(
    graph: &CellGraph,
    samples: usize,
    with_index: bool,
    graphs: &mut Graphs,
    marks: &mut M,
) {
    let genes = graph.num_genes() as i64;
    for (index, (edge_type, edges)) in graph.edge_types.iter().zip(&mut graphs.edges).enumerate() {
        let ends = (edge_type.sources(), edge_type.targets());
        join(ends, (genes, genes), samples, with_index, edges, Operand::EdgeType(index), marks);
    }
    if let (Some(joined), Some(metabolism)) = (&mut graphs.metabolism, &graph.metabolism) {
        let (reactions, metabolites) = (metabolism.reactions as i64, metabolism.metabolites as i64);
        let gpr = (metabolism.gpr_genes(), metabolism.gpr_reactions());
        join(gpr, (genes, reactions), samples, with_index, &mut joined.gpr, Operand::Metabolism, marks);
        let rmr = (metabolism.rmr_reactions(), metabolism.rmr_metabolites());
        join(rmr, (reactions, metabolites), samples, with_index, &mut joined.rmr, Operand::Metabolism, marks);
        if with_index {
            replicate(&metabolism.stoichiometry, samples, &mut joined.stoichiometry);
            marks.mark(Operation::Copy, Operand::Metabolism);
        }
    }
}

/// One edge type, once per sample: `(sources, targets)`, each shifted by its stride from one sample to the next.
pub(super) fn join<M: Marker>(
    (sources, targets): (&[i64], &[i64]),
    stride: (i64, i64),
    samples: usize,
    with_index: bool,
    edges: &mut Edges,
    operand: Operand,
    marks: &mut M,
) {
    refill(&mut edges.num_edges, samples, sources.len() as i64);
    if with_index {
        let all = samples * sources.len();
        edges.edge_index.resize(2 * all, 0);
        marks.mark(Operation::Allocate, operand);
        let (to_sources, to_targets) = edges.edge_index.split_at_mut(all);
        replicate_shifted(sources, samples, stride.0, to_sources);
        replicate_shifted(targets, samples, stride.1, to_targets);
    }
    marks.mark(Operation::Copy, operand);
}
