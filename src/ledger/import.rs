use std::path::{Path, PathBuf};

use super::PublishedFile;
use crate::exit::{Exit, Failure};
use crate::project::Project;

/// What an import took.
#[derive(Debug)]
pub struct Imported {
    /// The file in the project.
    pub path: PathBuf,
    /// Its content.
    pub file: PublishedFile,
    /// False if the same content was there already.
    pub changed: bool,
}

/// Check a file of published results and copy it into `results/imported/`, under its own name.
///
/// # Errors
/// A file that does not have the documented form; one whose name is taken by other content, unless `force`.
pub fn import(project: &Project, source: &Path, force: bool) -> Result<Imported, Failure> {
    let name = source
        .file_name()
        .filter(|_| source.extension().is_some_and(|e| e == "toml"))
        .ok_or_else(|| Failure::new(Exit::Usage, format!("{} is not a .toml file", source.display())))?;
    let file = PublishedFile::read(source)?;
    let path = project.imported().join(name);
    let content =
        std::fs::read(source).map_err(|e| Failure::internal(format!("cannot read {}: {e}", source.display())))?;
    let present = std::fs::read(&path).ok();
    if present.as_ref() == Some(&content) {
        return Ok(Imported { path, file, changed: false });
    }
    if present.is_some() && !force {
        return Err(Failure::new(Exit::Usage, format!("{} exists with other content", path.display()))
            .hint("--force replaces it"));
    }
    expctl_record::write_atomic(&path, &content)?;
    Ok(Imported { path, file, changed: true })
}
