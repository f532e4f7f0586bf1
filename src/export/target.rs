//! [`ExportTarget`]: the file or folder that an export becomes: complete under its name, or not there.

use std::path::{Path, PathBuf};

use atomic_file::Staged;

use super::ExportError;

/// File in the folder of an export: what it is of. Only a folder that has it is ever replaced.
const MARK: &str = ".expctl-export";

/// What an export becomes, while it is written under a temporary name.
#[derive(Debug)]
pub struct ExportTarget {
    staged: Staged,
    is_folder: bool,
    replace: bool,
}

impl ExportTarget {
    /// Stage a file or folder of this name. `replace`: what has the name already is replaced at the end, if it is a file, or the folder of an
    /// export.
    ///
    /// # Errors
    /// The name is taken, or the folder above it cannot be written to.
    pub fn new(path: &Path, is_folder: bool, replace: bool) -> Result<Self, ExportError> {
        if let Ok(found) = path.symlink_metadata() {
            if !replace {
                return Err(ExportError::Exists { path: path.to_owned() });
            }
            let is_export = if is_folder { found.is_dir() && path.join(MARK).is_file() } else { found.is_file() };
            if !is_export {
                return Err(ExportError::NotAnExport { path: path.to_owned() });
            }
        }
        let staged = Staged::new(path)?;
        if is_folder {
            std::fs::create_dir(staged.path()).map_err(ExportError::write(staged.path()))?;
        }
        Ok(Self { staged, is_folder, replace })
    }

    /// Where to write.
    pub fn path(&self) -> &Path {
        self.staged.path()
    }

    /// The final name.
    pub fn target(&self) -> &Path {
        self.staged.target()
    }

    /// Give it its name. `what`: what a folder is an export of, for its mark.
    ///
    /// # Errors
    /// It cannot be written or renamed; what had the name before has it still.
    pub fn publish(self, what: &str) -> Result<PathBuf, ExportError> {
        let target = self.staged.target().to_owned();
        if !self.is_folder {
            self.staged.publish()?;
            return Ok(target);
        }
        let mark = self.staged.path().join(MARK);
        std::fs::write(&mark, format!("{what}\n")).map_err(ExportError::write(&mark))?;
        if !self.replace || !target.exists() {
            self.staged.publish()?;
            return Ok(target);
        }
        // A folder does not replace another one: the old one steps aside, and is removed with the staging folder it then lies in.
        let aside = Staged::new(&target)?;
        std::fs::rename(&target, aside.path()).map_err(ExportError::write(&target))?;
        if let Err(error) = self.staged.publish() {
            std::fs::rename(aside.path(), &target).map_err(ExportError::write(&target))?;
            return Err(error.into());
        }
        Ok(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(path: &Path, text: &str, replace: bool) -> Result<PathBuf, ExportError> {
        let target = ExportTarget::new(path, true, replace)?;
        std::fs::write(target.path().join("content"), text).unwrap();
        target.publish("job 1")
    }

    #[test]
    fn only_exports_are_replaced_and_only_if_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let content = || std::fs::read_to_string(path.join("content")).unwrap();
        folder(&path, "one", false).unwrap();
        assert!(matches!(folder(&path, "two", false), Err(ExportError::Exists { .. })));
        assert_eq!(content(), "one");
        folder(&path, "two", true).unwrap();
        assert_eq!(content(), "two");
        // Nothing is left beside it.
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        std::fs::remove_file(path.join(MARK)).unwrap();
        assert!(matches!(folder(&path, "three", true), Err(ExportError::NotAnExport { .. })));
        assert_eq!(content(), "two");
        // A file is no folder, and the other way round.
        assert!(matches!(ExportTarget::new(&path, false, true), Err(ExportError::NotAnExport { .. })));
        let file = dir.path().join("file");
        std::fs::write(&file, "mine").unwrap();
        assert!(matches!(ExportTarget::new(&file, true, true), Err(ExportError::NotAnExport { .. })));
        let target = ExportTarget::new(&file, false, true).unwrap();
        std::fs::write(target.path(), "new").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
        target.publish("job 1").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
    }

    #[test]
    fn what_is_not_published_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        drop(ExportTarget::new(&path, true, false).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
