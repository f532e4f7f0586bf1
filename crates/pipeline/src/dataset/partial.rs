use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use crate::PipelineError;

/// A data set under construction, in `<folder>.partial`, with the lock that keeps a second builder away. It survives the
/// builder, so that the next one goes on with it.
pub(crate) struct Partial {
    path: PathBuf,
    _lock: Flock<std::fs::File>,
}

const LOCK_FILE: &str = ".lock";
/// Holds the digest of what is being built: a partial build of something else is thrown away.
const DIGEST_FILE: &str = ".digest";

impl Partial {
    /// Take the lock on the build of `folder`.
    pub(crate) fn open(folder: &Path) -> Result<Self, PipelineError> {
        let mut path = folder.as_os_str().to_owned();
        path.push(".partial");
        let path = PathBuf::from(path);
        std::fs::create_dir_all(&path).map_err(PipelineError::io("create", &path))?;
        let lock_path = path.join(LOCK_FILE);
        let lock = std::fs::File::create(&lock_path).map_err(PipelineError::io("create", &lock_path))?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|(_, e)| match e {
            nix::errno::Errno::EWOULDBLOCK => {
                PipelineError::Invalid(format!("another process is building {}", folder.display()))
            }
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

    /// Give the finished data set its name. The lock goes along with it and is removed last: who waited for it then
    /// finds a finished data set.
    pub(crate) fn finish(self, folder: &Path) -> Result<(), PipelineError> {
        let digest = self.path.join(DIGEST_FILE);
        std::fs::remove_file(&digest).map_err(PipelineError::io("remove", &digest))?;
        std::fs::rename(&self.path, folder).map_err(PipelineError::io("rename to", folder))?;
        let lock = folder.join(LOCK_FILE);
        std::fs::remove_file(&lock).map_err(PipelineError::io("remove", &lock))
    }

    /// Another builder has finished meanwhile: leave nothing behind.
    pub(crate) fn discard(self) -> Result<(), PipelineError> {
        match std::fs::remove_dir_all(&self.path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(PipelineError::io("remove", &self.path)(e)),
            _ => Ok(()),
        }
    }
}
