//! [`ReceivedTree`]: the code of a project as it arrives on a cluster.
//!
//! Invariant: a tree is complete under the name of its hash, and never changes. Two laptops that send at once do not disturb each other.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use atomic_file::TEMPORARY_PREFIX;
use expctl_ledger::{CodeSnapshot, SnapshotContent, SnapshotEntry};
use nix::sys::statvfs::statvfs;

use super::error::RemoteError;
use super::remote_folder::{RemoteFolder, is_hash};
use super::unused_trees::renew;
use crate::snapshot::{Store, write_code};

/// A tree that is being received.
#[derive(Debug)]
pub struct ReceivedTree {
    snapshot: CodeSnapshot,
    /// Lengths of its contents, by hash.
    sizes: BTreeMap<String, u64>,
    store: Store,
}

impl ReceivedTree {
    /// The tree with these files and links.
    ///
    /// # Errors
    /// An entry is not one of a tree, or the store cannot be made.
    pub fn new(folder: &RemoteFolder, entries: Vec<SnapshotEntry>) -> Result<Self, RemoteError> {
        let mut sizes = BTreeMap::new();
        let mut paths = BTreeSet::new();
        for entry in &entries {
            let refused = |why: &str| Err(RemoteError::Tree { reason: format!("{:?} {why}", entry.path.encoded()) });
            if !is_below(&entry.path.0) {
                return refused("leads out of it");
            }
            if !paths.insert(&entry.path) {
                return refused("is there twice");
            }
            match &entry.content {
                SnapshotContent::File { mode, size, hash } => {
                    if !matches!(*mode, 0o644 | 0o755) || !is_hash(hash) {
                        return refused("is no file of a tree");
                    }
                    if *sizes.entry(hash.clone()).or_insert(*size) != *size {
                        return refused("has another length than a file with the same content");
                    }
                }
                SnapshotContent::Link { .. } => {}
                SnapshotContent::Live { .. } => return refused("has no content"),
            }
        }
        let store = Store::of_user(&folder.runs());
        store.create()?;
        let snapshot = CodeSnapshot::new(store.name(), folder.path().to_owned(), entries);
        Ok(Self { snapshot, sizes, store })
    }

    /// Hashes of the contents that are not there yet.
    ///
    /// # Errors
    /// There is no room for them.
    pub fn lacks(&self) -> Result<Vec<String>, RemoteError> {
        let lacking = self.sizes.iter().filter(|(hash, size)| !self.store.has(hash, **size));
        let (hashes, sizes): (Vec<String>, Vec<u64>) = lacking.map(|(hash, size)| (hash.clone(), *size)).unzip();
        let free = statvfs(self.store.path()).map(|disk| disk.blocks_available() * disk.fragment_size());
        if free.is_ok_and(|free| free < sizes.iter().sum::<u64>()) {
            return Err(RemoteError::io("write", self.store.path())(ErrorKind::StorageFull.into()));
        }
        Ok(hashes)
    }

    /// The length of a content that the tree has.
    ///
    /// # Errors
    /// It has no such content.
    pub fn check_size(&self, hash: &str, size: u64) -> Result<(), RemoteError> {
        if self.sizes.get(hash) == Some(&size) {
            return Ok(());
        }
        Err(RemoteError::Tree { reason: format!("it has no content {hash:?} of {size} bytes") })
    }

    /// Keep a content.
    ///
    /// # Errors
    /// It is not what its hash says, or the disk is full.
    pub fn add(&self, hash: &str, content: &[u8]) -> Result<(), RemoteError> {
        if blake3::hash(content).to_hex().as_str() != hash {
            return Err(RemoteError::OtherContent { hash: hash.to_owned() });
        }
        self.store.insert(content)?;
        Ok(())
    }

    /// The folder of the tree, which is made unless it is there.
    ///
    /// # Errors
    /// A content is missing or damaged, or the disk is full.
    pub fn unpack(&self, folder: &RemoteFolder) -> Result<PathBuf, RemoteError> {
        let tree = folder.trees().join(&self.snapshot.hash);
        if !renew(folder, &tree)? {
            // Removed when dropped: what was unpacked has its name by then.
            let staged = tempfile::Builder::new()
                .prefix(TEMPORARY_PREFIX)
                .tempdir_in(folder.trees())
                .map_err(RemoteError::io("create", &folder.trees()))?;
            let code = staged.path().join("code");
            // What is damaged counts as lacking from then on, so the same command sends it again.
            write_code(&code, &self.snapshot, &self.store)?;
            match std::fs::rename(&code, &tree) {
                // Another connection was faster.
                Err(e) if matches!(e.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists) => {}
                other => other.map_err(RemoteError::io("write", &tree))?,
            }
        }
        folder.link_shared(&tree);
        Ok(tree)
    }
}

/// Whether a path stays below the folder that it is joined to.
pub(crate) fn is_below(path: &Path) -> bool {
    !path.as_os_str().is_empty() && path.components().all(|component| matches!(component, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use expctl_ledger::{LiveReason, SnapshotPath};

    use super::*;
    use crate::snapshot::SnapshotError;

    fn entry(path: &str, content: &[u8]) -> SnapshotEntry {
        let hash = blake3::hash(content).to_hex().to_string();
        let content = SnapshotContent::File { mode: 0o644, size: content.len() as u64, hash };
        SnapshotEntry { path: SnapshotPath(path.into()), content }
    }

    #[test]
    fn a_tree_is_unpacked_once_all_its_contents_are_there() {
        let home = tempfile::tempdir().unwrap();
        let folder = RemoteFolder::open(home.path().to_str().unwrap()).unwrap();
        let tree = ReceivedTree::new(&folder, vec![entry("a.py", b"a"), entry("pkg/b.py", b"b")]).unwrap();
        let lacks = tree.lacks().unwrap();
        assert_eq!(lacks.len(), 2);
        let hash = |content: &[u8]| blake3::hash(content).to_hex().to_string();
        tree.add(&hash(b"a"), b"a").unwrap();
        assert!(matches!(tree.add(&hash(b"b"), b"x"), Err(RemoteError::OtherContent { .. })));
        assert!(tree.unpack(&folder).is_err());
        assert_eq!(std::fs::read_dir(folder.trees()).unwrap().count(), 0);
        assert!(tree.check_size(&hash(b"b"), 1).is_ok() && tree.check_size(&hash(b"b"), 2).is_err());
        tree.add(&hash(b"b"), b"b").unwrap();
        let unpacked = tree.unpack(&folder).unwrap();
        assert_eq!(std::fs::read_to_string(unpacked.join("pkg/b.py")).unwrap(), "b");
        assert!(unpacked.join("data").is_symlink() && unpacked.join("results").is_symlink());
        assert_eq!(tree.unpack(&folder).unwrap(), unpacked);
        assert!(tree.lacks().unwrap().is_empty());
    }

    #[test]
    fn contents_that_are_damaged_there_are_sent_again_at_once() {
        let home = tempfile::tempdir().unwrap();
        let folder = RemoteFolder::open(home.path().to_str().unwrap()).unwrap();
        let files: [(&str, &[u8]); 3] = [("a.py", b"a"), ("b.py", b"b"), ("c.py", b"c")];
        let entries = files.iter().map(|(path, content)| entry(path, content)).collect();
        let tree = ReceivedTree::new(&folder, entries).unwrap();
        let hash = |content: &[u8]| blake3::hash(content).to_hex().to_string();
        files.iter().for_each(|(_, content)| tree.add(&hash(content), content).unwrap());
        let mut damaged = [hash(b"a"), hash(b"c")];
        damaged.sort();
        for hash in &damaged {
            let object = tree.store.path().join("objects").join(&hash[..2]).join(hash);
            std::fs::remove_file(&object).unwrap();
            std::fs::write(&object, "x").unwrap();
        }
        assert!(tree.lacks().unwrap().is_empty());
        assert!(matches!(tree.unpack(&folder), Err(RemoteError::Snapshot(SnapshotError::Damaged { .. }))));
        assert_eq!(tree.lacks().unwrap(), damaged);
        files.iter().for_each(|(_, content)| tree.add(&hash(content), content).unwrap());
        let unpacked = tree.unpack(&folder).unwrap();
        for (path, content) in files {
            assert_eq!(std::fs::read(unpacked.join(path)).unwrap(), content);
        }
    }

    #[test]
    fn entries_that_are_not_of_a_tree_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let folder = RemoteFolder::open(home.path().to_str().unwrap()).unwrap();
        let live = SnapshotContent::Live { reason: LiveReason::Ignored, size: None };
        let mut odd = entry("a", b"a");
        odd.content = SnapshotContent::File { mode: 0o4755, size: 1, hash: "../../x".to_owned() };
        for entries in [
            vec![entry("../a", b"a")],
            vec![entry("/etc/passwd", b"a")],
            vec![entry("a/../../b", b"a")],
            vec![entry("", b"a")],
            vec![entry("a", b"a"), entry("a", b"b")],
            vec![SnapshotEntry { content: live, ..entry("a", b"a") }],
            vec![odd],
        ] {
            assert!(matches!(ReceivedTree::new(&folder, entries), Err(RemoteError::Tree { .. })));
        }
    }
}
