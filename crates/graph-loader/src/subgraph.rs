//! The graph without the perturbed genes, its nodes numbered anew: the published SubgraphRepresentation, which looks at
//! every edge, and IncidenceSubgraphRepresentation, which gives the same and knows where the removed edges lie.
//!
//! The processor finds what is removed; collation copies the rest straight into the batch and numbers it on the way. The
//! published processor made a graph of each sample first, which is 40 MB more to write and to read.

use loader_core::StageOperation;

use crate::assembler::Scratch;
use crate::batch::{Edges, Graphs, MetabolicGraphs, RemovedLists};
use crate::cell_graph::{CellGraph, EdgeType, Metabolism};
use crate::mask_sources::MaskSources;
use crate::operations::{Marker, Operand};
use crate::records::Sample;
use crate::sample_graphs::refill;
use crate::stream;
use crate::stream::NodeNumbers;

/// All samples by looking at every edge; masks of a store are not looked at. Perturbed genes are marked in `graphs` already.
pub fn scan<M: Marker>(
    graph: &CellGraph,
    samples: &[Sample],
    scratch: &mut Scratch,
    graphs: &mut Graphs,
    marks: &mut M,
) {
    let Scratch { edges: own, table, reaction_table, gone, lost, genes: counts, .. } = scratch;
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
        marks.mark(StageOperation::Filter, Operand::EdgeType(index));
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
        marks.mark(StageOperation::Filter, Operand::Metabolism);
    }
    counts.extend(samples.iter().map(|sample| n - sample.genes.len()));
}

/// All samples from the positions of their removed edges, which may come from a store.
pub fn from_sources<M: Marker>(
    graph: &CellGraph,
    sources: &MaskSources,
    samples: &[Sample],
    bytes: &[u8],
    scratch: &mut Scratch,
    graphs: &mut Graphs,
    marks: &mut M,
) {
    let Scratch { edges: own, table, reaction_table, removed, union, positions, lost, genes: counts, .. } = scratch;
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
    own: &mut [RelabeledEdges],
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

/// A node that the sample does not have.
pub const ABSENT: u32 = u32::MAX;

/// Edges of one type of all samples of a batch, sample after sample. A sample's nodes are numbered from 0.
///
/// Processors make these, and collation copies them into the batch, as in the published runs: the two stages are timed
/// apart. 8 B per edge, and 1 B more with a mask; buffers keep their length, so nothing is cleared.
#[derive(Debug, Default)]
pub struct RelabeledEdges {
    sources: Vec<u32>,
    targets: Vec<u32>,
    mask: Vec<u8>,
    used: usize,
    /// Edges of each sample.
    pub counts: Vec<usize>,
}

/// Buffers for the edges of one sample; all three have the same length.
pub struct EdgeRoom<'a> {
    pub sources: &'a mut [u32],
    pub targets: &'a mut [u32],
    pub mask: &'a mut [u8],
}

impl RelabeledEdges {
    /// Remove all samples.
    pub fn clear(&mut self) {
        self.used = 0;
        self.counts.clear();
    }

    /// Buffers for up to `max_edges` edges of the next sample. They hold values of earlier samples.
    pub fn room(&mut self, max_edges: usize) -> EdgeRoom<'_> {
        let (start, end) = (self.used, self.used + max_edges);
        if self.sources.len() < end {
            self.sources.resize(end, 0);
            self.targets.resize(end, 0);
            self.mask.resize(end, 0);
        }
        EdgeRoom {
            sources: &mut self.sources[start..end],
            targets: &mut self.targets[start..end],
            mask: &mut self.mask[start..end],
        }
    }

    /// The first `edges` of the buffers are the edges of the next sample.
    pub fn take(&mut self, edges: usize) {
        self.used += edges;
        self.counts.push(edges);
    }

    /// Bytes that are held, used or not.
    pub fn capacity_bytes(&self) -> usize {
        4 * (self.sources.capacity() + self.targets.capacity()) + self.mask.capacity()
    }

    pub fn sources(&self) -> &[u32] {
        &self.sources[..self.used]
    }

    pub fn targets(&self) -> &[u32] {
        &self.targets[..self.used]
    }

    pub fn mask(&self) -> &[u8] {
        &self.mask[..self.used]
    }
}

/// New index of each of `nodes` nodes when `removed` (ascending, each once) are gone.
fn number_without(removed: impl Iterator<Item = usize>, nodes: usize, table: &mut Vec<u32>) {
    table.clear();
    let mut next = 0;
    for gone in removed {
        let kept = (gone - table.len()) as u32;
        table.extend(next..next + kept);
        table.push(ABSENT);
        next += kept;
    }
    let kept = (nodes - table.len()) as u32;
    table.extend(next..next + kept);
}

/// Edges of a block, whose two ends stay in the first-level cache while all samples are written: 16 KiB.
const EDGE_BLOCK: usize = 1024;

/// Join the edges of one type of all samples, each end shifted by the nodes of the samples before.
pub fn join_own<M: Marker>(
    own: &RelabeledEdges,
    source_nodes: impl Iterator<Item = usize>,
    target_nodes: impl Iterator<Item = usize>,
    with_mask: bool,
    edges: &mut Edges,
    operand: Operand,
    marks: &mut M,
) {
    edges.num_edges.clear();
    edges.num_edges.extend(own.counts.iter().map(|count| *count as i64));
    let all = own.sources().len();
    edges.edge_index.resize(2 * all, 0);
    marks.mark(StageOperation::Allocate, operand);
    let (sources, targets) = edges.edge_index.split_at_mut(all);
    shift(own.sources(), &own.counts, source_nodes, sources);
    shift(own.targets(), &own.counts, target_nodes, targets);
    if with_mask {
        edges.mask.clear();
        edges.mask.extend_from_slice(own.mask());
    }
    marks.mark(StageOperation::Copy, operand);
}

fn shift(mut from: &[u32], counts: &[usize], nodes: impl Iterator<Item = usize>, mut to: &mut [i64]) {
    let widen = stream::widen_for(to.len());
    let mut before = 0;
    for (count, nodes) in counts.iter().zip(nodes) {
        let (sample, rest) = from.split_at(*count);
        from = rest;
        let (target, rest) = to.split_at_mut(*count);
        to = rest;
        widen(sample, before, target);
        before += nodes as i64;
    }
    stream::finish();
}

/// Copy the edges of one type for each sample without those that it removes, its genes numbered anew and shifted by the
/// genes of the samples before.
///
/// Floor: one write of the edges. The graph is taken in blocks, so it is read from memory once and not once per sample;
/// within a block the runs between lost edges are copied.
pub fn join_kept<M: Marker>(
    edge_type: &EdgeType,
    lost: &RemovedLists,
    samples: &[Sample],
    num_genes: usize,
    edges: &mut Edges,
    operand: Operand,
    marks: &mut M,
) {
    /// The rest of a sample's removed edges, and its next position in the batch.
    struct SampleCursor<'a> {
        lost: &'a [i32],
        next: usize,
        renumber: NodeNumbers<'a>,
    }
    let e = edge_type.num_edges();
    let (mut next, mut before) = (0, 0);
    edges.num_edges.clear();
    let mut cursors = Vec::with_capacity(samples.len());
    for (at, sample) in samples.iter().enumerate() {
        let lost = lost.of(at);
        cursors.push(SampleCursor { lost, next, renumber: NodeNumbers { removed: &sample.genes, shift: before } });
        edges.num_edges.push((e - lost.len()) as i64);
        next += e - lost.len();
        before += (num_genes - sample.genes.len()) as i64;
    }
    edges.edge_index.resize(2 * next, 0);
    marks.mark(StageOperation::Allocate, operand);
    let (to_sources, to_targets) = edges.edge_index.split_at_mut(next);
    let write = stream::renumber_for(next);
    let (sources, targets) = (edge_type.sources(), edge_type.targets());
    for first in (0..e).step_by(EDGE_BLOCK) {
        let end = e.min(first + EDGE_BLOCK);
        for cursor in &mut cursors {
            let here = cursor.lost.partition_point(|position| (*position as usize) < end);
            let (lost, rest) = cursor.lost.split_at(here);
            cursor.lost = rest;
            let mut start = first;
            for stop in lost.iter().map(|position| *position as usize).chain([end]) {
                let run = cursor.next..cursor.next + (stop - start);
                cursor.next = run.end;
                write(&sources[start..stop], cursor.renumber, &mut to_sources[run.clone()]);
                write(&targets[start..stop], cursor.renumber, &mut to_targets[run]);
                start = stop + 1;
            }
        }
    }
    stream::finish();
    marks.mark(StageOperation::Copy, operand);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_behind_a_removed_one_move_up() {
        let mut table = Vec::new();
        number_without([0, 2, 3].into_iter(), 6, &mut table);
        assert_eq!(table, [ABSENT, 0, ABSENT, ABSENT, 1, 2]);
        number_without([5].into_iter(), 6, &mut table);
        assert_eq!(table, [0, 1, 2, 3, 4, ABSENT]);
        number_without([].into_iter(), 2, &mut table);
        assert_eq!(table, [0, 1]);
    }
}
