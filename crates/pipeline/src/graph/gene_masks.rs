use super::Incidence;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::EdgeType;

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
}
