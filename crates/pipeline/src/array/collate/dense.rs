//! Rows of dense batches. A batch that the caches hold is written in place: cleared, then scattered into while the row is in
//! the nearest cache. A larger one is written around the caches, from a row that stays there: a plain store would first read
//! the line that it writes to.

/// Values of a batch that the caches are taken to hold: 32 MiB.
const FEW: usize = 8 << 20;

/// Writes the rows of dense batches. Each thread has its own.
#[derive(Clone, Debug, Default)]
pub(super) struct DenseWriter {
    /// A row of zeros, between rows.
    row: Vec<f32>,
}

impl DenseWriter {
    /// Whether a batch of `len` values in all is written around the caches.
    pub(super) fn goes_around(len: usize) -> bool {
        len >= FEW
    }

    /// Bytes kept between batches.
    pub(super) fn work_bytes(&self) -> u64 {
        self.row.capacity() as u64 * 4
    }

    /// Write a row with these values in these columns, or, with `to_batch`, in those that it says; the error is a column that
    /// is not there.
    pub(super) fn sparse(
        &mut self,
        cols: &[i32],
        values: &[f32],
        to_batch: Option<&[i32]>,
        out: &mut [f32],
        around: bool,
    ) -> Result<(), i32> {
        if !around {
            out.fill(0.0);
            return scatter(cols, to_batch, out, values.iter().copied());
        }
        self.row.resize(out.len(), 0.0);
        let whole = scatter(cols, to_batch, &mut self.row, values.iter().copied());
        copy_around(&self.row, out);
        // As far as it came, should it be an error.
        let _ = scatter(cols, to_batch, &mut self.row, std::iter::repeat(0.0));
        whole
    }

    /// Write a row as it is.
    pub(super) fn dense(&self, values: &[f32], out: &mut [f32], around: bool) {
        if around { copy_around(values, out) } else { out.copy_from_slice(values) }
    }
}

/// Put values where their columns are.
fn scatter(
    cols: &[i32],
    to_batch: Option<&[i32]>,
    out: &mut [f32],
    values: impl Iterator<Item = f32>,
) -> Result<(), i32> {
    match to_batch {
        None => {
            for (column, value) in cols.iter().zip(values) {
                match out.get_mut(*column as usize) {
                    Some(to) => *to = value,
                    None => return Err(*column),
                }
            }
        }
        Some(to_batch) => {
            for (column, value) in cols.iter().zip(values) {
                let Some(to) = to_batch.get(*column as usize) else { return Err(*column) };
                // -1 is beyond any end.
                if let Some(to) = out.get_mut(*to as usize) {
                    *to = value;
                }
            }
        }
    }
    Ok(())
}

/// Copy without reading what is written to; of one length. After the last one call `crate::collate::finish`.
fn copy_around(from: &[f32], to: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the processor has AVX.
        return unsafe { avx(from, to) };
    }
    to.copy_from_slice(from);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
fn avx(from: &[f32], to: &mut [f32]) {
    use std::arch::x86_64::{_mm256_loadu_ps, _mm256_stream_ps};

    let head = to.as_ptr().align_offset(64).min(to.len());
    let (from_head, from) = from.split_at(head);
    let (to_head, to) = to.split_at_mut(head);
    to_head.copy_from_slice(from_head);
    let ((from, from_tail), (to, to_tail)) = (from.as_chunks::<16>(), to.as_chunks_mut::<16>());
    for (from, to) in from.iter().zip(to) {
        // A whole line at a time.
        for half in [0, 8] {
            // SAFETY: both arrays have 16 values; `to` is ours, and aligned by the split above.
            unsafe { _mm256_stream_ps(to.as_mut_ptr().add(half), _mm256_loadu_ps(from.as_ptr().add(half))) };
        }
    }
    to_tail.copy_from_slice(from_tail);
}

/// Ask for a row before it is needed: its first lines come from memory, of an address that no earlier one tells.
pub(super) fn prefetch(cols: &[i32], values: &[f32]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        for (cols, values) in cols.chunks(16).zip(values.chunks(16)) {
            // SAFETY: every x86-64 processor has it; it changes nothing, and the addresses are readable.
            #[allow(unused_unsafe, reason = "safe from some compiler version on")]
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(cols.as_ptr().cast());
                _mm_prefetch::<_MM_HINT_T0>(values.as_ptr().cast());
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (cols, values);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Outputs of every alignment and of lengths around those of vectors.
    #[test]
    fn both_ways_write_the_same() {
        let mut writer = DenseWriter::default();
        for len in [1, 15, 16, 17, 40, 100] {
            let cols: Vec<i32> = (0..len as i32).filter(|column| column % 3 == 0).collect();
            let values: Vec<f32> = cols.iter().map(|column| *column as f32 + 0.5).collect();
            let to_batch: Vec<i32> =
                (0..len as i32).map(|column| if column % 2 == 0 { column / 2 } else { -1 }).collect();
            for start in 0..17 {
                for map in [None, Some(to_batch.as_slice())] {
                    let (mut plain, mut around) = (vec![-1.0; len + 17], vec![-1.0; len + 17]);
                    let places = start..start + if map.is_some() { len.div_ceil(2) } else { len };
                    writer.row.clear();
                    writer.sparse(&cols, &values, map, &mut plain[places.clone()], false).unwrap();
                    writer.sparse(&cols, &values, map, &mut around[places.clone()], true).unwrap();
                    assert_eq!(plain, around);
                    assert!(writer.row.iter().all(|value| *value == 0.0), "the row is left as it was");
                    let mut again = vec![-1.0; len + 17];
                    writer.dense(&plain[places.clone()], &mut again[places], true);
                    assert_eq!(again, plain);
                }
            }
        }
        crate::collate::finish();
    }

    #[test]
    fn a_column_that_is_not_there_leaves_no_trace() {
        let mut writer = DenseWriter::default();
        let mut out = [0.0; 4];
        assert_eq!(writer.sparse(&[1, 4], &[1.0, 2.0], None, &mut out, true), Err(4));
        writer.sparse(&[0], &[3.0], None, &mut out, true).unwrap();
        crate::collate::finish();
        assert_eq!(out, [3.0, 0.0, 0.0, 0.0]);
    }
}
