//! `LmdbWriter` writes a new store through liblmdb, in large transactions; builds and conversions of data sets use it.
//! Invariant: a transaction is in the store as a whole or not at all, so an interrupted build goes on behind the last one.

use std::path::{Path, PathBuf};

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, PutFlags};

use crate::GraphError;
use crate::error::LmdbError;

/// Bulk load of a store. Invariant: records arrive in key order, so each is appended to the last page.
pub struct LmdbWriter {
    path: PathBuf,
    env: Env,
    database: Database<'static, Bytes, Bytes>,
}

impl LmdbWriter {
    /// Create the store in `folder`, or continue the one that is there. `map_size` is the maximum size of the file in bytes; the
    /// file itself grows as it is written. No other process may have the store open.
    ///
    /// # Errors
    /// The folder or the store cannot be created.
    pub fn open(folder: &Path, map_size: u64) -> Result<Self, GraphError> {
        std::fs::create_dir_all(folder).map_err(GraphError::io("create", folder))?;
        // LMDB creates files that only their owner may read, whatever the umask; empty ones it takes for new.
        for name in ["data.mdb", "lock.mdb"] {
            let path = folder.join(name);
            let made = std::fs::File::options().create(true).append(true).open(&path);
            made.map_err(GraphError::io("create", &path))?;
        }
        let failed = |e: heed::Error| LmdbError::Write(e).of_store(folder);
        let mut options = EnvOpenOptions::new();
        options.map_size(map_size.next_multiple_of(1 << 20) as usize);
        // SAFETY: the caller holds the build lock, so nobody else has this store open. Not flushing the meta page with
        // every commit may lose the last commit when the machine fails, never the store.
        let env = unsafe { options.flags(EnvFlags::NO_META_SYNC).open(folder) }.map_err(failed)?;
        let txn = env.write_txn().map_err(failed)?;
        let created = env
            .create_databases_and_commit(txn, |opener, txn| {
                let database = opener.create_database::<Bytes, Bytes>(txn, None)?;
                Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(database))
            })
            .map_err(failed)?;
        let CommitOrAbort::Commit(database) = created else {
            return Err(LmdbError::NotCreated.of_store(folder));
        };
        Ok(Self { path: folder.to_owned(), env, database })
    }

    /// Number of records, and the last key.
    ///
    /// # Errors
    /// LMDB cannot read the store.
    pub fn state(&self) -> Result<(u64, Option<Vec<u8>>), GraphError> {
        let failed = |e| LmdbError::Write(e).of_store(&self.path);
        let txn = self.env.read_txn().map_err(failed)?;
        let last = self.database.last(&txn).map_err(failed)?.map(|(key, _)| key.to_vec());
        Ok((self.database.len(&txn).map_err(failed)?, last))
    }

    /// Append records in one transaction: all of them or none. `value` appends the value of a record.
    ///
    /// # Errors
    /// LMDB refuses: the disk is full, or the records are not in key order.
    pub fn append(&self, indices: &[u64], mut value: impl FnMut(u64, &mut Vec<u8>)) -> Result<(), GraphError> {
        let mut bytes = Vec::new();
        let mut ends = Vec::with_capacity(indices.len());
        for &index in indices {
            value(index, &mut bytes);
            ends.push(bytes.len());
        }
        self.append_values(indices, &ends, &bytes)
    }

    /// Append records whose values lie one after another in `bytes`, the i-th up to `ends[i]`, in one transaction.
    ///
    /// # Errors
    /// As [`LmdbWriter::append`].
    pub fn append_values(&self, indices: &[u64], ends: &[usize], bytes: &[u8]) -> Result<(), GraphError> {
        let failed = |e| LmdbError::Write(e).of_store(&self.path);
        let mut txn = self.env.write_txn().map_err(failed)?;
        let mut start = 0;
        for (index, &end) in indices.iter().zip(ends) {
            self.database
                .put_with_flags(&mut txn, PutFlags::APPEND, index.to_string().as_bytes(), &bytes[start..end])
                .map_err(failed)?;
            start = end;
        }
        txn.commit().map_err(failed)
    }

    /// Flush everything to disk, close, and leave `data.mdb` alone in the folder.
    ///
    /// # Errors
    /// The disk cannot be written to.
    pub fn finish(self) -> Result<(), GraphError> {
        self.env.force_sync().map_err(|e| LmdbError::Write(e).of_store(&self.path))?;
        self.env.prepare_for_closing().wait();
        let lock = self.path.join("lock.mdb");
        std::fs::remove_file(&lock).map_err(GraphError::io("remove", &lock))
    }
}

/// `0..n` in the order of their decimal text (0, 1, 10, 100, 101, …), which is the byte order of LMDB's keys.
pub fn text_order(n: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..n).collect();
    order.sort_by_cached_key(u64::to_string);
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lmdb::LmdbStore;

    #[test]
    fn keys_are_written_in_byte_order_and_each_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let writer = LmdbWriter::open(folder.path(), 1 << 24).unwrap();
        let order = text_order(1234);
        for indices in order.chunks(100) {
            writer.append(indices, |index, out| out.extend_from_slice(format!("[{index}]").as_bytes())).unwrap();
        }
        assert_eq!(writer.state().unwrap(), (1234, Some(b"999".to_vec())));
        writer.finish().unwrap();
        assert!(!folder.path().join("lock.mdb").exists());

        let store = LmdbStore::open(folder.path()).unwrap();
        let again = LmdbStore::open(folder.path()).unwrap();
        assert_eq!((store.len(), again.len(), store.is_empty()), (1234, 1234, false));
        std::thread::scope(|scope| {
            for store in [&store, &again] {
                scope.spawn(move || {
                    let mut reader = store.reader().unwrap();
                    let mut out = b"kept".to_vec();
                    for index in 0..1234 {
                        out.truncate(4);
                        let length = reader.read(index, &mut out).unwrap();
                        assert_eq!(out, format!("kept[{index}]").into_bytes());
                        assert_eq!(length, out.len() - 4);
                    }
                });
            }
        });
        let missing = store.reader().unwrap().read(1234, &mut Vec::new()).unwrap_err();
        assert!(matches!(missing, GraphError::Record { index: 1234, .. }), "{missing}");
        assert!(missing.to_string().contains("the store has 1234"), "{missing}");
    }

    #[test]
    fn a_folder_without_a_store_is_not_built() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(LmdbStore::open(folder.path()), Err(GraphError::NoStore { .. })));
    }
}
