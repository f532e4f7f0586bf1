use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::NarrowRows;
use crate::AnnDataError;
use crate::{ArrayStore, CsrRows, CsrView, DenseRows, Form, ReadRows, Rows, Wanted};

/// Bytes of values, as int32 and float32, that a thread reads at once.
const PIECE_BYTES: u64 = 32 << 20;
/// Rows that a thread reads at most at once.
const PIECE_ROWS: u64 = 1 << 16;
/// Bytes of a value with its column, as they are read.
const VALUE_BYTES: u64 = 8;

/// How all rows are read, and what that takes.
pub struct Plan<'s> {
    source: &'s dyn ArrayStore,
    threads: usize,
    /// Rows of a piece; not 0.
    piece: u64,
    /// Bytes of what threads read with.
    fixed: u64,
    /// Values that all rows have at least.
    least_values: u64,
    free: u64,
}

impl<'s> Plan<'s> {
    /// Reading all of `source` with this many threads into at most `free` bytes.
    pub fn new(source: &'s dyn ArrayStore, threads: usize, free: u64) -> Self {
        let rows = source.len().max(1);
        let known = source.most_values();
        let row_bytes = known.map_or(PIECE_BYTES / 1024, |values| values.saturating_mul(VALUE_BYTES) / rows).max(1);
        // Whole runs of the file, some megabytes.
        let run = source.run_rows().max(1);
        let piece = (PIECE_BYTES / row_bytes).clamp(1, PIECE_ROWS).div_ceil(run).saturating_mul(run).min(rows);
        let buffers = piece.saturating_mul(row_bytes).saturating_mul(threads as u64);
        // Dense rows are first read as they are, 4 bytes a value.
        let dense = match source.form() {
            Form::Sparse => 0,
            Form::Dense => buffers / 2,
        };
        // Where rows start counts with the values, as they come.
        let fixed = buffers.saturating_add(dense);
        Self { source, threads, piece, fixed, least_values: source.least_values(), free }
    }

    /// Rows of each piece but the last; not 0.
    pub fn piece(&self) -> u64 {
        self.piece
    }

    /// Bytes of what threads read with.
    #[cfg(test)]
    pub fn fixed(&self) -> u64 {
        self.fixed
    }

    /// Read everything.
    ///
    /// # Errors
    /// The rows need more memory (how much, shows as they are read, since it depends on the values); they cannot be read.
    pub fn read(&self) -> Result<Vec<NarrowRows>, AnnDataError> {
        self.check(0, 0)?;
        let pieces = self.source.len().div_ceil(self.piece);
        let found: Vec<OnceLock<NarrowRows>> = (0..pieces).map(|_| OnceLock::new()).collect();
        let so_far = SoFar::default();
        thread::scope(|scope| {
            let threads: Vec<_> =
                (0..self.threads).map(|_| scope.spawn(|| self.read_pieces(&so_far, &found))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|panic| Err(self.panicked(&*panic))))
        })?;
        let missing = || AnnDataError::Invalid("a thread that reads rows into memory ended early".to_owned());
        found.into_iter().map(|piece| piece.into_inner().ok_or_else(missing)).collect()
    }

    /// What a thread does. When it ends early, the others stop too.
    fn read_pieces(&self, so_far: &SoFar, found: &[OnceLock<NarrowRows>]) -> Result<(), AnnDataError> {
        let work = AssertUnwindSafe(|| {
            let mut buffers = Buffers::new(self.source)?;
            while !so_far.stop.load(Ordering::Relaxed) {
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

    /// An error if this needs more memory than there is: `values` have been read, and take `bytes`.
    fn check(&self, values: u64, bytes: u64) -> Result<(), AnnDataError> {
        let left = self.least_values.saturating_sub(values).saturating_mul(NarrowRows::LEAST_BYTES);
        let needed = left.saturating_add(bytes).saturating_add(self.fixed);
        if needed <= self.free {
            return Ok(());
        }
        let (rows, name) = (self.source.len(), self.source.name());
        Err(AnnDataError::OutOfMemory { name, rows, needed, free: self.free })
    }

    /// Every tenth of the pieces is said when it is there: of many, which take a while.
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
        AnnDataError::panicked(&format!("reading {} into memory", self.source.name()), panic)
    }
}

/// What all threads have done.
#[derive(Default)]
struct SoFar {
    /// Pieces that a thread has taken.
    next: AtomicU64,
    /// Pieces that are in memory.
    read: AtomicU64,
    /// Bytes of the pieces that are in memory, and their values.
    bytes: AtomicU64,
    values: AtomicU64,
    stop: AtomicBool,
}

/// What a thread reads with.
struct Buffers<'s> {
    reader: Box<dyn ReadRows + 's>,
    /// In the form of the store.
    found: Rows,
    /// Dense rows without their zeros.
    sparse: CsrRows,
}

impl<'s> Buffers<'s> {
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
        self.reader.fetch(&Wanted::Range(range), &mut self.found)?;
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
        if rows == count {
            Ok(found)
        } else {
            Err(AnnDataError::Invalid(format!("{count} rows were asked for, and {rows} came")))
        }
    }
}
