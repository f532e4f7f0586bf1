//! Lookup tables from a gene to what its loss removes: `Incidence` lists the edges of one type, `GeneMasks` has them as bits, `Catalysis` finds
//! reactions and their edges. They are built once from the graph, and all threads share them.

use crate::cell_graph::{EdgeType, Metabolism};

/// For each gene, the positions of its incident edges in one edge type, ascending.
///
/// An edge is listed at both of its genes, a self-loop once. At full scale the nine types hold 4,932,353 positions,
/// 19.7 MB; one copy serves all loader threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incidence {
    /// Position of each gene's first entry, `[G + 1]`.
    offsets: Vec<u32>,
    /// Edge positions, gene by gene.
    positions: Vec<u32>,
    num_edges: usize,
}

impl Incidence {
    /// Counting sort over both ends of every edge: two passes over the edges, no comparison.
    pub fn build(edges: &EdgeType, num_genes: usize) -> Self {
        let ends = || edges.sources().iter().zip(edges.targets());
        let mut offsets = vec![0u32; num_genes + 1];
        for (&source, &target) in ends() {
            offsets[source as usize + 1] += 1;
            if source != target {
                offsets[target as usize + 1] += 1;
            }
        }
        for gene in 0..num_genes {
            offsets[gene + 1] += offsets[gene];
        }
        let mut next = offsets.clone();
        let mut positions = vec![0u32; offsets[num_genes] as usize];
        let mut put = |gene: i64, position: usize| {
            let slot = &mut next[gene as usize];
            positions[*slot as usize] = position as u32;
            *slot += 1;
        };
        for (position, (&source, &target)) in ends().enumerate() {
            put(source, position);
            if source != target {
                put(target, position);
            }
        }
        Self { offsets, positions, num_edges: edges.num_edges() }
    }

    /// The incidence of every edge type.
    pub fn build_all(edge_types: &[EdgeType], num_genes: usize) -> Vec<Self> {
        edge_types.iter().map(|edges| Self::build(edges, num_genes)).collect()
    }

    /// Positions of the edges at `gene`, ascending.
    pub fn of(&self, gene: i64) -> &[u32] {
        let gene = gene as usize;
        &self.positions[self.offsets[gene] as usize..self.offsets[gene + 1] as usize]
    }

    /// Number of genes.
    pub fn num_genes(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Number of edges of the type.
    pub fn num_edges(&self) -> usize {
        self.num_edges
    }

    /// Number of entries over all genes.
    pub fn num_positions(&self) -> usize {
        self.positions.len()
    }
}

/// For each gene the edges of one type that its loss removes, a bit per edge.
///
/// `G · ceil(E / 64)` words of 8 bytes, however few edges a gene has: an eighth of a byte for each pair of gene and edge. What
/// several genes remove together is the disjunction of their masks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneMasks {
    /// uint64 `[G, ceil(E / 64)]`, row major: bit i of word w is edge 64·w + i; 1 = removed; the bits behind the last edge are 0.
    words: Vec<u64>,
    /// Words of a gene.
    row: usize,
}

impl GeneMasks {
    /// Bytes of the masks of `genes` genes in a type of `edges` edges.
    pub const fn bytes(genes: usize, edges: usize) -> u64 {
        (genes as u64).saturating_mul(edges.div_ceil(64) as u64).saturating_mul(8)
    }

    /// The masks of all genes.
    pub fn build(incidence: &Incidence) -> Self {
        let (genes, row) = (incidence.num_genes(), incidence.num_edges().div_ceil(64));
        let mut words = vec![0u64; genes * row];
        for gene in 0..genes {
            let mask = &mut words[gene * row..(gene + 1) * row];
            for position in incidence.of(gene as i64) {
                mask[*position as usize / 64] |= 1 << (position % 64);
            }
        }
        Self { words, row }
    }

    /// Mask of one gene.
    pub fn of(&self, gene: i64) -> &[u64] {
        let gene = gene as usize;
        &self.words[gene * self.row..(gene + 1) * self.row]
    }

    /// Word `at` of the disjunction of the masks of `genes`.
    pub fn removed_by(&self, genes: &[i64], at: usize) -> u64 {
        genes.iter().fold(0, |word, gene| word | self.words[*gene as usize * self.row + at])
    }
}

/// For each gene its gpr edges, and for each reaction its rmr edges: what a perturbation removes of the metabolism.
///
/// A reaction is kept if and only if all its genes are, or it has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalysis {
    /// Position of each gene's first entry in `gpr_of`, `[G + 1]`.
    gene_offsets: Vec<u32>,
    /// gpr edges, gene by gene, ascending.
    gpr_of: Vec<u32>,
    /// Reaction of each gpr edge.
    reaction_of: Vec<u32>,
    /// First rmr edge of each reaction, `[R + 1]`.
    rmr_offsets: Vec<u32>,
}

/// Reactions and edges of the metabolism that one sample removes; positions ascend, each once. Keep the value between samples:
/// its buffers are used again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemovedMetabolism {
    /// Reactions of which a gene is gone.
    pub reactions: Vec<u32>,
    /// gpr edges whose gene is gone.
    pub gpr: Vec<u32>,
    /// rmr edges whose reaction is gone.
    pub rmr: Vec<u32>,
}

impl Catalysis {
    /// Two counting passes over the edges.
    pub fn build(metabolism: &Metabolism, num_genes: usize) -> Self {
        let mut gene_offsets = vec![0u32; num_genes + 1];
        for &gene in metabolism.gpr_genes() {
            gene_offsets[gene as usize + 1] += 1;
        }
        for gene in 0..num_genes {
            gene_offsets[gene + 1] += gene_offsets[gene];
        }
        let mut next = gene_offsets.clone();
        let mut gpr_of = vec![0u32; metabolism.num_gpr()];
        for (edge, &gene) in metabolism.gpr_genes().iter().enumerate() {
            let slot = &mut next[gene as usize];
            gpr_of[*slot as usize] = edge as u32;
            *slot += 1;
        }
        let mut rmr_offsets = vec![0u32; metabolism.reactions + 1];
        for &reaction in metabolism.rmr_reactions() {
            rmr_offsets[reaction as usize + 1] += 1;
        }
        for reaction in 0..metabolism.reactions {
            rmr_offsets[reaction + 1] += rmr_offsets[reaction];
        }
        let reaction_of = metabolism.gpr_reactions().iter().map(|r| *r as u32).collect();
        Self { gene_offsets, gpr_of, reaction_of, rmr_offsets }
    }

    /// gpr edges of a gene, ascending.
    pub fn gpr_of(&self, gene: i64) -> &[u32] {
        let gene = gene as usize;
        &self.gpr_of[self.gene_offsets[gene] as usize..self.gene_offsets[gene + 1] as usize]
    }

    /// Whether the gene catalyses a reaction; the published scripts call it a metabolic gene.
    pub fn is_metabolic(&self, gene: i64) -> bool {
        !self.gpr_of(gene).is_empty()
    }

    /// rmr edges of a reaction.
    pub fn rmr_of(&self, reaction: u32) -> std::ops::Range<u32> {
        self.rmr_offsets[reaction as usize]..self.rmr_offsets[reaction as usize + 1]
    }

    /// Find the reactions and edges that the loss of `genes` (each once) removes.
    pub fn removed(&self, genes: &[i64], out: &mut RemovedMetabolism) {
        let RemovedMetabolism { reactions, gpr, rmr } = out;
        reactions.clear();
        gpr.clear();
        rmr.clear();
        for &gene in genes {
            gpr.extend_from_slice(self.gpr_of(gene));
        }
        // An edge has one gene, so no position comes twice; they are a handful.
        gpr.sort_unstable();
        reactions.extend(gpr.iter().map(|edge| self.reaction_of[*edge as usize]));
        // gpr edges ascend by reaction, and so do these.
        reactions.dedup();
        for &reaction in &*reactions {
            rmr.extend(self.rmr_of(reaction));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_and_self_loops_once() {
        let edges = EdgeType { name: "e".into(), edge_index: vec![0, 2, 0, 1, 2, /* to */ 1, 0, 0, 1, 2] };
        let incidence = Incidence::build(&edges, 4);
        assert_eq!(incidence.of(0), [0, 1, 2]);
        assert_eq!(incidence.of(1), [0, 3]);
        assert_eq!(incidence.of(2), [1, 4]);
        assert!(incidence.of(3).is_empty());
        assert_eq!(incidence.num_positions(), 7);
    }

    #[test]
    fn a_mask_has_the_edges_of_its_gene() {
        // 70 edges from gene 0 to the others in turn, and a self-loop of gene 2.
        let ends = (0..70).map(|edge| 1 + edge % 3).chain([2]);
        let edge_index = [0; 70].into_iter().chain([2]).chain(ends).collect();
        let incidence = Incidence::build(&EdgeType { name: "e".into(), edge_index }, 5);
        let masks = GeneMasks::build(&incidence);
        for gene in 0..5 {
            let bit = |edge: usize| masks.of(gene)[edge / 64] >> (edge % 64) & 1 == 1;
            let found: Vec<u32> = (0..128).filter(|edge| bit(*edge as usize)).collect();
            assert_eq!(found, incidence.of(gene));
        }
        assert_eq!(size_of_val(masks.words.as_slice()) as u64, GeneMasks::bytes(5, 71));
        assert_eq!(GeneMasks::bytes(5, 71), 5 * 2 * 8);
        assert_eq!(GeneMasks::bytes(usize::MAX, usize::MAX), u64::MAX);
    }

    #[test]
    fn a_reaction_needs_all_its_genes_or_none() {
        // Reaction 0 needs genes 0 and 1, reaction 1 gene 1, reaction 2 none.
        let metabolism = Metabolism {
            reactions: 3,
            metabolites: 2,
            gpr: vec![0, 1, 1, /* of */ 0, 0, 1],
            rmr: vec![0, 0, 1, 2, /* with */ 0, 1, 1, 0],
            stoichiometry: vec![-1.0, 1.0, 1.0, -1.0],
        };
        let catalysis = Catalysis::build(&metabolism, 3);
        let mut removed = RemovedMetabolism::default();
        catalysis.removed(&[0], &mut removed);
        assert_eq!(removed, RemovedMetabolism { reactions: vec![0], gpr: vec![0], rmr: vec![0, 1] });
        catalysis.removed(&[1, 2], &mut removed);
        assert_eq!(removed, RemovedMetabolism { reactions: vec![0, 1], gpr: vec![1, 2], rmr: vec![0, 1, 2] });
        catalysis.removed(&[2], &mut removed);
        assert_eq!(removed, RemovedMetabolism::default());
        assert!(catalysis.is_metabolic(1) && !catalysis.is_metabolic(2));
    }
}
