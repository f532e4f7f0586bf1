use std::path::{Path, PathBuf};

use super::note::picture;
use super::{Analysis, markdown, page_charts};
use crate::exit::Failure;
use crate::report::html::write_markdown_page;

/// Write the page of a note beside it, with the note's name and `.html`: the same sections and pictures in one file, whose pictures tell
/// batch, epoch and time where the pointer is. Gives back where it is.
///
/// # Errors
/// Exit 70 for a page that cannot be made or written.
pub fn write_page(analysis: &Analysis, note: &Path) -> Result<PathBuf, Failure> {
    let charts = page_charts(analysis);
    let sections = markdown(analysis).into_iter().map(|(_, text)| text).filter(|text| !text.is_empty());
    let pictures = charts.iter().map(|of_page| picture(&of_page.chart, &of_page.link()));
    let text: Vec<String> = sections.chain(["### Pictures".to_owned()]).chain(pictures).collect();
    let source = format!("batch timings of {}", analysis.source.name);
    write_markdown_page(note.with_extension("html"), &text.join("\n\n"), charts, &source)
}
