use super::EdgeType;

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
        let both = || ends().flat_map(|(&s, &t)| [(s, t), (t, s)]).filter(|(s, t)| s != t);
        let mut all = Self::sorted(num_genes, both);
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

    #[test]
    fn parallel_edges_count_in_a_type_and_not_in_the_union() {
        let edges = EdgeType { name: "e".into(), edge_index: vec![0, 2, 0, 1, 2, /* to */ 1, 0, 1, 1, 2] };
        let targets = Adjacency::targets(&edges, 4);
        assert_eq!((targets.of(0), targets.of(1), targets.of(2)), (&[1, 1][..], &[1][..], &[0, 2][..]));
        let sources = Adjacency::sources(&edges, 4);
        assert_eq!((sources.of(0), sources.of(1), sources.of(2)), (&[2][..], &[0, 0, 1][..], &[2][..]));
        let union = Adjacency::union(&[edges.clone(), edges], 4);
        assert_eq!((union.of(0), union.of(1), union.of(2), union.of(3)), (&[1, 2][..], &[0][..], &[0][..], &[][..]));
        assert_eq!((union.num_genes(), union.num_entries()), (4, 4));
    }
}
