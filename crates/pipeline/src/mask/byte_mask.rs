use crate::graph::Incidence;

/// Edge mask of one sample and edge type, a byte per edge: 1 = kept.
///
/// Floor: one write of `E` bytes; the positions set to 0 are a thousandth of them.
pub fn fill_edge_mask(incidence: &Incidence, genes: &[i64], mask: &mut [u8]) {
    mask.fill(1);
    for &gene in genes {
        for &position in incidence.of(gene) {
            mask[position as usize] = 0;
        }
    }
}

/// Gene masks of one sample, a byte per gene: `kept` and its complement `perturbed`.
pub fn fill_gene_masks(genes: &[i64], kept: &mut [u8], perturbed: &mut [u8]) {
    kept.fill(1);
    perturbed.fill(0);
    for &gene in genes {
        kept[gene as usize] = 0;
        perturbed[gene as usize] = 1;
    }
}
