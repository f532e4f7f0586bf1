//! Masks as stores hold them, from their definition and not from the code under test.

use graph_loader::{CellGraph, MaskForm, Sample, StoredMasks};

/// All forms; the first holds nothing.
pub const FORMS: [MaskForm; 4] = [MaskForm::None, MaskForm::FalsePositions, MaskForm::Bytes, MaskForm::Bits];

/// Whether each entry is kept, for each mask of the sample's graph: types, then reactions, gpr, rmr.
fn masks(graph: &CellGraph, perturbed: &[i64]) -> Vec<Vec<bool>> {
    let kept = |gene: &i64| !perturbed.contains(gene);
    let ends = graph.edge_types.iter().map(|e| (e.sources(), e.targets()));
    let mut masks: Vec<Vec<bool>> =
        ends.map(|(s, t)| s.iter().zip(t).map(|(s, t)| kept(s) && kept(t)).collect()).collect();
    if let Some(m) = &graph.metabolism {
        let mut reactions = vec![true; m.reactions];
        for (gene, reaction) in m.gpr_genes().iter().zip(m.gpr_reactions()) {
            reactions[*reaction as usize] &= kept(gene);
        }
        let rmr = m.rmr_reactions().iter().map(|reaction| reactions[*reaction as usize]).collect();
        masks.extend([reactions, m.gpr_genes().iter().map(kept).collect(), rmr]);
    }
    masks
}

/// Append the sample's record to `bytes` and let the sample refer to it.
pub fn encode(graph: &CellGraph, form: MaskForm, sample: &mut Sample, bytes: &mut Vec<u8>) {
    sample.masks = StoredMasks { form, spans: Vec::new() };
    if form == MaskForm::None {
        return;
    }
    // Records have no alignment.
    bytes.push(0xa5);
    for mask in masks(graph, &sample.genes) {
        let start = bytes.len();
        match form {
            MaskForm::None => {}
            MaskForm::FalsePositions => {
                let gone = (0..mask.len()).filter(|i| !mask[*i]);
                gone.for_each(|i| bytes.extend_from_slice(&(i as i64).to_le_bytes()));
            }
            MaskForm::Bytes => bytes.extend(mask.iter().map(|kept| u8::from(*kept))),
            MaskForm::Bits => {
                let byte = |bits: &[bool]| bits.iter().enumerate().fold(0, |byte, (i, bit)| byte | u8::from(*bit) << i);
                bytes.extend(mask.chunks(8).map(byte));
            }
        }
        sample.masks.spans.push(start..bytes.len());
    }
}
