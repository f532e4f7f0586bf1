use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;

use super::{ArrayStore, CsrRows, CsrView, DenseRows, Form, Labels, ReadRows, Rows, Wanted};
use crate::PipelineError;

/// Bytes of values that a thread reads at once.
const PIECE_BYTES: u64 = 16 << 20;
/// Rows that a thread reads at most at once.
const PIECE_ROWS: u64 = 1 << 16;
/// Bytes of a value with its column, and of where a row starts.
const VALUE_BYTES: u64 = 8;
const ROW_BYTES: u64 = 8;

/// All rows of another store, in memory, in CSR.
///
/// Labels are asked of the store that they were read from.
#[derive(Debug)]
pub struct MemoryStore {
    source: Box<dyn ArrayStore>,
    rows: CsrRows,
}

impl MemoryStore {
    /// Read all rows of `source` with `threads` threads into at most `free` bytes of memory (`u64::MAX` where it is not known
    /// how much may be taken). Zeros of dense rows are left out.
    ///
    /// # Errors
    /// The rows need more memory, of dense rows as far as they have been read; they cannot be read.
    pub fn read(source: Box<dyn ArrayStore>, threads: usize, free: u64) -> Result<Self, PipelineError> {
        let plan = Plan::new(source.as_ref(), threads.max(1), free);
        plan.check(plan.values_known)?;
        let rows = read_all(&plan)?;
        Ok(Self { source, rows })
    }
}

/// How all rows are read, and what that takes.
struct Plan<'s> {
    source: &'s dyn ArrayStore,
    threads: usize,
    /// Rows of a piece.
    piece: u64,
    /// Bytes beside those of the values.
    fixed: u64,
    /// Values that all rows have, as far as that is known before they are read.
    values_known: u64,
    free: u64,
}

impl<'s> Plan<'s> {
    fn new(source: &'s dyn ArrayStore, threads: usize, free: u64) -> Self {
        let rows = source.len().max(1);
        let known = source.most_values();
        let row_bytes = known.map_or(PIECE_BYTES / 1024, |values| values.saturating_mul(VALUE_BYTES) / rows).max(1);
        // Whole runs of the file, some megabytes.
        let run = source.run_rows().max(1);
        let piece = (PIECE_BYTES / row_bytes).clamp(1, PIECE_ROWS).div_ceil(run).saturating_mul(run).min(rows);
        let buffers = piece.saturating_mul(row_bytes).saturating_mul(buffers(threads) as u64);
        // Dense rows are first read as they are, 4 bytes a value.
        let (dense, values_known) = match source.form() {
            Form::Sparse => (0, known.unwrap_or(0)),
            Form::Dense => (piece.saturating_mul(row_bytes / 2).saturating_mul(threads as u64), 0),
        };
        let starts = rows.saturating_add(1).saturating_mul(ROW_BYTES);
        let fixed = starts.saturating_add(buffers).saturating_add(dense);
        Self { source, threads, piece, fixed, values_known, free }
    }

    /// An error if so many values need more memory than there is.
    fn check(&self, values: u64) -> Result<(), PipelineError> {
        let needed = values.saturating_mul(VALUE_BYTES).saturating_add(self.fixed);
        if needed <= self.free {
            return Ok(());
        }
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        let (needed, free) = (gib(needed), gib(self.free));
        let (rows, name) = (self.source.len(), self.source.name());
        Err(PipelineError::Advised {
            problem: Box::new(PipelineError::Invalid(format!(
                "reading {rows} rows of {name} into memory needs {needed:.2} GiB at least, {free:.2} GiB are free"
            ))),
            advice: "leave `array.memory` out, or read fewer files; all genes are read, whatever `array.genes` chooses"
                .to_owned(),
        })
    }
}

impl ArrayStore for MemoryStore {
    fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    fn starts(&self) -> Vec<u64> {
        self.source.starts()
    }

    fn genes(&self) -> &[String] {
        self.source.genes()
    }

    fn form(&self) -> Form {
        Form::Sparse
    }

    fn stored_bytes(&self) -> u64 {
        self.source.stored_bytes()
    }

    fn most_values(&self) -> Option<u64> {
        Some(self.rows.data.len() as u64)
    }

    fn name(&self) -> String {
        self.source.name()
    }

    fn labels(&self, column: &str) -> Result<Labels, PipelineError> {
        self.source.labels(column)
    }

    fn numbers(&self, column: &str) -> Result<Vec<f64>, PipelineError> {
        self.source.numbers(column)
    }

    fn resident(&self) -> Option<CsrView<'_>> {
        Some(self.rows.view())
    }

    fn reader(&self) -> Result<Box<dyn ReadRows + '_>, PipelineError> {
        Ok(Box::new(MemoryReader { rows: self.rows.view() }))
    }
}

/// Copies rows.
struct MemoryReader<'m> {
    rows: CsrView<'m>,
}

impl ReadRows for MemoryReader<'_> {
    fn fetch(&mut self, wanted: &Wanted<'_>, out: &mut Rows) -> Result<u64, PipelineError> {
        let Rows::Sparse(out) = out else {
            return Err(PipelineError::Invalid("rows in memory are sparse".to_owned()));
        };
        let count = self.rows.indptr.len() as u64 - 1;
        let before = out.data.len();
        let beyond = |row: u64| PipelineError::Invalid(format!("row {row} was asked for where there are {count} rows"));
        match wanted {
            Wanted::Rows(rows) => {
                if let Some(row) = rows.iter().find(|row| **row >= count) {
                    return Err(beyond(*row));
                }
                for row in *rows {
                    let (indices, data) = self.rows.row(*row as usize);
                    out.indices.extend_from_slice(indices);
                    out.data.extend_from_slice(data);
                    out.indptr.push(out.indices.len() as u64);
                }
            }
            Wanted::Range(range) if range.end > count || range.start > range.end => {
                return Err(beyond(range.end.max(range.start)));
            }
            Wanted::Range(range) => add_range(self.rows, range, out),
        }
        Ok((out.data.len() - before) as u64 * VALUE_BYTES)
    }

    fn decode(&mut self, _: &mut Rows) -> Result<(), PipelineError> {
        Ok(())
    }
}

/// Add the rows of a range, all at once.
fn add_range(rows: CsrView<'_>, range: &Range<u64>, out: &mut CsrRows) {
    let ends = &rows.indptr[range.start as usize..=range.end as usize];
    let (first, last) = (ends[0], ends[ends.len() - 1]);
    let start = out.indices.len() as u64;
    out.indices.extend_from_slice(&rows.indices[first as usize..last as usize]);
    out.data.extend_from_slice(&rows.data[first as usize..last as usize]);
    out.indptr.extend(ends[1..].iter().map(|end| end - first + start));
}

/// A piece of the rows that was read, or why it could not be.
type Piece = (u64, Result<CsrRows, PipelineError>);

/// Buffers that go round between the threads and the one that puts pieces together.
fn buffers(threads: usize) -> usize {
    2 * threads
}

/// Threads read pieces, and this one adds them up in order: all that is held twice are the pieces in the buffers.
fn read_all(plan: &Plan<'_>) -> Result<CsrRows, PipelineError> {
    let (source, threads) = (plan.source, plan.threads);
    let rows = source.len();
    let mut all = CsrRows::default();
    let too_many = || PipelineError::Invalid(format!("there is no memory for the {rows} rows of {}", source.name()));
    all.indptr.try_reserve_exact(usize::try_from(rows).map_err(|_| too_many())?).map_err(|_| too_many())?;
    let values = usize::try_from(plan.values_known).map_err(|_| too_many())?;
    all.indices.try_reserve_exact(values).map_err(|_| too_many())?;
    all.data.try_reserve_exact(values).map_err(|_| too_many())?;
    let next = AtomicU64::new(0);
    let (give_back, empty) = channel::<CsrRows>();
    for _ in 0..buffers(threads) {
        let _ = give_back.send(CsrRows::default());
    }
    let empty = Mutex::new(empty);
    let (deliver, delivered) = sync_channel::<Piece>(buffers(threads));
    thread::scope(|scope| {
        for _ in 0..threads {
            let deliver = deliver.clone();
            let (next, empty) = (&next, &empty);
            scope.spawn(move || read_pieces(source, plan.piece, next, empty, &deliver));
        }
        drop(deliver);
        // Taken by value: when this thread ends early, the others find nobody to deliver to, and end too.
        add_pieces(plan, delivered, give_back, &mut all)
    })?;
    all.indices.shrink_to_fit();
    all.data.shrink_to_fit();
    Ok(all)
}

/// What a thread does: take a buffer, then the next piece, so that the piece that comes next always has one.
fn read_pieces(
    source: &dyn ArrayStore,
    piece: u64,
    next: &AtomicU64,
    empty: &Mutex<Receiver<CsrRows>>,
    deliver: &SyncSender<Piece>,
) {
    let mut reader = None;
    let mut dense = Rows::Dense(DenseRows { columns: source.genes().len(), data: Vec::new() });
    loop {
        let Ok(mut rows) = empty.lock().unwrap_or_else(std::sync::PoisonError::into_inner).recv() else { return };
        let number = next.fetch_add(1, Ordering::Relaxed);
        let start = number.saturating_mul(piece);
        if start >= source.len() {
            return;
        }
        let range = start..source.len().min(start + piece);
        let mut read = || {
            let reader = match &mut reader {
                Some(reader) => reader,
                none => none.insert(source.reader()?),
            };
            rows.clear();
            match source.form() {
                Form::Sparse => {
                    let mut sparse = Rows::Sparse(std::mem::take(&mut rows));
                    reader.fetch(&Wanted::Range(range.clone()), &mut sparse)?;
                    reader.decode(&mut sparse)?;
                    if let Rows::Sparse(sparse) = sparse {
                        rows = sparse;
                    }
                }
                Form::Dense => {
                    dense.clear();
                    reader.fetch(&Wanted::Range(range.clone()), &mut dense)?;
                    reader.decode(&mut dense)?;
                    add_dense(&dense, (range.end - range.start) as usize, &mut rows);
                }
            }
            reader.unchanged()
        };
        // A thread that just ended would leave the others waiting for its buffer, and this one's piece would never come.
        let result = std::panic::catch_unwind(AssertUnwindSafe(&mut read));
        let result = result.unwrap_or_else(|panic| {
            Err(PipelineError::panicked(&format!("reading {} into memory", source.name()), panic.as_ref()))
        });
        let result = result.map(|()| rows);
        if deliver.send((number, result)).is_err() {
            return;
        }
    }
}

/// Add dense rows without their zeros.
fn add_dense(dense: &Rows, count: usize, out: &mut CsrRows) {
    let Rows::Dense(dense) = dense else { return };
    for row in 0..count {
        for (column, value) in dense.data[row * dense.columns..(row + 1) * dense.columns].iter().enumerate() {
            if *value != 0.0 {
                out.indices.push(column as i32);
                out.data.push(*value);
            }
        }
        out.indptr.push(out.indices.len() as u64);
    }
}

/// Add pieces in order as they come.
fn add_pieces(
    plan: &Plan<'_>,
    delivered: Receiver<Piece>,
    give_back: std::sync::mpsc::Sender<CsrRows>,
    all: &mut CsrRows,
) -> Result<(), PipelineError> {
    let mut early = BTreeMap::new();
    for number in 0..plan.source.len().div_ceil(plan.piece) {
        let rows = loop {
            if let Some(rows) = early.remove(&number) {
                break rows;
            }
            let Ok((other, rows)) = delivered.recv() else {
                return Err(PipelineError::Invalid("a thread that reads rows into memory ended early".to_owned()));
            };
            early.insert(other, rows?);
        };
        let count = rows.len() as u64;
        plan.check((all.data.len() + rows.data.len()) as u64)?;
        let no_memory =
            |_| PipelineError::Invalid(format!("there is no memory for the rows of {}", plan.source.name()));
        all.indices.try_reserve(rows.indices.len()).map_err(no_memory)?;
        all.data.try_reserve(rows.data.len()).map_err(no_memory)?;
        add_range(rows.view(), &(0..count), all);
        let _ = give_back.send(rows);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row n has n % 3 values, which are n; of dense rows of three genes the others are 0.
    #[derive(Debug)]
    struct Made {
        rows: u64,
        form: Form,
        values: Option<u64>,
        genes: Vec<String>,
        /// From this row on, reading fails or panics.
        fails: u64,
        panics: u64,
    }

    impl Default for Made {
        fn default() -> Self {
            let genes = ["a", "b", "c"].map(str::to_owned).to_vec();
            Self { rows: 200_000, form: Form::Sparse, values: None, genes, fails: u64::MAX, panics: u64::MAX }
        }
    }

    impl ArrayStore for Made {
        fn len(&self) -> u64 {
            self.rows
        }
        fn genes(&self) -> &[String] {
            &self.genes
        }
        fn form(&self) -> Form {
            self.form
        }
        fn stored_bytes(&self) -> u64 {
            0
        }
        fn most_values(&self) -> Option<u64> {
            self.values
        }
        fn labels(&self, column: &str) -> Result<Labels, PipelineError> {
            Err(PipelineError::Invalid(column.to_owned()))
        }
        fn numbers(&self, column: &str) -> Result<Vec<f64>, PipelineError> {
            Err(PipelineError::Invalid(column.to_owned()))
        }
        fn reader(&self) -> Result<Box<dyn ReadRows + '_>, PipelineError> {
            Ok(Box::new(MadeReader(self)))
        }
    }

    struct MadeReader<'m>(&'m Made);

    impl ReadRows for MadeReader<'_> {
        fn fetch(&mut self, wanted: &Wanted<'_>, out: &mut Rows) -> Result<u64, PipelineError> {
            let Wanted::Range(range) = wanted else { panic!("ranges are asked for") };
            assert!(range.end <= self.0.panics, "row {} is a panic", range.end);
            if range.end > self.0.fails {
                return Err(PipelineError::Invalid(format!("row {} is broken", range.end)));
            }
            for row in range.clone() {
                let count = (row % 3) as usize;
                match out {
                    Rows::Sparse(out) => {
                        out.indices.extend(0..count as i32);
                        out.data.extend(std::iter::repeat_n(row as f32, count));
                        out.indptr.push(out.data.len() as u64);
                    }
                    Rows::Dense(out) => {
                        out.data.extend((0..3).map(|gene| if gene < count { row as f32 } else { 0.0 }));
                    }
                }
            }
            Ok(0)
        }
        fn decode(&mut self, _: &mut Rows) -> Result<(), PipelineError> {
            Ok(())
        }
    }

    #[test]
    fn rows_of_many_pieces_are_in_order() {
        for (threads, form) in (1..5).zip([Form::Sparse, Form::Dense, Form::Sparse, Form::Dense]) {
            let store = MemoryStore::read(Box::new(Made { form, ..Made::default() }), threads, u64::MAX).unwrap();
            let rows = store.resident().unwrap();
            assert_eq!(rows.indptr.len(), 200_001);
            for row in 0..200_000 {
                let (indices, data) = rows.row(row);
                assert!(indices == &[0, 1][..row % 3] && data == &[row as f32; 2][..row % 3], "{row} {data:?}");
            }
        }
    }

    #[test]
    fn an_error_or_panic_of_a_thread_is_returned() {
        for threads in 1..5 {
            let fails = Made { fails: 70_000, rows: 1_000_000, ..Made::default() };
            let e = MemoryStore::read(Box::new(fails), threads, u64::MAX).unwrap_err();
            assert!(e.to_string().contains("is broken"), "{e}");
            let panics = Made { panics: 70_000, rows: 1_000_000, ..Made::default() };
            let e = MemoryStore::read(Box::new(panics), threads, u64::MAX).unwrap_err();
            assert!(e.to_string().contains("is a panic"), "{e}");
        }
    }

    #[test]
    fn memory_that_is_not_there_is_said_before_it_is_taken() {
        let large = Made { rows: 7, values: Some(1 << 50), ..Made::default() };
        let e = MemoryStore::read(Box::new(large), 1, 1 << 40).unwrap_err().to_string();
        assert!(
            e.contains("reading 7 rows of the array into memory needs ") && e.contains("1024.00 GiB are free"),
            "{e}"
        );
    }

    #[test]
    fn of_dense_rows_only_what_is_kept_counts() {
        // One value a row is kept in the mean, of three.
        let dense = |rows| Box::new(Made { form: Form::Dense, rows, values: Some(rows * 3), ..Made::default() });
        let plan = |rows: u64| Plan::new(&*dense(rows), 1, 0).fixed;
        let (rows, values) = (200_000, 199_999);
        MemoryStore::read(dense(rows), 1, plan(rows) + values * 8).unwrap();
        let e = MemoryStore::read(dense(rows), 1, plan(rows) + values * 8 - 1).unwrap_err().to_string();
        assert!(e.contains("GiB at least"), "{e}");
    }
}
