use std::ops::Range;

use expctl_record::StoreKind;

use super::mask_fields::{Content, Field, GENE, MaskSizes, REACTION, fields, mask_bytes};
use super::npz_walk::Walk;
use super::{MaskForm, Sample};

/// Finds genes, label and the masks of a trial in the records of a store of masks. Threads share it.
pub(super) struct MaskDecoder {
    kind: StoreKind,
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
    /// An edge type without masks in the store.
    pub(super) fn new(
        kind: StoreKind,
        sizes: MaskSizes,
        edge_types: &[String],
        metabolism: bool,
    ) -> Result<Self, String> {
        let form = match kind {
            StoreKind::Compressed => MaskForm::FalsePositions,
            StoreKind::FullMasks => MaskForm::Bytes,
            StoreKind::PackedMasks => MaskForm::Bits,
            StoreKind::Json | StoreKind::Ids => MaskForm::None,
        };
        let Some(fields) = fields(kind, &sizes) else {
            return Err(format!("a {} store holds no masks", kind.name()));
        };
        let unknown = |name: &String| format!("the store has no masks of edge type `{name}`");
        let mut masks = edge_types
            .iter()
            .map(|name| sizes.network(name).ok_or_else(|| unknown(name)))
            .collect::<Result<Vec<_>, _>>()?;
        if metabolism {
            masks.extend([REACTION, sizes.gpr(), sizes.rmr()]);
        }
        let mut slots = vec![None; sizes.len()];
        for (slot, mask) in masks.iter().enumerate() {
            if slots[*mask].replace(slot).is_some() {
                return Err("an edge type is listed twice".to_owned());
            }
        }
        Ok(Self { kind, form, fields, slots, spans: masks.len(), sizes })
    }

    /// Decode the record at `range` of `bytes`. Spans of masks refer to `bytes`.
    pub(super) fn decode(&self, bytes: &[u8], range: Range<usize>, sample: &mut Sample) -> Result<(), String> {
        let record = &bytes[range.clone()];
        sample.masks.form = self.form;
        sample.masks.spans.clear();
        sample.masks.spans.resize(self.spans, 0..0);
        let mut walk = Walk::new(record);
        for Field { content, member } in &self.fields {
            let named = |reason: String| format!("{}: {reason}", member.name());
            let at = walk.next(member).map_err(named)?;
            self.take(*content, &record[at.clone()], sample).map_err(named)?;
            if let Content::False(mask) | Content::Kept(mask) = *content
                && let Some(slot) = self.slots[mask]
            {
                sample.masks.spans[slot] = range.start + at.start..range.start + at.end;
            }
        }
        walk.finish(self.fields.iter().map(|field| &field.member))
    }

    /// Check a field and take what the sample needs of it.
    fn take(&self, content: Content, data: &[u8], sample: &mut Sample) -> Result<(), String> {
        match content {
            Content::Genes => {
                sample.genes.clear();
                sample.genes.extend(words(data));
                ascending(&sample.genes, self.sizes.size(GENE))
            }
            Content::Label => {
                sample.label = float(data)?;
                if sample.label.is_finite() { Ok(()) } else { Err(format!("the label is {}", sample.label)) }
            }
            Content::PValue => {
                sample.p_value = float(data)?;
                if sample.p_value.is_infinite() { Err(format!("the p-value is {}", sample.p_value)) } else { Ok(()) }
            }
            Content::Zero if words(data).eq([0]) => Ok(()),
            Content::Zero => Err("not 0 alone".to_owned()),
            Content::Sizes if words(data).eq(self.sizes.all().map(|(_, entries)| entries as i64)) => Ok(()),
            Content::Sizes => Err("not the lengths that the manifest has".to_owned()),
            Content::False(mask) if self.slots[mask].is_some() => false_positions(data, self.sizes.size(mask)),
            Content::False(_) => Ok(()),
            Content::Kept(mask) | Content::Perturbed(mask) => {
                let entries = self.sizes.size(mask);
                let expected = mask_bytes(self.kind, entries);
                if data.len() != expected {
                    return Err(format!("{} bytes, not {expected}", data.len()));
                }
                match (content, self.form) {
                    // Of masks that the trial does not use, nothing is looked at.
                    (Content::Kept(_), MaskForm::Bytes) if self.slots[mask].is_some() => zeros_and_ones(data),
                    (Content::Kept(_), MaskForm::Bits) if self.slots[mask].is_some() => nothing_behind(data, entries),
                    _ => Ok(()),
                }
            }
        }
    }
}

/// int64 little-endian.
fn words(data: &[u8]) -> impl Iterator<Item = i64> {
    data.as_chunks::<8>().0.iter().map(|word| i64::from_le_bytes(*word))
}

fn float(data: &[u8]) -> Result<f32, String> {
    let word = <[u8; 4]>::try_from(data).map_err(|_| format!("{} values instead of 1", data.len() / 4))?;
    Ok(f32::from_le_bytes(word))
}

/// Genes ascend, each once, and are among `n`.
pub(super) fn ascending(genes: &[i64], n: usize) -> Result<(), String> {
    let mut least = 0;
    for &gene in genes {
        if gene < least || gene >= n as i64 {
            return Err(format!("gene {gene} is not one of {n}, or not in order"));
        }
        least = gene + 1;
    }
    Ok(())
}

fn false_positions(data: &[u8], entries: usize) -> Result<(), String> {
    let mut least = 0;
    for position in words(data) {
        if position < least || position >= entries as i64 {
            return Err(format!("position {position} is not one of {entries}, or not in order"));
        }
        least = position + 1;
    }
    Ok(())
}

/// Bytes are 0 or 1.
fn zeros_and_ones(mask: &[u8]) -> Result<(), String> {
    const PIECE: usize = 4096;
    // No branch within a piece, so that the compiler makes vector instructions of it.
    let no_bool = |piece: &[u8]| piece.iter().fold(0, |all, byte| all | byte) > 1;
    let Some(piece) = mask.chunks(PIECE).position(no_bool) else {
        return Ok(());
    };
    let rest = mask.iter().enumerate().skip(piece * PIECE);
    let found =
        rest.filter(|(_, byte)| **byte > 1).map(|(at, byte)| format!("entry {at} is {byte}, not 0 or 1")).next();
    found.map_or(Ok(()), Err)
}

/// Bits behind the last entry are 0.
fn nothing_behind(bits: &[u8], entries: usize) -> Result<(), String> {
    match bits.last() {
        Some(last) if !entries.is_multiple_of(8) && last >> (entries % 8) != 0 => {
            Err(format!("bits behind the last of {entries} entries are set"))
        }
        _ => Ok(()),
    }
}
