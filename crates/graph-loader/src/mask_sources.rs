use std::hint::black_box;

use expctl_record::Operation;

use super::{EdgeSampling, Source, StoredMask};
use crate::PipelineError;
use crate::graph::{Catalysis, CellGraph, GeneMasks, Incidence, RemovedMetabolism};
use crate::marks::{Marker, Operand};
use crate::store::{MaskForm, Sample};

/// Everything that masks are made from; one copy serves all loader threads.
///
/// A graph has a mask for each edge type in its order and, with metabolism, three more: reactions, gpr, rmr. Masks of
/// genes follow from the genes; metabolites are always kept.
#[derive(Clone, Debug)]
pub struct MaskSources {
    incidence: Vec<Incidence>,
    /// Of each edge type; empty where masks are made from the incidence.
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

    /// The same with a mask for each gene and edge type, of which masks of samples are made; these take at most `bytes`.
    ///
    /// # Errors
    /// They would take more.
    pub fn with_gene_masks(self, bytes: u64) -> Result<Self, PipelineError> {
        let of_type = |incidence: &Incidence| GeneMasks::bytes(incidence.num_genes(), incidence.num_edges());
        let needed = self.incidence.iter().map(of_type).fold(0, u64::saturating_add);
        if needed > bytes {
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            let edges: usize = self.incidence.iter().map(Incidence::num_edges).sum();
            let genes = self.incidence.first().map_or(0, Incidence::num_genes);
            return Err(PipelineError::Invalid(format!(
                "a mask for each of {genes} genes over {edges} edges takes {:.1} MiB in each rank, and may take {:.1} MiB",
                mib(needed),
                mib(bytes)
            )));
        }
        let gene_masks = self.incidence.iter().map(GeneMasks::build).collect();
        Ok(Self { gene_masks, ..self })
    }

    /// The same with `sampling` of the edges that samples remove.
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

    /// What genes catalyse, with metabolism.
    pub fn catalysis(&self) -> Option<&Catalysis> {
        self.catalysis.as_ref()
    }

    /// What the mask of this number is of, as marks name it.
    pub fn operand(&self, mask: usize) -> Operand {
        if mask < self.incidence.len() { Operand::EdgeType(mask) } else { Operand::Metabolism }
    }

    /// Call `each` with the number of every mask, of the sample in the batch, and the source of that mask: from the sample's record if that
    /// holds masks, else from its genes. Mask by mask, and for each mask sample by sample. `removed` is room to work in.
    pub fn for_each<M: Marker>(
        &self,
        samples: &[Sample],
        bytes: &[u8],
        removed: &mut Vec<RemovedMetabolism>,
        marks: &mut M,
        mut each: impl FnMut(usize, usize, Source<'_>),
    ) {
        let by_genes = samples.iter().any(|sample| sample.masks.form == MaskForm::None);
        for mask in 0..self.incidence.len() {
            if by_genes {
                self.touch(mask, samples);
                marks.mark(Operation::Lookup, Operand::EdgeType(mask));
            }
            for (at, sample) in samples.iter().enumerate() {
                each(mask, at, stored(sample, mask, bytes).unwrap_or_else(|| self.of_genes(mask, sample)));
            }
            marks.mark(Operation::Fill, Operand::EdgeType(mask));
        }
        let Some(catalysis) = &self.catalysis else { return };
        removed.resize_with(samples.len(), RemovedMetabolism::default);
        if by_genes {
            for (sample, removed) in samples.iter().zip(&mut *removed) {
                catalysis.removed(&sample.genes, removed);
            }
            marks.mark(Operation::Lookup, Operand::Metabolism);
        }
        let lists: [fn(&RemovedMetabolism) -> &[u32]; 3] = [|of| &of.reactions, |of| &of.gpr, |of| &of.rmr];
        for (mask, list) in (self.incidence.len()..).zip(lists) {
            for (at, (sample, removed)) in samples.iter().zip(&*removed).enumerate() {
                each(mask, at, stored(sample, mask, bytes).unwrap_or(Source::Removed(list(removed))));
            }
        }
        marks.mark(Operation::Fill, Operand::Metabolism);
    }

    /// Ask memory for what the genes of all samples have in the edge type `mask`, rather than for each gene when the last one is done: lists lie
    /// all over 20 MB.
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
    fn of_genes<'a>(&'a self, mask: usize, sample: &'a Sample) -> Source<'a> {
        let (incidence, genes) = (&self.incidence[mask], sample.genes.as_slice());
        match (self.gene_masks.get(mask), self.sampling) {
            (_, Some(sampling)) => Source::Sampled(incidence, genes, sampling.draws(genes, mask)),
            (Some(masks), None) => Source::GeneMasks(masks, genes),
            (None, None) => Source::Genes(incidence, genes),
        }
    }
}

/// The mask in the sample's record; none of a sample without stored masks.
fn stored<'a>(sample: &Sample, mask: usize, bytes: &'a [u8]) -> Option<Source<'a>> {
    let form = sample.masks.form;
    (form != MaskForm::None)
        .then(|| Source::Stored(StoredMask { form, bytes: &bytes[sample.masks.spans[mask].clone()] }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::EdgeType;

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
}
