//! The genes around the perturbed ones and the edges between them, numbered anew.
//!
//! [`Walk::Incoming`] gives what PyTorch Geometric's `NeighborLoader` (`subgraph_type="directional"`) and the outermost layer of
//! DGL's `NeighborSampler` give with all neighbours: the edges that the walk followed, and no others between its genes.
//!
//! The published NeighborSubgraphRepresentation does not number its genes anew and has no masks of genes and edges, so
//! collation shifts edges out of their sample; its reactions are those of the genes found, while gpr and rmr keep their
//! numbers in the whole graph. Its batches could be counted but not used. Here a sample is a graph of its own: edges are
//! numbered anew and say by a mask whether a perturbed gene is at an end; `original` leads back to the whole graph;
//! reactions and metabolites are all there with the masks of the lazy processor, and of gpr the edges at genes found.

use loader_core::StageOperation;

use crate::assembler::Scratch;
use crate::batch::Graphs;
use crate::cell_graph::{CellGraph, EdgeType};
use crate::incidence::Catalysis;
use crate::mask::SampleMask;
use crate::operations::{Marker, Operand};
use crate::options::Walk;
use crate::records::Sample;
use crate::subgraph::{ABSENT, RelabeledEdges};

/// Set in the new number of a perturbed gene.
const PERTURBED: u32 = 1 << 31;

/// Lookup tables of the processor over the graph; threads share them.
#[derive(Debug)]
pub struct Neighborhoods {
    neighbours: Neighbours,
    edges: EdgeLists,
    catalysis: Option<Catalysis>,
}

/// A list of each type's edges by gene, so that the edges of a few genes are found without looking at all.
#[derive(Debug)]
enum EdgeLists {
    /// Targets by source, for all edges between the genes found: a sample costs their out-edges, which are never more than all.
    Between(Vec<Adjacency>),
    /// Sources by target, for the edges that the walk followed: a sample costs these edges.
    Followed(Vec<Adjacency>),
}

impl EdgeLists {
    fn build(graph: &CellGraph, walk: Walk) -> Self {
        let genes = graph.num_genes();
        let types = graph.edge_types.iter();
        match walk {
            Walk::PerType | Walk::Union => Self::Between(types.map(|edges| Adjacency::targets(edges, genes)).collect()),
            Walk::Incoming => Self::Followed(types.map(|edges| Adjacency::sources(edges, genes)).collect()),
        }
    }
}

impl Neighborhoods {
    /// Tables for samples with the genes within `hops` steps of `walk`.
    pub fn build(graph: &CellGraph, walk: Walk, hops: u32) -> Self {
        Self {
            neighbours: Neighbours::build(graph, walk, hops),
            edges: EdgeLists::build(graph, walk),
            catalysis: graph.metabolism.as_ref().map(|m| Catalysis::build(m, graph.num_genes())),
        }
    }

    /// One sample. Edges are ordered by source, or by target with [`Walk::Incoming`]; those of a gene are as in the graph.
    pub fn process<M: Marker>(
        &self,
        graph: &CellGraph,
        sample: &Sample,
        at: usize,
        scratch: &mut Scratch,
        graphs: &mut Graphs,
        marks: &mut M,
    ) {
        let Scratch { edges: own, table, visited, found, removed, .. } = scratch;
        self.neighbours.find(&sample.genes, graph.num_genes(), visited, found);
        marks.mark(StageOperation::Lookup, Operand::Genes);
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
        marks.mark(StageOperation::Fill, Operand::Genes);
        match &self.edges {
            EdgeLists::Between(types) => {
                for (index, (targets, own)) in types.iter().zip(&mut *own).enumerate() {
                    induce(targets, found, table, own);
                    marks.mark(StageOperation::Filter, Operand::EdgeType(index));
                }
            }
            EdgeLists::Followed(types) => {
                let expanded = visited.expanded();
                for (index, (sources, own)) in types.iter().zip(&mut *own).enumerate() {
                    follow(sources, expanded, table, own);
                    marks.mark(StageOperation::Filter, Operand::EdgeType(index));
                }
            }
        }
        scratch.genes.push(found.len());
        let (Some(metabolism), Some(joined), Some(catalysis), [.., gpr, _]) =
            (&graph.metabolism, &mut graphs.metabolism, &self.catalysis, &mut own[..])
        else {
            return;
        };
        removed.resize_with(1, Default::default);
        let [removed] = &mut removed[..] else { return };
        catalysis.removed(&sample.genes, removed);
        marks.mark(StageOperation::Lookup, Operand::Metabolism);
        let row = |len: usize| at * len..(at + 1) * len;
        SampleMask::Removed(&removed.reactions).to_bytes(&mut joined.reactions.kept[row(metabolism.reactions)]);
        SampleMask::Removed(&removed.rmr).to_bytes(&mut joined.rmr.mask[row(metabolism.num_rmr())]);
        marks.mark(StageOperation::Fill, Operand::Metabolism);
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
        marks.mark(StageOperation::Filter, Operand::Metabolism);
    }
}

/// Edges of one type between the genes found.
fn induce(targets: &Adjacency, found: &[u32], table: &[u32], own: &mut RelabeledEdges) {
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

/// Edges of one type that lead to the `expanded` genes. The walk has found their sources, so none is left out.
fn follow(sources: &Adjacency, expanded: &[u32], table: &[u32], own: &mut RelabeledEdges) {
    let edges = expanded.iter().map(|gene| sources.of(*gene).len()).sum();
    let room = own.room(edges);
    let mut first = 0;
    for &gene in expanded {
        let list = sources.of(gene);
        let edges = first..first + list.len();
        let target = table[gene as usize];
        room.targets[edges.clone()].fill(target & !PERTURBED);
        let ends = room.sources[edges.clone()].iter_mut().zip(&mut room.mask[edges.clone()]);
        for ((source, mask), from) in ends.zip(list) {
            let number = table[*from as usize];
            *source = number & !PERTURBED;
            *mask = u8::from((number | target) & PERTURBED == 0);
        }
        first = edges.end;
    }
    own.take(first);
}

/// Finds the genes within some steps of others. Threads share it.
#[derive(Clone, Debug)]
pub struct Neighbours {
    lists: Vec<Adjacency>,
    hops: u32,
}

/// Marks of one search at a time. Keep it between samples: a new search needs no clearing.
#[derive(Clone, Debug, Default)]
pub struct Visited {
    /// The search that last found each gene.
    found: Vec<u64>,
    /// The walk that last stood on each gene; a search has one for each list.
    walked: Vec<u64>,
    now: u64,
    /// Genes of the last walk, in the order in which it came to them.
    frontier: Vec<u32>,
    /// How many of these the walk went on from, or would have if any gene had been left to find.
    expanded: usize,
}

impl Visited {
    /// The genes that the last walk went on from, ascending: those within one hop less than it found.
    fn expanded(&mut self) -> &[u32] {
        let expanded = &mut self.frontier[..self.expanded];
        expanded.sort_unstable();
        expanded
    }
}

impl Neighbours {
    /// `hops` steps of `walk` in `graph`.
    pub fn build(graph: &CellGraph, walk: Walk, hops: u32) -> Self {
        let genes = graph.num_genes();
        let lists = match walk {
            Walk::Union => vec![Adjacency::union(&graph.edge_types, genes)],
            Walk::PerType => graph.edge_types.iter().map(|e| Adjacency::sources(e, genes)).collect(),
            Walk::Incoming => vec![Adjacency::all_sources(&graph.edge_types, genes)],
        };
        Self { lists, hops }
    }

    /// The genes within the hops of `genes`, which are among them, into `out`, ascending.
    ///
    /// Breadth first; each list of a gene that was reached is read once per walk.
    pub fn find(&self, genes: &[i64], num_genes: usize, visited: &mut Visited, out: &mut Vec<u32>) {
        let Visited { found, walked, now, frontier, expanded } = visited;
        found.resize(num_genes, 0);
        walked.resize(num_genes, 0);
        let search = *now + 1;
        *now = search;
        let mut count = genes.len();
        genes.iter().for_each(|gene| found[*gene as usize] = search);
        for list in &self.lists {
            *now += 1;
            let walk = *now;
            frontier.clear();
            frontier.extend(genes.iter().map(|gene| *gene as u32));
            genes.iter().for_each(|gene| walked[*gene as usize] = walk);
            let mut start = 0;
            for _ in 0..self.hops {
                let end = frontier.len();
                // Once all are found no step can add any.
                if start == end || count == num_genes {
                    start = end;
                    break;
                }
                for at in start..end {
                    for &gene in list.of(frontier[at]) {
                        if std::mem::replace(&mut walked[gene as usize], walk) != walk {
                            frontier.push(gene);
                            count += usize::from(std::mem::replace(&mut found[gene as usize], search) != search);
                        }
                    }
                }
                start = end;
            }
            *expanded = start;
        }
        out.clear();
        out.extend((0..num_genes as u32).filter(|gene| found[*gene as usize] == search));
    }
}

/// For each gene a list of genes, in one vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adjacency {
    /// Position of each gene's first entry, `[G + 1]`.
    offsets: Vec<u32>,
    /// Genes, list by list.
    genes: Vec<u32>,
}

impl Adjacency {
    /// The targets of each gene's edges in one type: an entry for each edge, parallel ones too, in the order of the edges.
    pub fn targets(edges: &EdgeType, num_genes: usize) -> Self {
        Self::sorted(num_genes, || edges.sources().iter().copied().zip(edges.targets().iter().copied()))
    }

    /// The sources of each gene's edges in one type, likewise.
    pub fn sources(edges: &EdgeType, num_genes: usize) -> Self {
        Self::sorted(num_genes, || edges.targets().iter().copied().zip(edges.sources().iter().copied()))
    }

    /// The neighbours of each gene over all types, whichever way an edge points: each once, the gene itself never.
    pub fn union(edge_types: &[EdgeType], num_genes: usize) -> Self {
        let ends = || edge_types.iter().flat_map(|edges| edges.sources().iter().zip(edges.targets()));
        Self::distinct(num_genes, || ends().flat_map(|(&s, &t)| [(s, t), (t, s)]))
    }

    /// The sources of each gene's edges over all types: each once, the gene itself never.
    pub fn all_sources(edge_types: &[EdgeType], num_genes: usize) -> Self {
        let ends = || edge_types.iter().flat_map(|edges| edges.sources().iter().zip(edges.targets()));
        Self::distinct(num_genes, || ends().map(|(&s, &t)| (t, s)))
    }

    /// (gene, entry) by gene: entries each once, the gene itself never.
    fn distinct<I: Iterator<Item = (i64, i64)>>(num_genes: usize, pairs: impl Fn() -> I) -> Self {
        let mut all = Self::sorted(num_genes, || pairs().filter(|(gene, entry)| gene != entry));
        // Nine types name most pairs more than once: close the lists up.
        let mut seen = vec![u32::MAX; num_genes];
        let mut kept = 0;
        let mut start = 0;
        for gene in 0..num_genes {
            let end = all.offsets[gene + 1] as usize;
            for at in start..end {
                let neighbour = all.genes[at];
                if std::mem::replace(&mut seen[neighbour as usize], gene as u32) != gene as u32 {
                    all.genes[kept] = neighbour;
                    kept += 1;
                }
            }
            start = end;
            all.offsets[gene + 1] = kept as u32;
        }
        all.genes.truncate(kept);
        all.genes.shrink_to_fit();
        all
    }

    /// Counting sort of (gene, entry) by gene: two passes, no comparison; entries of a gene stay in order.
    fn sorted<I: Iterator<Item = (i64, i64)>>(num_genes: usize, pairs: impl Fn() -> I) -> Self {
        let mut offsets = vec![0u32; num_genes + 1];
        pairs().for_each(|(gene, _)| offsets[gene as usize + 1] += 1);
        for gene in 0..num_genes {
            offsets[gene + 1] += offsets[gene];
        }
        let mut next = offsets.clone();
        let mut genes = vec![0u32; offsets[num_genes] as usize];
        for (gene, entry) in pairs() {
            let slot = &mut next[gene as usize];
            genes[*slot as usize] = entry as u32;
            *slot += 1;
        }
        Self { offsets, genes }
    }

    /// The list of one gene.
    pub fn of(&self, gene: u32) -> &[u32] {
        let gene = gene as usize;
        &self.genes[self.offsets[gene] as usize..self.offsets[gene + 1] as usize]
    }

    /// Number of genes.
    pub fn num_genes(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Number of entries over all genes.
    pub fn num_entries(&self) -> usize {
        self.genes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path 0 → 1 → 2 → 3 whose edges alternate between two types, and a gene apart.
    fn path() -> CellGraph {
        let edges = |edge_index: Vec<i64>| EdgeType { name: "e".into(), edge_index };
        CellGraph {
            genes: vec![String::new(); 5],
            edge_types: vec![edges(vec![0, 2, /* to */ 1, 3]), edges(vec![1, 4, /* to */ 2, 4])],
            metabolism: None,
        }
    }

    #[test]
    fn steps_change_types_except_in_the_published_walk_and_go_both_ways_in_the_union_alone() {
        let graph = path();
        let mut visited = Visited::default();
        let mut find = |walk, hops, genes: &[i64]| {
            let mut out = Vec::new();
            Neighbours::build(&graph, walk, hops).find(genes, 5, &mut visited, &mut out);
            out
        };
        assert_eq!(find(Walk::Union, 1, &[1]), [0, 1, 2]);
        assert_eq!(find(Walk::Union, 2, &[0]), [0, 1, 2]);
        assert_eq!(find(Walk::Union, 3, &[0, 4]), [0, 1, 2, 3, 4]);
        assert_eq!(find(Walk::PerType, 3, &[3]), [2, 3]);
        assert_eq!(find(Walk::PerType, 3, &[0]), [0]);
        assert_eq!(find(Walk::PerType, 1, &[1, 2]), [0, 1, 2]);
        assert_eq!(find(Walk::Incoming, 1, &[3]), [2, 3]);
        assert_eq!(find(Walk::Incoming, 2, &[3]), [1, 2, 3]);
        assert_eq!(find(Walk::Incoming, 3, &[3]), [0, 1, 2, 3]);
        assert_eq!(find(Walk::Incoming, 3, &[0, 4]), [0, 4]);
        assert!(find(Walk::Union, 3, &[]).is_empty());
    }

    #[test]
    fn a_walk_goes_on_from_the_genes_within_one_hop_less() {
        let graph = path();
        let (mut visited, mut out) = (Visited::default(), Vec::new());
        let mut expanded = |hops, genes: &[i64]| {
            Neighbours::build(&graph, Walk::Incoming, hops).find(genes, 5, &mut visited, &mut out);
            visited.expanded().to_vec()
        };
        assert_eq!(expanded(1, &[3]), [3]);
        assert_eq!(expanded(2, &[3]), [2, 3]);
        // The walk ends early: the genes that it came to last have no source, or all genes are found.
        assert_eq!(expanded(3, &[1]), [0, 1]);
        assert_eq!(expanded(3, &[3, 4]), [1, 2, 3, 4]);
        assert_eq!(expanded(2, &[0, 1, 2, 3, 4]), [0, 1, 2, 3, 4]);
        assert!(expanded(2, &[]).is_empty());
    }

    #[test]
    fn parallel_edges_count_in_a_type_and_not_in_the_union() {
        let edges = EdgeType { name: "e".into(), edge_index: vec![0, 2, 0, 1, 2, /* to */ 1, 0, 1, 1, 2] };
        let targets = Adjacency::targets(&edges, 4);
        assert_eq!((targets.of(0), targets.of(1), targets.of(2)), (&[1, 1][..], &[1][..], &[0, 2][..]));
        let sources = Adjacency::sources(&edges, 4);
        assert_eq!((sources.of(0), sources.of(1), sources.of(2)), (&[2][..], &[0, 0, 1][..], &[2][..]));
        let all = Adjacency::all_sources(&[edges.clone(), edges.clone()], 4);
        assert_eq!((all.of(0), all.of(1), all.of(2), all.of(3)), (&[2][..], &[0][..], &[][..], &[][..]));
        let union = Adjacency::union(&[edges.clone(), edges], 4);
        assert_eq!((union.of(0), union.of(1), union.of(2), union.of(3)), (&[1, 2][..], &[0][..], &[0][..], &[][..]));
        assert_eq!((union.num_genes(), union.num_entries()), (4, 4));
    }
}
