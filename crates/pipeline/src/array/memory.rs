use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
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
    /// Read all rows of `source` with `threads` threads. Zeros of dense rows are left out.
    ///
    /// # Errors
    /// There is less memory free than the rows need; they cannot be read.
    pub fn read(source: Box<dyn ArrayStore>, threads: usize) -> Result<Self, PipelineError> {
        let threads = threads.max(1);
        let needed = Self::bytes_needed(source.as_ref(), threads);
        if let Some(needed) = needed {
            check_memory(source.as_ref(), needed, free_memory())?;
        }
        let rows = read_all(source.as_ref(), threads)?;
        Ok(Self { source, rows })
    }

    /// Bytes of memory that reading all rows takes at most, if that is known without reading them.
    pub fn bytes_needed(source: &dyn ArrayStore, threads: usize) -> Option<u64> {
        let values = source.most_values()?.checked_mul(VALUE_BYTES)?;
        let rows = source.len().checked_add(1)?.checked_mul(ROW_BYTES)?;
        values.checked_add(rows)?.checked_add(PIECE_BYTES * buffers(threads) as u64)
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
fn read_all(source: &dyn ArrayStore, threads: usize) -> Result<CsrRows, PipelineError> {
    let rows = source.len();
    let piece = piece_rows(source);
    let pieces = rows.div_ceil(piece);
    let mut all = CsrRows::default();
    let too_many = || PipelineError::Invalid(format!("there is no memory for the {rows} rows of {}", source.name()));
    all.indptr.try_reserve_exact(usize::try_from(rows).map_err(|_| too_many())?).map_err(|_| too_many())?;
    if let Some(values) = source.most_values() {
        let values = usize::try_from(values).map_err(|_| too_many())?;
        all.indices.try_reserve_exact(values).map_err(|_| too_many())?;
        all.data.try_reserve_exact(values).map_err(|_| too_many())?;
    }
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
            scope.spawn(move || read_pieces(source, piece, next, empty, &deliver));
        }
        drop(deliver);
        // Taken by value: when this thread ends early, the others find nobody to deliver to, and end too.
        add_pieces(pieces, delivered, give_back, &mut all)
    })?;
    all.indices.shrink_to_fit();
    all.data.shrink_to_fit();
    Ok(all)
}

/// Rows of a piece: whole runs of the file, some megabytes.
fn piece_rows(source: &dyn ArrayStore) -> u64 {
    let rows = source.len().max(1);
    let row_bytes = source.most_values().map_or(PIECE_BYTES / 1024, |values| values * VALUE_BYTES / rows).max(1);
    let run = source.run_rows().max(1);
    (PIECE_BYTES / row_bytes).clamp(1, PIECE_ROWS).next_multiple_of(run)
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
        let result = read().map(|()| rows);
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
    pieces: u64,
    delivered: Receiver<Piece>,
    give_back: std::sync::mpsc::Sender<CsrRows>,
    all: &mut CsrRows,
) -> Result<(), PipelineError> {
    let mut early = BTreeMap::new();
    for number in 0..pieces {
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
        add_range(rows.view(), &(0..count), all);
        let _ = give_back.send(rows);
    }
    Ok(())
}

/// Bytes that can be had without swapping (`MemAvailable`); `None` where the system does not say.
fn free_memory() -> Option<u64> {
    let text = fs::read_to_string(Path::new("/proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// An error if `needed` bytes are more than are free.
fn check_memory(source: &dyn ArrayStore, needed: u64, free: Option<u64>) -> Result<(), PipelineError> {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    match free {
        Some(free) if needed > free => {
            let (needed, free) = (gib(needed), gib(free));
            let what = format!("{} rows of {}", source.len(), source.name());
            Err(PipelineError::Advised {
                problem: Box::new(PipelineError::Invalid(format!(
                    "reading {what} into memory needs {needed:.2} GiB, {free:.2} GiB are free"
                ))),
                advice: "leave `array.memory` out, or choose fewer genes with `array.genes`".to_owned(),
            })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store whose third piece cannot be read.
    #[derive(Debug)]
    struct Broken {
        rows: u64,
        values: Option<u64>,
    }

    impl ArrayStore for Broken {
        fn len(&self) -> u64 {
            self.rows
        }
        fn genes(&self) -> &[String] {
            &[]
        }
        fn form(&self) -> Form {
            Form::Sparse
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
            Ok(Box::new(BrokenReader))
        }
    }

    struct BrokenReader;

    impl ReadRows for BrokenReader {
        fn fetch(&mut self, wanted: &Wanted<'_>, out: &mut Rows) -> Result<u64, PipelineError> {
            let (Wanted::Range(range), Rows::Sparse(out)) = (wanted, out) else { panic!("ranges of sparse rows") };
            if range.start > 40_000 {
                return Err(PipelineError::Invalid(format!("row {} is broken", range.start)));
            }
            out.indptr.extend(range.clone().map(|_| 0));
            Ok(0)
        }
        fn decode(&mut self, _: &mut Rows) -> Result<(), PipelineError> {
            Ok(())
        }
    }

    #[test]
    fn an_error_of_a_thread_is_returned() {
        for threads in 1..5 {
            let e = MemoryStore::read(Box::new(Broken { rows: 1_000_000, values: None }), threads).unwrap_err();
            assert!(e.to_string().contains("is broken"), "{e}");
        }
        let store = MemoryStore::read(Box::new(Broken { rows: 40_000, values: None }), 3).unwrap();
        assert_eq!((store.len(), store.resident().unwrap().indptr.len()), (40_000, 40_001));
    }

    #[test]
    fn memory_that_is_not_there_is_said_before_it_is_taken() {
        let e = MemoryStore::read(Box::new(Broken { rows: 7, values: Some(1 << 50) }), 1).unwrap_err().to_string();
        assert!(e.contains("reading 7 rows of the array into memory needs 8388608.0"), "{e}");
        assert!(e.contains("GiB are free") && e.contains("array.genes"), "{e}");
        assert!(free_memory().unwrap() > 1 << 20);
    }
}
