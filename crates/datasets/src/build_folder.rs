//! `BuildFolder`: builds and conversions write to `<folder>.partial` under a lock, and rename it. Sizes, checksums and free space of files are
//! here, too.
//! Invariant: a folder that has its final name is complete and flushed to the disk.

use std::io::Read;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use crate::manifest::{FileInfo, MANIFEST_FILE};
use crate::{Damage, DatasetError};

/// A data set under construction, in `<folder>.partial`, with a lock that keeps a second builder away. The folder survives the
/// builder, so that the next one continues with it.
pub struct BuildFolder {
    path: PathBuf,
    _lock: Flock<std::fs::File>,
}

/// Ends the name of a folder under construction.
pub const PARTIAL: &str = ".partial";
const LOCK_FILE: &str = ".lock";
/// Holds the digest of recipe and settings: a partial build with another digest is removed.
const DIGEST_FILE: &str = ".digest";

impl BuildFolder {
    /// Path of the folder in which `folder` is built.
    pub fn path_of(folder: &Path) -> PathBuf {
        let mut path = folder.as_os_str().to_owned();
        path.push(PARTIAL);
        PathBuf::from(path)
    }

    /// Take the lock on the build of `folder`.
    pub fn open(folder: &Path) -> Result<Self, DatasetError> {
        let path = Self::path_of(folder);
        std::fs::create_dir_all(&path).map_err(DatasetError::io("create", &path))?;
        let lock_path = path.join(LOCK_FILE);
        let lock = std::fs::File::create(&lock_path).map_err(DatasetError::io("create", &lock_path))?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|(_, e)| match e {
            nix::errno::Errno::EWOULDBLOCK => DatasetError::Busy { path: folder.to_owned() },
            e => DatasetError::io("lock", &lock_path)(e.into()),
        })?;
        Ok(Self { path, _lock: lock })
    }

    /// Remove an earlier partial build, unless it is one of the same recipe and settings.
    pub fn prepare(&self, digest: &str) -> Result<(), DatasetError> {
        let path = self.path.join(DIGEST_FILE);
        if std::fs::read_to_string(&path).is_ok_and(|found| found == digest) {
            return Ok(());
        }
        self.clear()?;
        std::fs::write(&path, digest).map_err(DatasetError::io("write", &path))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Remove everything but the lock.
    fn clear(&self) -> Result<(), DatasetError> {
        for entry in std::fs::read_dir(&self.path).map_err(DatasetError::io("read", &self.path))? {
            let entry = entry.map_err(DatasetError::io("read", &self.path))?;
            let path = entry.path();
            if entry.file_name() == LOCK_FILE {
                continue;
            }
            let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.map_err(DatasetError::io("remove", &path))?;
        }
        Ok(())
    }

    /// Write the manifest of what was built.
    pub fn write_manifest(&self, manifest: &impl serde::Serialize) -> Result<(), DatasetError> {
        let path = self.path.join(MANIFEST_FILE);
        expctl_ledger::write_json(&path, manifest).map_err(|e| DatasetError::damaged(&path, e))
    }

    /// Rename the folder to the data set's name. Everything is flushed to the disk first, so that the name stands for a complete
    /// data set even if the machine fails. The builder's own files are removed last: a build that is killed before the rename
    /// is continued only if they are there.
    pub fn finish(self, folder: &Path) -> Result<(), DatasetError> {
        sync_all(&self.path)?;
        std::fs::rename(&self.path, folder).map_err(DatasetError::io("rename to", folder))?;
        sync(parent(folder))?;
        tidy(folder);
        Ok(())
    }

    /// Remove the folder: another builder has finished meanwhile.
    pub fn discard(self) -> Result<(), DatasetError> {
        match std::fs::remove_dir_all(&self.path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(DatasetError::io("remove", &self.path)(e)),
            _ => Ok(()),
        }
    }
}

/// The manifest of `folder`, if it is a data set that was built from the same recipe and settings.
pub fn existing<M>(
    folder: &Path,
    found: Result<M, DatasetError>,
    is_same: impl FnOnce(&M) -> bool,
) -> Result<Option<M>, DatasetError> {
    match found {
        Ok(manifest) if is_same(&manifest) => {
            tidy(folder);
            Ok(Some(manifest))
        }
        Ok(_) => Err(DatasetError::damaged(folder, Damage::OtherRecipe)),
        Err(DatasetError::NotBuilt { .. }) if !folder.exists() => Ok(None),
        Err(DatasetError::NotBuilt { .. }) => {
            Err(DatasetError::damaged(folder, Damage::NoManifest { contents: "is no data set" }))
        }
        Err(e) => Err(e),
    }
}

/// Remove the builder's own files from a finished data set: a builder that was killed just after the rename leaves them.
/// They do no harm, so a folder that may only be read keeps them.
pub fn tidy(folder: &Path) {
    for file in [DIGEST_FILE, LOCK_FILE] {
        let _ = std::fs::remove_file(folder.join(file));
    }
}

/// Flush a folder and everything below it to the disk.
fn sync_all(folder: &Path) -> Result<(), DatasetError> {
    for entry in std::fs::read_dir(folder).map_err(DatasetError::io("read", folder))? {
        let path = entry.map_err(DatasetError::io("read", folder))?.path();
        if path.is_dir() { sync_all(&path)? } else { sync(&path)? }
    }
    sync(folder)
}

fn sync(path: &Path) -> Result<(), DatasetError> {
    std::fs::File::open(path).and_then(|file| file.sync_all()).map_err(DatasetError::io("flush", path))
}

fn parent(folder: &Path) -> &Path {
    folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Progress of a build, conversion or verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildProgress {
    /// The phase, for example `graph` (networks), `samples` or `check` (records), `rows`, `columns` (of obs), `annotations` (rows),
    /// `checksum` (bytes).
    pub phase: &'static str,
    /// Units that are done.
    pub done: u64,
    /// All units.
    pub total: u64,
}

/// A callback for progress; `Break` stops the work.
pub type Report<'a> = dyn FnMut(BuildProgress) -> ControlFlow<()> + 'a;

/// Report the progress of a phase.
///
/// # Errors
/// [`DatasetError::Stopped`] if the callback asks for it.
pub fn report(to: &mut Report<'_>, phase: &'static str, done: u64, total: u64) -> Result<(), DatasetError> {
    match to(BuildProgress { phase, done, total }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(DatasetError::Stopped),
    }
}

/// The one file of an LMDB store.
pub const DATA_FILE: &str = "data.mdb";
/// The LMDB store inside a data set.
pub const STORE_FOLDER: &str = "processed/lmdb";
/// Folder of the stores that were made from it.
pub const STORES_FOLDER: &str = "stores";
/// The gene names inside a data set, one a line, in the order of their indices.
pub const GENES_FILE: &str = "genes.txt";

/// blake3 of a file, with progress in bytes; of a folder (zarr, MDS), over the paths of its files, their lengths and their bytes.
pub fn blake3_of(
    path: &Path,
    mut advance: impl FnMut(u64) -> Result<(), DatasetError>,
) -> Result<String, DatasetError> {
    let mut hasher = blake3::Hasher::new();
    if !path.is_dir() {
        hash_file(path, &mut hasher, &mut advance)?;
        return Ok(hasher.finalize().to_hex().to_string());
    }
    for inside in files_in(path)? {
        let (name, file) = (inside.to_string_lossy(), path.join(&inside));
        let bytes = file.metadata().map_err(DatasetError::io("read", &file))?.len();
        hasher.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes()).update(&bytes.to_le_bytes());
        hash_file(&file, &mut hasher, &mut advance)?;
    }
    Ok(hasher.finalize().to_hex().to_string())
}

fn hash_file(
    path: &Path,
    hasher: &mut blake3::Hasher,
    advance: &mut impl FnMut(u64) -> Result<(), DatasetError>,
) -> Result<(), DatasetError> {
    let mut file = std::fs::File::open(path).map_err(DatasetError::io("read", path))?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut buffer).map_err(DatasetError::io("read", path))?;
        if n == 0 {
            return Ok(());
        }
        hasher.update(&buffer[..n]);
        advance(n as u64)?;
    }
}

/// Bytes of a file and of the blocks that it takes; of a folder, those of all files in it.
///
/// # Errors
/// The file does not exist, or cannot be inspected.
pub fn bytes_of(path: &Path) -> Result<(u64, u64), DatasetError> {
    // st_blocks counts units of 512 bytes whatever the file system's block size.
    let of = |path: &Path| {
        let about = path.metadata().map_err(DatasetError::io("read", path))?;
        Ok::<_, DatasetError>((about.len(), about.blocks() * 512, about.is_dir()))
    };
    let (bytes, allocated, folder) = of(path)?;
    if !folder {
        return Ok((bytes, allocated));
    }
    files_in(path)?.iter().try_fold((0, 0), |sum, inside| {
        let (bytes, allocated, _) = of(&path.join(inside))?;
        Ok((sum.0 + bytes, sum.1 + allocated))
    })
}

/// Paths of all files in a folder, from there, sorted.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>, DatasetError> {
    let (mut files, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(inside) = folders.pop() {
        let at = folder.join(&inside);
        for entry in std::fs::read_dir(&at).map_err(DatasetError::io("read", &at))? {
            let entry = entry.map_err(DatasetError::io("read", &at))?;
            let path = inside.join(entry.file_name());
            let is_folder = entry.file_type().map_err(DatasetError::io("read", &at))?.is_dir();
            if is_folder { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    Ok(files)
}

/// Size and checksum of each of `paths` in `folder`, files or folders.
pub fn checksums(folder: &Path, paths: &[String], to: &mut Report<'_>) -> Result<Vec<FileInfo>, DatasetError> {
    let stat = |path: &String| bytes_of(&folder.join(path));
    let total = paths.iter().map(|path| Ok(stat(path)?.0)).sum::<Result<u64, DatasetError>>()?;
    let mut done = 0;
    paths
        .iter()
        .map(|path| {
            let blake3 = blake3_of(&folder.join(path), |n| {
                done += n;
                report(to, "checksum", done, total)
            })?;
            let (bytes, allocated_bytes) = stat(path)?;
            Ok(FileInfo { path: path.clone(), bytes, allocated_bytes, blake3 })
        })
        .collect()
}

/// Bytes that an ordinary user may still write where `folder` lies.
///
/// # Errors
/// The folder does not exist, or its file system does not say.
pub fn free_bytes(folder: &Path) -> Result<u64, DatasetError> {
    let disk = nix::sys::statvfs::statvfs(folder).map_err(|e| DatasetError::io("inspect", folder)(e.into()))?;
    // The types of these fields differ between platforms.
    #[allow(clippy::unnecessary_cast)]
    Ok(disk.blocks_available() as u64 * disk.fragment_size() as u64)
}

/// Fail before anything is written if the disk of `folder` cannot hold so many bytes more.
pub fn room(folder: &Path, needed: u64) -> Result<(), DatasetError> {
    let free = free_bytes(folder)?;
    if needed <= free {
        return Ok(());
    }
    let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
    let reason = format!("{:.2} GiB are needed, {:.2} GiB are free", gib(needed), gib(free));
    Err(DatasetError::io("build", folder)(std::io::Error::new(std::io::ErrorKind::StorageFull, reason)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(folder: &Path) -> BuildFolder {
        let partial = BuildFolder::open(folder).unwrap();
        partial.prepare("digest").unwrap();
        std::fs::create_dir_all(partial.path().join("store")).unwrap();
        std::fs::write(partial.path().join("store/data"), "records").unwrap();
        partial
    }

    /// A rename that fails stands for a kill before it: what was built is still known as a build of the same thing.
    #[test]
    fn what_was_built_survives_an_end_before_the_rename() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("set");
        let partial = built(&folder);
        std::fs::create_dir_all(folder.join("in-the-way")).unwrap();
        partial.finish(&folder).unwrap_err();
        let next = BuildFolder::open(&folder).unwrap();
        next.prepare("digest").unwrap();
        assert!(next.path().join("store/data").is_file(), "the next build threw it away");
        std::fs::remove_dir_all(&folder).unwrap();
        next.finish(&folder).unwrap();
        let left: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["store"]);
    }

    #[test]
    fn a_build_of_something_else_is_thrown_away() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("set");
        drop(built(&folder));
        let next = BuildFolder::open(&folder).unwrap();
        next.prepare("another").unwrap();
        assert!(!next.path().join("store").exists());
    }
}
