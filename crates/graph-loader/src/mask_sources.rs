//! `MaskSources` has everything that the masks of a batch are made from, and passes each of them to its caller, mask by mask. `EdgeSampling` masks
//! only a random share of the removed edges.

use std::hint::black_box;

use loader_core::StageOperation;

use crate::GraphError;
use crate::cell_graph::CellGraph;
use crate::incidence::{Catalysis, GeneMasks, Incidence, RemovedMetabolism};
use crate::mask::{SampleMask, StoredMask};
use crate::operations::{Marker, Operand};
use crate::records::{MaskForm, Sample};

/// Everything that masks are made from; one copy serves all loader threads.
///
/// A graph has a mask for each edge type in its order and, with metabolism, three more: reactions, gpr, rmr. Masks of
/// genes follow from the genes; metabolites are always kept.
#[derive(Clone, Debug)]
pub struct MaskSources {
    incidence: Vec<Incidence>,
    /// Masks of single genes by edge type; empty if masks are made from the incidence.
    gene_masks: Vec<GeneMasks>,
    /// `None` if all removed edges are masked.
    sampling: Option<EdgeSampling>,
    catalysis: Option<Catalysis>,
    entries: Vec<usize>,
}

impl MaskSources {
    /// Build incidence and catalysis of a graph.
    pub fn build(graph: &CellGraph) -> Self {
        let genes = graph.num_genes();
        let mut entries: Vec<usize> = graph.edge_types.iter().map(|e| e.num_edges()).collect();
        if let Some(metabolism) = &graph.metabolism {
            entries.extend([metabolism.reactions, metabolism.num_gpr(), metabolism.num_rmr()]);
        }
        Self {
            incidence: Incidence::build_all(&graph.edge_types, genes),
            gene_masks: Vec::new(),
            sampling: None,
            catalysis: graph.metabolism.as_ref().map(|m| Catalysis::build(m, genes)),
            entries,
        }
    }

    /// Add a mask for each gene and edge type, from which masks of samples are made; they may take `bytes` bytes.
    ///
    /// # Errors
    /// [`GraphError::GeneMasksTooLarge`].
    pub fn with_gene_masks(self, bytes: u64) -> Result<Self, GraphError> {
        let of_type = |incidence: &Incidence| GeneMasks::bytes(incidence.num_genes(), incidence.num_edges());
        let needed = self.incidence.iter().map(of_type).fold(0, u64::saturating_add);
        if needed > bytes {
            let edges = self.incidence.iter().map(Incidence::num_edges).sum();
            let genes = self.incidence.first().map_or(0, Incidence::num_genes);
            return Err(GraphError::GeneMasksTooLarge { genes, edges, needed, available: bytes });
        }
        let gene_masks = self.incidence.iter().map(GeneMasks::build).collect();
        Ok(Self { gene_masks, ..self })
    }

    /// Mask only a `sampling` of the edges that samples remove.
    #[must_use]
    pub fn sampled(self, sampling: Option<EdgeSampling>) -> Self {
        Self { sampling, ..self }
    }

    /// Entries of each mask.
    pub fn entries(&self) -> &[usize] {
        &self.entries
    }

    /// Incidence of each edge type.
    pub fn incidence(&self) -> &[Incidence] {
        &self.incidence
    }

    /// Reactions by gene, with metabolism.
    pub fn catalysis(&self) -> Option<&Catalysis> {
        self.catalysis.as_ref()
    }

    /// The operand that a mask belongs to.
    pub fn operand(&self, mask: usize) -> Operand {
        if mask < self.incidence.len() { Operand::EdgeType(mask) } else { Operand::Metabolism }
    }

    /// Call `each` with the index of the mask, the index of the sample in the batch, and the mask: that of the sample's record
    /// if it holds masks, else that of its genes. The order is mask by mask, and sample by sample within. `removed` is scratch.
    pub fn for_each<M: Marker>(
        &self,
        samples: &[Sample],
        bytes: &[u8],
        removed: &mut Vec<RemovedMetabolism>,
        marks: &mut M,
        mut each: impl FnMut(usize, usize, SampleMask<'_>),
    ) {
        let by_genes = samples.iter().any(|sample| sample.masks.form == MaskForm::None);
        for mask in 0..self.incidence.len() {
            if by_genes {
                self.touch(mask, samples);
                marks.mark(StageOperation::Lookup, Operand::EdgeType(mask));
            }
            for (at, sample) in samples.iter().enumerate() {
                each(mask, at, stored(sample, mask, bytes).unwrap_or_else(|| self.of_genes(mask, sample)));
            }
            marks.mark(StageOperation::Fill, Operand::EdgeType(mask));
        }
        let Some(catalysis) = &self.catalysis else { return };
        removed.resize_with(samples.len(), RemovedMetabolism::default);
        if by_genes {
            for (sample, removed) in samples.iter().zip(&mut *removed) {
                catalysis.removed(&sample.genes, removed);
            }
            marks.mark(StageOperation::Lookup, Operand::Metabolism);
        }
        let lists: [fn(&RemovedMetabolism) -> &[u32]; 3] = [|of| &of.reactions, |of| &of.gpr, |of| &of.rmr];
        for (mask, list) in (self.incidence.len()..).zip(lists) {
            for (at, (sample, removed)) in samples.iter().zip(&*removed).enumerate() {
                each(mask, at, stored(sample, mask, bytes).unwrap_or(SampleMask::Removed(list(removed))));
            }
        }
        marks.mark(StageOperation::Fill, Operand::Metabolism);
    }

    /// Load the first cache line of each list that the samples need of the edge type `mask`: the lists are spread over 20 MB, and
    /// these misses overlap.
    fn touch(&self, mask: usize, samples: &[Sample]) {
        let genes = samples.iter().filter(|sample| sample.masks.form == MaskForm::None).flat_map(|s| &s.genes);
        let sum = match self.gene_masks.get(mask) {
            None => {
                let lists = genes.map(|gene| self.incidence[mask].of(*gene));
                u64::from(lists.map(|list| list.first().map_or(0, |position| *position)).fold(0, u32::wrapping_add))
            }
            Some(masks) => {
                let words = genes.map(|gene| masks.of(*gene).first().map_or(0, |word| *word));
                words.fold(0, u64::wrapping_add)
            }
        };
        black_box(sum);
    }

    /// The mask of an edge type that follows from the genes of a sample.
    fn of_genes<'a>(&'a self, mask: usize, sample: &'a Sample) -> SampleMask<'a> {
        let (incidence, genes) = (&self.incidence[mask], sample.genes.as_slice());
        match (self.gene_masks.get(mask), self.sampling) {
            (_, Some(sampling)) => SampleMask::Sampled(incidence, genes, sampling.draws(genes, mask)),
            (Some(masks), None) => SampleMask::GeneMasks(masks, genes),
            (None, None) => SampleMask::Genes(incidence, genes),
        }
    }
}

/// The mask in the sample's record; none of a sample without stored masks.
fn stored<'a>(sample: &Sample, mask: usize, bytes: &'a [u8]) -> Option<SampleMask<'a>> {
    let form = sample.masks.form;
    (form != MaskForm::None)
        .then(|| SampleMask::Stored(StoredMask { form, bytes: &bytes[sample.masks.spans[mask].clone()] }))
}

// Approximate masks: of the edges that a sample removes, some.

/// Masks each removed edge of a sample with a fixed probability.
///
/// The draw of an edge is a function of the seed, the sample's genes, the edge type and the edge alone: it is the same in every
/// epoch, on every rank and for every store, and an edge between two perturbed genes is drawn once. The draws are those of SplitMix64, a
/// generator whose n-th number is a function of n, so each edge has its own.
///
/// Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014; constants of its reference
/// implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeSampling {
    seed: u64,
    /// Draws below this, out of 2⁶⁴, mask their edge.
    below: u64,
}

impl EdgeSampling {
    /// Mask an edge with probability `fraction`, above 0; `None` from 1 on, where every edge is masked.
    pub fn new(fraction: f64, seed: u64) -> Option<Self> {
        // 2⁶⁴ as a float; below it the product fits, and `as` rounds towards zero.
        (fraction < 1.0).then_some(Self { seed, below: (fraction * 18_446_744_073_709_551_616.0) as u64 })
    }

    /// The draws of the sample that perturbs `genes`, in the edge type with index `edge_type` in the graph.
    pub fn draws(self, genes: &[i64], edge_type: usize) -> EdgeDraws {
        let words = [edge_type as u64].into_iter().chain(genes.iter().map(|gene| *gene as u64));
        let key = words.fold(mixed(self.seed), |key, word| mixed(key ^ mixed(word.wrapping_add(STEP))));
        EdgeDraws { key, below: self.below }
    }
}

/// The draws for the edges of one type in one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeDraws {
    key: u64,
    below: u64,
}

impl EdgeDraws {
    /// Whether the edge at `position` is masked, if the sample removes it.
    pub const fn masks(self, position: u32) -> bool {
        mixed(self.key.wrapping_add((position as u64 + 1).wrapping_mul(STEP))) < self.below
    }
}

/// By how much the state of SplitMix64 grows from one number to the next: 2⁶⁴ over the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number that SplitMix64 makes of a state.
const fn mixed(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell_graph::EdgeType;

    #[test]
    fn masks_of_genes_that_do_not_fit_are_refused_with_what_they_need() {
        let ring = EdgeType { name: "ring".into(), edge_index: vec![0, 1, 2, /* to */ 1, 2, 0] };
        let genes = vec![String::new(); 3];
        let graph = CellGraph { genes, edge_types: vec![ring; 2], metabolism: None };
        let sources = || MaskSources::build(&graph);
        // Three genes, two types, one word each.
        assert!(sources().with_gene_masks(3 * 2 * 8).is_ok());
        let message = sources().with_gene_masks(3 * 2 * 8 - 1).unwrap_err().to_string();
        assert_eq!(message, "a mask for each of 3 genes over 6 edges takes 0.0 MiB in each rank, and may take 0.0 MiB");
    }

    #[test]
    fn the_generator_is_splitmix64() {
        // The first numbers of the reference implementation for the seed 1234567.
        let first: Vec<u64> = (1..=3).map(|n| mixed(1_234_567u64.wrapping_add(STEP.wrapping_mul(n)))).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    /// Hoeffding: of n independent draws with probability p, the count lies further than t from n·p with a probability of at most
    /// 2·exp(-2·t² / n). With the t of a probability of 1e-9 a correct generator fails none of these few hundred counts.
    fn is_binomial(count: usize, n: usize, p: f64) -> bool {
        let t = (n as f64 / 2.0 * (2.0 / 1e-9_f64).ln()).sqrt();
        (count as f64 - n as f64 * p).abs() <= t
    }

    #[test]
    fn the_share_of_masked_edges_is_that_of_a_binomial_count() {
        const N: u32 = 100_000;
        for fraction in [0.01, 0.1, 0.5, 0.9, 0.999] {
            let sampling = EdgeSampling::new(fraction, 42).unwrap();
            for (edge_type, gene) in [(0, 0), (0, 1), (1, 0), (8, 6606)] {
                let draws = sampling.draws(&[gene, gene + 1, gene + 2], edge_type);
                let masked = |position: &u32| draws.masks(*position);
                let count = (0..N).filter(masked).count();
                assert!(is_binomial(count, N as usize, fraction), "{fraction}: {count}");
                // No pattern of positions is preferred: neither every second edge nor those in front.
                let even = (0..N).step_by(2).filter(masked).count();
                let front = (0..N / 2).filter(masked).count();
                assert!(is_binomial(even, N as usize / 2, fraction), "{fraction}: {even} of the even ones");
                assert!(is_binomial(front, N as usize / 2, fraction), "{fraction}: {front} in front");
            }
        }
        assert_eq!(EdgeSampling::new(1.0, 42), None);
    }

    #[test]
    fn samples_edge_types_and_seeds_draw_by_themselves() {
        const N: u32 = 100_000;
        let of = |seed: u64, genes: &[i64], edge_type: usize| -> Vec<bool> {
            let draws = EdgeSampling::new(0.5, seed).unwrap().draws(genes, edge_type);
            (0..N).map(|position| draws.masks(position)).collect()
        };
        let first = of(1, &[3, 5, 8], 2);
        assert_eq!(first, of(1, &[3, 5, 8], 2));
        // Two independent draws of probability 1/2 agree with probability 1/2.
        for other in [of(2, &[3, 5, 8], 2), of(1, &[3, 5, 8], 1), of(1, &[3, 5], 2), of(1, &[3, 5, 9], 2)] {
            let agree = first.iter().zip(&other).filter(|(a, b)| a == b).count();
            assert!(is_binomial(agree, N as usize, 0.5), "{agree}");
        }
    }
}
