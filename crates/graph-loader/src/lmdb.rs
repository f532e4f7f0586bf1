//! Reading LMDB files without liblmdb.
//!
//! liblmdb follows page numbers in the file blindly, through a mapping: a damaged store ends the process with SIGSEGV, one
//! that is cut short with SIGBUS. This reader walks the tree once when a store is opened, checks every number in it, keeps
//! where each record lies (16 bytes a record), and then reads records at positions: one call of the system a record, no
//! descent through the tree.
//!
//! The format is that of LMDB 0.9 (data version 1), which has been stable since 2011, as machines of 64 bit and little-endian
//! byte order write it. It is described by the structures `MDB_meta`, `MDB_db`, `MDB_page` and `MDB_node` in liblmdb's
//! `mdb.c`. Two meta pages come first, the newer of which holds the root of the main tree. Branch and leaf pages have a
//! header, an array of node positions that grows upwards and nodes that grow downwards; larger values lie in pages of their own,
//! adjacent, with one header.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::libc;

use crate::error::{LmdbError, MetaPageError, RecordError};
use crate::lmdb_tree::ValueLocation;
use crate::lmdb_writer::text_order;
use crate::{GraphError, lmdb_tree};

/// A store that is open for reading. Threads share it; each reads through a [`LmdbReader`] of its own.
pub struct LmdbStore {
    file: StoreFile,
    locations: Vec<ValueLocation>,
}

impl LmdbStore {
    /// Open the store in `folder` (the folder of `data.mdb`), whose keys are the decimal numbers from 0 on.
    ///
    /// # Errors
    /// [`GraphError::NoStore`]; [`GraphError::Lmdb`] if it is damaged or has other keys.
    pub fn open(folder: &Path) -> Result<Self, GraphError> {
        let file = StoreFile::open(folder)?;
        let locations = lmdb_tree::value_locations(&file)?;
        file.unchanged()?;
        Ok(Self { file, locations })
    }

    /// Number of records.
    pub fn len(&self) -> u64 {
        self.locations.len() as u64
    }

    /// Whether the store has no record.
    pub fn is_empty(&self) -> bool {
        self.locations.is_empty()
    }

    /// Folder of the store.
    pub fn path(&self) -> &Path {
        self.file.folder()
    }

    /// Start reading on this thread.
    ///
    /// # Errors
    /// [`GraphError::Rewritten`].
    pub fn reader(&self) -> Result<LmdbReader<'_>, GraphError> {
        self.file.unchanged()?;
        Ok(LmdbReader { store: self })
    }

    /// Visit all records in key order (bytewise, so 10 comes before 2).
    ///
    /// # Errors
    /// A record cannot be read; the error of `visit`.
    pub fn for_each<E: From<GraphError>>(&self, mut visit: impl FnMut(u64, &[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut reader = self.reader()?;
        let mut value = Vec::new();
        for index in text_order(self.len()) {
            value.clear();
            reader.read(index, &mut value)?;
            visit(index, &value)?;
        }
        Ok(reader.unchanged()?)
    }
}

/// Reads records on one thread.
pub struct LmdbReader<'s> {
    store: &'s LmdbStore,
}

impl LmdbReader<'_> {
    /// Append the bytes of record `index` to `out` and return how many they are.
    ///
    /// # Errors
    /// There is no such record; the file cannot be read, or is damaged. A store that was rewritten is found by
    /// [`LmdbReader::unchanged`], unless a read fails for it.
    pub fn read(&mut self, index: u64, out: &mut Vec<u8>) -> Result<usize, GraphError> {
        let file = &self.store.file;
        let Some(location) = usize::try_from(index).ok().and_then(|at| self.store.locations.get(at)) else {
            return Err(self.refused(index, RecordError::Missing { records: self.store.len() }));
        };
        let (start, bytes) = (out.len(), location.bytes as usize);
        if location.big {
            let mut header = [0; PAGE_HEADER];
            file.append(location.offset - PAGE_HEADER as u64, &mut header, bytes, out)?;
            if let Err(problem) = location.check(&header, file.meta.page_size) {
                out.truncate(start);
                file.unchanged()?;
                return Err(self.refused(index, RecordError::Pages(problem)));
            }
        } else {
            file.append(location.offset, &mut [], bytes, out)?;
        }
        Ok(bytes)
    }

    /// Check that the store is still the one that was opened. This costs as much as four reads of small records, so call it
    /// once for many of them, after the last.
    ///
    /// # Errors
    /// [`GraphError::Rewritten`]; the file cannot be inspected.
    pub fn unchanged(&self) -> Result<(), GraphError> {
        self.store.file.unchanged()
    }

    #[cold]
    fn refused(&self, index: u64, problem: RecordError) -> GraphError {
        GraphError::Record { store: self.store.path().to_owned(), index, problem }
    }
}

/// `data.mdb` of a store, read at positions, so that a file that is cut short while it is read is an error (a mapped one
/// would end the process with SIGBUS).
pub struct StoreFile {
    folder: PathBuf,
    path: PathBuf,
    file: File,
    /// Length in bytes when it was opened.
    bytes: u64,
    /// Newest meta page when it was opened.
    pub meta: MetaPage,
    identity: FileIdentity,
}

/// Identity of a file; it changes when the file is written to or replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    transactions: [u64; 2],
}

impl StoreFile {
    /// Open the store in `folder`; [`GraphError::NoStore`] if it has no `data.mdb`.
    pub fn open(folder: &Path) -> Result<Self, GraphError> {
        let path = folder.join("data.mdb");
        let file = match File::open(&path) {
            Err(e) if is_gone(&e) => {
                return Err(GraphError::NoStore { path: folder.to_owned() });
            }
            other => other.map_err(GraphError::io("open", &path))?,
        };
        // Records are read in random order. A system that ignores this advice reads ahead for nothing.
        #[cfg(target_os = "linux")]
        let _ = nix::fcntl::posix_fadvise(&file, 0, 0, nix::fcntl::PosixFadviseAdvice::POSIX_FADV_RANDOM);
        let about = file.metadata().map_err(GraphError::io("inspect", &path))?;
        let meta = MetaPage::newest(|offset, out| file.read_exact_at(out, offset)).map_err(|e| e.of_store(folder))?;
        let transactions = transactions(&file, &meta).map_err(GraphError::io("read", &path))?;
        let identity = FileIdentity::new(&about, transactions);
        Ok(Self { folder: folder.to_owned(), path, file, bytes: about.len(), meta, identity })
    }

    /// Folder of the store.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whole pages that the file has, as far as they are in use.
    pub fn pages(&self) -> u64 {
        (self.bytes / u64::from(self.meta.page_size)).min(self.meta.last_page.saturating_add(1))
    }

    /// Fill `out` from `offset` on.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), GraphError> {
        self.file.read_exact_at(out, offset).map_err(|e| self.failed(e))
    }

    /// Read `header` at `offset` and append the `bytes` behind it to `out`, in one call of the system and without clearing
    /// memory first.
    pub fn append(&self, offset: u64, header: &mut [u8], bytes: usize, out: &mut Vec<u8>) -> Result<(), GraphError> {
        out.reserve(bytes);
        let (of_header, total) = (header.len(), header.len() + bytes);
        let mut done = 0;
        while done < total {
            let header = &mut header[done.min(of_header)..];
            let rest = &mut out.spare_capacity_mut()[done.saturating_sub(of_header)..bytes];
            let into = [
                libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: header.len() },
                libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() },
            ];
            let at = (offset + done as u64) as libc::off_t;
            // SAFETY: both locations are ours alone, as long as they say, and may be written to; the system only writes.
            let n = unsafe { libc::preadv(self.file.as_raw_fd(), into.as_ptr(), into.len() as libc::c_int, at) };
            match n {
                0 => return Err(self.failed(io::ErrorKind::UnexpectedEof.into())),
                1.. => done += n as usize,
                _ => {
                    let e = io::Error::last_os_error();
                    if e.kind() != io::ErrorKind::Interrupted {
                        return Err(self.failed(e));
                    }
                }
            }
        }
        // SAFETY: the loop above has filled `bytes` of the spare capacity.
        unsafe { out.set_len(out.len() + bytes) };
        Ok(())
    }

    /// An error if the file is another one than was opened. Less than a microsecond.
    pub fn unchanged(&self) -> Result<(), GraphError> {
        let rewritten = || GraphError::Rewritten { path: self.folder.clone() };
        let about = match self.path.metadata() {
            Err(e) if is_gone(&e) => return Err(rewritten()),
            other => other.map_err(GraphError::io("inspect", &self.path))?,
        };
        let transactions = match transactions(&self.file, &self.meta) {
            // Cut short.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(rewritten()),
            other => other.map_err(GraphError::io("read", &self.path))?,
        };
        if FileIdentity::new(&about, transactions) == self.identity { Ok(()) } else { Err(rewritten()) }
    }

    /// The error of a failed read: that the file was rewritten if it was, else the system's.
    fn failed(&self, e: io::Error) -> GraphError {
        match self.unchanged() {
            Err(rewritten @ GraphError::Rewritten { .. }) => rewritten,
            _ if e.kind() == io::ErrorKind::UnexpectedEof => LmdbError::Read(e).of_store(&self.folder),
            _ => GraphError::io("read", &self.path)(e),
        }
    }
}

/// Whether the file does not exist.
fn is_gone(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

impl FileIdentity {
    fn new(about: &std::fs::Metadata, transactions: [u64; 2]) -> Self {
        let modified = (about.mtime(), about.mtime_nsec());
        Self { device: about.dev(), inode: about.ino(), bytes: about.len(), modified, transactions }
    }
}

/// Number of the last transaction in each meta page: changes with every commit, also where the file system's clock is coarse.
fn transactions(file: &File, meta: &MetaPage) -> io::Result<[u64; 2]> {
    let mut both = [0; 2];
    for (i, number) in both.iter_mut().enumerate() {
        let mut word = [0; 8];
        file.read_exact_at(&mut word, i as u64 * u64::from(meta.page_size) + TXN_OFFSET)?;
        *number = u64::from_le_bytes(word);
    }
    Ok(both)
}

/// Bytes of a page's header.
pub const PAGE_HEADER: usize = 16;
/// Page number that stands for none.
pub const NO_PAGE: u64 = u64::MAX;
/// Flag of a meta page.
const META: u16 = 0x08;
const MAGIC: u32 = 0xBEEF_C0DE;
const VERSION: u32 = 1;
/// Offset of the transaction number in a meta page.
const TXN_OFFSET: u64 = (PAGE_HEADER + 128) as u64;
/// Pages that liblmdb can make.
const PAGE_SIZES: std::ops::RangeInclusive<u32> = 512..=32768;

/// A meta page: the root of one state of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaPage {
    /// Bytes of a page.
    pub page_size: u32,
    /// Levels of the tree, leaves included; 0 when it is empty.
    pub depth: u16,
    /// Records.
    pub entries: u64,
    /// Root page, or [`NO_PAGE`].
    pub root: u64,
    /// Last page in use.
    pub last_page: u64,
    /// Transaction that wrote this page.
    pub transaction: u64,
}

impl MetaPage {
    /// The newer of the two meta pages of a file. `read` fills a buffer from an offset on.
    ///
    /// # Errors
    /// Why the file is no LMDB file, or has another kind of database.
    fn newest(mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>) -> Result<Self, LmdbError> {
        let mut bytes = [0; PAGE_HEADER + 136];
        let mut meta = |page: u64, offset: u64| {
            let found = read(offset, &mut bytes).map_err(MetaPageError::Read).and_then(|()| Self::parse(&bytes));
            found.map_err(|problem| LmdbError::MetaPage { page, problem })
        };
        let first = meta(0, 0)?;
        let second = meta(1, u64::from(first.page_size))?;
        if first.page_size != second.page_size {
            return Err(LmdbError::PageSizesDiffer { first: first.page_size, second: second.page_size });
        }
        Ok(if second.transaction > first.transaction { second } else { first })
    }

    fn parse(page: &[u8; PAGE_HEADER + 136]) -> Result<Self, MetaPageError> {
        let u16_at = |at: usize| u16::from_le_bytes([page[at], page[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if u16_at(10) & META == 0 || u32_at(PAGE_HEADER) != MAGIC {
            return Err(MetaPageError::NotLmdb);
        }
        if u32_at(PAGE_HEADER + 4) != VERSION {
            return Err(MetaPageError::Version { found: u32_at(PAGE_HEADER + 4), supported: VERSION });
        }
        // Behind magic, version, address and map size: the tree of free pages, then the main one, 48 bytes each.
        let (free, main) = (PAGE_HEADER + 24, PAGE_HEADER + 24 + 48);
        let page_size = u32_at(free);
        if !page_size.is_power_of_two() || !PAGE_SIZES.contains(&page_size) {
            return Err(MetaPageError::PageSize { bytes: page_size });
        }
        let flags = u16_at(main + 4);
        if flags & 0x7f != 0 {
            return Err(MetaPageError::DatabaseFlags { flags });
        }
        Ok(Self {
            page_size,
            depth: u16_at(main + 6),
            entries: u64_at(main + 32),
            root: u64_at(main + 40),
            last_page: u64_at(PAGE_HEADER + 120),
            transaction: u64_at(PAGE_HEADER + 128),
        })
    }
}
