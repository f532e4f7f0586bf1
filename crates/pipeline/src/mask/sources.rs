use super::{Source, StoredMask};
use crate::graph::{Catalysis, CellGraph, Incidence, RemovedMetabolism};
use crate::store::{MaskForm, Sample};

/// Everything that masks are made from; one copy serves all loader threads.
///
/// A graph has a mask for each edge type in its order and, with metabolism, three more: reactions, gpr, rmr. Masks of
/// genes follow from the genes; metabolites are always kept.
#[derive(Clone, Debug)]
pub struct MaskSources {
    incidence: Vec<Incidence>,
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
            catalysis: graph.metabolism.as_ref().map(|m| Catalysis::build(m, genes)),
            entries,
        }
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

    /// Call `each` with the number and the source of every mask of one sample: from its record if that holds masks,
    /// else from its genes.
    pub fn for_each<'a>(
        &'a self,
        sample: &'a Sample,
        bytes: &'a [u8],
        removed: &'a mut RemovedMetabolism,
        mut each: impl FnMut(usize, Source<'a>),
    ) {
        let form = sample.masks.form;
        if form != MaskForm::None {
            for (mask, span) in sample.masks.spans.iter().enumerate() {
                each(mask, Source::Stored(StoredMask { form, bytes: &bytes[span.clone()] }));
            }
            return;
        }
        // Lists lie all over 20 MB. Ask memory for the heads of all at once, rather than for each when the last is done.
        let heads = self.incidence.iter().flat_map(|incidence| sample.genes.iter().map(|gene| incidence.of(*gene)));
        std::hint::black_box(heads.map(|list| list.first().map_or(0, |position| *position)).fold(0, u32::wrapping_add));
        for (mask, incidence) in self.incidence.iter().enumerate() {
            each(mask, Source::Genes(incidence, &sample.genes));
        }
        if let Some(catalysis) = &self.catalysis {
            catalysis.removed(&sample.genes, removed);
            let RemovedMetabolism { reactions, gpr, rmr } = removed;
            for (mask, positions) in (self.incidence.len()..).zip([&*reactions, &*gpr, &*rmr]) {
                each(mask, Source::Removed(positions));
            }
        }
    }
}
