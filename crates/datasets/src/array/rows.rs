use std::ops::Range;

use anndata_io::{ArrayStore, CsrRows, CsrView, DenseRows, Form, ReadRows, RowSelection, Rows};

use crate::DatasetError;
use crate::parallel::in_order;

/// Digest, number and sum of rows that pass by.
#[derive(Default)]
pub struct RowsSeen {
    hasher: blake3::Hasher,
    pub rows: u64,
    pub nnz: u64,
    pub sum: f64,
}

impl RowsSeen {
    /// Rows in CSR; columns ascend in each, and no value is 0.
    pub fn add(&mut self, view: CsrView<'_>) {
        for row in 0..view.indptr.len().saturating_sub(1) {
            let (indices, data) = view.row(row);
            self.hasher.update(&(indices.len() as u64).to_le_bytes());
            self.hasher.update(bytemuck::cast_slice(indices)).update(bytemuck::cast_slice(data));
            self.sum += data.iter().map(|value| f64::from(*value)).sum::<f64>();
            self.rows += 1;
            self.nnz += data.len() as u64;
        }
    }

    pub fn digest(&self) -> String {
        self.hasher.finalize().to_hex().to_string()
    }
}

/// Rows in CSR without values that are 0.
fn without_zeros(rows: Rows) -> CsrRows {
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

/// Values that a thread reads at a time, about.
const PIECE: u64 = 1 << 20;

/// Values that a store holds at most, those of a dense one whether they are 0 or not.
pub fn stored(store: &dyn ArrayStore) -> u64 {
    store.max_values().unwrap_or(store.len() * store.genes().len() as u64)
}

/// Hand all rows of a store to `take`, in order and without values that are 0, read by `jobs` threads.
///
/// # Errors
/// The store cannot be read; the error of `take`.
pub fn each_row(
    store: &dyn ArrayStore,
    jobs: usize,
    take: impl FnMut(CsrRows) -> Result<(), DatasetError>,
) -> Result<(), DatasetError> {
    each_row_of(store, 0..store.len(), jobs, take)
}

/// As [`each_row`], of the rows in `range` alone, which end at or before the last one of the store.
///
/// # Errors
/// As [`each_row`].
pub fn each_row_of(
    store: &dyn ArrayStore,
    range: Range<u64>,
    jobs: usize,
    take: impl FnMut(CsrRows) -> Result<(), DatasetError>,
) -> Result<(), DatasetError> {
    // Whole runs, so that none is read twice.
    let of_piece =
        (PIECE * store.len() / stored(store).max(1)).clamp(1, 1 << 16).next_multiple_of(store.run_rows().max(1));
    let what = |_| format!("reading {}", store.name());
    let read = |reader: &mut Box<dyn ReadRows + '_>, piece: u64| {
        let start = range.start + piece * of_piece;
        let mut rows = match store.form() {
            Form::Sparse => Rows::Sparse(CsrRows::default()),
            Form::Dense => Rows::Dense(DenseRows { columns: store.genes().len(), data: Vec::new() }),
        };
        reader.fetch(&RowSelection::Range(start..(start + of_piece).min(range.end)), &mut rows)?;
        reader.decode(&mut rows)?;
        reader.unchanged()?;
        Ok(without_zeros(rows))
    };
    let pieces = range.end.saturating_sub(range.start).div_ceil(of_piece);
    in_order(jobs, pieces, &what, || Ok(store.reader()?), read, take)
}

/// Digest, number and sum of all rows of a store; `passed` gets the number of rows read so far.
///
/// # Errors
/// The store cannot be read; the error of `passed`.
pub fn seen(
    store: &dyn ArrayStore,
    jobs: usize,
    mut passed: impl FnMut(u64) -> Result<(), DatasetError>,
) -> Result<RowsSeen, DatasetError> {
    let mut seen = RowsSeen::default();
    each_row(store, jobs, |rows| {
        seen.add(rows.view());
        passed(seen.rows)
    })?;
    Ok(seen)
}
