use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::mpsc::sync_channel;
use std::thread;

use anndata_io::{ArrayStore, CsrRows, CsrView, DenseRows, Form, ReadRows, Rows, Wanted};

use crate::DatasetError;

/// Digest, number and sum of rows that pass by.
#[derive(Default)]
pub(super) struct RowsSeen {
    hasher: blake3::Hasher,
    pub(super) rows: u64,
    pub(super) nnz: u64,
    pub(super) sum: f64,
}

impl RowsSeen {
    /// Rows in CSR; columns ascend in each, and no value is 0.
    pub(super) fn add(&mut self, view: CsrView<'_>) {
        for row in 0..view.indptr.len().saturating_sub(1) {
            let (indices, data) = view.row(row);
            self.hasher.update(&(indices.len() as u64).to_le_bytes());
            self.hasher.update(bytemuck::cast_slice(indices)).update(bytemuck::cast_slice(data));
            self.sum += data.iter().map(|value| f64::from(*value)).sum::<f64>();
            self.rows += 1;
            self.nnz += data.len() as u64;
        }
    }

    pub(super) fn digest(&self) -> String {
        self.hasher.finalize().to_hex().to_string()
    }
}

/// The same rows in CSR without values that are 0, in whatever form they came.
pub(super) fn without_zeros(rows: Rows) -> CsrRows {
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

/// Do `work` on `0..count` on `jobs` threads, each every n-th of them and with a `state` of its own, and `take` the results
/// on this thread in their order. No more than three results of each thread are in memory.
///
/// # Errors
/// The first that `state`, `work` or `take` gives. A panic is one, too; `what` says where.
pub(super) fn in_order<S, T: Send>(
    jobs: usize,
    count: u64,
    what: &str,
    state: impl Fn() -> Result<S, DatasetError> + Sync,
    work: impl Fn(&mut S, u64) -> Result<T, DatasetError> + Sync,
    mut take: impl FnMut(T) -> Result<(), DatasetError>,
) -> Result<(), DatasetError> {
    let jobs = (jobs.max(1) as u64).min(count.max(1));
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for thread in 0..jobs {
            let (send, receive) = sync_channel(1);
            let (state, work) = (&state, &work);
            scope.spawn(move || {
                let mut own = None;
                for index in (thread..count).step_by(jobs as usize) {
                    let done = std::panic::catch_unwind(AssertUnwindSafe(|| {
                        let own = match &mut own {
                            Some(own) => own,
                            none => none.insert(state()?),
                        };
                        work(own, index)
                    }));
                    let done = done.unwrap_or_else(|panic| Err(DatasetError::panicked(what, panic.as_ref())));
                    let last = done.is_err();
                    // Nobody receives any more once it has failed or was stopped.
                    if send.send(done).is_err() || last {
                        return;
                    }
                }
            });
            threads.push(receive);
        }
        for index in 0..count {
            let ended = |_| DatasetError::Invalid(format!("{what}: a thread has ended"));
            take(threads[(index % jobs) as usize].recv().map_err(ended)??)?;
        }
        Ok(())
    })
}

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
    take: impl FnMut(CsrRows) -> Result<(), DatasetError>,
) -> Result<(), DatasetError> {
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
    take: impl FnMut(CsrRows) -> Result<(), DatasetError>,
) -> Result<(), DatasetError> {
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
    mut passed: impl FnMut(u64) -> Result<(), DatasetError>,
) -> Result<RowsSeen, DatasetError> {
    let mut seen = RowsSeen::default();
    each_row(store, jobs, |rows| {
        seen.add(rows.view());
        passed(seen.rows)
    })?;
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_errors_end_it() {
        for jobs in [1, 2, 5] {
            let mut taken = Vec::new();
            let take = |value| {
                taken.push(value);
                Ok(())
            };
            in_order(jobs, 23, "test", || Ok(7), |seven, index| Ok(index * *seven), take).unwrap();
            assert_eq!(taken, (0..23).map(|index| index * 7).collect::<Vec<_>>());
            let failing = |(): &mut (), index| {
                assert!(index != 9, "nine");
                if index == 11 { Err(DatasetError::Stopped) } else { Ok(index) }
            };
            let error = in_order(jobs, 23, "test", || Ok(()), failing, |_| Ok(())).unwrap_err();
            assert_eq!(error.to_string(), "test: nine");
        }
    }
}
