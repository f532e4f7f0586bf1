//! The records of stores with masks, which are NPZ archives: `MaskEncoder` writes them, `MaskDecoder` finds genes, label and masks in them.
//! `MaskSizes` names the masks and their lengths.
//! Invariant: the decoder checks every mask that it passes on, so the stages behind it do not check again.

use std::ops::Range;

use crate::cell_graph::CellGraph;
use crate::error::{ArrayError, MissingMasks, RecordError};
use crate::incidence::{Catalysis, Incidence, RemovedMetabolism};
use crate::npz::{Dtype, Member, NpzWalk};
use crate::options::RecordFormat;
use crate::records::{MaskForm, Sample};
use crate::{npz, records};

/// Nodes and edges that masks are over. Invariant: three types of nodes (genes, reactions, metabolites), then the networks
/// of the data set in their order, then gpr and rmr.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaskSizes {
    names: Vec<String>,
    sizes: Vec<usize>,
}

/// Position of a mask in [`MaskSizes`].
pub type MaskIndex = usize;
const GENE: MaskIndex = 0;
const REACTION: MaskIndex = 1;
/// Types of nodes.
const NODE_TYPES: usize = 3;

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
    pub(crate) fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Length of a mask.
    pub(crate) fn size(&self, mask: MaskIndex) -> usize {
        self.sizes[mask]
    }

    /// Mask of a network.
    fn network(&self, name: &str) -> Option<MaskIndex> {
        let name = format!("gene__{name}__gene");
        self.names.iter().position(|n| *n == name).filter(|i| *i >= NODE_TYPES)
    }

    pub(crate) fn gpr(&self) -> MaskIndex {
        self.len() - 2
    }

    pub(crate) fn rmr(&self) -> MaskIndex {
        self.len() - 1
    }
}

/// The content of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
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
struct Field {
    pub content: Content,
    pub member: Member,
}

/// The fields of a record in their order: those of the published pickle under their names, but the lengths of all masks in
/// one array. `None` for stores without masks.
fn fields(format: RecordFormat, sizes: &MaskSizes) -> Option<Vec<Field>> {
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
    match format {
        RecordFormat::FalsePositions => {
            add("mask_sizes", Content::Sizes);
            for (mask, (name, _)) in sizes.all().enumerate() {
                add(&format!("{}/{name}/false_indices", group(mask)), Content::False(mask));
            }
        }
        RecordFormat::ByteMasks | RecordFormat::BitMasks => {
            for (mask, (name, _)) in sizes.all().enumerate() {
                add(&format!("{}/{name}", group(mask)), Content::Kept(mask));
            }
            for (mask, (name, _)) in sizes.all().enumerate().take(NODE_TYPES) {
                add(&format!("pert_masks/{name}"), Content::Perturbed(mask));
            }
        }
        RecordFormat::Json | RecordFormat::Ids => return None,
    }
    Some(fields)
}

/// Elements of a mask's field as this kind of store keeps it.
fn mask_bytes(format: RecordFormat, entries: usize) -> usize {
    if format == RecordFormat::BitMasks { entries.div_ceil(8) } else { entries }
}

/// Finds genes, label and the masks of a trial in the records of a store of masks. Threads share it.
pub struct MaskDecoder {
    format: RecordFormat,
    form: MaskForm,
    sizes: MaskSizes,
    fields: Vec<Field>,
    /// For each mask its place among the spans of a sample, if the trial uses it.
    slots: Vec<Option<usize>>,
    spans: usize,
}

impl MaskDecoder {
    /// A decoder of the masks of `edge_types` and, if asked for, of the metabolism.
    ///
    /// # Errors
    /// A format without masks, an edge type that the store does not have, or one that is listed twice.
    pub fn new(
        format: RecordFormat,
        sizes: MaskSizes,
        edge_types: &[String],
        metabolism: bool,
    ) -> Result<Self, MissingMasks> {
        let form = match format {
            RecordFormat::FalsePositions => MaskForm::FalsePositions,
            RecordFormat::ByteMasks => MaskForm::Bytes,
            RecordFormat::BitMasks => MaskForm::Bits,
            RecordFormat::Json | RecordFormat::Ids => MaskForm::None,
        };
        let Some(fields) = fields(format, &sizes) else {
            return Err(MissingMasks::Format { format });
        };
        let mut masks = Vec::new();
        for name in edge_types {
            let mask = sizes.network(name).ok_or_else(|| MissingMasks::EdgeType { name: name.clone() })?;
            if masks.contains(&mask) {
                return Err(MissingMasks::RepeatedEdgeType { name: name.clone() });
            }
            masks.push(mask);
        }
        if metabolism {
            masks.extend([REACTION, sizes.gpr(), sizes.rmr()]);
        }
        let mut slots = vec![None; sizes.len()];
        for (slot, mask) in masks.iter().enumerate() {
            slots[*mask] = Some(slot);
        }
        Ok(Self { format, form, fields, slots, spans: masks.len(), sizes })
    }

    /// Decode the record at `range` of `bytes`. Spans of masks refer to `bytes`.
    pub fn decode(&self, bytes: &[u8], range: Range<usize>, sample: &mut Sample) -> Result<(), RecordError> {
        let record = &bytes[range.clone()];
        sample.masks.form = self.form;
        sample.masks.spans.clear();
        sample.masks.spans.resize(self.spans, 0..0);
        let mut walk = NpzWalk::new(record);
        for Field { content, member } in &self.fields {
            let named = |problem| RecordError::Array { array: member.name().to_owned(), problem };
            let at = walk.next(member).map_err(named)?;
            self.take(*content, &record[at.clone()], sample).map_err(named)?;
            if let Content::False(mask) | Content::Kept(mask) = *content
                && let Some(slot) = self.slots[mask]
            {
                sample.masks.spans[slot] = range.start + at.start..range.start + at.end;
            }
        }
        walk.finish(self.fields.iter().map(|field| &field.member))?;
        ascending(&sample.genes, self.sizes.size(GENE))?;
        sample.check_numbers()
    }

    /// Check a field and take what the sample needs of it.
    fn take(&self, content: Content, data: &[u8], sample: &mut Sample) -> Result<(), ArrayError> {
        match content {
            Content::Genes => {
                sample.genes.clear();
                sample.genes.extend(words(data));
            }
            Content::Label => sample.label = float(data)?,
            Content::PValue => sample.p_value = float(data)?,
            Content::Zero if words(data).eq([0]) => {}
            Content::Zero => return Err(ArrayError::NotZero),
            Content::Sizes if words(data).eq(self.sizes.all().map(|(_, entries)| entries as i64)) => {}
            Content::Sizes => return Err(ArrayError::MaskLengths),
            Content::False(mask) if self.slots[mask].is_some() => false_positions(data, self.sizes.size(mask))?,
            Content::False(_) => {}
            Content::Kept(mask) | Content::Perturbed(mask) => {
                let entries = self.sizes.size(mask);
                let expected = mask_bytes(self.format, entries);
                if data.len() != expected {
                    return Err(ArrayError::MaskBytes { bytes: data.len(), expected });
                }
                match (content, self.form) {
                    // Masks that the trial does not use are not checked.
                    (Content::Kept(_), MaskForm::Bytes) if self.slots[mask].is_some() => zeros_and_ones(data)?,
                    (Content::Kept(_), MaskForm::Bits) if self.slots[mask].is_some() => nothing_behind(data, entries)?,
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// int64 little-endian.
fn words(data: &[u8]) -> impl Iterator<Item = i64> {
    data.as_chunks::<8>().0.iter().map(|word| i64::from_le_bytes(*word))
}

fn float(data: &[u8]) -> Result<f32, ArrayError> {
    let word = <[u8; 4]>::try_from(data).map_err(|_| ArrayError::NotOneValue { values: data.len() / 4 })?;
    Ok(f32::from_le_bytes(word))
}

/// Genes ascend, each once, and are among `n`.
pub fn ascending(genes: &[i64], n: usize) -> Result<(), RecordError> {
    let mut min = 0;
    for &gene in genes {
        if gene < min || gene >= n as i64 {
            return Err(RecordError::Gene { gene, genes: n });
        }
        min = gene + 1;
    }
    Ok(())
}

fn false_positions(data: &[u8], entries: usize) -> Result<(), ArrayError> {
    let mut min = 0;
    for position in words(data) {
        if position < min || position >= entries as i64 {
            return Err(ArrayError::Position { position, entries });
        }
        min = position + 1;
    }
    Ok(())
}

/// Bytes are 0 or 1.
fn zeros_and_ones(mask: &[u8]) -> Result<(), ArrayError> {
    const PIECE: usize = 4096;
    // No branch within a piece, so that the compiler makes vector instructions of it.
    let no_bool = |piece: &[u8]| piece.iter().fold(0, |all, byte| all | byte) > 1;
    let Some(piece) = mask.chunks(PIECE).position(no_bool) else {
        return Ok(());
    };
    match mask.iter().enumerate().skip(piece * PIECE).find(|(_, byte)| **byte > 1) {
        Some((entry, &value)) => Err(ArrayError::NotBool { entry, value }),
        None => Ok(()),
    }
}

/// Bits behind the last entry are 0.
fn nothing_behind(bits: &[u8], entries: usize) -> Result<(), ArrayError> {
    match bits.last() {
        Some(last) if !entries.is_multiple_of(8) && last >> (entries % 8) != 0 => {
            Err(ArrayError::BitsBehindEnd { entries })
        }
        _ => Ok(()),
    }
}

/// Writes the records of a store of masks.
#[derive(Clone)]
pub struct MaskEncoder {
    format: RecordFormat,
    sizes: MaskSizes,
    fields: Vec<Field>,
    graph: std::sync::Arc<Incidences>,
    /// False positions of each mask of the record in work.
    removed: Vec<Vec<u32>>,
    metabolism: RemovedMetabolism,
}

/// Edges and reactions that each gene removes.
struct Incidences {
    networks: Vec<Incidence>,
    catalysis: Option<Catalysis>,
}

impl MaskEncoder {
    /// An encoder over all networks of a data set and its metabolism, of which `sizes` speaks too. `None` for stores without
    /// masks.
    pub fn new(format: RecordFormat, sizes: MaskSizes, graph: &CellGraph) -> Option<Self> {
        let networks = graph.edge_types.iter().map(|e| Incidence::build(e, graph.num_genes())).collect();
        let catalysis = graph.metabolism.as_ref().map(|m| Catalysis::build(m, graph.num_genes()));
        Some(Self {
            format,
            fields: fields(format, &sizes)?,
            graph: std::sync::Arc::new(Incidences { networks, catalysis }),
            removed: vec![Vec::new(); sizes.len()],
            sizes,
            metabolism: RemovedMetabolism::default(),
        })
    }

    /// Append the record of `sample` to `out`: an NPZ archive.
    pub fn encode(&mut self, sample: &Sample, out: &mut Vec<u8>) {
        self.find_removed(&sample.genes);
        npz::write_npz(self.fields.iter().map(|field| &field.member), out, |i, out| {
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
        let n = mask_bytes(self.format, entries);
        if self.format == RecordFormat::BitMasks {
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

/// Bytes of the value of a record in a store of this kind, made from the base store: of `genes` perturbed genes, with so many False
/// positions of each mask, in the order of [`MaskSizes`].
pub fn value_bytes(format: RecordFormat, sizes: &MaskSizes, genes: usize, removed: &[f64]) -> f64 {
    let Some(fields) = fields(format, sizes) else { return records::record_bytes(genes) as f64 };
    let elements = |content: Content| match content {
        Content::Genes => genes as f64,
        Content::Zero | Content::Label | Content::PValue => 1.0,
        Content::False(mask) => removed.get(mask).copied().unwrap_or(0.0),
        Content::Sizes => sizes.len() as f64,
        Content::Kept(mask) | Content::Perturbed(mask) => mask_bytes(format, sizes.size(mask)) as f64,
    };
    npz::archive_bytes(fields.iter().map(|field| (&field.member, elements(field.content))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell_graph::EdgeType;
    use crate::records::StoreEncoder;

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
        for format in [RecordFormat::FalsePositions, RecordFormat::ByteMasks, RecordFormat::BitMasks, RecordFormat::Ids]
        {
            let mut record = Vec::new();
            StoreEncoder::new(format, sizes.clone(), &graph).encode(&sample, &mut record);
            assert_eq!(value_bytes(format, &sizes, 1, &removed), record.len() as f64, "{format:?}");
        }
    }
}
