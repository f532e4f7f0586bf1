//! All rows, or all columns, of a store, read in order by several threads; and a checksum of rows, by which a converted
//! file is compared with its source.

use std::ops::Range;

use anndata_io::{ArrayStore, CsrRows, CsrView, DenseRows, Form, ReadRows, RowSelection, Rows};

use crate::parallel::in_order;
use crate::{DatasetError, RequestError};

/// Checksum of rows, which are added in order.
#[derive(Default)]
pub struct RowsSeen {
    hasher: blake3::Hasher,
    /// Number of rows.
    pub rows: u64,
    /// Number of values.
    pub nnz: u64,
    /// Sum of all values.
    pub sum: f64,
}

impl RowsSeen {
    /// Add rows. In each, columns must ascend, and no value may be 0: equal rows then have equal digests, whatever file
    /// they are from.
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

    /// BLAKE3, in hexadecimal, over the rows so far: of each the number of its values (uint64), its columns (int32) and
    /// its values (float32), all little-endian.
    pub fn digest(&self) -> String {
        self.hasher.finalize().to_hex().to_string()
    }
}

/// `rows` as CSR, without values that are 0.
fn without_zeros(rows: Rows) -> CsrRows {
    let mut nonzero = CsrRows::default();
    match rows {
        Rows::Sparse(rows) if !rows.data.contains(&0.0) => return rows,
        Rows::Sparse(rows) => {
            for row in 0..rows.len() {
                let (indices, data) = rows.view().row(row);
                push_nonzero(&mut nonzero, indices.iter().copied().zip(data.iter().copied()));
            }
        }
        Rows::Dense(rows) => {
            for row in rows.data.chunks_exact(rows.columns.max(1)) {
                push_nonzero(&mut nonzero, (0_i32..).zip(row.iter().copied()));
            }
        }
    }
    nonzero
}

/// Append a row, given as columns and values, without its zeros.
fn push_nonzero(out: &mut CsrRows, row: impl Iterator<Item = (i32, f32)>) {
    for (column, value) in row.filter(|(_, value)| *value != 0.0) {
        out.indices.push(column);
        out.data.push(value);
    }
    out.indptr.push(out.indices.len() as u64);
}

/// Number of values, about, that a thread reads at a time.
const PIECE_VALUES: u64 = 1 << 20;

/// Upper bound of the number of values in a store: those that its files have, zeros included, or rows × genes if that is
/// not known.
pub fn stored(store: &dyn ArrayStore) -> u64 {
    store.max_values().unwrap_or(store.len() * store.genes().len() as u64)
}

/// Read all rows of a store with `jobs` threads. `take` gets them on this thread, in order, many at a time, without values that
/// are 0.
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

/// As [`each_row`], but only the rows in `range`, whose end is at most the number of rows of the store.
///
/// # Errors
/// As [`each_row`].
pub fn each_row_of(
    store: &dyn ArrayStore,
    range: Range<u64>,
    jobs: usize,
    take: impl FnMut(CsrRows) -> Result<(), DatasetError>,
) -> Result<(), DatasetError> {
    // A multiple of the rows that are decoded together: no two pieces then share such rows, if `range` starts with them.
    let piece_rows =
        (PIECE_VALUES * store.len() / stored(store).max(1)).clamp(1, 1 << 16).next_multiple_of(store.run_rows().max(1));
    let what = |_| format!("reading {}", store.name());
    let read = |reader: &mut Box<dyn ReadRows + '_>, piece: u64| {
        let start = range.start + piece * piece_rows;
        let mut rows = match store.form() {
            Form::Sparse => Rows::Sparse(CsrRows::default()),
            Form::Dense => Rows::Dense(DenseRows { columns: store.genes().len(), data: Vec::new() }),
        };
        reader.fetch(&RowSelection::Range(start..(start + piece_rows).min(range.end)), &mut rows)?;
        reader.decode(&mut rows)?;
        // Fails if a file was rewritten since the store was opened.
        reader.unchanged()?;
        Ok(without_zeros(rows))
    };
    let pieces = range.end.saturating_sub(range.start).div_ceil(piece_rows);
    in_order(jobs, pieces, &what, || Ok(store.reader()?), read, take)
}

/// The checksum of all rows of a store, read with `jobs` threads. `progress` gets the number of rows read so far.
///
/// # Errors
/// The store cannot be read; the error of `progress`.
pub fn seen(
    store: &dyn ArrayStore,
    jobs: usize,
    mut progress: impl FnMut(u64) -> Result<(), DatasetError>,
) -> Result<RowsSeen, DatasetError> {
    let mut seen = RowsSeen::default();
    each_row(store, jobs, |rows| {
        seen.add(rows.view());
        progress(seen.rows)
    })?;
    Ok(seen)
}

/// Maximum number of values of the columns that are in memory at a time: 256 MiB, at 8 bytes for a row number and a value.
/// A single column may have more.
const MAX_COLUMN_VALUES: u64 = 32 << 20;

/// Turn a store of rows into columns (CSC) with bounded memory.
///
/// All rows are read once to count the values of each column. Then they are read again for each block of columns, as many
/// as have [`MAX_COLUMN_VALUES`] values together.
///
/// - `take` gets each block, in order, and the number of columns so far, its own included. In the view of a block a "row"
///   is a column of the matrix; `indices` are its row numbers, ascending.
/// - `pass` gets all rows at every reading, and whether it is the first one: for a checksum and for progress.
///
/// # Errors
/// The store has more rows than an int32 can count, cannot be read, or has other rows at another reading; the errors of
/// `take` and `pass`.
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
        let changed = || DatasetError::RowsChanged { store: store.name() };
        each_row(store, jobs, |rows| {
            block.add(&rows, row).ok_or_else(changed)?;
            row += rows.len() as i32;
            pass(&rows, false)
        })?;
        if !block.is_full() {
            return Err(changed());
        }
        take(block.columns.view(), end as u64)?;
        start = end;
    }
    Ok(())
}

/// Adjacent columns of a matrix in CSC, which are filled row by row.
struct ColumnBlock {
    /// Number of the first column.
    start: usize,
    /// The columns as if they were rows: `indptr` has the start of each column, `indices` the row of each value. Allocated
    /// for all values from the beginning.
    columns: CsrRows,
    /// `[columns]`: where the next value of each column goes in `indices` and `data`.
    next: Vec<usize>,
}

impl ColumnBlock {
    /// Allocate the columns from `start` on. `counts` `[columns]` are their numbers of values.
    fn new(start: usize, counts: &[u64]) -> Self {
        let mut columns = CsrRows::default();
        let mut end = 0;
        for count in counts {
            end += count;
            columns.indptr.push(end);
        }
        columns.indices.resize(end as usize, 0);
        columns.data.resize(end as usize, 0.0);
        let next = columns.indptr[..counts.len()].iter().map(|start| *start as usize).collect();
        Self { start, columns, next }
    }

    /// Add the values that `rows` have in these columns; `first` is the number of the first row. `None` if a column has
    /// more values than were counted.
    fn add(&mut self, rows: &CsrRows, first: i32) -> Option<()> {
        for row in 0..rows.len() {
            let (columns, values) = rows.view().row(row);
            let from = columns.partition_point(|column| (*column as usize) < self.start);
            for (column, value) in columns[from..].iter().zip(&values[from..]) {
                let column = *column as usize - self.start;
                // Columns ascend: all further ones are behind the block, too.
                let Some(next) = self.next.get_mut(column) else { break };
                if *next as u64 == self.columns.indptr[column + 1] {
                    return None;
                }
                self.columns.indices[*next] = first + row as i32;
                self.columns.data[*next] = *value;
                *next += 1;
            }
        }
        Some(())
    }

    /// Whether all columns have as many values as were counted.
    fn is_full(&self) -> bool {
        self.next.iter().zip(&self.columns.indptr[1..]).all(|(next, end)| *next as u64 == *end)
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
        assert_eq!((&block.columns.indices[..], &block.columns.data[..]), (&[0, 0, 1][..], &[1.0, 2.0, 3.0][..]));
        // A value more than counted is refused and does not get into the next column; a value less is noticed.
        let mut block = ColumnBlock::new(1, &[0, 3]);
        assert!(block.add(&rows, 0).is_none());
        let mut block = ColumnBlock::new(1, &[2, 2]);
        assert!(block.add(&rows, 0).is_some() && !block.is_full());
    }
}
