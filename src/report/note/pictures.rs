use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::exit::Failure;
use crate::plot;
use crate::report::pictures::{LEARNING, pictures};
use expctl_record::MeasuredJob;

/// A picture that a note shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Picture {
    /// Its file, relative to the note.
    pub file: String,
    /// One sentence for those who do not see it.
    pub alt: String,
    /// Class of the figures, n, and what else a reader must know.
    pub caption: String,
}

/// Folder of a note's pictures, as Dendron has it.
pub(super) fn folder(note: &Path) -> PathBuf {
    note.with_file_name("assets").join("images")
}

/// What a picture of a note begins its file name with.
pub(super) fn stem(note: &Path) -> String {
    note.file_stem().map_or_else(|| "note".into(), |stem| stem.to_string_lossy().into_owned())
}

/// The link of a picture of that file name, relative to the note.
pub(super) fn link(file: &str) -> String {
    format!("assets/images/{}", file.replace(' ', "%20"))
}

/// File name of the learning curves.
pub(super) fn learning(note: &Path) -> String {
    format!("{}_learning.svg", stem(note))
}

/// The pictures of a note, drawn and not yet written: a note that is refused leaves those of the last one alone.
pub(super) struct Pictures {
    shown: Vec<Picture>,
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl Pictures {
    /// Draw the pictures of a job for its note. The learning curves stand in their own section and are not among those shown.
    ///
    /// # Errors
    /// One that cannot be drawn.
    pub fn of(job: &MeasuredJob, note: &Path) -> Result<Self, Failure> {
        let (mut shown, mut files) = (Vec::new(), Vec::new());
        for chart in pictures(job) {
            let name = |ending: &str| format!("{}_{}.{ending}", stem(note), chart.name);
            let file = |ending: &str| folder(note).join(name(ending));
            files.push((file("svg"), plot::svg(&chart).map_err(Failure::internal)?.into_bytes()));
            files.push((file("png"), plot::png(&chart).map_err(Failure::internal)?));
            if chart.name != LEARNING {
                shown.push(Picture { file: link(&name("svg")), alt: chart.alt, caption: chart.caption });
            }
        }
        Ok(Self { shown, files })
    }

    /// Those for the template.
    pub fn shown(&self) -> &[Picture] {
        &self.shown
    }

    /// Write them.
    ///
    /// # Errors
    /// One that cannot be written.
    pub fn save(&self) -> Result<(), Failure> {
        for (path, content) in &self.files {
            expctl_record::write_atomic(path, content)?;
        }
        Ok(())
    }
}
