use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::AnnDataError;

/// What a file was when it was opened, so that one that is written to, cut short, replaced or removed while it is read
/// is an error. Small writes within a tick of the file system's clock (some milliseconds) after opening may go unseen.
#[derive(Debug)]
pub(crate) struct FileState {
    path: PathBuf,
    identity: Identity,
}

/// What changes when somebody writes to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl FileState {
    /// That of `file`, which was opened at `path`.
    ///
    /// # Errors
    /// The system does not say, or it is no regular file.
    pub(crate) fn of(file: &File, path: &Path) -> Result<Self, AnnDataError> {
        let about = file.metadata().map_err(AnnDataError::io("inspect", path))?;
        if !about.is_file() {
            return Err(AnnDataError::damaged(path, "this is no regular file"));
        }
        Ok(Self { path: path.to_owned(), identity: Identity::of(&about) })
    }

    /// Where it was opened.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its length in bytes when it was opened.
    pub(crate) fn bytes(&self) -> u64 {
        self.identity.bytes
    }

    /// An error if what is at the path now is another file than was opened, or was written to: for what is opened by its path
    /// once more.
    ///
    /// # Errors
    /// [`AnnDataError::Rewritten`], or the system does not say.
    pub(crate) fn at_path(&self) -> Result<(), AnnDataError> {
        match self.path.metadata() {
            // The file that is open keeps its inode, so a new one cannot have the same.
            Ok(about) if Identity::of(&about) == self.identity => Ok(()),
            Err(e) if !matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Err(AnnDataError::io("inspect", &self.path)(e))
            }
            _ => Err(AnnDataError::Rewritten { path: self.path.clone() }),
        }
    }

    /// An error if `file` is not as it was opened, or has no name any more: it was removed, or another one has its
    /// place. Less than a microsecond.
    ///
    /// # Errors
    /// [`AnnDataError::Rewritten`], or the system does not say.
    pub(crate) fn unchanged(&self, file: &File) -> Result<(), AnnDataError> {
        let about = file.metadata().map_err(AnnDataError::io("inspect", &self.path))?;
        if Identity::of(&about) == self.identity && about.nlink() > 0 {
            return Ok(());
        }
        Err(AnnDataError::Rewritten { path: self.path.clone() })
    }
}

impl Identity {
    fn of(about: &Metadata) -> Self {
        Self {
            device: about.dev(),
            inode: about.ino(),
            bytes: about.len(),
            modified: (about.mtime(), about.mtime_nsec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A file of three bytes that was last written long ago.
    fn old_file(path: &Path) -> (File, FileState) {
        let mut made = File::create(path).unwrap();
        made.write_all(b"abc").unwrap();
        made.set_modified(std::time::UNIX_EPOCH).unwrap();
        let file = File::open(path).unwrap();
        let state = FileState::of(&file, path).unwrap();
        assert_eq!((state.bytes(), state.path()), (3, path));
        state.unchanged(&file).unwrap();
        (file, state)
    }

    #[test]
    fn a_file_that_changes_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let changes: [fn(&Path); 4] = [
            |path| std::fs::write(path, b"abd").unwrap(),
            |path| File::options().write(true).open(path).unwrap().set_len(2).unwrap(),
            |path| std::fs::remove_file(path).unwrap(),
            |path| {
                let other = path.with_extension("other");
                std::fs::write(&other, b"abc").unwrap();
                std::fs::rename(other, path).unwrap();
            },
        ];
        for change in changes {
            let (file, state) = old_file(&path);
            change(&path);
            assert!(matches!(state.unchanged(&file), Err(AnnDataError::Rewritten { path: at }) if at == path));
            assert!(matches!(state.at_path(), Err(AnnDataError::Rewritten { path: at }) if at == path));
        }
    }

    #[test]
    fn a_file_that_was_moved_is_not_at_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let (file, state) = old_file(&path);
        state.at_path().unwrap();
        std::fs::rename(&path, folder.path().join("other")).unwrap();
        std::fs::write(&path, b"abc").unwrap();
        // What is read is still the file that was opened; who opens the path gets another.
        state.unchanged(&file).unwrap();
        assert!(matches!(state.at_path(), Err(AnnDataError::Rewritten { .. })));
    }

    #[test]
    fn a_folder_is_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::open(folder.path()).unwrap();
        assert!(FileState::of(&file, folder.path()).is_err());
    }
}
