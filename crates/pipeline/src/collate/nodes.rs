use super::tensors::{Followed, Nodes, Phenotype};
use crate::mask::fill_gene_masks;
use crate::store::Sample;

/// Gene masks of all samples over the whole graph.
pub(super) fn mask_genes(samples: &[Sample], genes: usize, nodes: &mut Nodes) {
    nodes.kept.resize(samples.len() * genes, 0);
    nodes.perturbed.resize(samples.len() * genes, 0);
    let kept = nodes.kept.chunks_exact_mut(genes.max(1));
    let perturbed = nodes.perturbed.chunks_exact_mut(genes.max(1));
    for (sample, (kept, perturbed)) in samples.iter().zip(kept.zip(perturbed)) {
        fill_gene_masks(&sample.genes, kept, perturbed);
    }
}

/// Every node of every sample is kept: metabolites.
pub(super) fn keep_all(samples: usize, per_sample: usize, nodes: &mut Nodes) {
    refill(&mut nodes.kept, samples * per_sample, 1);
    refill(&mut nodes.perturbed, samples * per_sample, 0);
}

/// The complement of a byte mask.
pub(super) fn complement(mask: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend(mask.iter().map(|kept| u8::from(*kept == 0)));
}

/// `vec` of `len` times `value`, in the same buffer.
pub(super) fn refill<T: Copy>(vec: &mut Vec<T>, len: usize, value: T) {
    vec.clear();
    vec.resize(len, value);
}

/// The sample of each row, of which the samples have `counts`.
pub(super) fn sample_of_rows(counts: impl Iterator<Item = usize>, out: &mut Vec<i64>) {
    out.clear();
    for (sample, count) in counts.enumerate() {
        out.resize(out.len() + count, sample as i64);
    }
}

/// Where each sample's rows start, and the end.
pub(super) fn starts_of_rows(counts: impl Iterator<Item = usize>, out: &mut Vec<i64>) {
    out.clear();
    out.push(0);
    let mut end = 0;
    out.extend(counts.map(|count| {
        end += count as i64;
        end
    }));
}

/// `batch` of one kind of node and, where the collation makes it, `ptr`.
pub(super) fn join_nodes(counts: impl Iterator<Item = usize> + Clone, with_ptr: bool, nodes: &mut Nodes) {
    sample_of_rows(counts.clone(), &mut nodes.batch);
    if with_ptr {
        starts_of_rows(counts, &mut nodes.ptr);
    }
}

/// Vectors of a followed field.
pub(super) fn follow(counts: impl Iterator<Item = usize> + Clone, field: &mut Followed) {
    sample_of_rows(counts.clone(), &mut field.batch);
    starts_of_rows(counts, &mut field.ptr);
}

/// Coordinates of one label and one p-value per sample.
pub(super) fn join_phenotype(samples: usize, phenotype: &mut Phenotype) {
    let Phenotype { type_indices, sample_indices, stat_type_indices, stat_sample_indices } = phenotype;
    for indices in [type_indices, sample_indices, stat_type_indices, stat_sample_indices] {
        refill(indices, samples, 0);
    }
}
