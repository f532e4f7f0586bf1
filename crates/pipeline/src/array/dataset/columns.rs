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
        each_row(store, jobs, |rows| {
            block.add(&rows, row);
            row += rows.len() as i32;
            pass(&rows, false)
        })?;
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

    fn add(&mut self, rows: &CsrRows, first: i32) {
        for row in 0..rows.len() {
            let (columns, values) = rows.view().row(row);
            let from = columns.partition_point(|column| (*column as usize) < self.start);
            for (column, value) in columns[from..].iter().zip(&values[from..]) {
                let Some(at) = self.next.get_mut(*column as usize - self.start) else { break };
                self.rows.indices[*at] = first + row as i32;
                self.rows.data[*at] = *value;
                *at += 1;
            }
        }
    }
}
