use super::Sample;
use super::mask_decoder::ascending;

/// Bytes before the genes.
const FIXED: usize = 8;

/// Bytes of a record of so many genes.
pub(super) const fn record_bytes(genes: usize) -> usize {
    FIXED + 4 * genes
}

/// Append the record of an ids store, little-endian: float32 label, float32 p-value (NaN if there is none), uint32 of each
/// perturbed gene. Their number follows from the length.
pub(super) fn encode(sample: &Sample, out: &mut Vec<u8>) {
    out.extend_from_slice(&sample.label.to_le_bytes());
    out.extend_from_slice(&sample.p_value.to_le_bytes());
    sample.genes.iter().for_each(|gene| out.extend_from_slice(&(*gene as u32).to_le_bytes()));
}

/// Read what [`encode`] wrote, about one of `genes` genes.
///
/// # Errors
/// Another length, a label that is no number, or genes that are not in the graph or not in order.
pub(super) fn decode(record: &[u8], genes: usize, sample: &mut Sample) -> Result<(), String> {
    let (words, rest) = record.as_chunks::<4>();
    if record.len() < FIXED || !rest.is_empty() {
        return Err(format!("{} bytes, not 8 and 4 for each gene", record.len()));
    }
    sample.label = f32::from_le_bytes(words[0]);
    sample.p_value = f32::from_le_bytes(words[1]);
    if !sample.label.is_finite() || sample.p_value.is_infinite() {
        return Err(format!("the label is {}, the p-value {}", sample.label, sample.p_value));
    }
    sample.genes.clear();
    sample.genes.extend(words[2..].iter().map(|word| i64::from(u32::from_le_bytes(*word))));
    sample.masks.spans.clear();
    ascending(&sample.genes, genes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_damage_refused() {
        let sample = Sample { genes: vec![0, 7, 9], label: -0.5, p_value: 0.25, ..Sample::default() };
        let mut record = Vec::new();
        encode(&sample, &mut record);
        assert_eq!(record.len(), 20);
        let mut read = Sample { genes: vec![1; 5], ..Sample::default() };
        decode(&record, 10, &mut read).unwrap();
        assert_eq!(read, sample);
        let none = Sample { p_value: f32::NAN, ..Sample::default() };
        let mut record_of_none = Vec::new();
        encode(&none, &mut record_of_none);
        decode(&record_of_none, 10, &mut read).unwrap();
        assert!(read.genes.is_empty() && read.p_value.is_nan());

        assert!(decode(&record, 9, &mut read).unwrap_err().contains("gene 9"));
        for length in [0, 4, 7, 9, 19] {
            assert!(decode(&record[..length], 10, &mut read).unwrap_err().contains("bytes"), "{length}");
        }
        let mut swapped = record.clone();
        swapped.copy_within(16..20, 8);
        assert!(decode(&swapped, 10, &mut read).unwrap_err().contains("not in order"));
        record[..4].copy_from_slice(&f32::NAN.to_le_bytes());
        assert!(decode(&record, 10, &mut read).unwrap_err().contains("label is NaN"));
    }
}
