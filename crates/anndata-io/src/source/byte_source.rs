//! `ByteSource`: local files or remote objects in one address space, from which all readers of matrices get their bytes.
//! Invariant: the reads of one call are in flight together, before one of them is waited for; only large local ranges are left to the system's
//! read-ahead.

use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::DamageKind;
use crate::source::SourceError;
use crate::source::local_file::{LocalFile, allow_open_files};
use crate::source::remote::object::{PendingRange, RemoteObject};
use crate::{AnnDataError, Prefetch};

/// One file or remote object, or several in one address space: each file begins where the one before it ends.
///
/// Files are read at offsets, so a file that is cut short while it is read is an error. A mapped file would end the process
/// with SIGBUS.
#[derive(Debug)]
pub(crate) struct ByteSource {
    path: PathBuf,
    files: Vec<SourceFile>,
    /// Address behind the last byte of each file.
    ends: Vec<u64>,
}

impl ByteSource {
    /// Opens one file, or the remote object that `path` is the URL of. Addresses are offsets in it.
    ///
    /// # Errors
    /// The file does not exist, or cannot be opened.
    pub fn open(path: &Path) -> Result<Self, AnnDataError> {
        Self::from_files(path, vec![SourceFile::open(path)?])
    }

    /// Opens files of a folder; `names` are paths relative to it. All files are kept open.
    ///
    /// # Errors
    /// A file does not exist or cannot be opened; there are more files than a process may have open.
    pub fn open_folder(folder: &Path, names: &[PathBuf]) -> Result<Self, AnnDataError> {
        allow_open_files(names.len())?;
        let files: Result<_, _> = names.iter().map(|name| SourceFile::open(&folder.join(name))).collect();
        Self::from_files(folder, files?)
    }

    /// Remote objects below the URL `path`.
    ///
    /// # Errors
    /// The objects have more than 2^64 bytes.
    pub fn from_objects(path: &Path, objects: Vec<Arc<RemoteObject>>) -> Result<Self, AnnDataError> {
        Self::from_files(path, objects.into_iter().map(SourceFile::Remote).collect())
    }

    fn from_files(path: &Path, files: Vec<SourceFile>) -> Result<Self, AnnDataError> {
        let mut end = 0u64;
        let mut ends = Vec::with_capacity(files.len());
        for file in &files {
            end =
                end.checked_add(file.bytes()).ok_or_else(|| AnnDataError::damaged(path, SourceError::TooManyBytes))?;
            ends.push(end);
        }
        Ok(Self { path: path.to_owned(), files, ends })
    }

    /// The file, or the folder of all files.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of all files when they were opened.
    pub fn bytes(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Addresses of file `n`.
    pub fn file_range(&self, n: usize) -> Range<u64> {
        self.start(n)..self.ends[n]
    }

    fn start(&self, n: usize) -> u64 {
        n.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// The error for content that is wrong. If a server did not send what was asked for, the error says that instead.
    pub fn damaged(&self, damage: impl Into<DamageKind>) -> AnnDataError {
        let failure = self.files.iter().find_map(SourceFile::failure);
        failure.unwrap_or_else(|| AnnDataError::damaged(&self.path, damage))
    }

    /// The error for content of file `n` that is wrong. If the file was rewritten since it was opened, the error says that
    /// instead.
    pub fn file_damaged(&self, n: usize, damage: impl Into<DamageKind>) -> AnnDataError {
        let file = &self.files[n];
        match file.unchanged() {
            Err(rewritten @ AnnDataError::Rewritten { .. }) => rewritten,
            _ => file.failure().unwrap_or_else(|| AnnDataError::damaged(file.path(), damage)),
        }
    }

    /// Whether a file is read over a network. Ranges of it are better requested early.
    pub fn is_remote(&self) -> bool {
        self.files.iter().any(|file| matches!(file, SourceFile::Remote(_)))
    }

    /// Reads all ranges. A range that reaches over the end of a file goes on in the next file.
    ///
    /// # Errors
    /// A file cannot be read, ends before a range does, or is not the one that was opened.
    pub fn read_all(&self, ranges: &[ReadRange], into: &mut [MaybeUninit<u8>]) -> Result<(), AnnDataError> {
        let mut pending = PendingReads::default();
        self.read_cached(ranges, into, &mut pending)?;
        self.read_pending(&mut pending, into)
    }

    /// Reads what is available at once: in the page cache of the system, or in the cache of remote objects. The rest goes to
    /// `pending`, for [`Self::read_pending`], and is requested all together: a disk or a server with many requests in flight is
    /// many times as fast as one that gets them one after another. Large ranges of local files are left to the system's
    /// read-ahead.
    ///
    /// # Errors
    /// As [`Self::read_all`].
    pub fn read_cached(
        &self,
        ranges: &[ReadRange],
        into: &mut [MaybeUninit<u8>],
        pending: &mut PendingReads,
    ) -> Result<(), AnnDataError> {
        pending.clear();
        let mut remote: Vec<(usize, Vec<ReadRange>)> = Vec::new();
        for range in ranges {
            let mut range = *range;
            while range.len > 0 {
                let (n, len) = self.find(&range)?;
                let start = self.start(n);
                let within = ReadRange { offset: range.offset - start, len, ..range };
                match &self.files[n] {
                    SourceFile::Local { file, was_read } => {
                        was_read.store(true, Ordering::Release);
                        let rest = file.read_cached(&within, into)?;
                        pending.local.extend(rest.map(|rest| ReadRange { offset: rest.offset + start, ..rest }));
                    }
                    SourceFile::Remote(_) => add_range(&mut remote, n, within),
                }
                range = range.after(len);
            }
        }
        let mut requested = Vec::new();
        for (n, ranges) in remote {
            if let SourceFile::Remote(object) = &self.files[n] {
                object.begin(&ranges, into, &mut requested)?;
                pending.remote.extend(requested.drain(..).map(|range| (n, range)));
            }
        }
        Ok(())
    }

    /// Waits for what [`Self::read_cached`] left to be read.
    ///
    /// # Errors
    /// As [`Self::read_all`].
    pub fn read_pending(&self, pending: &mut PendingReads, into: &mut [MaybeUninit<u8>]) -> Result<(), AnnDataError> {
        for range in pending.local.drain(..) {
            // The range is within one file: `read_cached` has split it.
            let (n, _) = self.find(&range)?;
            if let SourceFile::Local { file, .. } = &self.files[n] {
                file.read(&ReadRange { offset: range.offset - self.start(n), ..range }, into)?;
            }
        }
        for (n, range) in pending.remote.drain(..) {
            if let SourceFile::Remote(object) = &self.files[n] {
                range.take(into).map_err(|failure| object.failed(failure))?;
                object.succeeded();
            }
        }
        Ok(())
    }

    /// Appends `len` bytes from address `offset` on to `out`.
    ///
    /// # Errors
    /// As [`Self::read_all`]; there is no memory.
    pub fn append_to(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), AnnDataError> {
        out.try_reserve(len).map_err(|_| AnnDataError::no_memory(len, self.path.display().to_string()))?;
        self.read_all(&[ReadRange { offset, at: 0, len }], &mut out.spare_capacity_mut()[..len])?;
        // SAFETY: `len` bytes behind the end were reserved, and all of them have been read.
        unsafe { out.set_len(out.len() + len) };
        Ok(())
    }

    /// The `len` bytes from address `offset` on.
    ///
    /// # Errors
    /// As [`Self::append_to`].
    pub fn read_vec(&self, offset: u64, len: usize) -> Result<Vec<u8>, AnnDataError> {
        let mut bytes = Vec::new();
        self.append_to(offset, len, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads the bytes at addresses `range` from first to last.
    pub fn reader(&self, range: Range<u64>) -> SourceReader<'_> {
        SourceReader { source: self, next: range.start, end: range.end }
    }

    /// Requests remote ranges that will be read later, in this order, as far as there is room for them. Local files are left to
    /// the system's read-ahead.
    ///
    /// # Errors
    /// A range is beyond the end.
    pub fn will_need(&self, ranges: &[ReadRange]) -> Result<Prefetch, AnnDataError> {
        let mut remote: Vec<(usize, Vec<ReadRange>)> = Vec::new();
        for range in ranges {
            let mut range = *range;
            while range.len > 0 {
                let (n, len) = self.find(&range)?;
                add_range(&mut remote, n, ReadRange { offset: range.offset - self.start(n), len, ..range });
                range = range.after(len);
            }
        }
        let mut ahead = Prefetch::default();
        for (n, ranges) in remote {
            if let SourceFile::Remote(object) = &self.files[n] {
                ahead.add(object.prefetch(&ranges)?);
            }
        }
        Ok(ahead)
    }

    /// Reads a few bytes of one file, such as metadata. Of a remote object the pages around them are cached for the next call.
    ///
    /// # Errors
    /// As [`Self::read_all`].
    pub fn read_near(&self, offset: u64, into: &mut [u8]) -> Result<(), AnnDataError> {
        let range = ReadRange { offset, at: 0, len: into.len() };
        let (n, len) = self.find(&range)?;
        match &self.files[n] {
            SourceFile::Remote(object) if len == range.len => object.read_near(offset - self.start(n), into),
            _ => self.read_all(&[range], as_uninit(into)),
        }
    }

    /// The file that a range begins in, and how many bytes of the range it has.
    fn find(&self, range: &ReadRange) -> Result<(usize, usize), AnnDataError> {
        if self.files.len() == 1 {
            // The file itself reports what is beyond its end.
            return Ok((0, range.len));
        }
        let n = self.ends.partition_point(|end| *end <= range.offset);
        match self.ends.get(n) {
            Some(end) if range.offset.checked_add(range.len as u64).is_some_and(|end| end <= self.bytes()) => {
                let here = usize::try_from(end - range.offset).unwrap_or(usize::MAX);
                Ok((n, here.min(range.len)))
            }
            _ => Err(self.damaged(SourceError::BeyondEnd { offset: range.offset, len: range.len })),
        }
    }

    /// Makes the next [`Self::unchanged`] check file `n`: bytes that were read from it earlier are used again.
    pub fn mark_used(&self, n: usize) {
        if let SourceFile::Local { was_read, .. } = &self.files[n] {
            was_read.store(true, Ordering::Release);
        }
    }

    /// Checks that the files that were read since the last call are as they were opened, and still have a name.
    ///
    /// # Errors
    /// [`AnnDataError::Rewritten`], or the system refuses to say.
    pub fn unchanged(&self) -> Result<(), AnnDataError> {
        if let [file] = &self.files[..] {
            return file.unchanged();
        }
        // Whoever takes the mark checks after the bytes were read, whichever thread has read them.
        let was_read = |file: &&SourceFile| match file {
            SourceFile::Local { was_read, .. } => was_read.swap(false, Ordering::AcqRel),
            SourceFile::Remote(_) => true,
        };
        self.files.iter().filter(was_read).try_for_each(SourceFile::unchanged)
    }

    /// Checks that the files that are at their paths now are the ones that were opened: for files that are opened by path once
    /// more.
    ///
    /// # Errors
    /// As [`Self::unchanged`].
    pub fn at_path(&self) -> Result<(), AnnDataError> {
        self.files.iter().try_for_each(SourceFile::at_path)
    }
}

/// Adds to the ranges of file `n`.
fn add_range(ranges: &mut Vec<(usize, Vec<ReadRange>)>, n: usize, range: ReadRange) {
    match ranges.iter_mut().rfind(|(file, _)| *file == n) {
        Some((_, ranges)) => ranges.push(range),
        None => ranges.push((n, vec![range])),
    }
}

/// Initialised bytes as memory to write to.
pub(crate) fn as_uninit(bytes: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: the same memory, as long; whoever gets it writes initialised bytes only.
    unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len()) }
}

/// Reads a [`ByteSource`] from first to last, by offsets, which other threads do not move.
pub(crate) struct SourceReader<'s> {
    source: &'s ByteSource,
    next: u64,
    end: u64,
}

impl io::Read for SourceReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = self.end.saturating_sub(self.next).min(into.len() as u64) as usize;
        self.source.read_near(self.next, &mut into[..len]).map_err(io::Error::other)?;
        self.next += len as u64;
        Ok(len)
    }
}

/// A file of a [`ByteSource`].
#[derive(Debug)]
enum SourceFile {
    /// A file of this machine.
    Local {
        file: LocalFile,
        /// It was read since it was last checked to be unchanged.
        was_read: AtomicBool,
    },
    /// An object of a server.
    Remote(Arc<RemoteObject>),
}

impl SourceFile {
    /// Opens the file at a path, or the object at a URL.
    fn open(path: &Path) -> Result<Self, AnnDataError> {
        match url_of(path) {
            Some(url) => Ok(Self::Remote(RemoteObject::open(url)?)),
            None => Ok(Self::Local { file: LocalFile::open(path)?, was_read: AtomicBool::new(false) }),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::Local { file, .. } => file.path(),
            Self::Remote(object) => Path::new(object.url()),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Local { file, .. } => file.bytes(),
            Self::Remote(object) => object.bytes(),
        }
    }

    /// Why the object could not be read last.
    fn failure(&self) -> Option<AnnDataError> {
        match self {
            Self::Local { .. } => None,
            Self::Remote(object) => object.failure(),
        }
    }

    /// Checks that what was read is of the file that was opened.
    fn unchanged(&self) -> Result<(), AnnDataError> {
        match self {
            Self::Local { file, .. } => file.unchanged(),
            Self::Remote(object) => object.unchanged(),
        }
    }

    /// Checks that the path still names the file that was opened. Opening a remote object that is open yields the same version
    /// of it.
    fn at_path(&self) -> Result<(), AnnDataError> {
        match self {
            Self::Local { file, .. } => file.at_path(),
            Self::Remote(object) => object.unchanged(),
        }
    }
}

/// The URL that a path is, if it is one: an object of S3, of Google Cloud Storage, or of a server.
pub(crate) fn url_of(path: &Path) -> Option<&str> {
    let is_url = |text: &&str| ["s3://", "gs://", "http://", "https://"].iter().any(|scheme| text.starts_with(scheme));
    path.to_str().filter(is_url)
}

/// Reads in flight. Dropping it abandons them: they may never complete.
#[derive(Debug, Default)]
pub(crate) struct PendingReads {
    local: Vec<ReadRange>,
    /// Ranges of remote objects, with the number of the file.
    remote: Vec<(usize, PendingRange)>,
}

impl PendingReads {
    /// Bytes of memory held, used or not.
    pub fn capacity_bytes(&self) -> usize {
        self.local.capacity() * size_of::<ReadRange>() + self.remote.capacity() * size_of::<(usize, PendingRange)>()
    }

    fn clear(&mut self) {
        self.local.clear();
        self.remote.clear();
    }
}

/// A byte range of a source, and where in a buffer it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadRange {
    /// Offset in the source.
    pub offset: u64,
    /// Offset in the buffer.
    pub at: usize,
    /// Bytes.
    pub len: usize,
}

impl ReadRange {
    /// What is left of the range behind its first `done` bytes.
    pub const fn after(&self, done: usize) -> Self {
        Self { offset: self.offset + done as u64, at: self.at + done, len: self.len - done }
    }

    /// Behind the last byte in the buffer.
    pub const fn buffer_end(&self) -> usize {
        self.at + self.len
    }
}

/// Writes `bytes` to memory of the same length.
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
        assert_eq!((source.bytes(), source.file_range(0), source.file_range(2)), (8, 0..3, 3..8));
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
