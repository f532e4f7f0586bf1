use std::ops::Range;
use std::path::Path;

use expctl_record::StoreKind;

use super::estimate::ESTIMATED_FROM;
use super::files::{Report, report};
use super::{Conversion, StoreInfo};
use crate::PipelineError;
use crate::graph::{CellGraph, EdgeType, Metabolism};
use crate::store::{LmdbStore, MaskForm, Sample, StoreDecoder};

/// Records between two reports.
const STRIDE: u64 = 100;

impl Conversion<'_> {
    /// Read the store in `folder` once more, record by record beside the base store, and compare genes and label of all of
    /// them and the masks of some with what the definition of a mask gives.
    pub(super) fn check(&self, folder: &Path, to: &mut Report<'_>) -> Result<StoreInfo, PipelineError> {
        let store = LmdbStore::open(folder)?;
        let records = self.base.len();
        if store.len() != records {
            let reason = format!("{} records, but the base store has {records}", store.len());
            return Err(PipelineError::damaged(folder, reason));
        }
        let names: Vec<String> = self.graph.edge_types.iter().map(|edges| edges.name.clone()).collect();
        let decoder = StoreDecoder::converted(folder, self.kind, self.dataset.mask_sizes(), &names, true)?;
        let mut base = self.base.reader()?;
        let (mut json, mut expected, mut found) = (Vec::new(), Sample::default(), Sample::default());
        let mut hasher = blake3::Hasher::new();
        let mut info = StoreInfo { records: 0, value_bytes: 0, largest_value: 0, content_blake3: String::new() };
        let stride = (records / ESTIMATED_FROM).max(1);
        let read = store.for_each(|index, value| {
            let key = index.to_string();
            for bytes in [key.as_bytes(), value] {
                hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
            }
            info.value_bytes += value.len() as u64;
            info.largest_value = info.largest_value.max(value.len() as u64);
            json.clear();
            base.read(index, &mut json)?;
            self.decoder.decode(index, &json, &mut expected)?;
            decoder.decode(index, value, 0..value.len(), &mut found)?;
            let wrong = |what: &str| PipelineError::Record {
                store: folder.to_owned(),
                index,
                reason: format!("{what} differs from the base store"),
            };
            let of = |sample: &Sample| (sample.label.to_bits(), sample.p_value.to_bits());
            if expected.genes != found.genes || of(&expected) != of(&found) {
                return Err(wrong("gene, label or p-value"));
            }
            if self.kind != StoreKind::Ids && index % stride == 0 && !masks_agree(&self.graph, &found, value) {
                return Err(wrong("a mask"));
            }
            info.records += 1;
            if info.records.is_multiple_of(STRIDE) || info.records == records {
                report(to, "check", info.records, records)?;
            }
            Ok(())
        });
        // A base store that has changed is no reason to find fault with this one.
        base.unchanged()?;
        read?;
        info.content_blake3 = hasher.finalize().to_hex().to_string();
        Ok(info)
    }
}

/// Whether the masks in `bytes` are what their definition says, edge by edge.
fn masks_agree(graph: &CellGraph, sample: &Sample, bytes: &[u8]) -> bool {
    let perturbed = |gene: &i64| sample.genes.contains(gene);
    let network = |e: &EdgeType| -> Vec<bool> {
        e.sources().iter().zip(e.targets()).map(|(s, t)| !perturbed(s) && !perturbed(t)).collect()
    };
    let mut expected: Vec<Vec<bool>> = graph.edge_types.iter().map(network).collect();
    if let Some(metabolism) = &graph.metabolism {
        expected.extend(metabolic_masks(metabolism, perturbed));
    }
    let spans = &sample.masks.spans;
    spans.len() == expected.len()
        && spans.iter().zip(&expected).all(|(span, kept)| mask(sample.masks.form, bytes, span, kept.len()) == *kept)
}

/// Kept reactions, gpr edges and rmr edges.
fn metabolic_masks(metabolism: &Metabolism, perturbed: impl Fn(&i64) -> bool) -> [Vec<bool>; 3] {
    let mut reactions = vec![true; metabolism.reactions];
    for (gene, reaction) in metabolism.gpr_genes().iter().zip(metabolism.gpr_reactions()) {
        reactions[*reaction as usize] &= !perturbed(gene);
    }
    let gpr = metabolism.gpr_genes().iter().map(|gene| !perturbed(gene)).collect();
    let rmr = metabolism.rmr_reactions().iter().map(|reaction| reactions[*reaction as usize]).collect();
    [reactions, gpr, rmr]
}

/// A stored mask of `entries` entries, written out.
fn mask(form: MaskForm, bytes: &[u8], span: &Range<usize>, entries: usize) -> Vec<bool> {
    let bytes = &bytes[span.clone()];
    match form {
        MaskForm::None => Vec::new(),
        MaskForm::FalsePositions => {
            let mut kept = vec![true; entries];
            for word in bytes.as_chunks::<8>().0 {
                // The decoder has checked that they are among the entries.
                kept[i64::from_le_bytes(*word) as usize] = false;
            }
            kept
        }
        MaskForm::Bytes => bytes.iter().map(|byte| *byte == 1).collect(),
        MaskForm::Bits => (0..entries).map(|i| bytes[i / 8] >> (i % 8) & 1 == 1).collect(),
    }
}
