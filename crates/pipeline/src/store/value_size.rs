use expctl_record::StoreKind;

use super::mask_fields::{Content, MaskSizes, fields, mask_bytes};
use super::{ids, npz};

/// Bytes of the value of a record in a store of this kind, made from the base store: of `genes` perturbed genes, with so many False
/// positions of each mask, in the order of [`MaskSizes`].
pub(crate) fn value_bytes(kind: StoreKind, sizes: &MaskSizes, genes: usize, removed: &[f64]) -> f64 {
    let Some(fields) = fields(kind, sizes) else { return ids::record_bytes(genes) as f64 };
    let elements = |content: Content| match content {
        Content::Genes => genes as f64,
        Content::Zero | Content::Label | Content::PValue => 1.0,
        Content::False(mask) => removed.get(mask).copied().unwrap_or(0.0),
        Content::Sizes => sizes.len() as f64,
        Content::Kept(mask) | Content::Perturbed(mask) => mask_bytes(kind, sizes.size(mask)) as f64,
    };
    npz::archive_bytes(fields.iter().map(|field| (&field.member, elements(field.content))))
}

#[cfg(test)]
mod tests {
    use super::super::{Sample, StoreEncoder};
    use super::*;
    use crate::graph::{CellGraph, EdgeType};

    #[test]
    fn records_are_as_long_as_was_said() {
        // Three genes, an edge from the first to the second, and their loops; no metabolism.
        let edge_index = vec![0, 0, 1, 2, 1, 0, 1, 2];
        let edge_types = vec![EdgeType { name: "e".to_owned(), edge_index }];
        let graph = CellGraph { genes: vec![String::new(); 3], edge_types, metabolism: None };
        let sizes = MaskSizes::new([3, 2, 2], &[("e".to_owned(), 4)], 1, 1);
        let sample = Sample { genes: vec![0], label: 0.5, p_value: 0.5, ..Sample::default() };
        // The perturbed gene, and of the edges its loop and the one that it has.
        let removed = [1.0, 0.0, 0.0, 2.0, 0.0, 0.0];
        for kind in [StoreKind::Compressed, StoreKind::FullMasks, StoreKind::PackedMasks, StoreKind::Ids] {
            let mut record = Vec::new();
            StoreEncoder::new(kind, sizes.clone(), &graph).encode(&sample, &mut record);
            assert_eq!(value_bytes(kind, &sizes, 1, &removed), record.len() as f64, "{}", kind.name());
        }
    }
}
