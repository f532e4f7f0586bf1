//! The graph without the perturbed genes, its nodes numbered anew: the published SubgraphRepresentation, which looks at
//! every edge, and IncidenceSubgraphRepresentation, which gives the same and knows where the removed edges lie.
//!
//! The processor finds what is removed; collation copies the rest straight into the batch and numbers it on the way. The
//! published processor made a graph of each sample first, which is 40 MB more to write and to read.

use expctl_record::Operation;

use super::nodes::refill;
use super::own::{ABSENT, OwnEdges, number_without};
use super::tensors::{Graphs, MetabolicGraphs};
use super::work::Work;
use crate::graph::{CellGraph, Metabolism};
use crate::marks::{Marker, Operand};
use crate::mask::MaskSources;
use crate::store::Sample;

/// All samples by looking at every edge; masks of a store are not looked at. Perturbed genes are marked in `graphs` already.
pub(super) fn scan<M: Marker>(
    graph: &CellGraph,
    samples: &[Sample],
    work: &mut Work,
    graphs: &mut Graphs,
    marks: &mut M,
) {
    let Work { edges: own, table, reaction_table, gone, lost, genes: counts, .. } = work;
    let Graphs { genes, edges: joined, metabolism: metabolic_graphs, .. } = graphs;
    let n = graph.num_genes();
    for (index, ((edges, lost), joined)) in graph.edge_types.iter().zip(lost).zip(joined).enumerate() {
        let e = edges.num_edges();
        for at in 0..samples.len() {
            let perturbed = &genes.perturbed[at * n..(at + 1) * n];
            let removed = &mut joined.removed[at * e..(at + 1) * e];
            for ((source, target), removed) in edges.sources().iter().zip(edges.targets()).zip(&mut *removed) {
                *removed = perturbed[*source as usize] | perturbed[*target as usize];
            }
            append_set(removed, &mut lost.positions);
            lost.ptr.push(lost.positions.len() as i64);
        }
        marks.mark(Operation::Filter, Operand::EdgeType(index));
    }
    if let (Some(metabolism), Some(joined)) = (&graph.metabolism, metabolic_graphs) {
        for (at, sample) in samples.iter().enumerate() {
            number_without(sample.genes.iter().map(|gene| *gene as usize), n, table);
            // A reaction goes with any of its genes.
            refill(gone, metabolism.reactions, 0);
            for (gene, reaction) in metabolism.gpr_genes().iter().zip(metabolism.gpr_reactions()) {
                gone[*reaction as usize] |= u8::from(table[*gene as usize] == ABSENT);
            }
            let removed = gone.iter().enumerate().filter(|(_, gone)| **gone == 1).map(|(reaction, _)| reaction);
            number_without(removed, metabolism.reactions, reaction_table);
            metabolic(metabolism, at, table, reaction_table, own, joined);
        }
        marks.mark(Operation::Filter, Operand::Metabolism);
    }
    counts.extend(samples.iter().map(|sample| n - sample.genes.len()));
}

/// All samples from the positions of their removed edges, which may come from a store.
pub(super) fn from_sources<M: Marker>(
    graph: &CellGraph,
    sources: &MaskSources,
    samples: &[Sample],
    bytes: &[u8],
    work: &mut Work,
    graphs: &mut Graphs,
    marks: &mut M,
) {
    let Work { edges: own, table, reaction_table, removed, union, positions, lost, genes: counts, .. } = work;
    let (types, n) = (graph.edge_types.len(), graph.num_genes());
    sources.for_each(samples, bytes, removed, marks, |mask, at, source| {
        let entries = sources.entries()[mask];
        if let Some(lost) = lost.get_mut(mask) {
            let start = lost.positions.len();
            source.append_removed(entries, union, &mut lost.positions);
            lost.ptr.push(lost.positions.len() as i64);
            let removed = &mut graphs.edges[mask].removed[at * entries..(at + 1) * entries];
            removed.fill(0);
            lost.positions[start..].iter().for_each(|position| removed[*position as usize] = 1);
        } else if let (Some(metabolism), Some(joined), true) =
            (&graph.metabolism, &mut graphs.metabolism, mask == types)
        {
            // gpr and rmr, which come next, follow from the reactions.
            positions.clear();
            source.append_removed(entries, union, positions);
            number_without(samples[at].genes.iter().map(|gene| *gene as usize), n, table);
            number_without(positions.iter().map(|p| *p as usize), metabolism.reactions, reaction_table);
            metabolic(metabolism, at, table, reaction_table, own, joined);
        }
    });
    counts.extend(samples.iter().map(|sample| n - sample.genes.len()));
}

/// Append the positions of the ones, of which there are few.
fn append_set(mask: &[u8], out: &mut Vec<i32>) {
    for (at, block) in mask.chunks(64).enumerate() {
        if block.iter().fold(0, |any, set| any | set) != 0 {
            let set = block.iter().enumerate().filter(|(_, set)| **set != 0);
            out.extend(set.map(|(i, _)| (64 * at + i) as i32));
        }
    }
}

/// Reactions, gpr and rmr of one sample, given the new numbers of genes and reactions. A gpr edge goes with its reaction,
/// also if its own gene is kept, and with its gene.
fn metabolic(
    metabolism: &Metabolism,
    at: usize,
    genes: &[u32],
    reactions: &[u32],
    own: &mut [OwnEdges],
    joined: &mut MetabolicGraphs,
) {
    let [.., gpr, rmr] = own else { return };
    let r = metabolism.reactions;
    let perturbed = &mut joined.reactions.perturbed[at * r..(at + 1) * r];
    for (perturbed, number) in perturbed.iter_mut().zip(reactions) {
        *perturbed = u8::from(*number == ABSENT);
    }
    let room = gpr.room(metabolism.num_gpr());
    let mut n = 0;
    let removed = &mut joined.gpr.removed[at * metabolism.num_gpr()..(at + 1) * metabolism.num_gpr()];
    let ends = metabolism.gpr_genes().iter().zip(metabolism.gpr_reactions());
    for ((gene, reaction), removed) in ends.zip(removed) {
        let (gene, reaction) = (genes[*gene as usize], reactions[*reaction as usize]);
        room.sources[n] = gene;
        room.targets[n] = reaction;
        // A stored mask may keep the reaction of a perturbed gene.
        let gone = (gene == ABSENT) | (reaction == ABSENT);
        *removed = u8::from(gone);
        n += usize::from(!gone);
    }
    gpr.take(n);
    let room = rmr.room(metabolism.num_rmr());
    let mut n = 0;
    let ends = metabolism.rmr_reactions().iter().zip(metabolism.rmr_metabolites());
    for ((reaction, metabolite), stoichiometry) in ends.zip(&metabolism.stoichiometry) {
        let reaction = reactions[*reaction as usize];
        if reaction != ABSENT {
            room.sources[n] = reaction;
            room.targets[n] = *metabolite as u32;
            n += 1;
            joined.stoichiometry.push(*stoichiometry);
        }
    }
    rmr.take(n);
}
