//! The graph without the perturbed genes, its nodes numbered anew: the published SubgraphRepresentation, which looks at
//! every edge, and IncidenceSubgraphRepresentation, which gives the same and knows where the removed edges lie.
//!
//! The processor finds what is removed; collation copies the rest straight into the batch and numbers it on the way. The
//! published processor made a graph of each sample first, which is 40 MB more to write and to read.

use super::nodes::refill;
use super::own::{ABSENT, OwnEdges, number_without};
use super::tensors::{Graphs, MetabolicGraphs};
use super::work::Work;
use crate::graph::{CellGraph, Metabolism};
use crate::mask::MaskSources;
use crate::store::Sample;

/// One sample by looking at every edge; masks of a store are not looked at.
pub(super) fn scan(graph: &CellGraph, sample: &Sample, at: usize, work: &mut Work, graphs: &mut Graphs) {
    let Work { edges: own, table, reaction_table, gone, lost, .. } = work;
    refill(gone, graph.num_genes(), 0);
    sample.genes.iter().for_each(|gene| gone[*gene as usize] = 1);
    for ((edges, lost), joined) in graph.edge_types.iter().zip(lost).zip(&mut graphs.edges) {
        let e = edges.num_edges();
        let removed = &mut joined.removed[at * e..(at + 1) * e];
        for ((source, target), removed) in edges.sources().iter().zip(edges.targets()).zip(&mut *removed) {
            *removed = gone[*source as usize] | gone[*target as usize];
        }
        append_set(removed, &mut lost.positions);
        lost.ptr.push(lost.positions.len() as i64);
    }
    if let (Some(metabolism), Some(joined)) = (&graph.metabolism, &mut graphs.metabolism) {
        number_without(sample.genes.iter().map(|gene| *gene as usize), graph.num_genes(), table);
        // A reaction goes with any of its genes.
        refill(gone, metabolism.reactions, 0);
        for (gene, reaction) in metabolism.gpr_genes().iter().zip(metabolism.gpr_reactions()) {
            gone[*reaction as usize] |= u8::from(table[*gene as usize] == ABSENT);
        }
        let removed = gone.iter().enumerate().filter(|(_, gone)| **gone == 1).map(|(reaction, _)| reaction);
        number_without(removed, metabolism.reactions, reaction_table);
        metabolic(metabolism, at, table, reaction_table, own, joined);
    }
    work.genes.push(graph.num_genes() - sample.genes.len());
}

/// One sample from the positions of its removed edges, which may come from a store.
pub(super) fn from_sources(
    graph: &CellGraph,
    sources: &MaskSources,
    (sample, bytes): (&Sample, &[u8]),
    at: usize,
    work: &mut Work,
    graphs: &mut Graphs,
) {
    let Work { edges: own, table, reaction_table, removed, union, positions, lost, .. } = work;
    let types = graph.edge_types.len();
    sources.for_each(sample, bytes, removed, |mask, source| {
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
            number_without(sample.genes.iter().map(|gene| *gene as usize), graph.num_genes(), table);
            number_without(positions.iter().map(|p| *p as usize), metabolism.reactions, reaction_table);
            metabolic(metabolism, at, table, reaction_table, own, joined);
        }
    });
    work.genes.push(graph.num_genes() - sample.genes.len());
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
