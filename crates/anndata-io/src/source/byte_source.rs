use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::source::local_file::{LocalFile, allow_open_files};
use crate::source::remote::object::{PendingRange, RemoteObject};
use crate::{Ahead, AnnDataError};

/// One file or remote object, or many that have one space of addresses: each begins where the one before it ends. Read at
/// positions, so that a file that is cut short while it is read is an error (a mapped one would end the process with SIGBUS).
#[derive(Debug)]
pub(crate) struct ByteSource {
    path: PathBuf,
    parts: Vec<SourceFile>,
    /// Address behind the last byte of each part.
    ends: Vec<u64>,
}

impl ByteSource {
    /// One file, or the remote object that `path` is the URL of. Its addresses are the positions in it.
    ///
    /// # Errors
    /// There is none, or it cannot be opened.
    pub fn open(path: &Path) -> Result<Self, AnnDataError> {
        Self::of_parts(path, vec![SourceFile::open(path)?])
    }

    /// The files of a folder, `names` being their paths from there. All of them are kept open.
    ///
    /// # Errors
    /// One is not there or cannot be opened; they are more than a process may have open.
    pub fn open_folder(folder: &Path, names: &[PathBuf]) -> Result<Self, AnnDataError> {
        allow_open_files(names.len())?;
        let files: Result<_, _> = names.iter().map(|name| SourceFile::open(&folder.join(name))).collect();
        Self::of_parts(folder, files?)
    }

    /// Remote objects below `path`.
    ///
    /// # Errors
    /// They have more bytes than can be counted.
    pub fn of_objects(path: &Path, objects: Vec<Arc<RemoteObject>>) -> Result<Self, AnnDataError> {
        Self::of_parts(path, objects.into_iter().map(SourceFile::Remote).collect())
    }

    fn of_parts(path: &Path, parts: Vec<SourceFile>) -> Result<Self, AnnDataError> {
        let mut end = 0u64;
        let mut ends = Vec::with_capacity(parts.len());
        for part in &parts {
            end = end.checked_add(part.bytes()).ok_or_else(|| AnnDataError::damaged(path, "has too many bytes"))?;
            ends.push(end);
        }
        Ok(Self { path: path.to_owned(), parts, ends })
    }

    /// The file, or the folder that all files are in.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of all files when they were opened.
    pub fn bytes(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Addresses of the n-th file.
    pub fn part(&self, n: usize) -> std::ops::Range<u64> {
        self.start(n)..self.ends[n]
    }

    fn start(&self, n: usize) -> u64 {
        n.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// An error that says what is wrong with it.
    pub fn damaged(&self, reason: impl ToString) -> AnnDataError {
        // Where a server did not send what was asked for, that is what is wrong.
        let failure = self.parts.iter().find_map(|part| match part {
            SourceFile::Remote(object) => object.failure(),
            SourceFile::Local(_) => None,
        });
        failure.unwrap_or_else(|| AnnDataError::damaged(&self.path, reason))
    }

    /// It is read over a network: what will be read is better asked for early.
    pub fn is_remote(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, SourceFile::Remote(_)))
    }

    /// Read all pieces. One that reaches over the end of a file goes on in the next.
    ///
    /// # Errors
    /// A file cannot be read, ends before the piece does, or is not what was opened.
    pub fn read_all(&self, pieces: &[ReadRange], into: &mut [MaybeUninit<u8>]) -> Result<(), AnnDataError> {
        let mut late = PendingReads::default();
        self.read_cached(pieces, into, &mut late)?;
        self.read_late(&mut late, into)
    }

    /// Read what is there at once: in memory, or in the cache of remote objects. The rest goes to `late`, for
    /// [`Self::read_late`], and is asked for all at once: a disk or a server that works on many parts is many times as fast as
    /// one that is given one after another. Of a local file what is large is left to the system, which reads ahead.
    ///
    /// # Errors
    /// As [`Self::read_all`].
    pub fn read_cached(
        &self,
        pieces: &[ReadRange],
        into: &mut [MaybeUninit<u8>],
        late: &mut PendingReads,
    ) -> Result<(), AnnDataError> {
        late.clear();
        let mut remote: Vec<(usize, Vec<ReadRange>)> = Vec::new();
        for piece in pieces {
            let mut piece = *piece;
            while piece.len > 0 {
                let (n, len) = self.find(&piece)?;
                let start = self.start(n);
                let within = ReadRange { offset: piece.offset - start, len, ..piece };
                match &self.parts[n] {
                    SourceFile::Local(part) => {
                        part.read.store(true, Ordering::Release);
                        let rest = part.file.read_cached(&within, into)?;
                        late.local.extend(rest.map(|rest| ReadRange { offset: rest.offset + start, ..rest }));
                    }
                    SourceFile::Remote(_) => add_range(&mut remote, n, within),
                }
                piece = piece.behind(len);
            }
        }
        let mut arriving = Vec::new();
        for (n, pieces) in remote {
            if let SourceFile::Remote(object) = &self.parts[n] {
                object.begin(&pieces, into, &mut arriving)?;
                late.remote.extend(arriving.drain(..).map(|arriving| (n, arriving)));
            }
        }
        Ok(())
    }

    /// Wait for what [`Self::read_cached`] has left.
    ///
    /// # Errors
    /// As [`Self::read_all`].
    pub fn read_late(&self, late: &mut PendingReads, into: &mut [MaybeUninit<u8>]) -> Result<(), AnnDataError> {
        for piece in late.local.drain(..) {
            // It is of one file: the piece was parted before.
            let (n, _) = self.find(&piece)?;
            if let SourceFile::Local(part) = &self.parts[n] {
                part.file.wait(&ReadRange { offset: piece.offset - self.start(n), ..piece }, into)?;
            }
        }
        for (n, arriving) in late.remote.drain(..) {
            if let SourceFile::Remote(object) = &self.parts[n] {
                arriving.take(into).map_err(|failure| object.failed(failure))?;
                object.succeeded();
            }
        }
        Ok(())
    }

    /// Have remote pieces asked for that will be read later, in this order, as far as there is room for them. Does nothing for
    /// local files, which the system reads ahead.
    ///
    /// # Errors
    /// A piece is beyond the end.
    pub fn will_need(&self, pieces: &[ReadRange]) -> Result<Ahead, AnnDataError> {
        let mut remote: Vec<(usize, Vec<ReadRange>)> = Vec::new();
        for piece in pieces {
            let mut piece = *piece;
            while piece.len > 0 {
                let (n, len) = self.find(&piece)?;
                add_range(&mut remote, n, ReadRange { offset: piece.offset - self.start(n), len, ..piece });
                piece = piece.behind(len);
            }
        }
        let mut ahead = Ahead::default();
        for (n, pieces) in remote {
            if let SourceFile::Remote(object) = &self.parts[n] {
                ahead.add(object.ahead(&pieces)?);
            }
        }
        Ok(ahead)
    }

    /// Read a little of one file, as do those who look where things lie: what is near it in a remote object is kept for the
    /// next time.
    ///
    /// # Errors
    /// As [`Self::read_all`].
    pub fn read_near(&self, offset: u64, into: &mut [u8]) -> Result<(), AnnDataError> {
        let piece = ReadRange { offset, at: 0, len: into.len() };
        let (n, len) = self.find(&piece)?;
        match &self.parts[n] {
            SourceFile::Remote(object) if len == piece.len => object.read_near(offset - self.start(n), into),
            _ => self.read_all(&[piece], as_uninit(into)),
        }
    }

    /// The part that the piece begins in, and how much of the piece that has.
    fn find(&self, piece: &ReadRange) -> Result<(usize, usize), AnnDataError> {
        if self.parts.len() == 1 {
            // One file: the file itself says what is beyond its end.
            return Ok((0, piece.len));
        }
        let n = self.ends.partition_point(|end| *end <= piece.offset);
        match self.ends.get(n) {
            Some(end) if piece.offset.checked_add(piece.len as u64).is_some_and(|end| end <= self.bytes()) => {
                let here = usize::try_from(end - piece.offset).unwrap_or(usize::MAX);
                Ok((n, here.min(piece.len)))
            }
            _ => Err(self.damaged(format!("has no {} bytes at address {} of its files", piece.len, piece.offset))),
        }
    }

    /// An error if one of the files that were read is not as it was opened, or has no name any more.
    ///
    /// # Errors
    /// [`AnnDataError::Rewritten`], or the system does not say.
    pub fn unchanged(&self) -> Result<(), AnnDataError> {
        if let [part] = &self.parts[..] {
            return part.unchanged();
        }
        // Whoever takes the mark looks after the bytes were read, whoever has read them.
        let was_read = |part: &&SourceFile| match part {
            SourceFile::Local(part) => part.read.swap(false, Ordering::AcqRel),
            SourceFile::Remote(_) => true,
        };
        self.parts.iter().filter(was_read).try_for_each(SourceFile::unchanged)
    }

    /// An error if what is at the path of any file now is another file than was opened: for what is opened by its path once more.
    ///
    /// # Errors
    /// As [`Self::unchanged`].
    pub fn at_path(&self) -> Result<(), AnnDataError> {
        self.parts.iter().try_for_each(SourceFile::at_path)
    }
}

/// Add to the pieces of part `n`.
fn add_range(pieces: &mut Vec<(usize, Vec<ReadRange>)>, n: usize, piece: ReadRange) {
    match pieces.iter_mut().rfind(|(of, _)| *of == n) {
        Some((_, pieces)) => pieces.push(piece),
        None => pieces.push((n, vec![piece])),
    }
}

/// Bytes as a place for bytes.
pub(crate) fn as_uninit(bytes: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: the same memory, as long; whoever gets it writes bytes only, none that is not initialised.
    unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len()) }
}

/// A file, wherever it is.
#[derive(Debug)]
enum SourceFile {
    /// Of this machine.
    Local(LocalSourceFile),
    /// Of a server.
    Remote(Arc<RemoteObject>),
}

/// A file of this machine.
#[derive(Debug)]
struct LocalSourceFile {
    pub file: LocalFile,
    /// It was read since somebody looked whether it is unchanged.
    pub read: AtomicBool,
}

impl SourceFile {
    /// Open the file at a path, or the object at a URL.
    pub fn open(path: &Path) -> Result<Self, AnnDataError> {
        match url_of(path) {
            Some(url) => Ok(Self::Remote(RemoteObject::open(url)?)),
            None => Ok(Self::Local(LocalSourceFile { file: LocalFile::open(path)?, read: AtomicBool::new(false) })),
        }
    }

    pub fn bytes(&self) -> u64 {
        match self {
            Self::Local(part) => part.file.bytes(),
            Self::Remote(object) => object.bytes(),
        }
    }

    /// An error if what was read of it may be of something else than was opened.
    pub fn unchanged(&self) -> Result<(), AnnDataError> {
        match self {
            Self::Local(part) => part.file.unchanged(),
            Self::Remote(object) => object.unchanged(),
        }
    }

    /// An error if what others open at its path may be something else. Whoever opens a remote object that is open reads the
    /// same version of it.
    pub fn at_path(&self) -> Result<(), AnnDataError> {
        match self {
            Self::Local(part) => part.file.at_path(),
            Self::Remote(object) => object.unchanged(),
        }
    }
}

/// Whether a file is named by a URL: an object of S3, of Google Cloud Storage, or of a server.
fn is_url(name: &str) -> bool {
    ["s3://", "gs://", "http://", "https://"].iter().any(|scheme| name.starts_with(scheme))
}

/// The URL that a path is, if it is one.
pub(crate) fn url_of(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| is_url(text))
}

/// What was asked for and is still to be waited for. What is let go of is not waited for, and may never come.
#[derive(Debug, Default)]
pub(crate) struct PendingReads {
    /// Of local files.
    pub local: Vec<ReadRange>,
    /// Of remote objects, with the number of each.
    pub remote: Vec<(usize, PendingRange)>,
}

impl PendingReads {
    /// Bytes of memory held, used or not.
    pub fn capacity_bytes(&self) -> usize {
        self.local.capacity() * size_of::<ReadRange>() + self.remote.capacity() * size_of::<(usize, PendingRange)>()
    }

    pub fn clear(&mut self) {
        self.local.clear();
        self.remote.clear();
    }
}

/// A part of a source, and where in a buffer it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadRange {
    /// First byte in the source.
    pub offset: u64,
    /// First byte in the buffer.
    pub at: usize,
    /// Bytes.
    pub len: usize,
}

impl ReadRange {
    /// What is left of it when `done` bytes are there.
    pub const fn behind(&self, done: usize) -> Self {
        Self { offset: self.offset + done as u64, at: self.at + done, len: self.len - done }
    }
}

/// Write `bytes` to memory, which is as long.
pub(crate) fn copy_to_uninit(into: &mut [MaybeUninit<u8>], bytes: &[u8]) {
    into.iter_mut().zip(bytes).for_each(|(to, byte)| {
        to.write(*byte);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(source: &ByteSource, offset: u64, len: usize) -> Result<Vec<u8>, AnnDataError> {
        let mut into = vec![MaybeUninit::uninit(); len];
        source.read_all(&[ReadRange { offset, at: 0, len }], &mut into)?;
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
        let source = ByteSource::open_folder(folder.path(), &names).unwrap();
        assert_eq!((source.bytes(), source.part(0), source.part(2)), (8, 0..3, 3..8));
        assert_eq!(read(&source, 1, 2).unwrap(), b"bc");
        assert_eq!(read(&source, 3, 5).unwrap(), b"defgh");
        assert_eq!(read(&source, 1, 6).unwrap(), b"bcdefg", "over an end, and an empty file");
        for (offset, len) in [(2, 7), (7, 2), (8, 1), (u64::MAX, 1)] {
            assert!(matches!(read(&source, offset, len), Err(AnnDataError::Damaged { .. })), "{offset}");
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
        let source = ByteSource::open_folder(folder.path(), &names).unwrap();
        read(&source, 0, 3).unwrap();
        source.unchanged().unwrap();
        std::fs::write(folder.path().join("b"), "xyz").unwrap();
        source.unchanged().unwrap();
        assert!(matches!(source.at_path(), Err(AnnDataError::Rewritten { .. })));
        read(&source, 3, 3).unwrap();
        assert!(matches!(source.unchanged(), Err(AnnDataError::Rewritten { .. })));
    }
}
