use std::ops::Range;

use anndata_io::{ArrayStore, CsrRows, CsrView, DenseRows, Form, ReadRows, RowSelection, Rows};

use crate::parallel::in_order;
use crate::{DatasetError, RequestError};

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

/// Values of columns that are in memory at a time.
const MAX_COLUMN_VALUES: u64 = 32 << 20;

/// Hand the columns of a matrix to `take`, in order: CSR turned into CSC. All of it is read once to count, and once for each
/// so many columns as have [`MAX_COLUMN_VALUES`] values together, so that memory is bounded. `pass` sees all rows of every reading, and
/// whether it is the first.
pub fn each_column(
    store: &dyn ArrayStore,
    jobs: usize,
    mut take: impl FnMut(CsrView<'_>, u64) -> Result<(), DatasetError>,
    mut pass: impl FnMut(&CsrRows, bool) -> Result<(), DatasetError>,
) -> Result<(), DatasetError> {
    if i32::try_from(store.len()).is_err() {
        return Err(RequestError::TooManyRowsByColumns { store: store.name(), rows: store.len() }.into());
    }
    let mut counts = vec![0u64; store.genes().len()];
    each_row(store, jobs, |rows| {
        for column in &rows.indices {
            counts[*column as usize] += 1;
        }
        pass(&rows, true)
    })?;
    let mut start = 0;
    while start < counts.len() {
        let mut values = 0;
        let mut end = start;
        while end < counts.len() && (end == start || values + counts[end] <= MAX_COLUMN_VALUES) {
            values += counts[end];
            end += 1;
        }
        let mut block = ColumnBlock::new(start, &counts[start..end]);
        let mut row = 0;
        let other = || DatasetError::RowsChanged { store: store.name() };
        each_row(store, jobs, |rows| {
            block.add(&rows, row).ok_or_else(other)?;
            row += rows.len() as i32;
            pass(&rows, false)
        })?;
        if !block.is_full() {
            return Err(other());
        }
        take(block.rows.view(), end as u64)?;
        start = end;
    }
    Ok(())
}

/// Some columns, one after another.
struct ColumnBlock {
    start: usize,
    rows: CsrRows,
    next: Vec<usize>,
}

impl ColumnBlock {
    fn new(start: usize, counts: &[u64]) -> Self {
        let mut rows = CsrRows::default();
        let mut end = 0;
        for count in counts {
            end += count;
            rows.indptr.push(end);
        }
        rows.indices.resize(end as usize, 0);
        rows.data.resize(end as usize, 0.0);
        let next = rows.indptr[..counts.len()].iter().map(|at| *at as usize).collect();
        Self { start, rows, next }
    }

    /// `None` if a column has more values than were counted.
    fn add(&mut self, rows: &CsrRows, first: i32) -> Option<()> {
        for row in 0..rows.len() {
            let (columns, values) = rows.view().row(row);
            let from = columns.partition_point(|column| (*column as usize) < self.start);
            for (column, value) in columns[from..].iter().zip(&values[from..]) {
                let column = *column as usize - self.start;
                let Some(at) = self.next.get_mut(column) else { break };
                if *at as u64 == self.rows.indptr[column + 1] {
                    return None;
                }
                self.rows.indices[*at] = first + row as i32;
                self.rows.data[*at] = *value;
                *at += 1;
            }
        }
        Some(())
    }

    /// All columns have as many values as were counted.
    fn is_full(&self) -> bool {
        self.next.iter().zip(&self.rows.indptr[1..]).all(|(next, end)| *next as u64 == *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_the_values_that_were_counted() {
        let rows = CsrRows { indptr: vec![0, 2, 3], indices: vec![1, 2, 2], data: vec![1.0, 2.0, 3.0] };
        let mut block = ColumnBlock::new(1, &[1, 2]);
        assert!(block.add(&rows, 0).is_some() && block.is_full());
        assert_eq!((&block.rows.indices[..], &block.rows.data[..]), (&[0, 0, 1][..], &[1.0, 2.0, 3.0][..]));
        // A value more in a column does not get into the next one, and one less is seen.
        let mut block = ColumnBlock::new(1, &[0, 3]);
        assert!(block.add(&rows, 0).is_none());
        let mut block = ColumnBlock::new(1, &[2, 2]);
        assert!(block.add(&rows, 0).is_some() && !block.is_full());
    }
}
