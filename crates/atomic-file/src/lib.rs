//! Files and folders that get their name when they are complete.
//!
//! Content goes to a temporary name in the folder of the target, is flushed to the disk (`fsync`) and renamed. A reader therefore sees
//! the old content or the whole new one, and a machine that loses power leaves no empty file under the final name.
//!
//! [`write()`] is for content in memory. [`Staged`] is for a file or folder that is written piece by piece:
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! let target = folder.path().join("table.csv");
//! let staged = atomic_file::Staged::new(&target)?;
//! std::fs::write(staged.path(), "a,b\n1,2\n")?;
//! assert!(!target.exists());
//! staged.publish()?;
//! assert!(target.exists());
//! # Ok(())
//! # }
//! ```

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Start of the names of temporary files and folders.
pub const TEMPORARY_PREFIX: &str = ".writing-";

/// Why a file did not get its name.
#[derive(Debug, thiserror::Error)]
pub enum AtomicFileError {
    /// The folder of the target, or a temporary one inside it, could not be created.
    #[error("cannot create {}: {source}", path.display())]
    Create {
        /// The folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Content could not be written, flushed or renamed.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl AtomicFileError {
    fn create(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Create { path, source }
    }

    fn write(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Write { path, source }
    }
}

/// Replace the file `path` by `content`. Missing folders are created.
///
/// # Errors
/// The folder cannot be created, or the file not written; a file that was there before is unchanged then.
pub fn write(path: &Path, content: &[u8]) -> Result<(), AtomicFileError> {
    // Readable by all before the umask, as a file that is created by its own name.
    write_with_mode(path, content, 0o666)
}

/// As [`write()`]; nobody but the user can read the file.
///
/// # Errors
/// As [`write()`].
pub fn write_private(path: &Path, content: &[u8]) -> Result<(), AtomicFileError> {
    write_with_mode(path, content, 0o600)
}

fn write_with_mode(path: &Path, content: &[u8], mode: u32) -> Result<(), AtomicFileError> {
    let folder = folder_of(path);
    std::fs::create_dir_all(folder).map_err(AtomicFileError::create(folder))?;
    let mut file = tempfile::Builder::new()
        .prefix(TEMPORARY_PREFIX)
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(folder)
        .map_err(AtomicFileError::write(path))?;
    file.write_all(content).map_err(AtomicFileError::write(path))?;
    file.as_file().sync_all().map_err(AtomicFileError::write(path))?;
    file.persist(path).map_err(|e| AtomicFileError::write(path)(e.error))?;
    // The new name is on the disk when its folder is.
    sync(folder)
}

/// A file or folder under a temporary name. It is removed when this is dropped before [`Staged::publish`].
#[derive(Debug)]
pub struct Staged {
    target: PathBuf,
    path: PathBuf,
    /// Holds `path`, next to the target and so on the same file system.
    _folder: TempDir,
}

impl Staged {
    /// Stage what is to become `target`. Missing folders above it are created.
    ///
    /// Nothing is at [`Staged::path`] yet: the caller creates a file or a folder there. Its name is that of the target.
    ///
    /// # Errors
    /// The folder of the target cannot be created or written to.
    pub fn new(target: &Path) -> Result<Self, AtomicFileError> {
        let parent = folder_of(target);
        std::fs::create_dir_all(parent).map_err(AtomicFileError::create(parent))?;
        let folder = tempfile::Builder::new()
            .prefix(TEMPORARY_PREFIX)
            .permissions(Permissions::from_mode(0o777))
            .tempdir_in(parent)
            .map_err(AtomicFileError::create(parent))?;
        let path = folder.path().join(target.file_name().unwrap_or("file".as_ref()));
        Ok(Self { target: target.to_owned(), path, _folder: folder })
    }

    /// The temporary name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The final name.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Flush the content to the disk and give it its final name. A file replaces one of that name; a folder does not.
    ///
    /// # Errors
    /// Nothing was written to [`Staged::path`], it cannot be flushed, or the rename fails.
    pub fn publish(self) -> Result<(), AtomicFileError> {
        sync_tree(&self.path)?;
        std::fs::rename(&self.path, &self.target).map_err(AtomicFileError::write(&self.target))?;
        // The new name is on the disk when its folder is.
        sync(folder_of(&self.target))
    }
}

/// Flush a file, or a folder and all files below it, to the disk.
///
/// # Errors
/// One of them cannot be opened or flushed.
pub fn sync_tree(path: &Path) -> Result<(), AtomicFileError> {
    if path.is_dir() {
        for entry in std::fs::read_dir(path).map_err(AtomicFileError::write(path))? {
            sync_tree(&entry.map_err(AtomicFileError::write(path))?.path())?;
        }
    }
    sync(path)
}

fn sync(path: &Path) -> Result<(), AtomicFileError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(AtomicFileError::write(path))
}

/// The folder that a path lies in; the current one for a bare name.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn written_files_replace_others_and_are_readable_by_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/file");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        let plain = dir.path().join("plain");
        std::fs::write(&plain, "").unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode();
        assert_eq!(mode(&path), mode(&plain));
        assert_eq!(names(&dir.path().join("a/b")), ["file"]);
        let message = write(&plain.join("x"), b"").unwrap_err().to_string();
        assert!(message.starts_with(&format!("cannot create {}: ", plain.display())), "{message}");
    }

    #[test]
    fn a_staged_folder_appears_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("new/set");
        let stage = || {
            let staged = Staged::new(&target).unwrap();
            std::fs::create_dir(staged.path()).unwrap();
            std::fs::write(staged.path().join("data"), "1").unwrap();
            staged
        };
        drop(stage());
        assert!(names(&dir.path().join("new")).is_empty());
        stage().publish().unwrap();
        assert_eq!(names(&dir.path().join("new")), ["set"]);
        assert_eq!(std::fs::read(target.join("data")).unwrap(), b"1");
        assert!(stage().publish().is_err(), "a folder replaced another one");
        assert!(Staged::new(&dir.path().join("other")).unwrap().publish().is_err(), "nothing was published");
    }
}
