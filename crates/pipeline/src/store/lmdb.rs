use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError, Weak};

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, RoTxn, WithoutTls};

use crate::PipelineError;

/// A store that is open for reading. Threads share it; each reads through a [`LmdbReader`] of its own.
pub struct LmdbStore {
    open: Arc<Open>,
}

struct Open {
    env: Env<WithoutTls>,
    database: Database<'static, Bytes, Bytes>,
    // Last, so that it is dropped when the mapping is closed.
    entry: Entry,
}

/// LMDB must not map one file twice in a process, so stores of the same folder share one mapping. An entry that cannot be
/// upgraded any more is a mapping that another thread is closing.
static OPEN: LazyLock<Mutex<HashMap<PathBuf, Weak<Open>>>> = LazyLock::new(Mutex::default);
/// Signalled when an entry of [`OPEN`] is gone.
static CLOSED: Condvar = Condvar::new();

/// The store's place in [`OPEN`].
struct Entry {
    path: PathBuf,
}

impl Drop for Entry {
    fn drop(&mut self) {
        // Nobody else can have taken this place meanwhile: who wants the same folder waits until it is free.
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.path);
        CLOSED.notify_all();
    }
}

impl LmdbStore {
    /// Open the store in `folder` (the folder of `data.mdb`): read-only, without lock file and without readahead, since
    /// records are read in random order.
    pub fn open(folder: &Path) -> Result<Self, PipelineError> {
        if !folder.join("data.mdb").is_file() {
            return Err(PipelineError::NotBuilt { path: folder.to_owned() });
        }
        let path = folder.canonicalize().map_err(PipelineError::io("open", folder))?;
        let mut all = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(open) = all.get(&path) {
            if let Some(open) = open.upgrade() {
                return Ok(Self { open });
            }
            all = CLOSED.wait(all).unwrap_or_else(PoisonError::into_inner);
        }
        let (env, database) = Open::map(&path).map_err(|reason| lmdb_error(&path, reason))?;
        let open = Arc::new(Open { env, database, entry: Entry { path: path.clone() } });
        all.insert(path, Arc::downgrade(&open));
        Ok(Self { open })
    }

    /// Number of records.
    pub fn len(&self) -> u64 {
        self.open.env.unnamed_database_stat().entries as u64
    }

    /// Whether the store has no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Folder of the store.
    pub fn path(&self) -> &Path {
        self.open.path()
    }

    /// Start reading on this thread.
    pub fn reader(&self) -> Result<LmdbReader<'_>, PipelineError> {
        let txn = self.open.env.read_txn().map_err(|e| lmdb_error(self.open.path(), e))?;
        Ok(LmdbReader { open: &self.open, txn, key: Vec::with_capacity(20) })
    }

    /// Visit all records in key order (bytewise, so 10 comes before 2).
    pub(crate) fn for_each(
        &self,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), PipelineError>,
    ) -> Result<(), PipelineError> {
        let failed = |e| lmdb_error(self.open.path(), e);
        let txn = self.open.env.read_txn().map_err(failed)?;
        for record in self.open.database.iter(&txn).map_err(failed)? {
            let (key, value) = record.map_err(failed)?;
            visit(key, value)?;
        }
        Ok(())
    }
}

impl Open {
    fn path(&self) -> &Path {
        &self.entry.path
    }

    fn map(path: &Path) -> Result<(Env<WithoutTls>, Database<'static, Bytes, Bytes>), heed::Error> {
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        // SAFETY: without LMDB's lock file nobody may write while we read. A store is complete before it gets its final
        // name, and never written to afterwards.
        let env = unsafe {
            options.flags(EnvFlags::READ_ONLY | EnvFlags::NO_LOCK | EnvFlags::NO_READ_AHEAD);
            options.open(path)?
        };
        let txn = env.read_txn()?;
        let database = env.open_databases_and_commit(txn, |opener, txn| {
            let database = opener.open_database::<Bytes, Bytes>(txn, None)?;
            Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(database))
        })?;
        let CommitOrAbort::Commit(Some(database)) = database else {
            return Err(heed::Error::Mdb(heed::MdbError::NotFound));
        };
        Ok((env, database))
    }
}

/// Reads records on one thread, from one snapshot of the store.
pub struct LmdbReader<'s> {
    open: &'s Open,
    txn: RoTxn<'s, WithoutTls>,
    key: Vec<u8>,
}

impl LmdbReader<'_> {
    /// Append the bytes of record `index` to `out` and return how many they are. A missing key is an error.
    pub fn read(&mut self, index: u64, out: &mut Vec<u8>) -> Result<usize, PipelineError> {
        self.key.clear();
        // Writing to a Vec cannot fail.
        let _ = write!(self.key, "{index}");
        match self.open.database.get(&self.txn, &self.key) {
            Ok(Some(value)) => {
                out.extend_from_slice(value);
                Ok(value.len())
            }
            Ok(None) => Err(PipelineError::Record {
                store: self.open.path().to_owned(),
                index,
                reason: format!("there is none; the store has {}", self.open.env.unnamed_database_stat().entries),
            }),
            Err(e) => Err(lmdb_error(self.open.path(), e)),
        }
    }
}

pub(super) fn lmdb_error(path: &Path, reason: impl ToString) -> PipelineError {
    PipelineError::Lmdb { path: path.to_owned(), reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::LmdbWriter;

    #[test]
    fn a_store_can_be_opened_while_another_thread_closes_it() {
        let folders: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
        for folder in &folders {
            let writer = LmdbWriter::open(folder.path(), 1 << 24).unwrap();
            writer.append(&[0], |_, out| out.extend_from_slice(b"[]")).unwrap();
            writer.finish().unwrap();
        }
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let folders = &folders;
                scope.spawn(move || {
                    for turn in 0..500 {
                        let store = LmdbStore::open(folders[(thread + turn / 3) % 2].path()).unwrap();
                        let mut out = Vec::new();
                        assert_eq!(store.reader().unwrap().read(0, &mut out).unwrap(), 2);
                    }
                });
            }
        });
        let paths: Vec<_> = folders.iter().map(|f| f.path().canonicalize().unwrap()).collect();
        let all = OPEN.lock().unwrap();
        assert!(paths.iter().all(|path| !all.contains_key(path)), "closed stores leave no entries");
    }
}
