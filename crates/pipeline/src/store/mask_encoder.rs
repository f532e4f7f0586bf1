use expctl_record::StoreKind;

use super::mask_fields::{Content, Field, GENE, MaskIndex, MaskSizes, NODE_TYPES, REACTION, fields, mask_bytes};
use super::{Sample, npz};
use crate::graph::{Catalysis, CellGraph, Incidence, RemovedMetabolism};

/// Writes the records of a store of masks.
#[derive(Clone)]
pub(super) struct MaskEncoder {
    kind: StoreKind,
    sizes: MaskSizes,
    fields: Vec<Field>,
    graph: std::sync::Arc<Incidences>,
    /// False positions of each mask of the record in work.
    removed: Vec<Vec<u32>>,
    metabolism: RemovedMetabolism,
}

/// What perturbed genes remove.
struct Incidences {
    networks: Vec<Incidence>,
    catalysis: Option<Catalysis>,
}

impl MaskEncoder {
    /// An encoder over all networks of a data set and its metabolism, of which `sizes` speaks too. `None` for stores without
    /// masks.
    pub(super) fn new(kind: StoreKind, sizes: MaskSizes, graph: &CellGraph) -> Option<Self> {
        let networks = graph.edge_types.iter().map(|e| Incidence::build(e, graph.num_genes())).collect();
        let catalysis = graph.metabolism.as_ref().map(|m| Catalysis::build(m, graph.num_genes()));
        Some(Self {
            kind,
            fields: fields(kind, &sizes)?,
            graph: std::sync::Arc::new(Incidences { networks, catalysis }),
            removed: vec![Vec::new(); sizes.len()],
            sizes,
            metabolism: RemovedMetabolism::default(),
        })
    }

    /// Append the record of `sample` to `out`: an NPZ archive.
    pub(super) fn encode(&mut self, sample: &Sample, out: &mut Vec<u8>) {
        self.find_removed(&sample.genes);
        npz::write(self.fields.iter().map(|field| &field.member), out, |i, out| {
            self.write(self.fields[i].content, sample, out);
        });
    }

    fn find_removed(&mut self, genes: &[i64]) {
        let set = |mask: &mut Vec<u32>, positions: &[u32]| {
            mask.clear();
            mask.extend_from_slice(positions);
        };
        self.removed[GENE].clear();
        self.removed[GENE].extend(genes.iter().map(|gene| *gene as u32));
        for (incidence, mask) in self.graph.networks.iter().zip(&mut self.removed[NODE_TYPES..]) {
            mask.clear();
            genes.iter().for_each(|gene| mask.extend_from_slice(incidence.of(*gene)));
            // A few ascending runs, which a stable sort merges; an edge between two perturbed genes stands in two of them.
            mask.sort();
            mask.dedup();
        }
        if let Some(catalysis) = &self.graph.catalysis {
            catalysis.removed(genes, &mut self.metabolism);
            set(&mut self.removed[REACTION], &self.metabolism.reactions);
            set(&mut self.removed[self.sizes.gpr()], &self.metabolism.gpr);
            set(&mut self.removed[self.sizes.rmr()], &self.metabolism.rmr);
        }
    }

    fn write(&self, content: Content, sample: &Sample, out: &mut Vec<u8>) {
        match content {
            Content::Genes => sample.genes.iter().for_each(|gene| out.extend_from_slice(&gene.to_le_bytes())),
            Content::Zero => out.extend_from_slice(&[0; 8]),
            Content::Sizes => {
                self.sizes.all().for_each(|(_, entries)| out.extend_from_slice(&(entries as i64).to_le_bytes()));
            }
            Content::Label => out.extend_from_slice(&sample.label.to_le_bytes()),
            Content::PValue => out.extend_from_slice(&sample.p_value.to_le_bytes()),
            Content::False(mask) => {
                self.removed[mask].iter().for_each(|p| out.extend_from_slice(&i64::from(*p).to_le_bytes()));
            }
            Content::Kept(mask) => self.mask(mask, true, out),
            Content::Perturbed(mask) => self.mask(mask, false, out),
        }
    }

    /// All entries `kept`, then the opposite at the False positions.
    fn mask(&self, mask: MaskIndex, kept: bool, out: &mut Vec<u8>) {
        let (start, entries) = (out.len(), self.sizes.size(mask));
        let n = mask_bytes(self.kind, entries);
        if self.kind == StoreKind::PackedMasks {
            out.resize(start + n, if kept { 0xff } else { 0 });
            if kept && !entries.is_multiple_of(8) {
                out[start + n - 1] = (1 << (entries % 8)) - 1;
            }
            for &position in &self.removed[mask] {
                out[start + position as usize / 8] ^= 1 << (position % 8);
            }
        } else {
            out.resize(start + n, u8::from(kept));
            for &position in &self.removed[mask] {
                out[start + position as usize] = u8::from(!kept);
            }
        }
    }
}
