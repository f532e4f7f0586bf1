/// What a record says, in the indices of the graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Perturbed genes, ascending; each once; names that the graph does not have are left out.
    pub genes: Vec<i64>,
    /// The gene interaction.
    pub label: f32,
    /// Its p-value; NaN if there is none.
    pub p_value: f32,
    /// What the store holds of the sample's masks.
    pub masks: StoredMasks,
}

/// Masks of one sample as they lie in its record, without copying them.
///
/// Invariant: `spans` is empty ([`MaskForm::None`]), or it has one span for each edge type of the trial in its order, and,
/// with metabolism, three more: reactions, gpr, rmr. Masks of genes follow from the genes; metabolites are always kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredMasks {
    /// How the spans are to be read.
    pub form: MaskForm,
    /// Where each mask lies in the bytes of the batch's records.
    pub spans: Vec<std::ops::Range<usize>>,
}

/// How a store keeps a mask of E entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaskForm {
    /// Not at all: it follows from the genes.
    #[default]
    None,
    /// int64 little-endian positions of the False entries, ascending.
    FalsePositions,
    /// uint8 `[E]`: 1 = kept.
    Bytes,
    /// uint8 `[ceil(E / 8)]`: bit i of byte j is entry 8·j + i; 1 = kept; the bits behind the last entry are 0.
    Bits,
}
