//! `ColumnMap` moves the values of a row from the columns (genes) of one store to those of the collection.
//! Invariant: the columns of a mapped CSR row ascend; a value whose column the collection does not have is dropped.

use std::collections::HashMap;

use crate::{CsrRows, CsrView, DenseRows};

/// A map from the columns of one list of genes to those of another.
#[derive(Debug, PartialEq)]
pub(crate) struct ColumnMap {
    /// For each source column its target column, or -1.
    forward: Vec<i32>,
    /// For each target column its source column, or -1.
    backward: Vec<i32>,
    order: ColumnOrder,
}

/// Effect of the map on a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnOrder {
    /// Each column keeps its number.
    Same,
    /// The kept columns stay ascending.
    Ascending,
    Any,
}

/// Scratch memory for the columns of a row that must be sorted.
#[derive(Debug, Default)]
pub(crate) struct RowScratch {
    /// One bit for each column: whether it has a value.
    present: Vec<u64>,
    /// `[columns]`: values of those that have one.
    values: Vec<f32>,
}

impl ColumnMap {
    /// The map from columns named `genes` to those that `numbers` numbers, `count` of them.
    pub fn new(genes: &[String], numbers: &HashMap<&str, i32>, count: usize) -> Self {
        let forward: Vec<i32> = genes.iter().map(|gene| numbers.get(gene.as_str()).copied().unwrap_or(-1)).collect();
        let mut backward = vec![-1; count];
        for (here, there) in forward.iter().enumerate() {
            if let Ok(there) = usize::try_from(*there) {
                backward[there] = here as i32;
            }
        }
        let order = if forward.iter().enumerate().all(|(here, there)| here as i32 == *there) {
            ColumnOrder::Same
        } else if forward.iter().filter(|there| **there >= 0).is_sorted() {
            ColumnOrder::Ascending
        } else {
            ColumnOrder::Any
        };
        Self { forward, backward, order }
    }

    /// Whether CSR rows stay the same, apart from additional empty columns.
    pub fn keeps_sparse(&self) -> bool {
        self.order == ColumnOrder::Same
    }

    /// Whether dense rows stay the same.
    pub fn keeps_dense(&self) -> bool {
        self.order == ColumnOrder::Same && self.forward.len() == self.backward.len()
    }

    /// Number of source columns.
    pub fn columns_before(&self) -> usize {
        self.forward.len()
    }

    /// Appends a row to `out`, its columns mapped and ascending. `columns` are source columns.
    pub fn add_sparse(&self, columns: &[i32], values: &[f32], out: &mut CsrRows, scratch: &mut RowScratch) {
        match self.order {
            ColumnOrder::Same => {
                out.indices.extend_from_slice(columns);
                out.data.extend_from_slice(values);
            }
            ColumnOrder::Ascending => self.add_ascending(columns, values, out),
            ColumnOrder::Any => self.add_any(columns, values, out, scratch),
        }
        out.indptr.push(out.indices.len() as u64);
    }

    /// Writes every value to the end of the row, and advances the end only if the value is kept: no branch depends on the data.
    fn add_ascending(&self, columns: &[i32], values: &[f32], out: &mut CsrRows) {
        let start = out.indices.len();
        out.indices.resize(start + columns.len(), 0);
        out.data.resize(start + columns.len(), 0.0);
        let (indices, data) = (&mut out.indices[start..], &mut out.data[start..]);
        let mut kept = 0;
        for (column, value) in columns.iter().zip(values) {
            let there = self.forward[*column as usize];
            indices[kept] = there;
            data[kept] = *value;
            kept += usize::from(there >= 0);
        }
        out.indices.truncate(start + kept);
        out.data.truncate(start + kept);
    }

    /// Writes the values to a dense row and sets a bit for each, then scans the bits in order. The cost is proportional to the values
    /// of the row, plus one word for 64 columns.
    fn add_any(&self, columns: &[i32], values: &[f32], out: &mut CsrRows, scratch: &mut RowScratch) {
        let count = self.backward.len();
        scratch.present.clear();
        scratch.present.resize(count.div_ceil(64), 0);
        scratch.values.resize(count.max(scratch.values.len()), 0.0);
        let mut kept = 0;
        for (column, value) in columns.iter().zip(values) {
            if let Ok(there) = usize::try_from(self.forward[*column as usize]) {
                scratch.present[there / 64] |= 1 << (there % 64);
                scratch.values[there] = *value;
                kept += 1;
            }
        }
        out.indices.reserve(kept);
        out.data.reserve(kept);
        for (word, mut bits) in scratch.present.iter().copied().enumerate() {
            while bits != 0 {
                let there = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                out.indices.push(there as i32);
                out.data.push(scratch.values[there]);
            }
        }
    }

    /// Appends a dense row to `out`, its columns mapped, 0 for columns without a source.
    pub fn add_dense(&self, values: &[f32], out: &mut DenseRows) {
        if self.keeps_dense() {
            out.data.extend_from_slice(values);
        } else {
            let value = |here: &i32| usize::try_from(*here).map_or(0.0, |here| values[here]);
            out.data.extend(self.backward.iter().map(value));
        }
    }

    /// Appends a dense row to `out` in CSR, without its zeros.
    pub fn add_dense_as_sparse(&self, values: &[f32], out: &mut CsrRows) {
        for (there, here) in self.backward.iter().enumerate() {
            let value = usize::try_from(*here).map_or(0.0, |here| values[here]);
            if value != 0.0 {
                out.indices.push(there as i32);
                out.data.push(value);
            }
        }
        out.indptr.push(out.indices.len() as u64);
    }

    /// Appends rows unchanged; only if [`ColumnMap::keeps_sparse`].
    pub fn add_same(rows: CsrView<'_>, out: &mut CsrRows) {
        let start = out.indices.len() as u64;
        out.indices.extend_from_slice(rows.indices);
        out.data.extend_from_slice(rows.data);
        out.indptr.extend(rows.indptr[1..].iter().map(|end| start + end));
    }
}

impl RowScratch {
    pub fn bytes(&self) -> u64 {
        (self.present.capacity() * 8 + self.values.capacity() * 4) as u64
    }
}
