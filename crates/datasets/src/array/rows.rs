use crate::array::{CsrRows, CsrView, Rows};

/// Digest, number and sum of rows that pass by.
#[derive(Default)]
pub(super) struct RowsSeen {
    hasher: blake3::Hasher,
    pub(super) rows: u64,
    pub(super) nnz: u64,
    pub(super) sum: f64,
}

impl RowsSeen {
    /// Rows in CSR; columns ascend in each, and no value is 0.
    pub(super) fn add(&mut self, view: CsrView<'_>) {
        for row in 0..view.indptr.len().saturating_sub(1) {
            let (indices, data) = view.row(row);
            self.hasher.update(&(indices.len() as u64).to_le_bytes());
            self.hasher.update(bytemuck::cast_slice(indices)).update(bytemuck::cast_slice(data));
            self.sum += data.iter().map(|value| f64::from(*value)).sum::<f64>();
            self.rows += 1;
            self.nnz += data.len() as u64;
        }
    }

    pub(super) fn digest(&self) -> String {
        self.hasher.finalize().to_hex().to_string()
    }
}

/// The same rows in CSR without values that are 0, in whatever form they came.
pub(super) fn without_zeros(rows: Rows) -> CsrRows {
    let mut kept = CsrRows::default();
    let mut keep = |(column, value): (i32, f32)| {
        if value != 0.0 {
            kept.indices.push(column);
            kept.data.push(value);
        }
        kept.indices.len() as u64
    };
    let mut ends = Vec::new();
    match rows {
        Rows::Sparse(rows) if !rows.data.contains(&0.0) => return rows,
        Rows::Sparse(rows) => {
            for row in 0..rows.len() {
                let (indices, data) = rows.view().row(row);
                let end = indices.iter().copied().zip(data.iter().copied()).map(&mut keep).last();
                ends.push(end.or(ends.last().copied()).unwrap_or_default());
            }
        }
        Rows::Dense(rows) => {
            for row in rows.data.chunks_exact(rows.columns.max(1)) {
                let end = (0..).zip(row.iter().copied()).map(&mut keep).last();
                ends.push(end.or(ends.last().copied()).unwrap_or_default());
            }
        }
    }
    kept.indptr.extend(ends);
    kept
}
