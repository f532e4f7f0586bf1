//! `Collator` makes a `CellBatch` of rows: it chooses genes, normalizes values, and writes them as float32 `[B, columns]` or as CSR.
//! Invariant: the buffers of a batch are used again, and every element of them is overwritten.

use std::sync::Arc;

use anndata_io::{Form, Labels, NarrowRow, RowView, Rows, nontemporal};

use crate::CellError;
use crate::transform::{GeneMap, Transform};

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

/// Collates rows into batches. Each thread has a clone.
#[derive(Clone, Debug)]
pub struct Collator {
    /// Genes of the store.
    columns: usize,
    genes: Option<Arc<GeneMap>>,
    transform: Transform,
    output: Form,
    labels: Arc<Vec<Labels>>,
    /// Columns and values of a row after genes were chosen and values normalized.
    cols: Vec<i32>,
    values: Vec<f32>,
    /// Columns (upper half) and values of a row, to be sorted.
    pairs: Vec<u64>,
    /// Columns and values of a narrow row.
    wide: (Vec<i32>, Vec<f32>),
}

impl Collator {
    /// A collator of rows of `columns` genes. A batch has the genes `genes`, or all if `None`; `labels` have a code for each row
    /// of the store.
    pub fn new(
        columns: usize,
        genes: Option<GeneMap>,
        transform: Transform,
        output: Form,
        labels: Arc<Vec<Labels>>,
    ) -> Self {
        Self {
            columns,
            genes: genes.map(Arc::new),
            transform,
            output,
            labels,
            cols: Vec::new(),
            values: Vec::new(),
            pairs: Vec::new(),
            wide: (Vec::new(), Vec::new()),
        }
    }

    /// Genes of a batch.
    pub fn columns(&self) -> usize {
        self.genes.as_ref().map_or(self.columns, |genes| genes.len())
    }

    /// A batch without rows.
    pub fn empty(&self) -> CellBatch {
        let values = match self.output {
            Form::Dense => CellValues::Dense(Vec::new()),
            Form::Sparse => CellValues::Sparse { crow: vec![0], col: Vec::new(), values: Vec::new() },
        };
        let labels = vec![Vec::new(); self.labels.len()];
        CellBatch { rows: Vec::new(), columns: self.columns(), values, labels }
    }

    /// Bytes kept between batches.
    pub fn work_bytes(&self) -> u64 {
        let wide = self.wide.0.capacity() + self.wide.1.capacity();
        ((self.cols.capacity() + self.values.capacity() + wide) * 4 + self.pairs.capacity() * 8) as u64
    }

    /// Collate `rows` into the buffers of `batch`; `row` returns the i-th of them.
    ///
    /// # Errors
    /// [`CellError::ColumnBeyondGenes`], [`CellError::RowLength`] or [`CellError::BatchTooLarge`].
    pub fn collate<'a>(
        &mut self,
        rows: &[u64],
        row: impl Fn(usize) -> RowView<'a>,
        batch: &mut CellBatch,
    ) -> Result<(), CellError> {
        self.annotate(rows, batch);
        match &mut batch.values {
            CellValues::Dense(data) => self.dense(rows, row, data),
            CellValues::Sparse { crow, col, values } => self.sparse(rows, row, crow, col, values),
        }
    }

    /// Swap buffers instead of copying if a batch holds exactly what was read: `found` then gets the buffers of `batch`. Returns
    /// false, with nothing done, if genes are chosen, values normalized, or the output is dense.
    ///
    /// # Errors
    /// As [`Self::collate`].
    pub fn take(&self, rows: &[u64], found: &mut Rows, batch: &mut CellBatch) -> Result<bool, CellError> {
        let (Rows::Sparse(found), CellValues::Sparse { crow, col, values }) = (found, &mut batch.values) else {
            return Ok(false);
        };
        if self.genes.is_some() || !self.transform.is_none() {
            return Ok(false);
        }
        if found.len() != rows.len() {
            return Err(CellError::BatchLength { found: found.len(), expected: rows.len() });
        }
        crow.clear();
        crow.push(0);
        for (number, ends) in rows.iter().zip(found.indptr.windows(2)) {
            self.within(*number, &found.indices[ends[0] as usize..ends[1] as usize])?;
            crow.push(i32::try_from(ends[1]).map_err(|_| CellError::BatchTooLarge { rows: rows.len() })?);
        }
        std::mem::swap(col, &mut found.indices);
        std::mem::swap(values, &mut found.data);
        found.clear();
        self.annotate(rows, batch);
        Ok(true)
    }

    /// Set rows, columns and labels of a batch.
    fn annotate(&self, rows: &[u64], batch: &mut CellBatch) {
        batch.rows.clear();
        batch.rows.extend_from_slice(rows);
        batch.columns = self.columns();
        batch.labels.resize_with(self.labels.len(), Vec::new);
        for (labels, column) in batch.labels.iter_mut().zip(self.labels.iter()) {
            labels.clear();
            labels.extend(rows.iter().map(|row| column.codes.get(*row as usize).map_or(-1, |code| i64::from(*code))));
        }
    }

    fn dense<'a>(
        &mut self,
        rows: &[u64],
        row: impl Fn(usize) -> RowView<'a>,
        data: &mut Vec<f32>,
    ) -> Result<(), CellError> {
        let columns = self.columns();
        // All values are overwritten, so they are not cleared before.
        data.resize(rows.len() * columns, 0.0);
        if columns == 0 {
            return Ok(());
        }
        let around = goes_around(data.len());
        for (i, out) in data.chunks_exact_mut(columns).enumerate() {
            match row(i) {
                RowView::Sparse(cols, values) => self.dense_of_sparse(rows[i], cols, values, out, around)?,
                RowView::Narrow(narrow) => {
                    let wide = self.widened(narrow);
                    self.dense_of_sparse(rows[i], &wide.0, &wide.1, out, around)?;
                    self.wide = wide;
                }
                RowView::Dense(values) => {
                    self.whole(rows[i], values)?;
                    self.dense_row(values, out, around);
                }
            }
        }
        if around {
            nontemporal::fence();
        }
        Ok(())
    }

    /// Columns and values of a narrow row, in buffers to be given back.
    fn widened(&mut self, row: NarrowRow<'_>) -> (Vec<i32>, Vec<f32>) {
        let (mut cols, mut values) = std::mem::take(&mut self.wide);
        cols.clear();
        values.clear();
        row.widen(&mut cols, &mut values);
        (cols, values)
    }

    fn dense_of_sparse(
        &mut self,
        row: u64,
        cols: &[i32],
        values: &[f32],
        out: &mut [f32],
        around: bool,
    ) -> Result<(), CellError> {
        let plain = self.genes.is_none() && self.transform.is_none();
        let (cols, values) = if plain { (cols, values) } else { self.changed(row, cols, values)? };
        write_sparse(cols, values, out, around).map_err(|column| beyond(row, column, out.len()))
    }

    fn dense_row(&mut self, values: &[f32], out: &mut [f32], around: bool) {
        if self.genes.is_none() && self.transform.is_none() {
            return write_dense(values, out, around);
        }
        self.values.clear();
        match &self.genes {
            None => self.values.extend_from_slice(values),
            Some(genes) => self.values.extend(genes.to_store().iter().map(|column| values[*column as usize])),
        }
        if !self.transform.is_none() {
            self.transform.apply(self.transform.scale(values), &mut self.values);
        }
        write_dense(&self.values, out, around);
    }

    fn sparse<'a>(
        &mut self,
        rows: &[u64],
        row: impl Fn(usize) -> RowView<'a>,
        crow: &mut Vec<i32>,
        col: &mut Vec<i32>,
        data: &mut Vec<f32>,
    ) -> Result<(), CellError> {
        crow.clear();
        col.clear();
        data.clear();
        crow.push(0);
        for (i, number) in rows.iter().enumerate() {
            match row(i) {
                RowView::Sparse(cols, values) => self.sparse_row(*number, cols, values, col, data)?,
                RowView::Narrow(narrow) if self.genes.is_none() => {
                    let start = data.len();
                    narrow.widen(col, data);
                    self.within(*number, &col[start..])?;
                    if !self.transform.is_none() {
                        self.transform.apply(self.transform.scale(&data[start..]), &mut data[start..]);
                    }
                }
                RowView::Narrow(narrow) => {
                    let wide = self.widened(narrow);
                    self.sparse_row(*number, &wide.0, &wide.1, col, data)?;
                    self.wide = wide;
                }
                RowView::Dense(values) => {
                    self.whole(*number, values)?;
                    self.sparse_of_dense(values, col, data);
                }
            }
            crow.push(i32::try_from(data.len()).map_err(|_| CellError::BatchTooLarge { rows: rows.len() })?);
        }
        Ok(())
    }

    fn sparse_row(
        &mut self,
        row: u64,
        cols: &[i32],
        values: &[f32],
        to_cols: &mut Vec<i32>,
        to_values: &mut Vec<f32>,
    ) -> Result<(), CellError> {
        let start = to_values.len();
        match &self.genes {
            None => {
                self.within(row, cols)?;
                to_cols.extend_from_slice(cols);
                to_values.extend_from_slice(values);
            }
            Some(genes) => {
                select(genes, cols, values, to_cols, to_values, &mut self.pairs)
                    .map_err(|column| beyond(row, column, self.columns))?;
            }
        }
        if !self.transform.is_none() {
            self.transform.apply(self.transform.scale(values), &mut to_values[start..]);
        }
        Ok(())
    }

    fn sparse_of_dense(&self, values: &[f32], to_cols: &mut Vec<i32>, to_values: &mut Vec<f32>) {
        let start = to_values.len();
        let mut take = |column: usize, value: f32| {
            if value != 0.0 {
                to_cols.push(column as i32);
                to_values.push(value);
            }
        };
        match &self.genes {
            None => values.iter().enumerate().for_each(|(column, value)| take(column, *value)),
            Some(genes) => {
                let columns = genes.to_store().iter().map(|column| values[*column as usize]);
                columns.enumerate().for_each(|(column, value)| take(column, value));
            }
        }
        if !self.transform.is_none() {
            self.transform.apply(self.transform.scale(values), &mut to_values[start..]);
        }
    }

    /// Check that all columns of a row are genes.
    fn within(&self, row: u64, cols: &[i32]) -> Result<(), CellError> {
        // They ascend.
        let ends = [cols.first(), cols.last()].into_iter().flatten();
        match ends.into_iter().find(|col| **col as usize >= self.columns) {
            Some(column) => Err(beyond(row, *column, self.columns)),
            None => Ok(()),
        }
    }

    /// Choose genes and normalize values of a sparse row.
    fn changed(&mut self, row: u64, cols: &[i32], values: &[f32]) -> Result<(&[i32], &[f32]), CellError> {
        self.cols.clear();
        self.values.clear();
        match &self.genes {
            None => {
                self.cols.extend_from_slice(cols);
                self.values.extend_from_slice(values);
            }
            Some(genes) => {
                select(genes, cols, values, &mut self.cols, &mut self.values, &mut self.pairs)
                    .map_err(|column| beyond(row, column, self.columns))?;
            }
        }
        if !self.transform.is_none() {
            self.transform.apply(self.transform.scale(values), &mut self.values);
        }
        Ok((&self.cols, &self.values))
    }

    fn whole(&self, row: u64, values: &[f32]) -> Result<(), CellError> {
        if values.len() == self.columns {
            return Ok(());
        }
        Err(CellError::RowLength { row, values: values.len(), genes: self.columns })
    }
}

fn beyond(row: u64, column: i32, columns: usize) -> CellError {
    CellError::ColumnBeyondGenes { row, column, genes: columns }
}

/// Append those columns and values that a batch has, ascending; the error is a column that is not there.
fn select(
    genes: &GeneMap,
    cols: &[i32],
    values: &[f32],
    to_cols: &mut Vec<i32>,
    to_values: &mut Vec<f32>,
    pairs: &mut Vec<u64>,
) -> Result<(), i32> {
    let start = to_cols.len();
    for (column, value) in cols.iter().zip(values) {
        let to = *genes.to_batch().get(*column as usize).ok_or(*column)?;
        if to >= 0 {
            to_cols.push(to);
            to_values.push(*value);
        }
    }
    if !genes.is_ascending() {
        in_order(pairs, &mut to_cols[start..], &mut to_values[start..]);
    }
    Ok(())
}

/// Sort by column.
fn in_order(pairs: &mut Vec<u64>, cols: &mut [i32], values: &mut [f32]) {
    pairs.clear();
    pairs.extend(cols.iter().zip(values.iter()).map(|(col, value)| (*col as u64) << 32 | u64::from(value.to_bits())));
    pairs.sort_unstable();
    for ((pair, col), value) in pairs.iter().zip(cols).zip(values) {
        *col = (pair >> 32) as i32;
        *value = f32::from_bits(*pair as u32);
    }
}

// Rows of dense batches are written a segment at a time. A segment is cleared and its values are scattered into it while it is in
// the nearest cache, so the scattering costs next to nothing. A batch that fits into the caches is written in place. A larger batch
// is written around the caches, from a buffer of one segment: a plain store would first read the cache line that it writes to.

/// Values of a batch from which on it is taken to be larger than the caches: 32 MiB.
const FEW: usize = 8 << 20;
/// Values of a segment: 8 KiB.
const SEGMENT: usize = 2048;

/// Whether a batch of `len` values is written around the caches. After its last row call [`nontemporal::fence`].
fn goes_around(len: usize) -> bool {
    len >= FEW
}

/// Write a row that has these values in these columns, which ascend, and 0 in all others; the error is a column that is not
/// there, or not in order.
fn write_sparse(cols: &[i32], values: &[f32], out: &mut [f32], around: bool) -> Result<(), i32> {
    if around { write::<true>(cols, values, out) } else { write::<false>(cols, values, out) }
}

/// Write a row as it is.
fn write_dense(values: &[f32], out: &mut [f32], around: bool) {
    if around { nontemporal::copy(values, out) } else { out.copy_from_slice(values) }
}

fn write<const AROUND: bool>(cols: &[i32], values: &[f32], out: &mut [f32]) -> Result<(), i32> {
    let mut space = [0.0; SEGMENT];
    let mut pairs = cols.iter().zip(values).peekable();
    // The first segment ends where lines begin, so that the others are of whole lines.
    let (mut start, mut rest) = (0, out);
    let mut len = if AROUND { rest.as_ptr().align_offset(64) } else { SEGMENT };
    while !rest.is_empty() {
        let (part, behind) = rest.split_at_mut(len.min(rest.len()));
        let end = start + part.len();
        let segment = if AROUND { &mut space[..part.len()] } else { &mut *part };
        segment.fill(0.0);
        while let Some((column, value)) = pairs.next_if(|(column, _)| (**column as usize) < end) {
            match segment.get_mut((*column as usize).wrapping_sub(start)) {
                Some(to) => *to = *value,
                None => return Err(*column),
            }
        }
        if AROUND {
            nontemporal::copy(&space[..part.len()], part);
        }
        (start, rest, len) = (end, behind, SEGMENT);
    }
    pairs.next().map_or(Ok(()), |(column, _)| Err(*column))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Outputs of every alignment and of lengths around those of lines and segments.
    #[test]
    fn both_ways_write_the_same() {
        for len in [1, 15, 16, 17, 100, SEGMENT - 1, SEGMENT, SEGMENT + 1, 3 * SEGMENT + 5] {
            let cols: Vec<i32> = (0..len as i32).filter(|column| column % 3 == 0).collect();
            let values: Vec<f32> = cols.iter().map(|column| *column as f32 + 0.5).collect();
            let expected = |column: usize| if column.is_multiple_of(3) { column as f32 + 0.5 } else { 0.0 };
            for start in 0..17 {
                let columns = start..start + len;
                for around in [false, true] {
                    let mut out = vec![-1.0; len + 17];
                    write_sparse(&cols, &values, &mut out[columns.clone()], around).unwrap();
                    nontemporal::fence();
                    assert!(out[columns.clone()].iter().enumerate().all(|(column, value)| *value == expected(column)));
                    assert!(out[..start].iter().chain(&out[start + len..]).all(|value| *value == -1.0));
                    let mut again = vec![-1.0; len + 17];
                    write_dense(&out[columns.clone()], &mut again[columns.clone()], around);
                    nontemporal::fence();
                    assert_eq!(again, out);
                }
            }
        }
    }

    #[test]
    fn columns_that_are_not_there_or_not_in_order_are_found() {
        for around in [false, true] {
            let mut out = [0.0; 3 * SEGMENT];
            let mut error = |cols: &[i32]| write_sparse(cols, &[1.0, 2.0], &mut out, around).unwrap_err();
            assert_eq!(error(&[1, 3 * SEGMENT as i32]), 3 * SEGMENT as i32);
            assert_eq!(error(&[-1, 5]), -1);
            assert_eq!(error(&[2 * SEGMENT as i32, 5]), 5);
            nontemporal::fence();
        }
    }
}
