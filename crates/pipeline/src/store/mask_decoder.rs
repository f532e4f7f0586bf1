use std::ops::Range;

use expctl_record::StoreKind;

use super::mask_fields::{CLOSING, Content, Field, GENE, MaskSizes, OFFSETS, OPENING, REACTION, fields, mask_bytes};
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
    ///
    /// The header is compared with the one that the encoder writes, piece by piece, rather than parsed as JSON: what differs
    /// between records are lengths and offsets alone.
    pub(super) fn decode(&self, bytes: &[u8], range: Range<usize>, sample: &mut Sample) -> Result<(), String> {
        let record = &bytes[range.clone()];
        let header = record.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let data_at = match usize::try_from(header).ok().and_then(|header| header.checked_add(8)) {
            Some(data_at) if data_at > 8 && data_at <= record.len() => data_at,
            _ => return Err(format!("{} bytes, but a header of {header}", record.len())),
        };
        let mut text = Cursor { bytes: &record[..data_at], at: 8 };
        text.literal(OPENING)?;
        sample.masks.form = self.form;
        sample.masks.spans.clear();
        sample.masks.spans.resize(self.spans, 0..0);
        let mut offset = 0;
        for field in &self.fields {
            text.literal(&field.opening)?;
            let n = text.number()?;
            text.literal(OFFSETS)?;
            let start = text.number()?;
            text.literal(",")?;
            let end = text.number()?;
            text.literal(CLOSING)?;
            let name = || field.opening.split('"').nth(1).unwrap_or_default();
            if start != offset || n.checked_mul(field.content.dtype().1).and_then(|n| n.checked_add(start)) != Some(end)
            {
                return Err(format!("{}: {n} elements from {start} to {end}", name()));
            }
            let Some(data) = record[data_at..].get(start..end) else {
                return Err(format!("{}: ends at {end} of {} bytes", name(), record.len() - data_at));
            };
            self.take(field.content, data, sample).map_err(|reason| format!("{}: {reason}", name()))?;
            if let Content::False(mask) | Content::Kept(mask) = field.content
                && let Some(slot) = self.slots[mask]
            {
                let at = range.start + data_at;
                sample.masks.spans[slot] = at + start..at + end;
            }
            offset = end;
        }
        text.literal("}")?;
        if text.rest().iter().any(|byte| *byte != b' ') || offset != record.len() - data_at {
            return Err(format!("{} bytes behind the last field", record.len() - data_at - offset));
        }
        Ok(())
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
            Content::Size(mask) if words(data).eq([self.sizes.size(mask) as i64]) => Ok(()),
            Content::Size(mask) => Err(format!("not {} alone", self.sizes.size(mask))),
            Content::False(mask) if self.slots[mask].is_some() => false_positions(data, self.sizes.size(mask)),
            Content::False(_) => Ok(()),
            Content::Kept(mask) | Content::Perturbed(mask) => {
                let expected = mask_bytes(self.kind, self.sizes.size(mask));
                if data.len() == expected { Ok(()) } else { Err(format!("{} bytes, not {expected}", data.len())) }
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

/// Reads a header from the front.
struct Cursor<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Cursor<'b> {
    fn rest(&self) -> &'b [u8] {
        &self.bytes[self.at..]
    }

    fn literal(&mut self, text: &str) -> Result<(), String> {
        if !self.rest().starts_with(text.as_bytes()) {
            return Err(format!("the header has no `{text}` at byte {}", self.at));
        }
        self.at += text.len();
        Ok(())
    }

    fn number(&mut self) -> Result<usize, String> {
        let digits = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
        // Few enough digits for any length of a record.
        if !(1..=15).contains(&digits) {
            return Err(format!("the header has no number at byte {}", self.at));
        }
        let value = self.rest()[..digits].iter().fold(0, |value, digit| value * 10 + usize::from(digit - b'0'));
        self.at += digits;
        Ok(value)
    }
}
