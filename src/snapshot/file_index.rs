//! [`FileIndex`]: hashes of files by what the file system says of them, so that an unchanged file is not read again.
//!
//! Invariant: a hash is used only if size, both times and the inode are those of the file that was read, and the file had been left alone for a
//! while then: a change within the resolution of the times would not be seen.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use expctl_ledger::write_atomic;
use serde::{Deserialize, Serialize};

/// A file that changed less than this before it was read is read again next time, s. The clock of a file server may differ by as much.
const SETTLED_S: i64 = 60;

/// Size, time of the last change of the content and of the inode, and number of the inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileState(u64, i64, i64, u64);

impl FileState {
    /// What the file system says of a file.
    pub fn of(file: &Metadata) -> Self {
        let ns = |seconds: i64, ns: i64| seconds.saturating_mul(1_000_000_000).saturating_add(ns);
        Self(file.len(), ns(file.mtime(), file.mtime_nsec()), ns(file.ctime(), file.ctime_nsec()), file.ino())
    }

    /// Whether nothing has changed the file for a while.
    fn is_settled(self) -> bool {
        let now = jiff::Timestamp::now().as_second();
        self.1.max(self.2) / 1_000_000_000 < now - SETTLED_S
    }
}

/// Hashes of the files of a project.
#[derive(Debug, Default)]
pub(crate) struct FileIndex {
    path: PathBuf,
    known: BTreeMap<String, (FileState, String)>,
}

impl FileIndex {
    /// The index of a project in a store; empty if there is none that can be read.
    pub fn load(store: &Path, project: &Path) -> Self {
        let name = blake3::hash(project.as_os_str().as_encoded_bytes()).to_hex();
        let path = store.join(format!("index-{}.json", &name[..16]));
        let known = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        Self { path, known }
    }

    /// The hash of a file in this state.
    pub fn hash(&self, name: &str, state: FileState) -> Option<&str> {
        self.known.get(name).filter(|(known, _)| *known == state).map(|(_, hash)| hash.as_str())
    }

    /// Replace it by these files. Without an index the next snapshot takes longer, and is the same.
    pub fn save(&self, files: impl Iterator<Item = (String, FileState, String)>) {
        let settled = files.filter(|(_, state, _)| state.is_settled()).map(|(name, state, hash)| (name, (state, hash)));
        let known: BTreeMap<String, (FileState, String)> = settled.collect();
        if known == self.known {
            return;
        }
        let text = serde_json::to_vec(&known).unwrap_or_default();
        if let Err(e) = write_atomic(&self.path, &text) {
            tracing::debug!("{e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_of_a_file_that_is_as_it_was_and_had_been_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (FileState(3, 1, 1, 7), FileState(3, i64::MAX, 1, 7));
        let index = FileIndex::load(folder.path(), Path::new("/p"));
        let files = [("old", old), ("new", new)].map(|(name, state)| (name.to_owned(), state, name.to_owned()));
        index.save(files.into_iter());
        let read = FileIndex::load(folder.path(), Path::new("/p"));
        assert_eq!((read.hash("old", old), read.hash("new", new)), (Some("old"), None));
        for other in [FileState(4, 1, 1, 7), FileState(3, 2, 1, 7), FileState(3, 1, 2, 7), FileState(3, 1, 1, 8)] {
            assert_eq!(read.hash("old", other), None);
        }
        assert!(FileIndex::load(folder.path(), Path::new("/q")).known.is_empty());
        std::fs::write(&read.path, "{").unwrap();
        assert!(FileIndex::load(folder.path(), Path::new("/p")).known.is_empty());
    }
}
