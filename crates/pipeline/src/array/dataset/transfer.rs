use std::ops::Range;

use super::in_order::in_order;
use super::rows::{RowsSeen, without_zeros};
use crate::PipelineError;
use crate::array::{ArrayStore, CsrRows, DenseRows, Form, ReadRows, Rows, Wanted};

/// Values that are read at a time by a thread, about.
const PIECE: u64 = 1 << 20;

/// Values that a store holds at most, those of a dense one whether they are 0 or not.
pub(super) fn stored(store: &dyn ArrayStore) -> u64 {
    store.most_values().unwrap_or(store.len() * store.genes().len() as u64)
}

/// Hand all rows of a store to `take`, in order and without values that are 0, read by `jobs` threads.
///
/// # Errors
/// It cannot be read; what `take` gives.
pub(super) fn each_row(
    store: &dyn ArrayStore,
    jobs: usize,
    take: impl FnMut(CsrRows) -> Result<(), PipelineError>,
) -> Result<(), PipelineError> {
    each_row_of(store, 0..store.len(), jobs, take)
}

/// As [`each_row`], of the rows in `range` alone, which end at or before the last one of the store.
///
/// # Errors
/// As [`each_row`].
pub(super) fn each_row_of(
    store: &dyn ArrayStore,
    range: Range<u64>,
    jobs: usize,
    take: impl FnMut(CsrRows) -> Result<(), PipelineError>,
) -> Result<(), PipelineError> {
    // Whole runs, so that none is read twice.
    let of_piece =
        (PIECE * store.len() / stored(store).max(1)).clamp(1, 1 << 16).next_multiple_of(store.run_rows().max(1));
    let what = format!("reading {}", store.name());
    let read = |reader: &mut Box<dyn ReadRows + '_>, piece: u64| {
        let start = range.start + piece * of_piece;
        let mut rows = match store.form() {
            Form::Sparse => Rows::Sparse(CsrRows::default()),
            Form::Dense => Rows::Dense(DenseRows { columns: store.genes().len(), data: Vec::new() }),
        };
        reader.fetch(&Wanted::Range(start..(start + of_piece).min(range.end)), &mut rows)?;
        reader.decode(&mut rows)?;
        reader.unchanged()?;
        Ok(without_zeros(rows))
    };
    let pieces = range.end.saturating_sub(range.start).div_ceil(of_piece);
    in_order(jobs, pieces, &what, || Ok(store.reader()?), read, take)
}

/// Digest, number and sum of all rows of a store; `passed` is told how many have been read.
///
/// # Errors
/// It cannot be read; what `passed` gives.
pub(super) fn seen(
    store: &dyn ArrayStore,
    jobs: usize,
    mut passed: impl FnMut(u64) -> Result<(), PipelineError>,
) -> Result<RowsSeen, PipelineError> {
    let mut seen = RowsSeen::default();
    each_row(store, jobs, |rows| {
        seen.add(rows.view());
        passed(seen.rows)
    })?;
    Ok(seen)
}
