//! Bytes of tensors.

use super::tensors::{BitMasks, Edges, Followed, Graphs, MetabolicGraphs, Nodes, Phenotype, RemovedLists};

/// Bytes of all tensors that something has.
pub(super) trait Bytes {
    fn bytes(&self) -> usize;
}

impl<T: Copy> Bytes for Vec<T> {
    fn bytes(&self) -> usize {
        size_of_val(self.as_slice())
    }
}

/// Bytes of the named fields, which are all tensors of the type.
macro_rules! bytes_of_fields {
    ($($type:ty { $($field:ident),+ $(; $($skipped:ident),+)? })+) => {$(
        impl Bytes for $type {
            fn bytes(&self) -> usize {
                // A field that is added must be named here.
                let Self { $($field,)+ $($($skipped: _,)+)? } = self;
                [$($field.bytes()),+].iter().sum()
            }
        }
    )+};
}

bytes_of_fields! {
    Nodes { kept, perturbed, original, batch, ptr }
    Edges { edge_index, mask, removed, num_edges }
    Followed { batch, ptr }
    Phenotype { type_indices, sample_indices, stat_type_indices, stat_sample_indices }
    MetabolicGraphs { reactions, w_growth, metabolites, gpr, rmr, stoichiometry }
    RemovedLists { positions, ptr }
    BitMasks { words; entries }
}

impl Bytes for Graphs {
    fn bytes(&self) -> usize {
        let Self { genes, x, x_pert, phenotype, edges, metabolism } = self;
        let edges: usize = edges.iter().map(Bytes::bytes).sum();
        let metabolism = metabolism.as_ref().map_or(0, Bytes::bytes);
        genes.bytes() + x.bytes() + x_pert.bytes() + phenotype.bytes() + edges + metabolism
    }
}
