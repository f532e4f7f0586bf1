use crate::array::CsrView;

/// Digest, number and sum of rows that pass by.
#[derive(Default)]
pub(super) struct RowsSeen {
    hasher: blake3::Hasher,
    pub(super) rows: u64,
    pub(super) nnz: u64,
    pub(super) sum: f64,
}

impl RowsSeen {
    /// Rows in CSR; columns ascend in each.
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
