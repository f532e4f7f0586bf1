use std::path::{Path, PathBuf};

use expctl_record::write_atomic;

use super::content::body;
use super::page::page;
use super::plot::Plot;
use crate::exit::Failure;
use crate::ledger::MeasuredJob;
use crate::project::Project;
use crate::report::Picture;
use crate::report::note::generated;
use crate::report::pictures::{LEARNING, pictures};

/// Write the page of a job beside its note, with the note's name and `.html`, and give back where it is.
///
/// # Errors
/// Exit 3 for settings or a template of notes that is wrong; 70 for a page that cannot be made or written.
pub fn write_page(project: &Project, job: &MeasuredJob, note: &Path) -> Result<PathBuf, Failure> {
    let plots = pictures(job).into_iter().map(Plot::new).collect::<Result<Vec<_>, _>>().map_err(Failure::internal)?;
    // The learning curves stand in a section of their own.
    let shown = plots.iter().filter(|plot| plot.chart.name != LEARNING).map(|plot| Picture {
        file: plot.file(),
        alt: plot.chart.alt.clone(),
        caption: plot.chart.caption.clone(),
    });
    let markdown = generated(project, job, &shown.collect::<Vec<_>>())?;
    let page = page(&body(&markdown, &plots), &job.record).map_err(Failure::internal)?;
    let path = note.with_extension("html");
    write_atomic(&path, page.as_bytes())?;
    Ok(path)
}
