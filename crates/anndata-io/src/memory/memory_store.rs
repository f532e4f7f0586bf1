//! `MemoryStore`: all rows of another store in memory. `MemoryPlan` reads them on several threads and compares their memory with a limit in bytes.
//! Invariant: rows that cannot fit are an error before they are read, if the store knows how many values it has, else while they are read.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::{
    AnnDataError, Annotation, ArrayStore, CsrRows, CsrView, DenseRows, Form, Labels, NarrowRows, ReadRows,
    RequestError, Resident, RowSelection, RowView, Rows,
};

/// All rows of another store in memory: CSR, 3 bytes a value for counts.
///
/// Labels are those of the store that the rows were read from.
#[derive(Debug)]
pub struct MemoryStore {
    source: Box<dyn ArrayStore>,
    pieces: Vec<NarrowRows>,
    /// Rows of each piece but the last; not 0.
    piece: u64,
}

impl MemoryStore {
    /// Reads all rows of `source` on `threads` threads into at most `free` bytes of memory (`u64::MAX` without a limit). Zeros
    /// of dense rows are not stored.
    ///
    /// # Errors
    /// The rows need more memory, which may become known only while they are read; they cannot be read.
    pub fn read(source: Box<dyn ArrayStore>, threads: usize, free: u64) -> Result<Self, AnnDataError> {
        Self::read_unless(source, threads, free, &AtomicBool::new(false))
    }

    /// As [`Self::read`], unless `stop` is set before all rows are in memory: threads end after the rows that they read at the moment.
    ///
    /// # Errors
    /// As of [`Self::read`]; [`RequestError::Interrupted`].
    pub fn read_unless(
        source: Box<dyn ArrayStore>,
        threads: usize,
        free: u64,
        stop: &AtomicBool,
    ) -> Result<Self, AnnDataError> {
        let plan = MemoryPlan::new(source.as_ref(), threads.max(1), free);
        let (pieces, piece) = (plan.read(stop)?, plan.piece());
        Ok(Self { source, pieces, piece })
    }

    fn rows(&self) -> Resident<'_> {
        Resident::Narrow { pieces: &self.pieces, piece: self.piece }
    }
}

impl ArrayStore for MemoryStore {
    fn len(&self) -> u64 {
        self.source.len()
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

    fn max_values(&self) -> Option<u64> {
        Some(self.rows().nnz())
    }

    fn name(&self) -> String {
        self.source.name()
    }

    fn labels(&self, column: &str) -> Result<Labels, AnnDataError> {
        self.source.labels(column)
    }

    fn numbers(&self, column: &str) -> Result<Vec<f64>, AnnDataError> {
        self.source.numbers(column)
    }

    fn columns(&self) -> Result<Vec<String>, AnnDataError> {
        self.source.columns()
    }

    fn annotation(&self, column: &str) -> Result<Annotation, AnnDataError> {
        self.source.annotation(column)
    }

    fn row_names(&self) -> Result<Option<Vec<String>>, AnnDataError> {
        self.source.row_names()
    }

    fn resident(&self) -> Option<Resident<'_>> {
        Some(self.rows())
    }

    fn reader(&self) -> Result<Box<dyn ReadRows + '_>, AnnDataError> {
        Ok(Box::new(MemoryReader { store: self, rows: self.rows(), count: self.len() }))
    }
}

/// Copies rows out of memory.
struct MemoryReader<'m> {
    store: &'m MemoryStore,
    rows: Resident<'m>,
    count: u64,
}

impl MemoryReader<'_> {
    fn add(&self, row: u64, out: &mut CsrRows) {
        if let RowView::Narrow(row) = self.rows.row(row) {
            row.widen(&mut out.indices, &mut out.data);
        }
        out.indptr.push(out.indices.len() as u64);
    }
}

impl ReadRows for MemoryReader<'_> {
    fn fetch(&mut self, wanted: &RowSelection<'_>, out: &mut Rows) -> Result<u64, AnnDataError> {
        let out = out.sparse()?;
        let before = out.data.len();
        match *wanted {
            RowSelection::Rows(rows) => {
                if let Some(row) = rows.iter().find(|row| **row >= self.count) {
                    let store = self.store.name();
                    return Err(RequestError::RowBeyondEnd { row: *row, store, rows: self.count }.into());
                }
                rows.iter().for_each(|row| self.add(*row, out));
            }
            RowSelection::Range(Range { start, end }) => {
                if start > end || end > self.count {
                    let store = self.store.name();
                    return Err(RequestError::RangeBeyondEnd { start, end, store, rows: self.count }.into());
                }
                (start..end).for_each(|row| self.add(row, out));
            }
        }
        Ok((out.data.len() - before) as u64 * 8)
    }

    fn decode(&mut self, _: &mut Rows) -> Result<(), AnnDataError> {
        Ok(())
    }
}

/// Bytes of values, as int32 and float32, that a thread reads at once.
const PIECE_BYTES: u64 = 32 << 20;
/// Maximum rows that a thread reads at once.
const PIECE_ROWS: u64 = 1 << 16;
/// Bytes of a value with its column index, while it is read.
const VALUE_BYTES: u64 = 8;

/// Plan for reading all rows, and its memory.
pub struct MemoryPlan<'s> {
    source: &'s dyn ArrayStore,
    threads: usize,
    /// Rows of a piece; not 0.
    piece: u64,
    /// Buffers of the threads in bytes.
    fixed: u64,
    /// Lower bound of the stored values of all rows.
    min_values: u64,
    free: u64,
}

impl<'s> MemoryPlan<'s> {
    /// The plan for `source` with so many threads and at most `free` bytes.
    pub fn new(source: &'s dyn ArrayStore, threads: usize, free: u64) -> Self {
        let rows = source.len().max(1);
        let known = source.max_values();
        let row_bytes = known.map_or(PIECE_BYTES / 1024, |values| values.saturating_mul(VALUE_BYTES) / rows).max(1);
        // A piece is a multiple of the rows that are stored together, some megabytes.
        let run = source.run_rows().max(1);
        let piece = (PIECE_BYTES / row_bytes).clamp(1, PIECE_ROWS).div_ceil(run).saturating_mul(run).min(rows);
        let buffers = piece.saturating_mul(row_bytes).saturating_mul(threads as u64);
        // Dense rows are buffered as they are, 4 bytes a value.
        let dense = match source.form() {
            Form::Sparse => 0,
            Form::Dense => buffers / 2,
        };
        // Row pointers count with the values of their piece.
        let fixed = buffers.saturating_add(dense);
        Self { source, threads, piece, fixed, min_values: source.min_values(), free }
    }

    /// Rows of each piece but the last; not 0.
    pub fn piece(&self) -> u64 {
        self.piece
    }

    /// Buffers of the threads in bytes.
    #[cfg(test)]
    pub fn fixed(&self) -> u64 {
        self.fixed
    }

    /// Reads all rows, unless `stop` is set meanwhile.
    ///
    /// # Errors
    /// The rows need more memory, which may become known only while they are read; they cannot be read; [`RequestError::Interrupted`].
    pub fn read(&self, stop: &AtomicBool) -> Result<Vec<NarrowRows>, AnnDataError> {
        self.check(0, 0)?;
        let pieces = self.source.len().div_ceil(self.piece);
        let found: Vec<OnceLock<NarrowRows>> = (0..pieces).map(|_| OnceLock::new()).collect();
        let so_far = ReadProgress::default();
        thread::scope(|scope| {
            let threads: Vec<_> =
                (0..self.threads).map(|_| scope.spawn(|| self.read_pieces(stop, &so_far, &found))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|panic| Err(self.panicked(&*panic))))
        })?;
        if stop.load(Ordering::Relaxed) {
            return Err(RequestError::Interrupted { store: self.source.name() }.into());
        }
        let missing = || self.panicked(&"a thread ended early");
        found.into_iter().map(|piece| piece.into_inner().ok_or_else(missing)).collect()
    }

    /// The loop of a thread. If it fails, the other threads stop, too.
    fn read_pieces(
        &self,
        stop: &AtomicBool,
        so_far: &ReadProgress,
        found: &[OnceLock<NarrowRows>],
    ) -> Result<(), AnnDataError> {
        let work = AssertUnwindSafe(|| {
            let mut buffers = ReadBuffers::new(self.source)?;
            while !so_far.stop.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
                let number = so_far.next.fetch_add(1, Ordering::Relaxed);
                let Some(place) = found.get(number as usize) else { break };
                let start = number * self.piece;
                let range = start..self.source.len().min(start + self.piece);
                let rows = NarrowRows::new(buffers.read(range)?)?;
                let bytes = so_far.bytes.fetch_add(rows.bytes(), Ordering::Relaxed) + rows.bytes();
                let values = so_far.values.fetch_add(rows.nnz() as u64, Ordering::Relaxed) + rows.nnz() as u64;
                self.check(values, bytes)?;
                let _ = place.set(rows);
                self.say(so_far.read.fetch_add(1, Ordering::Relaxed), found.len() as u64);
            }
            Ok(())
        });
        let end = catch_unwind(work).unwrap_or_else(|panic| Err(self.panicked(&*panic)));
        if end.is_err() {
            so_far.stop.store(true, Ordering::Relaxed);
        }
        end
    }

    /// Fails if this needs more memory than there is: `values` have been read, and take `bytes`.
    fn check(&self, values: u64, bytes: u64) -> Result<(), AnnDataError> {
        let left = self.min_values.saturating_sub(values).saturating_mul(NarrowRows::LEAST_BYTES);
        let needed = left.saturating_add(bytes).saturating_add(self.fixed);
        if needed <= self.free {
            return Ok(());
        }
        let (rows, name) = (self.source.len(), self.source.name());
        Err(AnnDataError::OutOfMemory { name, rows, needed, free: self.free })
    }

    /// Logs the progress after every tenth of the pieces.
    fn say(&self, before: u64, pieces: u64) {
        let tenth = (before + 1) * 10 / pieces;
        if pieces >= 10 && tenth > before * 10 / pieces {
            tracing::info!(
                "{} % of the {} rows of {} are in memory",
                tenth * 10,
                self.source.len(),
                self.source.name()
            );
        }
    }

    fn panicked(&self, panic: &(dyn Any + Send)) -> AnnDataError {
        AnnDataError::panicked(format!("reading {} into memory", self.source.name()), panic)
    }
}

/// Progress of all threads.
#[derive(Default)]
struct ReadProgress {
    /// Pieces that a thread has taken.
    next: AtomicU64,
    /// Pieces in memory.
    read: AtomicU64,
    /// Bytes and values of the pieces in memory.
    bytes: AtomicU64,
    values: AtomicU64,
    stop: AtomicBool,
}

/// Buffers of a thread.
struct ReadBuffers<'s> {
    reader: Box<dyn ReadRows + 's>,
    /// Rows in the form of the store.
    found: Rows,
    /// Dense rows without their zeros.
    sparse: CsrRows,
}

impl<'s> ReadBuffers<'s> {
    fn new(source: &'s dyn ArrayStore) -> Result<Self, AnnDataError> {
        let found = match source.form() {
            Form::Sparse => Rows::Sparse(CsrRows::default()),
            Form::Dense => Rows::Dense(DenseRows { columns: source.genes().len(), data: Vec::new() }),
        };
        Ok(Self { reader: source.reader()?, found, sparse: CsrRows::default() })
    }

    fn read(&mut self, range: Range<u64>) -> Result<CsrView<'_>, AnnDataError> {
        let count = (range.end - range.start) as usize;
        self.found.clear();
        self.reader.fetch(&RowSelection::Range(range), &mut self.found)?;
        self.reader.decode(&mut self.found)?;
        self.reader.unchanged()?;
        let found = match &self.found {
            Rows::Sparse(rows) => rows.view(),
            Rows::Dense(rows) => {
                self.sparse.clear();
                rows.data.chunks_exact(rows.columns.max(1)).for_each(|row| self.sparse.push_dense(row));
                self.sparse.view()
            }
        };
        let rows = found.indptr.len() - 1;
        if rows == count { Ok(found) } else { Err(RequestError::RowCount { expected: count, found: rows }.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row n has n % 3 values, which are n; of dense rows of three genes the others are 0.
    #[derive(Clone, Debug)]
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
        fn max_values(&self) -> Option<u64> {
            self.values
        }
        fn min_values(&self) -> u64 {
            if self.form == Form::Sparse { self.values.unwrap_or(0) } else { 0 }
        }
        fn labels(&self, column: &str) -> Result<Labels, AnnDataError> {
            Err(AnnDataError::Other(column.into()))
        }
        fn numbers(&self, column: &str) -> Result<Vec<f64>, AnnDataError> {
            Err(AnnDataError::Other(column.into()))
        }
        fn reader(&self) -> Result<Box<dyn ReadRows + '_>, AnnDataError> {
            Ok(Box::new(MadeReader(self)))
        }
    }

    struct MadeReader<'m>(&'m Made);

    impl ReadRows for MadeReader<'_> {
        fn fetch(&mut self, wanted: &RowSelection<'_>, out: &mut Rows) -> Result<u64, AnnDataError> {
            let RowSelection::Range(range) = wanted else { panic!("ranges are asked for") };
            assert!(range.end <= self.0.panics, "row {} is a panic", range.end);
            if range.end > self.0.fails {
                return Err(AnnDataError::Other(format!("row {} is broken", range.end).into()));
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
        fn decode(&mut self, _: &mut Rows) -> Result<(), AnnDataError> {
            Ok(())
        }
    }

    #[test]
    fn rows_of_many_pieces_are_in_order() {
        for (threads, form) in (1..5).zip([Form::Sparse, Form::Dense, Form::Sparse, Form::Dense]) {
            let store = MemoryStore::read(Box::new(Made { form, ..Made::default() }), threads, u64::MAX).unwrap();
            let rows = store.resident().unwrap();
            assert_eq!(rows.len(), 200_000);
            let mut reader = store.reader().unwrap();
            let mut found = Rows::Sparse(CsrRows::default());
            reader.fetch(&RowSelection::Range(0..200_000), &mut found).unwrap();
            let Rows::Sparse(found) = found else { panic!() };
            for row in 0..200_000 {
                let (indices, data) = found.view().row(row);
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
    fn an_interrupt_ends_reading() {
        let store = Box::new(Made { rows: 1_000_000, ..Made::default() });
        let e = MemoryStore::read_unless(store, 2, u64::MAX, &AtomicBool::new(true)).unwrap_err();
        assert!(matches!(e, AnnDataError::Request(RequestError::Interrupted { .. })), "{e}");
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
    fn only_what_is_kept_counts() {
        // One value a row is kept in the mean, of three; as float32, since row numbers are above 65,535.
        let free = |store: &Made| {
            let kept = MemoryStore::read(Box::new(store.clone()), 1, u64::MAX).unwrap();
            assert!(kept.pieces.len() > 3, "{}", kept.pieces.len());
            kept.rows().bytes() + MemoryPlan::new(store, 1, 0).fixed()
        };
        for (form, values) in [(Form::Dense, 600_000), (Form::Sparse, 199_999)] {
            let store = Made { form, values: Some(values), ..Made::default() };
            let free = free(&store);
            MemoryStore::read(Box::new(store.clone()), 1, free).unwrap();
            let e = MemoryStore::read(Box::new(store), 1, free - 1).unwrap_err().to_string();
            assert!(e.contains("GiB at least"), "{e}");
        }
    }

    #[test]
    fn rows_beyond_the_end_are_refused() {
        let store = MemoryStore::read(Box::new(Made { rows: 3, ..Made::default() }), 1, u64::MAX).unwrap();
        let mut reader = store.reader().unwrap();
        let mut rows = Rows::Sparse(CsrRows::default());
        for wanted in [
            RowSelection::Rows(&[0, 3]),
            RowSelection::Rows(&[u64::MAX]),
            RowSelection::Range(0..4),
            RowSelection::Range(7..7),
        ] {
            let e = reader.fetch(&wanted, &mut rows).unwrap_err().to_string();
            assert!(e.contains("asked for, and there are 3 rows in the array"), "{e}");
        }
        assert_eq!(rows, Rows::Sparse(CsrRows::default()));
        reader.fetch(&RowSelection::Rows(&[2, 0, 1]), &mut rows).unwrap();
        let expected = CsrRows { indptr: vec![0, 2, 2, 3], indices: vec![0, 1, 0], data: vec![2.0, 2.0, 1.0] };
        assert_eq!(rows, Rows::Sparse(expected));
    }
}
