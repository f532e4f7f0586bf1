use expctl_record::StoreKind;

use super::npz::{Dtype, Member};

/// Nodes and edges that masks are over. Invariant: three types of nodes (genes, reactions, metabolites), then the networks
/// of the data set in their order, then gpr and rmr.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaskSizes {
    names: Vec<String>,
    sizes: Vec<usize>,
}

/// Position of a mask in [`MaskSizes`].
pub(super) type MaskIndex = usize;
pub(super) const GENE: MaskIndex = 0;
pub(super) const REACTION: MaskIndex = 1;
/// Types of nodes.
pub(super) const NODE_TYPES: usize = 3;

impl MaskSizes {
    /// `nodes` are the numbers of genes, reactions and metabolites; `networks` have names and numbers of edges.
    pub fn new(nodes: [usize; 3], networks: &[(String, usize)], gpr: usize, rmr: usize) -> Self {
        let mut names = ["gene", "reaction", "metabolite"].map(str::to_owned).to_vec();
        names.extend(networks.iter().map(|(name, _)| format!("gene__{name}__gene")));
        names.extend(["gene__gpr__reaction", "reaction__rmr__metabolite"].map(str::to_owned));
        let sizes = nodes.into_iter().chain(networks.iter().map(|(_, edges)| *edges)).chain([gpr, rmr]).collect();
        Self { names, sizes }
    }

    /// Name of each mask as it is in the fields of a record, and its length.
    pub fn all(&self) -> impl Iterator<Item = (&str, usize)> {
        self.names.iter().map(String::as_str).zip(self.sizes.iter().copied())
    }

    /// Number of genes.
    pub fn genes(&self) -> usize {
        self.sizes[GENE]
    }

    /// Number of masks.
    pub(super) fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Length of a mask.
    pub(super) fn size(&self, mask: MaskIndex) -> usize {
        self.sizes[mask]
    }

    /// Mask of a network.
    pub(super) fn network(&self, name: &str) -> Option<MaskIndex> {
        let name = format!("gene__{name}__gene");
        self.names.iter().position(|n| *n == name).filter(|i| *i >= NODE_TYPES)
    }

    pub(super) fn gpr(&self) -> MaskIndex {
        self.len() - 2
    }

    pub(super) fn rmr(&self) -> MaskIndex {
        self.len() - 1
    }
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// int64 `[k]`: perturbed genes.
    Genes,
    /// int64 `[1]`: 0, a coordinate (there is one phenotype of one type).
    Zero,
    /// float32 `[1]`: label.
    Label,
    /// float32 `[1]`: p-value.
    PValue,
    /// int64 `[n]`: False positions of a mask.
    False(MaskIndex),
    /// int64 `[masks]`: length of each mask, in the order of [`MaskSizes`].
    Sizes,
    /// uint8: a mask, 1 = kept.
    Kept(MaskIndex),
    /// uint8: its complement, 1 = perturbed.
    Perturbed(MaskIndex),
}

impl Content {
    const fn dtype(self) -> Dtype {
        match self {
            Self::Genes | Self::Zero | Self::False(_) | Self::Sizes => Dtype::I64,
            Self::Label | Self::PValue => Dtype::F32,
            Self::Kept(_) | Self::Perturbed(_) => Dtype::U8,
        }
    }
}

/// One array of a record.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub content: Content,
    pub member: Member,
}

/// The fields of a record in their order: those of the published pickle under their names, but the lengths of all masks in
/// one array. `None` for stores without masks.
pub(super) fn fields(kind: StoreKind, sizes: &MaskSizes) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    let mut add =
        |name: &str, content: Content| fields.push(Field { content, member: Member::new(name, content.dtype()) });
    add("gene/perturbation_indices", Content::Genes);
    for name in ["type_indices", "sample_indices", "stat_type_indices", "stat_sample_indices"] {
        add(&format!("gene/phenotype_{name}"), Content::Zero);
    }
    add("gene/phenotype_values", Content::Label);
    add("gene/phenotype_stat_values", Content::PValue);
    let group = |mask: MaskIndex| if mask < NODE_TYPES { "node_masks" } else { "edge_masks" };
    match kind {
        StoreKind::Compressed => {
            add("mask_sizes", Content::Sizes);
            for (mask, (name, _)) in sizes.all().enumerate() {
                add(&format!("{}/{name}/false_indices", group(mask)), Content::False(mask));
            }
        }
        StoreKind::FullMasks | StoreKind::PackedMasks => {
            for (mask, (name, _)) in sizes.all().enumerate() {
                add(&format!("{}/{name}", group(mask)), Content::Kept(mask));
            }
            for (mask, (name, _)) in sizes.all().enumerate().take(NODE_TYPES) {
                add(&format!("pert_masks/{name}"), Content::Perturbed(mask));
            }
        }
        StoreKind::Json | StoreKind::Ids => return None,
    }
    Some(fields)
}

/// Elements of a mask's field as this kind of store keeps it.
pub(super) fn mask_bytes(kind: StoreKind, entries: usize) -> usize {
    if kind == StoreKind::PackedMasks { entries.div_ceil(8) } else { entries }
}
