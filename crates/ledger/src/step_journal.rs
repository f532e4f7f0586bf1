//! `rank-<r>.journal.jsonl`: the steps of a running rank, and readers that follow it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _, Seek, Write};
use std::path::{Path, PathBuf};

use crate::{LedgerError, StepRecord};

/// Append-only log of a rank's steps, one JSON object a line.
///
/// Invariant: a step is handed to the kernel when [`Journal::append`] returns, so a rank that is killed loses none of
/// the steps it finished. At a clean end it is replaced by the parquet table.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    line: Vec<u8>,
}

impl Journal {
    /// Create a journal.
    ///
    /// # Errors
    /// It exists already, since it may hold the only records of a killed rank; or it cannot be created.
    pub fn create(path: &Path) -> Result<Self, LedgerError> {
        let file = File::create_new(path).map_err(LedgerError::io("create", path))?;
        Ok(Self { file, path: path.to_owned(), line: Vec::with_capacity(1024) })
    }

    /// Append one step.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn append(&mut self, record: &StepRecord) -> Result<(), LedgerError> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, record).map_err(LedgerError::json(&self.path))?;
        self.line.push(b'\n');
        self.file.write_all(&self.line).map_err(LedgerError::io("write", &self.path))
    }

    /// Return when all steps are on disk: a checkpoint must not outlive the records of the steps before it.
    ///
    /// # Errors
    /// They cannot be flushed.
    pub fn sync(&self) -> Result<(), LedgerError> {
        self.file.sync_data().map_err(LedgerError::io("write", &self.path))
    }
}

/// Maximum bytes of a line; records have some hundred.
const MAX_LINE: u64 = 1 << 20;

/// Read all whole records of a journal, up to the first damaged one: a kill may have cut off the last line, and lines behind a damaged one
/// cannot be trusted. A file that does not exist has no records.
///
/// # Errors
/// The file exists and cannot be read.
pub fn read_journal(path: &Path) -> Result<Vec<StepRecord>, LedgerError> {
    let mut tail = JournalTail::new(path);
    let mut records = Vec::new();
    match tail.read_new(&mut records) {
        Ok(()) | Err(LedgerError::Json { .. }) => Ok(records),
        Err(e) => Err(e),
    }
}

/// Follows a journal while it is being written.
#[derive(Debug)]
pub struct JournalTail {
    path: PathBuf,
    offset: u64,
}

impl JournalTail {
    /// Follow `path`, which need not exist yet.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), offset: 0 }
    }

    /// Follow `path` from the records in its last `bytes` bytes on; from its beginning if it is shorter or does not exist yet.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn near_end(path: &Path, bytes: u64) -> Result<Self, LedgerError> {
        let mut tail = Self::new(path);
        tail.skip_to_last(bytes)?;
        Ok(tail)
    }

    /// Skip new records before the last `bytes` bytes of the file, and a line that is cut there. The cost of reading then does not grow with
    /// the steps since the last call.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn skip_to_last(&mut self, bytes: u64) -> Result<(), LedgerError> {
        let failed = || LedgerError::io("read", &self.path);
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(failed()(e)),
        };
        let start = file.metadata().map_err(failed())?.len().saturating_sub(bytes);
        if start <= self.offset {
            return Ok(());
        }
        // From one byte before: if that is the end of a line, the next one is whole.
        file.seek(std::io::SeekFrom::Start(start - 1)).map_err(failed())?;
        let mut cut = Vec::new();
        let n = BufReader::new(file).read_until(b'\n', &mut cut).map_err(failed())?;
        if cut.ends_with(b"\n") {
            self.offset = start - 1 + n as u64;
        }
        Ok(())
    }

    /// Append the records that are new since the last call. A line without its end is left for the next call.
    ///
    /// # Errors
    /// The file cannot be read, or a line is damaged.
    pub fn read_new(&mut self, records: &mut Vec<StepRecord>) -> Result<(), LedgerError> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(LedgerError::io("read", &self.path)(e)),
        };
        file.seek(std::io::SeekFrom::Start(self.offset)).map_err(LedgerError::io("read", &self.path))?;
        let mut reader = BufReader::new(&mut file);
        let mut line = String::new();
        loop {
            line.clear();
            let n = reader.by_ref().take(MAX_LINE).read_line(&mut line).map_err(LedgerError::io("read", &self.path))?;
            // A line that does not end is no record, and is not read on to wherever it ends.
            if !line.ends_with('\n') && (n as u64) < MAX_LINE {
                return Ok(());
            }
            self.offset += n as u64;
            let record = serde_json::from_str(&line).map_err(LedgerError::json(&self.path))?;
            records.push(record);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_off_last_line_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let mut journal = Journal::create(&path).unwrap();
        for step in 0..3 {
            journal.append(&StepRecord { step, ..StepRecord::default() }).unwrap();
        }
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 5]).unwrap();
        let records = read_journal(&path).unwrap();
        assert_eq!(records.iter().map(|r| r.step).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn what_stands_before_a_damaged_line_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let mut journal = Journal::create(&path).unwrap();
        for step in 0..4 {
            journal.append(&StepRecord { step, ..StepRecord::default() }).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap().replace("{\"step\":2", "{?");
        std::fs::write(&path, text).unwrap();
        assert_eq!(read_journal(&path).unwrap().len(), 2);
        assert!(read_journal(&dir.path().join("absent")).unwrap().is_empty());
    }

    #[test]
    fn a_line_without_end_is_not_read_into_memory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let mut journal = Journal::create(&path).unwrap();
        journal.append(&StepRecord::default()).unwrap();
        // A hole: zeros without a line end.
        File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read_journal(&path).unwrap().len(), 1);
    }

    #[test]
    fn a_tail_near_the_end_begins_with_a_whole_record() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let steps = |tail: &mut JournalTail| {
            let mut seen = Vec::new();
            tail.read_new(&mut seen).unwrap();
            seen.iter().map(|r| r.step).collect::<Vec<_>>()
        };
        let mut absent = JournalTail::near_end(&path, 10).unwrap();
        let mut journal = Journal::create(&path).unwrap();
        for step in 0..10 {
            journal.append(&StepRecord { step, ..StepRecord::default() }).unwrap();
        }
        let size = std::fs::metadata(&path).unwrap().len();
        let line = size / 10;
        assert_eq!(steps(&mut absent), (0..10).collect::<Vec<_>>());
        for (bytes, first) in [(0, 10), (1, 10), (line - 1, 10), (line, 9), (line + 1, 9), (size - 1, 1), (size, 0)] {
            let mut tail = JournalTail::near_end(&path, bytes).unwrap();
            assert_eq!(steps(&mut tail), (first..10).collect::<Vec<_>>(), "the last {bytes} bytes");
        }
        // Later records are left out in the same way.
        let mut tail = JournalTail::near_end(&path, 0).unwrap();
        for step in 10..15 {
            journal.append(&StepRecord { step, ..StepRecord::default() }).unwrap();
        }
        tail.skip_to_last(2 * line + 5).unwrap();
        assert_eq!(steps(&mut tail), [13, 14]);
        tail.skip_to_last(size).unwrap();
        assert_eq!(steps(&mut tail), [0; 0]);
    }

    #[test]
    fn the_tail_delivers_each_record_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let mut tail = JournalTail::new(&path);
        let mut seen = Vec::new();
        tail.read_new(&mut seen).unwrap();
        assert!(seen.is_empty());
        let mut journal = Journal::create(&path).unwrap();
        for step in 0..4 {
            journal.append(&StepRecord { step, ..StepRecord::default() }).unwrap();
            tail.read_new(&mut seen).unwrap();
        }
        assert_eq!(seen.iter().map(|r| r.step).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }
}
