use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::PathBuf;

use super::out;
use crate::exit::Failure;

/// Read at once: a log may be larger than the memory.
const CHUNK: u64 = 1 << 20;

/// A text file that grows, and may not be there yet.
pub(super) struct Tail {
    path: PathBuf,
    prefix: String,
    offset: u64,
    /// A line without its end.
    rest: Vec<u8>,
}

impl Tail {
    /// Print all of a file, each line behind `prefix`.
    pub(super) fn new(path: PathBuf, prefix: String) -> Self {
        Self { path, prefix, offset: 0, rest: Vec::new() }
    }

    /// Leave out what is there already, but for the last `lines` lines.
    pub(super) fn skip_to_last(&mut self, lines: u64) -> Result<(), Failure> {
        if let Some(mut file) = self.open()? {
            self.offset = start_of_last(&mut file, lines).map_err(|e| self.failed(&e))?;
        }
        Ok(())
    }

    /// Print the whole lines that are new.
    pub(super) fn print(&mut self) -> Result<(), Failure> {
        let Some(mut file) = self.open()? else { return Ok(()) };
        let size = file.metadata().map_err(|e| self.failed(&e))?.len();
        if size < self.offset {
            // Written anew.
            (self.offset, self.rest) = (0, Vec::new());
        }
        file.seek(SeekFrom::Start(self.offset)).map_err(|e| self.failed(&e))?;
        loop {
            let n = file.by_ref().take(CHUNK).read_to_end(&mut self.rest).map_err(|e| self.failed(&e))?;
            self.offset += n as u64;
            let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            let lines: Vec<u8> = self.rest.drain(..whole).collect();
            for line in String::from_utf8_lossy(&lines).lines() {
                out(format_args!("{}{line}", self.prefix));
            }
            if n == 0 {
                return Ok(());
            }
        }
    }

    /// Print what is new to the end, also a last line that has no end.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        self.print()?;
        if !self.rest.is_empty() {
            out(format_args!("{}{}", self.prefix, String::from_utf8_lossy(&std::mem::take(&mut self.rest))));
        }
        Ok(())
    }

    fn open(&self) -> Result<Option<File>, Failure> {
        match File::open(&self.path) {
            Ok(file) => Ok(Some(file)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(self.failed(&e)),
        }
    }

    fn failed(&self, e: &std::io::Error) -> Failure {
        Failure::internal(format!("cannot read {}: {e}", self.path.display()))
    }
}

/// Where the last `lines` lines begin; one without an end counts. Reads from the end on, as far as it has to.
fn start_of_last(file: &mut File, lines: u64) -> std::io::Result<u64> {
    let size = file.metadata()?.len();
    if lines == 0 {
        return Ok(size);
    }
    let mut from = size;
    let mut ends = 0;
    let mut chunk = Vec::new();
    while from > 0 {
        let to = from;
        from = from.saturating_sub(CHUNK);
        file.seek(SeekFrom::Start(from))?;
        chunk.clear();
        file.by_ref().take(to - from).read_to_end(&mut chunk)?;
        for (at, _) in chunk.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let after = from + at as u64 + 1;
            // The end of the last line begins no further one.
            if after < size {
                ends += 1;
                if ends == lines {
                    return Ok(after);
                }
            }
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let last = |text: &str, lines: u64| {
            std::fs::write(&path, text).unwrap();
            let start = start_of_last(&mut File::open(&path).unwrap(), lines).unwrap();
            text[start as usize..].to_owned()
        };
        for (lines, expected) in [(0, ""), (1, "c\n"), (2, "b\nc\n"), (3, "a\nb\nc\n"), (9, "a\nb\nc\n")] {
            assert_eq!(last("a\nb\nc\n", lines), expected);
        }
        assert_eq!((last("a\nb", 1), last("a\nb", 2), last("", 3)), ("b".into(), "a\nb".into(), String::new()));
        // A line that is longer than what is read at once.
        let long = "x".repeat(CHUNK as usize + 5);
        assert_eq!(last(&format!("a\n{long}\nb\n"), 2), format!("{long}\nb\n"));
    }
}
