/// The values of a batch of B rows.
#[derive(Clone, Debug, PartialEq)]
pub enum CellValues {
    /// float32 `[B, columns]`.
    Dense(Vec<f32>),
    /// CSR as libtorch takes it.
    Sparse {
        /// int32 `[B + 1]`.
        crow: Vec<i32>,
        /// int32 `[nnz]`.
        col: Vec<i32>,
        /// float32 `[nnz]`.
        values: Vec<f32>,
    },
}

/// A batch of B rows (cells).
#[derive(Clone, Debug, PartialEq)]
pub struct CellBatch {
    /// Index in the store of each row, `[B]`.
    pub rows: Vec<u64>,
    /// Genes of a row.
    pub columns: usize,
    /// The values.
    pub values: CellValues,
    /// int64 `[B]` for each label column; -1 where the file has no value.
    pub labels: Vec<Vec<i64>>,
}

impl CellBatch {
    /// Number of rows, B.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// No rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        let values = match &self.values {
            CellValues::Dense(data) => data.len() * 4,
            CellValues::Sparse { crow, col, values } => (crow.len() + col.len() + values.len()) * 4,
        };
        (values + self.labels.iter().map(|labels| labels.len() * 8).sum::<usize>()) as u64
    }
}
