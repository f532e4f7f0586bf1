use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::Piece;
use super::local::LocalFile;
use crate::PipelineError;
use crate::array::limit::allow_open_files;

/// One file, or many that have one space of addresses: each begins where the one before it ends. Read at positions, so that a
/// file that is cut short while it is read is an error (a mapped one would end the process with SIGBUS).
#[derive(Debug)]
pub(in crate::array) struct Source {
    path: PathBuf,
    parts: Vec<Part>,
    /// Address behind the last byte of each part.
    ends: Vec<u64>,
}

/// One of the files.
#[derive(Debug)]
struct Part {
    file: LocalFile,
    /// It was read since somebody looked whether it is unchanged.
    read: AtomicBool,
}

impl Source {
    /// One file. Its addresses are the positions in it.
    ///
    /// # Errors
    /// There is none, or it cannot be opened.
    pub(in crate::array) fn open(path: &Path) -> Result<Self, PipelineError> {
        Self::of_parts(path, vec![LocalFile::open(path)?])
    }

    /// The files of a folder, `names` being their paths from there. All of them are kept open.
    ///
    /// # Errors
    /// One is not there or cannot be opened; they are more than a process may have open.
    pub(in crate::array) fn open_folder(folder: &Path, names: &[PathBuf]) -> Result<Self, PipelineError> {
        allow_open_files(names.len())?;
        let files: Result<_, _> = names.iter().map(|name| LocalFile::open(&folder.join(name))).collect();
        Self::of_parts(folder, files?)
    }

    fn of_parts(path: &Path, files: Vec<LocalFile>) -> Result<Self, PipelineError> {
        let mut end = 0u64;
        let mut ends = Vec::with_capacity(files.len());
        for file in &files {
            end = end.checked_add(file.bytes()).ok_or_else(|| PipelineError::damaged(path, "has too many bytes"))?;
            ends.push(end);
        }
        let parts = files.into_iter().map(|file| Part { file, read: AtomicBool::new(false) }).collect();
        Ok(Self { path: path.to_owned(), parts, ends })
    }

    /// The file, or the folder that all files are in.
    pub(in crate::array) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of all files when they were opened.
    pub(in crate::array) fn bytes(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Addresses of the n-th file.
    pub(in crate::array) fn part(&self, n: usize) -> std::ops::Range<u64> {
        self.start(n)..self.ends[n]
    }

    fn start(&self, n: usize) -> u64 {
        n.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// An error that says what is wrong with it.
    pub(in crate::array) fn damaged(&self, reason: impl ToString) -> PipelineError {
        PipelineError::damaged(&self.path, reason)
    }

    /// Read all pieces. One that reaches over the end of a file goes on in the next.
    ///
    /// # Errors
    /// A file cannot be read, ends before the piece does, or is not what was opened.
    pub(in crate::array) fn read_all(
        &self,
        pieces: &[Piece],
        into: &mut [MaybeUninit<u8>],
    ) -> Result<(), PipelineError> {
        let mut late = Vec::new();
        self.read_cached(pieces, into, &mut late)?;
        self.read_late(&late, into)
    }

    /// Read what is in memory. The rest goes to `late`, for [`Self::read_late`], and the system is told to get what is small of
    /// it, all at once: a disk that works on many parts is many times as fast as one that is given one after another.
    ///
    /// # Errors
    /// As [`Self::read_all`].
    pub(in crate::array) fn read_cached(
        &self,
        pieces: &[Piece],
        into: &mut [MaybeUninit<u8>],
        late: &mut Vec<Piece>,
    ) -> Result<(), PipelineError> {
        late.clear();
        for piece in pieces {
            let mut piece = *piece;
            while piece.len > 0 {
                let (part, start, len) = self.find(&piece)?;
                part.read.store(true, Ordering::Release);
                let rest = part.file.read_cached(&Piece { offset: piece.offset - start, len, ..piece }, into)?;
                late.extend(rest.map(|rest| Piece { offset: rest.offset + start, ..rest }));
                piece = piece.behind(len);
            }
        }
        Ok(())
    }

    /// Wait for what [`Self::read_cached`] has left.
    ///
    /// # Errors
    /// As [`Self::read_all`].
    pub(in crate::array) fn read_late(
        &self,
        late: &[Piece],
        into: &mut [MaybeUninit<u8>],
    ) -> Result<(), PipelineError> {
        for piece in late {
            // It is of one file: the piece was parted before.
            let (part, start, len) = self.find(piece)?;
            part.file.wait(&Piece { offset: piece.offset - start, len, ..*piece }, into)?;
        }
        Ok(())
    }

    /// The part that the piece begins in, the address at which that begins, and how much of the piece it has.
    fn find(&self, piece: &Piece) -> Result<(&Part, u64, usize), PipelineError> {
        if let [part] = &self.parts[..] {
            // One file: the file itself says what is beyond its end.
            return Ok((part, 0, piece.len));
        }
        let n = self.ends.partition_point(|end| *end <= piece.offset);
        match self.parts.get(n) {
            Some(part) if piece.offset.checked_add(piece.len as u64).is_some_and(|end| end <= self.bytes()) => {
                let here = usize::try_from(self.ends[n] - piece.offset).unwrap_or(usize::MAX);
                Ok((part, self.start(n), here.min(piece.len)))
            }
            _ => Err(self.damaged(format!("has no {} bytes at address {} of its files", piece.len, piece.offset))),
        }
    }

    /// An error if one of the files that were read is not as it was opened, or has no name any more.
    ///
    /// # Errors
    /// [`PipelineError::Rewritten`], or the system does not say.
    pub(in crate::array) fn unchanged(&self) -> Result<(), PipelineError> {
        if let [part] = &self.parts[..] {
            return part.file.unchanged();
        }
        // Whoever takes the mark looks after the bytes were read, whoever has read them.
        self.parts
            .iter()
            .filter(|part| part.read.swap(false, Ordering::AcqRel))
            .try_for_each(|part| part.file.unchanged())
    }

    /// An error if what is at the path of any file now is another file than was opened: for what is opened by its path once more.
    ///
    /// # Errors
    /// As [`Self::unchanged`].
    pub(in crate::array) fn at_path(&self) -> Result<(), PipelineError> {
        self.parts.iter().try_for_each(|part| part.file.at_path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(source: &Source, offset: u64, len: usize) -> Result<Vec<u8>, PipelineError> {
        let mut into = vec![MaybeUninit::uninit(); len];
        source.read_all(&[Piece { offset, at: 0, len }], &mut into)?;
        // SAFETY: all of it was read.
        Ok(into.into_iter().map(|byte| unsafe { byte.assume_init() }).collect())
    }

    #[test]
    fn files_have_one_space_of_addresses() {
        let folder = tempfile::tempdir().unwrap();
        let names: Vec<PathBuf> = ["a", "b", "c"].into_iter().map(PathBuf::from).collect();
        for (name, text) in names.iter().zip(["abc", "", "defgh"]) {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let source = Source::open_folder(folder.path(), &names).unwrap();
        assert_eq!((source.bytes(), source.part(0), source.part(2)), (8, 0..3, 3..8));
        assert_eq!(read(&source, 1, 2).unwrap(), b"bc");
        assert_eq!(read(&source, 3, 5).unwrap(), b"defgh");
        assert_eq!(read(&source, 1, 6).unwrap(), b"bcdefg", "over an end, and an empty file");
        for (offset, len) in [(2, 7), (7, 2), (8, 1), (u64::MAX, 1)] {
            assert!(matches!(read(&source, offset, len), Err(PipelineError::Damaged { .. })), "{offset}");
        }
    }

    #[test]
    fn a_file_of_a_folder_that_changes_is_seen_by_who_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let names = [PathBuf::from("a"), PathBuf::from("b")];
        for name in &names {
            let path = folder.path().join(name);
            std::fs::write(&path, "abc").unwrap();
            std::fs::File::options().write(true).open(path).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        }
        let source = Source::open_folder(folder.path(), &names).unwrap();
        read(&source, 0, 3).unwrap();
        source.unchanged().unwrap();
        std::fs::write(folder.path().join("b"), "xyz").unwrap();
        source.unchanged().unwrap();
        assert!(matches!(source.at_path(), Err(PipelineError::Rewritten { .. })));
        read(&source, 3, 3).unwrap();
        assert!(matches!(source.unchanged(), Err(PipelineError::Rewritten { .. })));
    }
}
