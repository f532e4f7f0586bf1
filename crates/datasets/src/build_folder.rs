use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use crate::PipelineError;

/// A data set under construction, in `<folder>.partial`, with the lock that keeps a second builder away. It survives the
/// builder, so that the next one goes on with it.
pub(crate) struct Partial {
    path: PathBuf,
    _lock: Flock<std::fs::File>,
}

/// Ends the name of a folder under construction.
pub(crate) const PARTIAL: &str = ".partial";
const LOCK_FILE: &str = ".lock";
/// Holds the digest of what is being built: a partial build of something else is thrown away.
const DIGEST_FILE: &str = ".digest";

impl Partial {
    /// Where `folder` is built.
    pub(crate) fn path_of(folder: &Path) -> PathBuf {
        let mut path = folder.as_os_str().to_owned();
        path.push(PARTIAL);
        PathBuf::from(path)
    }

    /// Take the lock on the build of `folder`.
    pub(crate) fn open(folder: &Path) -> Result<Self, PipelineError> {
        let path = Self::path_of(folder);
        std::fs::create_dir_all(&path).map_err(PipelineError::io("create", &path))?;
        let lock_path = path.join(LOCK_FILE);
        let lock = std::fs::File::create(&lock_path).map_err(PipelineError::io("create", &lock_path))?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|(_, e)| match e {
            nix::errno::Errno::EWOULDBLOCK => PipelineError::Busy { path: folder.to_owned() },
            e => PipelineError::io("lock", &lock_path)(e.into()),
        })?;
        Ok(Self { path, _lock: lock })
    }

    /// Throw away what is there unless it is a partial build of just this.
    pub(crate) fn prepare(&self, digest: &str) -> Result<(), PipelineError> {
        let path = self.path.join(DIGEST_FILE);
        if std::fs::read_to_string(&path).is_ok_and(|found| found == digest) {
            return Ok(());
        }
        self.clear()?;
        std::fs::write(&path, digest).map_err(PipelineError::io("write", &path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Remove everything but the lock.
    fn clear(&self) -> Result<(), PipelineError> {
        for entry in std::fs::read_dir(&self.path).map_err(PipelineError::io("read", &self.path))? {
            let entry = entry.map_err(PipelineError::io("read", &self.path))?;
            let path = entry.path();
            if entry.file_name() == LOCK_FILE {
                continue;
            }
            let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.map_err(PipelineError::io("remove", &path))?;
        }
        Ok(())
    }

    /// Give the finished data set its name. All of it is on the disk first, so that the name stands for a complete data
    /// set even if the machine fails; the builder's own files go last, because a build that is killed before the rename
    /// is gone on with only if they are there.
    pub(crate) fn finish(self, folder: &Path) -> Result<(), PipelineError> {
        sync_all(&self.path)?;
        std::fs::rename(&self.path, folder).map_err(PipelineError::io("rename to", folder))?;
        sync(parent(folder))?;
        tidy(folder);
        Ok(())
    }

    /// Another builder has finished meanwhile: leave nothing behind.
    pub(crate) fn discard(self) -> Result<(), PipelineError> {
        match std::fs::remove_dir_all(&self.path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(PipelineError::io("remove", &self.path)(e)),
            _ => Ok(()),
        }
    }
}

/// The manifest that `folder` was found to have, if that is a data set built from just what is to be built.
pub(crate) fn existing<M>(
    folder: &Path,
    found: Result<M, PipelineError>,
    is_same: impl FnOnce(&M) -> bool,
) -> Result<Option<M>, PipelineError> {
    match found {
        Ok(manifest) if is_same(&manifest) => {
            tidy(folder);
            Ok(Some(manifest))
        }
        Ok(_) => {
            Err(PipelineError::damaged(folder, "was built from another state of the recipe; remove it to build again"))
        }
        Err(PipelineError::NotBuilt { .. }) if !folder.exists() => Ok(None),
        Err(PipelineError::NotBuilt { .. }) => {
            Err(PipelineError::damaged(folder, "exists, but is no data set (it has no manifest)"))
        }
        Err(e) => Err(e),
    }
}

/// Remove the builder's own files from a finished data set: a builder that was killed just after the rename leaves them.
/// They do no harm, so a folder that may only be read keeps them.
pub(crate) fn tidy(folder: &Path) {
    for file in [DIGEST_FILE, LOCK_FILE] {
        let _ = std::fs::remove_file(folder.join(file));
    }
}

/// Flush a folder and everything below it to the disk.
fn sync_all(folder: &Path) -> Result<(), PipelineError> {
    for entry in std::fs::read_dir(folder).map_err(PipelineError::io("read", folder))? {
        let path = entry.map_err(PipelineError::io("read", folder))?.path();
        if path.is_dir() { sync_all(&path)? } else { sync(&path)? }
    }
    sync(folder)
}

fn sync(path: &Path) -> Result<(), PipelineError> {
    std::fs::File::open(path).and_then(|file| file.sync_all()).map_err(PipelineError::io("flush", path))
}

fn parent(folder: &Path) -> &Path {
    folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(folder: &Path) -> Partial {
        let partial = Partial::open(folder).unwrap();
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
        let next = Partial::open(&folder).unwrap();
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
        let next = Partial::open(&folder).unwrap();
        next.prepare("another").unwrap();
        assert!(!next.path().join("store").exists());
    }
}
