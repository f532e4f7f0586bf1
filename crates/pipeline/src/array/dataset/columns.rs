use super::transfer::each_row;
use crate::PipelineError;
use crate::array::{ArrayStore, CsrRows, CsrView};

/// Values that are turned in memory at a time.
const HELD: u64 = 32 << 20;

/// Hand the columns of a matrix to `take`, in order: CSR turned into CSC. All of it is read once to count, and once for each
/// so many columns as have [`HELD`] values together, so that memory is bounded. `pass` sees all rows of every reading, and
/// whether it is the first.
pub(super) fn each_column(
    store: &dyn ArrayStore,
    jobs: usize,
    mut take: impl FnMut(CsrView<'_>, u64) -> Result<(), PipelineError>,
    mut pass: impl FnMut(&CsrRows, bool) -> Result<(), PipelineError>,
) -> Result<(), PipelineError> {
    if i32::try_from(store.len()).is_err() {
        return Err(PipelineError::Invalid(format!(
            "{} has {} rows; more than {} cannot be stored by columns",
            store.name(),
            store.len(),
            i32::MAX
        )));
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
        let mut held = 0;
        let mut end = start;
        while end < counts.len() && (end == start || held + counts[end] <= HELD) {
            held += counts[end];
            end += 1;
        }
        let mut block = Block::new(start, &counts[start..end]);
        let mut row = 0;
        let other =
            || PipelineError::Invalid(format!("{} yields other rows than when they were counted", store.name()));
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
struct Block {
    start: usize,
    rows: CsrRows,
    next: Vec<usize>,
}

impl Block {
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
        let mut block = Block::new(1, &[1, 2]);
        assert!(block.add(&rows, 0).is_some() && block.is_full());
        assert_eq!((&block.rows.indices[..], &block.rows.data[..]), (&[0, 0, 1][..], &[1.0, 2.0, 3.0][..]));
        // A value more in a column does not get into the next one, and one less is seen.
        let mut block = Block::new(1, &[0, 3]);
        assert!(block.add(&rows, 0).is_none());
        let mut block = Block::new(1, &[2, 2]);
        assert!(block.add(&rows, 0).is_some() && !block.is_full());
    }
}
