//! `Sample` is a record decoded to the indices of the graph. `StoreDecoder` reads the records of every kind of store (JSON, masks, ids), and
//! `StoreEncoder` writes those of the stores that are made from the base store.
//! Invariant: a decoded sample has ascending genes, each once, a finite label, and a p-value that is finite or NaN.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::GraphError;
use crate::cell_graph::CellGraph;
use crate::error::RecordError;
use crate::mask_records::{MaskDecoder, MaskEncoder, MaskSizes, ascending};
use crate::options::RecordFormat;

/// A record, decoded to the indices of the graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Perturbed genes, ascending; each once; names that the graph does not have are left out.
    pub genes: Vec<i64>,
    /// The gene interaction.
    pub label: f32,
    /// Its p-value; NaN if there is none.
    pub p_value: f32,
    /// Masks that the store has of the sample.
    pub masks: StoredMasks,
}

impl Sample {
    /// Check that the label is finite, and the p-value finite or NaN.
    pub(crate) fn check_numbers(&self) -> Result<(), RecordError> {
        let Self { label, p_value, .. } = *self;
        if label.is_finite() && !p_value.is_infinite() {
            Ok(())
        } else {
            Err(RecordError::NotFinite { label, p_value })
        }
    }
}

/// Masks of one sample as they lie in its record, without copying them.
///
/// Invariant: `spans` is empty ([`MaskForm::None`]), or it has one span for each edge type of the trial in its order, and,
/// with metabolism, three more: reactions, gpr, rmr. Masks of genes follow from the genes; metabolites are always kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredMasks {
    /// Encoding of the spans.
    pub form: MaskForm,
    /// Byte range of each mask in the records of the batch.
    pub spans: Vec<std::ops::Range<usize>>,
}

/// Encoding of a mask of E entries in a record.
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

/// Decodes the records of any kind of store. Threads share it.
pub struct StoreDecoder {
    store: PathBuf,
    decoder: FormatDecoder,
}

enum FormatDecoder {
    Json(RecordDecoder),
    Masks(MaskDecoder),
    Ids { genes: usize },
}

impl StoreDecoder {
    /// A decoder of the base store.
    pub fn json(store: &Path, decoder: RecordDecoder) -> Self {
        Self { store: store.to_owned(), decoder: FormatDecoder::Json(decoder) }
    }

    /// A decoder of a store that was made from the base store, for a trial with these edge types.
    ///
    /// # Errors
    /// [`GraphError::NoMasks`]: of an edge type, or at all, as in the base store.
    pub fn converted(
        store: &Path,
        format: RecordFormat,
        sizes: MaskSizes,
        edge_types: &[String],
        metabolism: bool,
    ) -> Result<Self, GraphError> {
        let decoder = if format == RecordFormat::Ids {
            FormatDecoder::Ids { genes: sizes.genes() }
        } else {
            let masks = MaskDecoder::new(format, sizes, edge_types, metabolism);
            FormatDecoder::Masks(masks.map_err(|problem| GraphError::NoMasks { store: store.to_owned(), problem })?)
        };
        Ok(Self { store: store.to_owned(), decoder })
    }

    /// Decode record `index`, which lies at `range` of the batch's `bytes`, into `sample`, whose buffers are used again.
    /// Masks are not copied: the sample says where they lie in `bytes`. After an error the sample has no meaning.
    ///
    /// # Errors
    /// The record does not have the documented content.
    pub fn decode(&self, index: u64, bytes: &[u8], range: Range<usize>, sample: &mut Sample) -> Result<(), GraphError> {
        let result = match &self.decoder {
            FormatDecoder::Json(decoder) => return decoder.decode(index, &bytes[range], sample),
            FormatDecoder::Masks(decoder) => decoder.decode(bytes, range, sample),
            FormatDecoder::Ids { genes } => decode_ids(&bytes[range], *genes, sample),
        };
        result.map_err(|problem| GraphError::Record { store: self.store.clone(), index, problem })
    }
}

/// Writes the records of a store that is made from the base store. Each thread has its own; clones share the graph.
#[derive(Clone)]
pub struct StoreEncoder(Option<MaskEncoder>);

impl StoreEncoder {
    /// An encoder over all networks and the metabolism of a data set. JSON records are not written here.
    pub fn new(format: RecordFormat, sizes: MaskSizes, graph: &CellGraph) -> Self {
        Self(if format == RecordFormat::Ids { None } else { MaskEncoder::new(format, sizes, graph) })
    }

    /// Append the record of `sample` to `out`.
    pub fn encode(&mut self, sample: &Sample, out: &mut Vec<u8>) {
        match &mut self.0 {
            Some(masks) => masks.encode(sample, out),
            None => encode_ids(sample, out),
        }
    }
}

/// Decodes the JSON of a record into a [`Sample`]. Threads share it.
pub struct RecordDecoder {
    store: PathBuf,
    index_of: HashMap<String, i64>,
}

impl RecordDecoder {
    /// A decoder for records of `store` (which errors name), with the genes of the graph in their order.
    pub fn new(store: &Path, genes: Vec<String>) -> Self {
        Self { store: store.to_owned(), index_of: genes.into_iter().zip(0..).collect() }
    }

    /// Parse all of `bytes`, the value of record `index`, into `sample`, whose buffers are used again. After an error
    /// the sample has no meaning.
    ///
    /// # Errors
    /// [`GraphError::Record`]: no JSON, another layout, or a label that is not finite.
    pub fn decode(&self, index: u64, bytes: &[u8], sample: &mut Sample) -> Result<(), GraphError> {
        let refused = |problem| GraphError::Record { store: self.store.clone(), index, problem };
        let [record] = serde_json::from_slice::<[Record; 1]>(bytes).map_err(|e| refused(parse_error(e, bytes)))?;
        let known = |p: &Perturbation| self.index_of.get(p.systematic_gene_name.as_ref()).copied();
        sample.genes.clear();
        sample.genes.extend(record.experiment.genotype.perturbations.iter().filter_map(known));
        sample.genes.sort_unstable();
        sample.genes.dedup();
        sample.label = record.experiment.phenotype.gene_interaction as f32;
        sample.p_value = record.experiment.phenotype.gene_interaction_p_value.map_or(f32::NAN, |p| p as f32);
        sample.masks.form = MaskForm::None;
        sample.masks.spans.clear();
        sample.check_numbers().map_err(refused)
    }
}

/// The parser's error, and, if that is the cause, the number that JSON does not have but Python writes.
fn parse_error(e: serde_json::Error, bytes: &[u8]) -> RecordError {
    let line_at = bytes.split_inclusive(|byte| *byte == b'\n').take(e.line().saturating_sub(1)).map(<[u8]>::len);
    let at = line_at.sum::<usize>() + e.column().saturating_sub(1);
    // The parser stops within the word or before it.
    let around = &bytes[at.saturating_sub(2).min(bytes.len())..bytes.len().min(at + 10)];
    match ["NaN", "Infinity"].iter().find(|word| around.windows(word.len()).any(|w| w == word.as_bytes())) {
        Some(number) => RecordError::NotJson { number, source: e },
        None => RecordError::Json(e),
    }
}

// Only the fields of a sample are kept; the parser still goes through every byte, as any reader of this layout must.

#[derive(Deserialize)]
struct Record<'a> {
    #[serde(borrow)]
    experiment: Experiment<'a>,
    #[serde(rename = "experiment_reference")]
    _reference: IgnoredAny,
}

#[derive(Deserialize)]
struct Experiment<'a> {
    #[serde(borrow)]
    genotype: Genotype<'a>,
    phenotype: Phenotype,
}

#[derive(Deserialize)]
struct Genotype<'a> {
    #[serde(borrow)]
    perturbations: Vec<Perturbation<'a>>,
}

#[derive(Deserialize)]
struct Perturbation<'a> {
    #[serde(borrow)]
    systematic_gene_name: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Phenotype {
    gene_interaction: f64,
    gene_interaction_p_value: Option<f64>,
}

/// Bytes of an ids record before its genes: label and p-value.
const IDS_HEADER_BYTES: usize = 8;

/// Bytes of a record of so many genes.
pub const fn record_bytes(genes: usize) -> usize {
    IDS_HEADER_BYTES + 4 * genes
}

/// Append the record of an ids store, little-endian: float32 label, float32 p-value (NaN if there is none), uint32 of each
/// perturbed gene. Their number follows from the length.
fn encode_ids(sample: &Sample, out: &mut Vec<u8>) {
    out.extend_from_slice(&sample.label.to_le_bytes());
    out.extend_from_slice(&sample.p_value.to_le_bytes());
    sample.genes.iter().for_each(|gene| out.extend_from_slice(&(*gene as u32).to_le_bytes()));
}

/// Read what `encode_ids` wrote, for a graph of `genes` genes.
///
/// # Errors
/// Another length, a label that is no number, or genes that are not in the graph or not in order.
fn decode_ids(record: &[u8], genes: usize, sample: &mut Sample) -> Result<(), RecordError> {
    let (words, rest) = record.as_chunks::<4>();
    if record.len() < IDS_HEADER_BYTES || !rest.is_empty() {
        return Err(RecordError::IdsLength { bytes: record.len() });
    }
    sample.label = f32::from_le_bytes(words[0]);
    sample.p_value = f32::from_le_bytes(words[1]);
    sample.check_numbers()?;
    sample.genes.clear();
    sample.genes.extend(words[2..].iter().map(|word| i64::from(u32::from_le_bytes(*word))));
    // A sample that was of another store had masks.
    sample.masks.form = MaskForm::None;
    sample.masks.spans.clear();
    ascending(&sample.genes, genes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoder() -> RecordDecoder {
        RecordDecoder::new(Path::new("/the/store"), ["YAL001C", "YAL002W", "YBR003C"].map(str::to_owned).to_vec())
    }

    fn record(genes: &[&str], p_value: &str) -> Vec<u8> {
        let perturbations: Vec<String> =
            genes.iter().map(|g| format!(r#"{{"description":"x","systematic_gene_name":"{g}"}}"#)).collect();
        format!(
            r#"[{{"experiment":{{"genotype":{{"perturbations":[{}]}},"environment":{{"media":{{"name":"a","state":[1,{{}}]}}}},
            "phenotype":{{"gene_interaction":-0.0588,"gene_interaction_p_value":{p_value}}}}},"experiment_reference":{{}}}}]"#,
            perturbations.join(",")
        )
        .into_bytes()
    }

    #[test]
    fn genes_ascend_without_duplicates_and_unknown_ones() {
        let mut sample = Sample { genes: vec![9, 9, 9, 9], label: 1.0, p_value: 1.0, ..Sample::default() };
        let bytes = record(&["YBR003C", "YAL001C", "NOT_HERE", "YBR003C"], "0.1059");
        decoder().decode(7, &bytes, &mut sample).unwrap();
        assert_eq!(sample, Sample { genes: vec![0, 2], label: -0.0588, p_value: 0.1059, ..Sample::default() });
        decoder().decode(7, &record(&[], "null"), &mut sample).unwrap();
        assert!(sample.genes.is_empty() && sample.p_value.is_nan());
    }

    #[test]
    fn a_label_that_is_no_number_is_said_so() {
        let good = String::from_utf8(record(&["YAL001C"], "0.5")).unwrap();
        for word in ["NaN", "Infinity", "-Infinity"] {
            for number in ["-0.0588", "0.5"] {
                let bad = good.replace(number, word);
                let error = decoder().decode(7, bad.as_bytes(), &mut Sample::default()).unwrap_err().to_string();
                let expected =
                    format!("record 7 of /the/store: a value is {}, which is no JSON", word.trim_start_matches('-'));
                assert!(error.starts_with(&expected), "{error}");
            }
        }
        let huge = good.replace("-0.0588", "1e300");
        let error = decoder().decode(7, huge.as_bytes(), &mut Sample::default()).unwrap_err().to_string();
        assert!(error.contains("the label is inf"), "{error}");
    }

    #[test]
    fn a_damaged_record_is_named() {
        let good = record(&["YAL001C"], "null");
        for bytes in [&good[..good.len() - 1], b"[]", b"{}", b"", b"\xff\xfe", b"[{\"experiment\":{}}]"] {
            let error = decoder().decode(7, bytes, &mut Sample::default()).unwrap_err();
            assert!(error.to_string().starts_with("record 7 of /the/store: "), "{error}");
        }
    }

    #[test]
    fn what_is_written_is_read_and_damage_refused() {
        let sample = Sample { genes: vec![0, 7, 9], label: -0.5, p_value: 0.25, ..Sample::default() };
        let mut record = Vec::new();
        encode_ids(&sample, &mut record);
        assert_eq!(record.len(), 20);
        let mut read = Sample { genes: vec![1; 5], ..Sample::default() };
        decode_ids(&record, 10, &mut read).unwrap();
        assert_eq!(read, sample);
        let none = Sample { p_value: f32::NAN, ..Sample::default() };
        let mut record_of_none = Vec::new();
        encode_ids(&none, &mut record_of_none);
        decode_ids(&record_of_none, 10, &mut read).unwrap();
        assert!(read.genes.is_empty() && read.p_value.is_nan());

        assert!(decode_ids(&record, 9, &mut read).unwrap_err().to_string().contains("gene 9"));
        for length in [0, 4, 7, 9, 19] {
            assert!(
                decode_ids(&record[..length], 10, &mut read).unwrap_err().to_string().contains("bytes"),
                "{length}"
            );
        }
        let mut swapped = record.clone();
        swapped.copy_within(16..20, 8);
        assert!(decode_ids(&swapped, 10, &mut read).unwrap_err().to_string().contains("not in order"));
        record[..4].copy_from_slice(&f32::NAN.to_le_bytes());
        assert!(decode_ids(&record, 10, &mut read).unwrap_err().to_string().contains("label is NaN"));
    }
}
