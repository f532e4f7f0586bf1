use std::path::Path;

use super::pictures;
use crate::exit::Failure;
use crate::ledger::MeasuredJob;
use crate::plot;

/// A picture beside a note, as the note's template sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// What it is of: the chart's name.
    pub name: String,
    /// Heading.
    pub title: String,
    /// Name of the SVG file, in the note's folder.
    pub file: String,
    /// The same as PNG.
    pub png: String,
    /// One sentence for those who do not see it.
    pub alt: String,
    /// Class of the figures, n, what is shown.
    pub caption: String,
}

impl Picture {
    /// For a template.
    pub fn value(&self) -> minijinja::Value {
        let Self { name, title, file, png, alt, caption } = self;
        minijinja::context! { name, title, file, png, alt, caption }
    }
}

/// Draw all pictures of a job as files `<stem of the note>_<name>.svg` and `.png` beside its note.
///
/// # Errors
/// Exit 70 for a picture that cannot be drawn or written.
pub fn write(job: &MeasuredJob, note: &Path) -> Result<Vec<Picture>, Failure> {
    let folder = note.parent().unwrap_or(Path::new("."));
    let stem = note.file_stem().map_or_else(|| "note".into(), |stem| stem.to_string_lossy());
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    pictures(job)
        .into_iter()
        .map(|chart| {
            let saved = plot::save(&chart, folder, &stem).map_err(Failure::internal)?;
            let (file, png) = (name(&saved.svg), name(&saved.png));
            Ok(Picture { name: chart.name, title: chart.title, file, png, alt: chart.alt, caption: chart.caption })
        })
        .collect()
}
