//! The graph without the perturbed genes, its nodes numbered anew: the published SubgraphRepresentation, which looks at
//! every edge, and IncidenceSubgraphRepresentation, which gives the same and knows where the removed edges lie.

use super::nodes::refill;
use super::own::{ABSENT, OwnEdges, number_without};
use super::tensors::Graphs;
use super::work::Work;
use crate::graph::{CellGraph, Metabolism};
use crate::mask::MaskSources;
use crate::store::Sample;

/// One sample by looking at every edge; masks of a store are not looked at.
pub(super) fn scan(graph: &CellGraph, sample: &Sample, at: usize, work: &mut Work, graphs: &mut Graphs) {
    let Work { edges: own, table, reaction_table, gone, .. } = work;
    number_without(sample.genes.iter().map(|gene| *gene as usize), graph.num_genes(), table);
    for ((edges, own), joined) in graph.edge_types.iter().zip(&mut *own).zip(&mut graphs.edges) {
        let e = edges.num_edges();
        filter(edges.sources(), edges.targets(), table, own, &mut joined.removed[at * e..(at + 1) * e]);
    }
    if let (Some(metabolism), Some(joined)) = (&graph.metabolism, &mut graphs.metabolism) {
        // A reaction goes with any of its genes.
        refill(gone, metabolism.reactions, false);
        for (gene, reaction) in metabolism.gpr_genes().iter().zip(metabolism.gpr_reactions()) {
            gone[*reaction as usize] |= table[*gene as usize] == ABSENT;
        }
        let removed = gone.iter().enumerate().filter(|(_, gone)| **gone).map(|(reaction, _)| reaction);
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
    let Work { edges: own, table, reaction_table, removed, union, positions, .. } = work;
    number_without(sample.genes.iter().map(|gene| *gene as usize), graph.num_genes(), table);
    let types = graph.edge_types.len();
    sources.for_each(sample, bytes, removed, |mask, source| {
        // gpr and rmr follow from the reactions.
        if mask > types {
            return;
        }
        positions.clear();
        source.append_removed(sources.entries()[mask], union, positions);
        if let Some(edges) = graph.edge_types.get(mask) {
            let e = edges.num_edges();
            let removed = &mut graphs.edges[mask].removed[at * e..(at + 1) * e];
            removed.fill(0);
            positions.iter().for_each(|p| removed[*p as usize] = 1);
            copy_runs(edges.sources(), edges.targets(), positions, table, &mut own[mask]);
        } else if let (Some(metabolism), Some(joined)) = (&graph.metabolism, &mut graphs.metabolism) {
            number_without(positions.iter().map(|p| *p as usize), metabolism.reactions, reaction_table);
            metabolic(metabolism, at, table, reaction_table, own, joined);
        }
    });
    work.genes.push(graph.num_genes() - sample.genes.len());
}

/// Edges whose ends are both kept, and which are not (1 = removed).
fn filter(sources: &[i64], targets: &[i64], table: &[u32], own: &mut OwnEdges, removed: &mut [u8]) {
    let room = own.room(sources.len());
    let mut n = 0;
    for ((source, target), removed) in sources.iter().zip(targets).zip(removed) {
        let (source, target) = (table[*source as usize], table[*target as usize]);
        let kept = (source != ABSENT) & (target != ABSENT);
        room.sources[n] = source;
        room.targets[n] = target;
        *removed = u8::from(!kept);
        // Branch-free: what is not kept is written over.
        n += usize::from(kept);
    }
    own.take(n);
}

/// Edges between the removed positions, run by run.
fn copy_runs(sources: &[i64], targets: &[i64], removed: &[i32], table: &[u32], own: &mut OwnEdges) {
    let kept = sources.len() - removed.len();
    let room = own.room(kept);
    let (mut start, mut n) = (0, 0);
    let ends = removed.iter().map(|p| *p as usize).chain([sources.len()]);
    for end in ends {
        let len = end - start;
        relabel(&sources[start..end], table, &mut room.sources[n..n + len]);
        relabel(&targets[start..end], table, &mut room.targets[n..n + len]);
        n += len;
        start = end + 1;
    }
    own.take(kept);
}

fn relabel(nodes: &[i64], table: &[u32], out: &mut [u32]) {
    for (to, node) in out.iter_mut().zip(nodes) {
        *to = table[*node as usize];
    }
}

/// Reactions, gpr and rmr of one sample, given the new numbers of genes and reactions. A gpr edge goes with its reaction,
/// also if its own gene is kept.
fn metabolic(
    metabolism: &Metabolism,
    at: usize,
    genes: &[u32],
    reactions: &[u32],
    own: &mut [OwnEdges],
    joined: &mut super::tensors::MetabolicGraphs,
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
        let reaction = reactions[*reaction as usize];
        room.sources[n] = genes[*gene as usize];
        room.targets[n] = reaction;
        *removed = u8::from(reaction == ABSENT);
        n += usize::from(reaction != ABSENT);
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
