use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{MaskForm, Sample};
use crate::PipelineError;

/// Turns the JSON of a record into a [`Sample`]. Threads share it.
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
    pub fn decode(&self, index: u64, bytes: &[u8], sample: &mut Sample) -> Result<(), PipelineError> {
        let refused = |reason| PipelineError::Record { store: self.store.clone(), index, reason };
        let [record] = serde_json::from_slice::<[Record; 1]>(bytes).map_err(|e| refused(parse_error(&e, bytes)))?;
        let known = |p: &Perturbation| self.index_of.get(p.systematic_gene_name.as_ref()).copied();
        sample.genes.clear();
        sample.genes.extend(record.experiment.genotype.perturbations.iter().filter_map(known));
        sample.genes.sort_unstable();
        sample.genes.dedup();
        sample.label = record.experiment.phenotype.gene_interaction as f32;
        sample.p_value = record.experiment.phenotype.gene_interaction_p_value.map_or(f32::NAN, |p| p as f32);
        sample.masks.form = MaskForm::None;
        sample.masks.spans.clear();
        if sample.label.is_infinite() || sample.p_value.is_infinite() {
            return Err(refused(format!("the label is {}, the p-value {}", sample.label, sample.p_value)));
        }
        Ok(())
    }
}

/// What the parser says, and what it cannot know: that Python writes numbers that JSON does not have.
fn parse_error(e: &serde_json::Error, bytes: &[u8]) -> String {
    let line_at = bytes.split_inclusive(|byte| *byte == b'\n').take(e.line().saturating_sub(1)).map(<[u8]>::len);
    let at = line_at.sum::<usize>() + e.column().saturating_sub(1);
    // The parser stops within the word or before it.
    let around = &bytes[at.saturating_sub(2).min(bytes.len())..bytes.len().min(at + 10)];
    match ["NaN", "Infinity"].iter().find(|word| around.windows(word.len()).any(|w| w == word.as_bytes())) {
        Some(word) => format!("a value is {word}, which is no JSON (Python writes it): {e}"),
        None => e.to_string(),
    }
}

// Only what a sample needs is kept; the parser still goes through every byte, as any reader of this layout must.

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
}
