use std::path::{Path, PathBuf};

use expctl_record::{MeasuredJob, write_atomic};
use minijinja::HtmlEscape;

use super::content::body;
use super::page::page;
use super::plot::{PageChart, Plot};
use crate::console::say;
use crate::exit::Failure;
use crate::project::Project;
use crate::report::Picture;
use crate::report::note::{NoteOptions, generated, submission};
use crate::report::pictures::{LEARNING, pictures};

/// Write the page of a job beside its note, with the note's name and `.html`, and give back where it is; `options` are those
/// that the note was written with. A file of that name that is not the page of this submission stays as it is: the page is
/// `<name>-2.html` then (`-3`, …), which is said on stderr.
///
/// # Errors
/// Exit 3 for settings or a template of notes that is wrong; 70 for a page that cannot be made or written.
pub fn write_page(
    project: &Project,
    job: &MeasuredJob,
    note: &Path,
    options: &NoteOptions,
) -> Result<PathBuf, Failure> {
    let plots = pictures(job).into_iter().map(Plot::new).collect::<Result<Vec<_>, _>>().map_err(Failure::internal)?;
    // The learning curves stand in a section of their own.
    let shown = plots.iter().filter(|plot| plot.chart.name != LEARNING).map(|plot| Picture {
        file: plot.file(),
        alt: plot.chart.alt.clone(),
        caption: plot.chart.caption.clone(),
    });
    let markdown = generated(project, job, note, &shown.collect::<Vec<_>>(), options)?;
    let of = Of { name: &job.record.config, identity: &submission(&job.record), words: "this submission" };
    put(note.with_extension("html"), &markdown, &plots, &of)
}

/// Write markdown with its charts, which it links by [`PageChart::link`], as one page at `path`, and give back where it is. The page is known
/// again by `source`, what it is of: a file at `path` that is not the page of the same source stays as it is, and the page is
/// `<name>-2.html` then (`-3`, …), which is said on stderr.
///
/// # Errors
/// Exit 70 for a page that cannot be made or written.
pub fn write_markdown_page(
    path: PathBuf,
    markdown: &str,
    charts: Vec<PageChart>,
    source: &str,
) -> Result<PathBuf, Failure> {
    let plots = charts.into_iter().map(Plot::new).collect::<Result<Vec<_>, _>>().map_err(Failure::internal)?;
    put(path, markdown, &plots, &Of { name: source, identity: source, words: "this source" })
}

/// What a page is of.
struct Of<'a> {
    /// Its title where the note has no heading.
    name: &'a str,
    /// What tells it from other pages.
    identity: &'a str,
    /// What that is of, in words.
    words: &'a str,
}

fn put(first: PathBuf, markdown: &str, plots: &[Plot], of: &Of<'_>) -> Result<PathBuf, Failure> {
    // The line by which the page is known again.
    let mark = format!("<meta name=\"expctl-page\" content=\"{}\">", HtmlEscape(of.identity));
    let page = page(&body(markdown, plots), of.name, &mark).map_err(Failure::internal)?;
    let path = own_or_free(&first, &mark)?;
    if path != first {
        let (first, path) = (first.display(), path.display());
        say(format!("{first} is not the page of {} and stays as it is; writing {path}", of.words));
    }
    write_atomic(&path, page.as_bytes())?;
    Ok(path)
}

/// `first`, or the next name with a number, where nothing stands that has not the mark.
fn own_or_free(first: &Path, mark: &str) -> Result<PathBuf, Failure> {
    let stem = first.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut path = first.to_owned();
    for n in 2u32.. {
        match std::fs::read(&path) {
            Ok(text) if String::from_utf8_lossy(&text).lines().any(|line| line == mark) => break,
            Ok(_) => path = first.with_file_name(format!("{stem}-{n}.html")),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => break,
            Err(e) => return Err(Failure::internal(format!("cannot read {}: {e}", path.display()))),
        }
    }
    Ok(path)
}
