use std::sync::Arc;

use expctl_record::Output;

use super::dense::{DenseWriter, prefetch};
use super::{GeneMap, Row, Transform};
use crate::PipelineError;
use crate::array::{ArrayBatch, Labels, Values};
use crate::collate::finish;

/// Makes batches of rows. Each thread has a clone.
#[derive(Clone, Debug)]
pub struct Collator {
    /// Genes of the store.
    columns: usize,
    genes: Option<Arc<GeneMap>>,
    transform: Transform,
    output: Output,
    labels: Arc<Vec<Labels>>,
    /// Values of a row, changed.
    values: Vec<f32>,
    writer: DenseWriter,
    /// Columns and values of a row, to be put in order.
    pairs: Vec<u64>,
}

impl Collator {
    /// Of rows of `columns` genes. `genes` are those that a batch has, none is all; `labels` have a class for each row of the
    /// collection.
    pub fn new(
        columns: usize,
        genes: Option<GeneMap>,
        transform: Transform,
        output: Output,
        labels: Arc<Vec<Labels>>,
    ) -> Self {
        Self {
            columns,
            genes: genes.map(Arc::new),
            transform,
            output,
            labels,
            values: Vec::new(),
            writer: DenseWriter::default(),
            pairs: Vec::new(),
        }
    }

    /// Genes of a batch.
    pub fn columns(&self) -> usize {
        self.genes.as_ref().map_or(self.columns, |genes| genes.len())
    }

    /// A batch without rows.
    pub fn empty(&self) -> ArrayBatch {
        let values = match self.output {
            Output::Dense => Values::Dense(Vec::new()),
            Output::Sparse => Values::Sparse { crow: vec![0], col: Vec::new(), values: Vec::new() },
        };
        let labels = vec![Vec::new(); self.labels.len()];
        ArrayBatch { rows: Vec::new(), columns: self.columns(), values, labels }
    }

    /// Bytes kept between batches.
    pub fn work_bytes(&self) -> u64 {
        (self.values.capacity() * 4 + self.pairs.capacity() * 8) as u64 + self.writer.work_bytes()
    }

    /// Make the batch of `rows`, of which `row` tells the i-th one, in the buffers of `batch`.
    ///
    /// # Errors
    /// A row has columns beyond the genes, or has another number of values than there are genes; a sparse batch has 2³¹ values
    /// or more.
    pub fn collate<'a>(
        &mut self,
        rows: &[u64],
        row: impl Fn(usize) -> Row<'a>,
        batch: &mut ArrayBatch,
    ) -> Result<(), PipelineError> {
        batch.rows.clear();
        batch.rows.extend_from_slice(rows);
        batch.columns = self.columns();
        batch.labels.resize_with(self.labels.len(), Vec::new);
        for (labels, column) in batch.labels.iter_mut().zip(self.labels.iter()) {
            labels.clear();
            labels.extend(rows.iter().map(|row| column.codes.get(*row as usize).map_or(-1, |code| i64::from(*code))));
        }
        match &mut batch.values {
            Values::Dense(data) => self.dense(rows, row, data),
            Values::Sparse { crow, col, values } => self.sparse(rows, row, crow, col, values),
        }
    }

    fn dense<'a>(
        &mut self,
        rows: &[u64],
        row: impl Fn(usize) -> Row<'a>,
        data: &mut Vec<f32>,
    ) -> Result<(), PipelineError> {
        let columns = self.columns();
        // What is there is written over, and is not cleared before.
        data.resize(rows.len() * columns, 0.0);
        if columns == 0 {
            return Ok(());
        }
        let around = DenseWriter::goes_around(data.len());
        for (i, out) in data.chunks_exact_mut(columns).enumerate() {
            match row(i) {
                Row::Sparse(cols, values) => {
                    if let Some(Row::Sparse(cols, values)) = (i + 1 < rows.len()).then(|| row(i + 1)) {
                        prefetch(cols, values);
                    }
                    let values = changed(self.transform, &mut self.values, values);
                    let to_batch = self.genes.as_ref().map(|genes| genes.to_batch());
                    let whole = self.writer.sparse(cols, values, to_batch, out, around);
                    whole.map_err(|column| beyond(rows[i], column, self.columns))?;
                }
                Row::Dense(values) => {
                    self.whole(rows[i], values)?;
                    self.dense_row(values, out, around);
                }
            }
        }
        if around {
            finish();
        }
        Ok(())
    }

    fn dense_row(&mut self, values: &[f32], out: &mut [f32], around: bool) {
        if self.genes.is_none() && self.transform.is_none() {
            return self.writer.dense(values, out, around);
        }
        self.values.clear();
        match &self.genes {
            None => self.values.extend_from_slice(values),
            Some(genes) => self.values.extend(genes.to_store().iter().map(|column| values[*column as usize])),
        }
        if !self.transform.is_none() {
            self.transform.apply(self.transform.scale(values), &mut self.values);
        }
        self.writer.dense(&self.values, out, around);
    }

    fn sparse<'a>(
        &mut self,
        rows: &[u64],
        row: impl Fn(usize) -> Row<'a>,
        crow: &mut Vec<i32>,
        col: &mut Vec<i32>,
        data: &mut Vec<f32>,
    ) -> Result<(), PipelineError> {
        crow.clear();
        col.clear();
        data.clear();
        crow.push(0);
        for (i, number) in rows.iter().enumerate() {
            let start = data.len();
            let row = row(i);
            let values = match row {
                Row::Sparse(cols, values) => {
                    match &self.genes {
                        None => {
                            // They ascend.
                            let ends = [cols.first(), cols.last()].into_iter().flatten();
                            if let Some(column) = ends.into_iter().find(|col| **col as usize >= self.columns) {
                                return Err(beyond(*number, *column, self.columns));
                            }
                            col.extend_from_slice(cols);
                            data.extend_from_slice(values);
                        }
                        Some(genes) => {
                            for (column, value) in cols.iter().zip(values) {
                                let Some(to) = genes.to_batch().get(*column as usize) else {
                                    return Err(beyond(*number, *column, self.columns));
                                };
                                if *to >= 0 {
                                    col.push(*to);
                                    data.push(*value);
                                }
                            }
                        }
                    }
                    values
                }
                Row::Dense(values) => {
                    self.whole(*number, values)?;
                    let mut take = |column: usize, value: f32| {
                        if value != 0.0 {
                            col.push(column as i32);
                            data.push(value);
                        }
                    };
                    match &self.genes {
                        None => values.iter().enumerate().for_each(|(column, value)| take(column, *value)),
                        Some(genes) => {
                            let columns = genes.to_store().iter().map(|column| values[*column as usize]);
                            columns.enumerate().for_each(|(column, value)| take(column, value));
                        }
                    }
                    values
                }
            };
            let mixed = self.genes.as_ref().is_some_and(|genes| !genes.is_ascending());
            if mixed && matches!(row, Row::Sparse(..)) {
                in_order(&mut self.pairs, &mut col[start..], &mut data[start..]);
            }
            if !self.transform.is_none() {
                self.transform.apply(self.transform.scale(values), &mut data[start..]);
            }
            let Ok(end) = i32::try_from(data.len()) else {
                return Err(PipelineError::Invalid(format!(
                    "a sparse batch of {} rows has 2,147,483,648 values or more; take smaller batches",
                    rows.len()
                )));
            };
            crow.push(end);
        }
        Ok(())
    }

    fn whole(&self, row: u64, values: &[f32]) -> Result<(), PipelineError> {
        if values.len() == self.columns {
            return Ok(());
        }
        Err(PipelineError::Invalid(format!("row {row} has {} values for {} genes", values.len(), self.columns)))
    }
}

/// Values of a row as a batch has them; `space` is for them.
fn changed<'a>(transform: Transform, space: &'a mut Vec<f32>, values: &'a [f32]) -> &'a [f32] {
    if transform.is_none() {
        return values;
    }
    space.clear();
    space.extend_from_slice(values);
    transform.apply(transform.scale(values), space);
    space
}

fn beyond(row: u64, column: i32, columns: usize) -> PipelineError {
    PipelineError::Invalid(format!("row {row} has a value in column {column}, and there are {columns} genes"))
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
