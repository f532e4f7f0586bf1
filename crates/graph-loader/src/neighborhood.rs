//! The genes around the perturbed ones and the edges between them, numbered anew.
//!
//! The published NeighborSubgraphRepresentation does not number its genes anew and has no masks of genes and edges, so
//! collation shifts edges out of their sample; its reactions are those of the genes found, while gpr and rmr keep their
//! numbers in the whole graph. Its batches could be counted but not used. Here a sample is a graph of its own: edges are
//! numbered anew and say by a mask whether a perturbed gene is at an end; `original` leads back to the whole graph;
//! reactions and metabolites are all there with the masks of the lazy processor, and of gpr the edges at genes found.

use expctl_record::Operation;

use super::own::{ABSENT, OwnEdges};
use super::tensors::Graphs;
use super::work::Work;
use crate::graph::{Adjacency, Catalysis, CellGraph, Neighbours};
use crate::marks::{Marker, Operand};
use crate::mask::Source;
use crate::store::Sample;

/// Set in the new number of a perturbed gene.
const PERTURBED: u32 = 1 << 31;

/// What the processor needs of the graph; threads share it.
#[derive(Debug)]
pub(super) struct Neighborhoods {
    neighbours: Neighbours,
    /// Targets of each type's edges, so that the edges of a few genes are found without looking at all: a sample costs the
    /// out-edges of the genes found, which are never more than all edges.
    targets: Vec<Adjacency>,
    catalysis: Option<Catalysis>,
}

impl Neighborhoods {
    pub(super) fn build(graph: &CellGraph, neighbours: Neighbours) -> Self {
        let genes = graph.num_genes();
        Self {
            neighbours,
            targets: graph.edge_types.iter().map(|edges| Adjacency::targets(edges, genes)).collect(),
            catalysis: graph.metabolism.as_ref().map(|m| Catalysis::build(m, genes)),
        }
    }

    /// One sample. Edges are ordered by source, those of a source as they are in the graph.
    pub(super) fn process<M: Marker>(
        &self,
        graph: &CellGraph,
        sample: &Sample,
        at: usize,
        work: &mut Work,
        graphs: &mut Graphs,
        marks: &mut M,
    ) {
        let Work { edges: own, table, visited, found, removed, .. } = work;
        self.neighbours.find(&sample.genes, graph.num_genes(), visited, found);
        marks.mark(Operation::Lookup, Operand::Genes);
        table.clear();
        table.resize(graph.num_genes(), ABSENT);
        for (number, gene) in (0..).zip(&*found) {
            table[*gene as usize] = number;
        }
        for gene in &sample.genes {
            table[*gene as usize] |= PERTURBED;
        }
        let nodes = &mut graphs.genes;
        nodes.original.extend(found.iter().map(|gene| i64::from(*gene)));
        nodes.kept.extend(found.iter().map(|gene| u8::from(table[*gene as usize] & PERTURBED == 0)));
        nodes.perturbed.extend(found.iter().map(|gene| u8::from(table[*gene as usize] & PERTURBED != 0)));
        marks.mark(Operation::Fill, Operand::Genes);
        for (index, (targets, own)) in self.targets.iter().zip(&mut *own).enumerate() {
            induce(targets, found, table, own);
            marks.mark(Operation::Filter, Operand::EdgeType(index));
        }
        work.genes.push(found.len());
        let (Some(metabolism), Some(joined), Some(catalysis), [.., gpr, _]) =
            (&graph.metabolism, &mut graphs.metabolism, &self.catalysis, &mut own[..])
        else {
            return;
        };
        removed.resize_with(1, Default::default);
        let [removed] = &mut removed[..] else { return };
        catalysis.removed(&sample.genes, removed);
        marks.mark(Operation::Lookup, Operand::Metabolism);
        let row = |len: usize| at * len..(at + 1) * len;
        Source::Removed(&removed.reactions).to_bytes(&mut joined.reactions.kept[row(metabolism.reactions)]);
        Source::Removed(&removed.rmr).to_bytes(&mut joined.rmr.mask[row(metabolism.num_rmr())]);
        marks.mark(Operation::Fill, Operand::Metabolism);
        let room = gpr.room(metabolism.num_gpr());
        let mut n = 0;
        for (gene, reaction) in metabolism.gpr_genes().iter().zip(metabolism.gpr_reactions()) {
            let number = table[*gene as usize];
            room.sources[n] = number & !PERTURBED;
            room.targets[n] = *reaction as u32;
            room.mask[n] = u8::from(number & PERTURBED == 0);
            n += usize::from(number != ABSENT);
        }
        gpr.take(n);
        marks.mark(Operation::Filter, Operand::Metabolism);
    }
}

/// Edges of one type between the genes found.
fn induce(targets: &Adjacency, found: &[u32], table: &[u32], own: &mut OwnEdges) {
    let most = found.iter().map(|gene| targets.of(*gene).len()).sum();
    let room = own.room(most);
    let mut n = 0;
    for &gene in found {
        let first = n;
        for &target in targets.of(gene) {
            let number = table[target as usize];
            room.targets[n] = number & !PERTURBED;
            room.mask[n] = u8::from(number & PERTURBED == 0);
            // Branch-free: what is not found is written over.
            n += usize::from(number != ABSENT);
        }
        let number = table[gene as usize];
        room.sources[first..n].fill(number & !PERTURBED);
        if number & PERTURBED != 0 {
            room.mask[first..n].fill(0);
        }
    }
    own.take(n);
}
