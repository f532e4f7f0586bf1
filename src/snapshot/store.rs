//! [`Store`]: contents of files by their hashes, which the jobs of a user share: `snapshots-<uid>/objects/<xx>/<hash>` in the ledger. [`prune`]
//! removes those that no job has any more.
//!
//! Invariant: an object is complete under its name, and never written again. One that was damaged since is removed where that is found. Only the user
//! may read the folder, whoever may read a job.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use atomic_file::TEMPORARY_PREFIX;
use expctl_ledger::{CodeSnapshot, JobDir, LedgerError, SnapshotContent};
use nix::unistd::geteuid;

use super::error::SnapshotError;
use crate::project::Project;

/// Start of the names of stores.
const PREFIX: &str = "snapshots-";
/// Objects that were used more recently are not removed: a job that is being submitted may be about to name them.
const MIN_AGE: Duration = Duration::from_secs(24 * 3600);
/// The time of an object that is used again is renewed if it is older than this.
const RENEW_AFTER: Duration = Duration::from_secs(12 * 3600);

/// Where the objects of a user are.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    path: PathBuf,
}

impl Store {
    /// The store of this process's user in the folder of all jobs.
    pub fn of_user(runs: &Path) -> Self {
        Self::named(runs, &format!("{PREFIX}{}", geteuid()))
    }

    /// The store of this name.
    pub fn named(runs: &Path, name: &str) -> Self {
        Self { path: runs.join(name) }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn name(&self) -> String {
        self.path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    /// Make its folder, for the user alone.
    pub fn create(&self) -> Result<(), SnapshotError> {
        if let Some(runs) = self.path.parent() {
            std::fs::create_dir_all(runs).map_err(SnapshotError::io("create", runs))?;
        }
        match DirBuilder::new().mode(0o700).create(&self.path) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(SnapshotError::io("create", &self.path)(e)),
            _ => Ok(()),
        }
    }

    fn object(&self, hash: &str) -> PathBuf {
        let (first, _) = hash.split_at_checked(2).unwrap_or((hash, ""));
        self.path.join("objects").join(first).join(hash)
    }

    /// Whether it has an object of this hash and length. It will be there for the next hours, too.
    pub fn has(&self, hash: &str, size: u64) -> bool {
        let path = self.object(hash);
        let Ok(found) = std::fs::symlink_metadata(&path) else { return false };
        if found.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > RENEW_AFTER)) {
            // Of an object that cannot be renewed, the age is nobody's promise: it is written again.
            let renewed = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
            return renewed.is_ok() && found.len() == size;
        }
        found.len() == size
    }

    /// Add a content, unless the store has it; returns its hash.
    pub fn insert(&self, content: &[u8]) -> Result<String, SnapshotError> {
        let hash = blake3::hash(content).to_hex().to_string();
        if self.has(&hash, content.len() as u64) {
            return Ok(hash);
        }
        let path = self.object(&hash);
        let folder = path.parent().unwrap_or(&self.path);
        std::fs::create_dir_all(folder).map_err(SnapshotError::io("create", folder))?;
        // Not flushed to the disk one by one: of an object that a crash has cut off, the length is another, and it is written again.
        let write = || -> std::io::Result<()> {
            let mut file = tempfile::Builder::new()
                .prefix(TEMPORARY_PREFIX)
                .permissions(Permissions::from_mode(0o444))
                .tempfile_in(folder)?;
            file.write_all(content)?;
            file.persist(&path)?;
            Ok(())
        };
        write().map_err(SnapshotError::io("write", &path))?;
        Ok(hash)
    }

    /// The content of an object, which is what its hash says.
    pub fn read(&self, hash: &str) -> Result<Vec<u8>, SnapshotError> {
        let path = self.object(hash);
        let content = match std::fs::read(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Err(SnapshotError::NoObject { path }),
            other => other.map_err(SnapshotError::io("read", &path))?,
        };
        if blake3::hash(&content).to_hex().as_str() != hash {
            return Err(SnapshotError::Damaged { path });
        }
        Ok(content)
    }

    /// Remove an object if it is damaged: whoever has the content writes it again then, for all jobs.
    pub fn remove_damaged(&self, hash: &str) {
        if let Err(SnapshotError::Damaged { path }) = self.read(hash)
            && let Err(e) = std::fs::remove_file(&path)
        {
            tracing::debug!("{}: {e}", path.display());
        }
    }

    /// All its objects, with hash, length and age.
    fn objects(&self) -> Result<Vec<(PathBuf, String, u64, Duration)>, SnapshotError> {
        let mut found = Vec::new();
        for folder in entries(&self.path.join("objects"))? {
            for path in entries(&folder)? {
                let Ok(meta) = std::fs::symlink_metadata(&path) else { continue };
                let age = meta.modified().ok().and_then(|at| at.elapsed().ok()).unwrap_or_default();
                let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
                found.push((path, name, meta.len(), age));
            }
        }
        Ok(found)
    }
}

/// Paths in a folder; none if it is not there.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, SnapshotError> {
    let entries = match std::fs::read_dir(folder) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(SnapshotError::io("list", folder))?,
    };
    entries.map(|entry| Ok(entry.map_err(SnapshotError::io("list", folder))?.path())).collect()
}

/// What was removed from a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Number of objects.
    pub objects: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// Remove the user's objects that no job in the ledger has, and that no submission has used for a day.
///
/// # Errors
/// The ledger or the `snapshot.json` of a job cannot be read: then nothing is removed. An object cannot be removed.
pub fn prune(project: &Project) -> Result<Pruned, SnapshotError> {
    let store = Store::of_user(project.runs());
    let mut used: BTreeSet<String> = BTreeSet::new();
    let is_store = |folder: &Path| folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
    for folder in entries(project.runs())?.into_iter().filter(|folder| folder.is_dir() && !is_store(folder)) {
        let snapshot = match CodeSnapshot::read(&JobDir::new(&folder)) {
            // Another user's, who has a store of their own.
            Err(e) if LedgerError::is_denied(&e) => None,
            other => other?,
        };
        for entry in snapshot.filter(|snapshot| snapshot.store == store.name()).into_iter().flat_map(|of| of.entries) {
            if let SnapshotContent::File { hash, .. } = entry.content {
                used.insert(hash);
            }
        }
    }
    let mut pruned = Pruned::default();
    for (path, name, bytes, age) in store.objects()? {
        if age > MIN_AGE && !used.contains(&name) {
            std::fs::remove_file(&path).map_err(SnapshotError::io("remove", &path))?;
            pruned.objects += 1;
            pruned.bytes += bytes;
        }
    }
    Ok(pruned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_written_once_and_read_back_as_it_was() {
        let runs = tempfile::tempdir().unwrap();
        let store = Store::of_user(runs.path());
        store.create().unwrap();
        store.create().unwrap();
        assert_eq!(store.path().metadata().unwrap().permissions().mode() & 0o777, 0o700);
        let hash = store.insert(b"a = 1\n").unwrap();
        let path = store.object(&hash);
        let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&path.metadata().unwrap());
        let first = inode(&path);
        assert_eq!((store.insert(b"a = 1\n").unwrap(), inode(&path)), (hash.clone(), first));
        assert!(store.has(&hash, 6) && !store.has(&hash, 5) && !store.has("00", 0));
        assert_eq!(store.read(&hash).unwrap(), b"a = 1\n");
        // Cut off by a crash: it is known as such, and written again.
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "a").unwrap();
        assert!(matches!(store.read(&hash), Err(SnapshotError::Damaged { .. })));
        store.insert(b"a = 1\n").unwrap();
        assert_eq!(store.read(&hash).unwrap(), b"a = 1\n");
        // One that is whole stays.
        store.remove_damaged(&hash);
        assert!(store.has(&hash, 6));
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "a = 2\n").unwrap();
        store.remove_damaged(&hash);
        assert!(matches!(store.read(&hash), Err(SnapshotError::NoObject { .. })));
        assert!(Store::named(runs.path(), &store.name()).read("").is_err());
    }
}
