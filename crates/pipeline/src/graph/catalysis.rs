use super::Metabolism;

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

/// What one sample removes of the metabolism; positions ascend, each once. Keep it between samples: its buffers are used
/// again.
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

    /// Whether the gene catalyses anything: what the published scripts call a metabolic gene.
    pub fn is_metabolic(&self, gene: i64) -> bool {
        !self.gpr_of(gene).is_empty()
    }

    /// rmr edges of a reaction.
    pub fn rmr_of(&self, reaction: u32) -> std::ops::Range<u32> {
        self.rmr_offsets[reaction as usize]..self.rmr_offsets[reaction as usize + 1]
    }

    /// What the loss of `genes` (each once) removes.
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
