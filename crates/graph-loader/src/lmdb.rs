//! Reading LMDB files without liblmdb.
//!
//! liblmdb follows page numbers in the file blindly, through a mapping: a damaged store ends the process with SIGSEGV, one
//! that is cut short with SIGBUS. This reader walks the tree once when a store is opened, believes no number in it, keeps
//! where each record lies (16 bytes a record), and then reads records at positions: one call of the system a record, no
//! descent through the tree.
//!
//! The format is that of LMDB 0.9 (data version 1), which has been stable since 2011, as machines of 64 bit and little-endian
//! byte order write it. It is described by the structures `MDB_meta`, `MDB_db`, `MDB_page` and `MDB_node` in liblmdb's
//! `mdb.c`. Two meta pages come first, the newer of which holds the root of the main tree. Branch and leaf pages have a
//! header, an array of node positions that grows upwards and nodes that grow downwards; larger values lie in pages of their own,
//! adjacent, with one header.

use std::path::Path;

use super::lmdb_file::StoreFile;
use super::lmdb_meta::PAGE_HEADER;
use super::lmdb_tree::{self, Place};
use super::writer::text_order;
use crate::PipelineError;

/// A store that is open for reading. Threads share it; each reads through a [`LmdbReader`] of its own.
pub struct LmdbStore {
    file: StoreFile,
    places: Vec<Place>,
}

impl LmdbStore {
    /// Open the store in `folder` (the folder of `data.mdb`), whose keys are the decimal numbers from 0 on.
    ///
    /// # Errors
    /// [`PipelineError::NotBuilt`] if there is none; [`PipelineError::Lmdb`] if it is damaged or no such store.
    pub fn open(folder: &Path) -> Result<Self, PipelineError> {
        let file = StoreFile::open(folder)?;
        let places = lmdb_tree::places(&file)?;
        file.unchanged()?;
        Ok(Self { file, places })
    }

    /// Number of records.
    pub fn len(&self) -> u64 {
        self.places.len() as u64
    }

    /// Whether the store has no record.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Folder of the store.
    pub fn path(&self) -> &Path {
        self.file.folder()
    }

    /// Start reading on this thread.
    ///
    /// # Errors
    /// The store is not the one that was opened any more.
    pub fn reader(&self) -> Result<LmdbReader<'_>, PipelineError> {
        self.file.unchanged()?;
        Ok(LmdbReader { store: self })
    }

    /// Visit all records in key order (bytewise, so 10 comes before 2).
    pub(crate) fn for_each(
        &self,
        mut visit: impl FnMut(u64, &[u8]) -> Result<(), PipelineError>,
    ) -> Result<(), PipelineError> {
        let mut reader = self.reader()?;
        let mut value = Vec::new();
        for index in text_order(self.len()) {
            value.clear();
            reader.read(index, &mut value)?;
            visit(index, &value)?;
        }
        reader.unchanged()
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
    /// There is no such record, or the file cannot be read or is damaged. That it was rewritten since it was opened is for
    /// [`LmdbReader::unchanged`] to say, unless a read fails for it.
    pub fn read(&mut self, index: u64, out: &mut Vec<u8>) -> Result<usize, PipelineError> {
        let file = &self.store.file;
        let Some(place) = usize::try_from(index).ok().and_then(|at| self.store.places.get(at)) else {
            return Err(self.refused(index, format!("there is none; the store has {}", self.store.len())));
        };
        let (start, bytes) = (out.len(), place.bytes as usize);
        if place.big {
            let mut header = [0; PAGE_HEADER];
            file.append(place.offset - PAGE_HEADER as u64, &mut header, bytes, out)?;
            if let Err(reason) = place.check(&header, file.meta.page_size) {
                out.truncate(start);
                file.unchanged()?;
                return Err(self.refused(index, reason));
            }
        } else {
            file.append(place.offset, &mut [], bytes, out)?;
        }
        Ok(bytes)
    }

    /// Whether all that was read so far is of the store that was opened. Costs as much as four reads of small records, so ask
    /// once for many of them, after the last.
    ///
    /// # Errors
    /// [`PipelineError::Rewritten`] if it may not be; the file cannot be looked at.
    pub fn unchanged(&self) -> Result<(), PipelineError> {
        self.store.file.unchanged()
    }

    fn refused(&self, index: u64, reason: String) -> PipelineError {
        PipelineError::Record { store: self.store.path().to_owned(), index, reason }
    }
}

pub(super) fn lmdb_error(path: &Path, reason: impl ToString) -> PipelineError {
    PipelineError::Lmdb { path: path.to_owned(), reason: reason.to_string() }
}
