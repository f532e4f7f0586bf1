use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, RoTxn, WithoutTls};

use crate::PipelineError;

/// A store that is open for reading. Threads share it; each reads through a [`LmdbReader`] of its own.
pub struct LmdbStore {
    open: Arc<Open>,
}

struct Open {
    path: PathBuf,
    env: Env<WithoutTls>,
    database: Database<'static, Bytes, Bytes>,
}

/// LMDB must not map one file twice in a process, so stores of the same folder share one mapping.
static OPEN: LazyLock<Mutex<HashMap<PathBuf, Weak<Open>>>> = LazyLock::new(Mutex::default);

impl LmdbStore {
    /// Open the store in `folder` (the folder of `data.mdb`): read-only, without lock file and without readahead, since
    /// records are read in random order.
    pub fn open(folder: &Path) -> Result<Self, PipelineError> {
        if !folder.join("data.mdb").is_file() {
            return Err(PipelineError::NotBuilt { path: folder.to_owned() });
        }
        let path = folder.canonicalize().map_err(PipelineError::io("open", folder))?;
        let mut all = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = all.get(&path).and_then(Weak::upgrade) {
            return Ok(Self { open });
        }
        let open = Arc::new(Open::new(path.clone()).map_err(|reason| lmdb_error(&path, reason))?);
        all.retain(|_, open| open.strong_count() > 0);
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
        &self.open.path
    }

    /// Start reading on this thread.
    pub fn reader(&self) -> Result<LmdbReader<'_>, PipelineError> {
        let txn = self.open.env.read_txn().map_err(|e| lmdb_error(&self.open.path, e))?;
        Ok(LmdbReader { open: &self.open, txn, key: Vec::with_capacity(20) })
    }

    /// Visit all records in key order (bytewise, so 10 comes before 2).
    pub(crate) fn for_each(
        &self,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), PipelineError>,
    ) -> Result<(), PipelineError> {
        let failed = |e| lmdb_error(&self.open.path, e);
        let txn = self.open.env.read_txn().map_err(failed)?;
        for record in self.open.database.iter(&txn).map_err(failed)? {
            let (key, value) = record.map_err(failed)?;
            visit(key, value)?;
        }
        Ok(())
    }
}

impl Open {
    fn new(path: PathBuf) -> Result<Self, heed::Error> {
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        // SAFETY: without LMDB's lock file nobody may write while we read. A store is complete before it gets its final
        // name, and never written to afterwards.
        let env = unsafe {
            options.flags(EnvFlags::READ_ONLY | EnvFlags::NO_LOCK | EnvFlags::NO_READ_AHEAD);
            options.open(&path)?
        };
        let txn = env.read_txn()?;
        let database = env.open_databases_and_commit(txn, |opener, txn| {
            let database = opener.open_database::<Bytes, Bytes>(txn, None)?;
            Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(database))
        })?;
        let CommitOrAbort::Commit(Some(database)) = database else {
            return Err(heed::Error::Mdb(heed::MdbError::NotFound));
        };
        Ok(Self { path, env, database })
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
                store: self.open.path.clone(),
                index,
                reason: format!("there is none; the store has {}", self.open.env.unnamed_database_stat().entries),
            }),
            Err(e) => Err(lmdb_error(&self.open.path, e)),
        }
    }
}

pub(super) fn lmdb_error(path: &Path, reason: impl ToString) -> PipelineError {
    PipelineError::Lmdb { path: path.to_owned(), reason: reason.to_string() }
}
