use std::path::{Path, PathBuf};

use crate::conf::{LinkStyle, NotesSettings};
use crate::exit::Failure;
use crate::project::Project;

/// How a note is written: what was asked for, above what the project and the user have set.
#[derive(Clone, Debug, Default)]
pub struct NoteOptions {
    /// Folder, file name, template and links.
    pub settings: NotesSettings,
    /// Replace sections that were edited, and notes of earlier versions; the old file is kept beside.
    pub force: bool,
    /// Removed sections to put back; `all` is every one.
    pub restore: Vec<String>,
    /// Leave earlier jobs of the config out of the performance comparison table.
    pub alone: bool,
}

impl NoteOptions {
    /// Fill in what the project and the user have set.
    ///
    /// # Errors
    /// Exit 3 for a file of settings that is wrong.
    pub(super) fn filled(&self, project: &Project) -> Result<Self, Failure> {
        let settings = self.settings.clone().over(NotesSettings::load(project)?);
        Ok(Self { settings, ..self.clone() })
    }

    /// Folder of the notes: that of the project unless another one was named.
    pub(super) fn folder(&self, project: &Project) -> PathBuf {
        self.settings.folder.clone().unwrap_or_else(|| project.results())
    }

    pub(super) fn links(&self) -> LinkStyle {
        self.settings.links.unwrap_or_default()
    }
}

/// A path as a reader of the project sees it: relative to its root where it is inside.
pub(super) fn shown(project: &Project, path: &Path) -> String {
    path.strip_prefix(project.root()).unwrap_or(path).display().to_string()
}
