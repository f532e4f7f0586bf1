/// Set these entries of a byte mask to 0.
pub(super) fn clear_bytes(positions: &[u32], mask: &mut [u8]) {
    for &position in positions {
        mask[position as usize] = 0;
    }
}

/// Set these entries of a bit mask to 0.
pub(super) fn clear_bits(positions: &[u32], mask: &mut [u64]) {
    for &position in positions {
        mask[position as usize / 64] &= !(1 << (position % 64));
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
