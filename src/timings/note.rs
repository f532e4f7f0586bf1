//! The note and the page of an analysis of batch times.

use std::path::{Path, PathBuf};

use expctl_charts::{Chart, Size, chart_files};
use expctl_text::{Frontmatter, GeneratedText, RegionError, RegionLayout, merge_regions, with_updated};

use super::analysis::Analysis;
use super::markdown::markdown;
use super::pictures::{charts, page_charts};
use crate::exit::{Exit, Failure};
use crate::report::html::write_markdown_page;

/// How the pictures of a note are written.
#[derive(Clone, Copy, Debug, Default)]
pub struct PictureFiles {
    /// Their size; `None` for the default.
    pub size: Option<Size>,
    /// Whether the data of each are also written as JSON, `<stem>_timings_<name>.json`.
    pub data: bool,
}

/// Write the note `<stem>_timings.md` and its pictures, `assets/images/<stem>_timings_<name>.svg` and `.png` beside it, into a
/// folder. Text that was written by hand around the generated sections of an existing note stays, byte for byte.
///
/// # Errors
/// Exit 3 for an existing note that cannot be updated, which then stays as it is; 70 for a file that cannot be written.
pub fn write_note(analysis: &Analysis, folder: &Path, stem: &str, files: PictureFiles) -> Result<PathBuf, Failure> {
    let stem = format!("{stem}_timings");
    let path = folder.join(format!("{stem}.md"));
    let charts = charts(analysis);
    let text = text(analysis, &charts, &path, &stem);
    let new = GeneratedText::parse(&text).map_err(|e| Failure::internal(format!("line {}: {e}", e.line())))?;
    let old = match std::fs::read(&path) {
        Ok(old) => Some(old),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => return Err(Failure::internal(format!("cannot read {}: {e}", path.display()))),
    };
    // The update is made before anything is written, because it may be refused.
    let update = match &old {
        None => new.new_note().into_bytes(),
        Some(old) => updated(old, &new, &path)?,
    };
    let images = folder.join("assets").join("images");
    for chart in &charts {
        for (name, content) in chart_files(chart, files.size, &stem).map_err(Failure::internal)? {
            expctl_ledger::write_atomic(&images.join(name), &content)?;
        }
        if files.data {
            expctl_ledger::write_json(&images.join(format!("{stem}_{}.json", chart.name)), chart)?;
        }
    }
    if old.as_ref() != Some(&update) {
        let update =
            if old.is_some() { with_updated(&update, jiff::Timestamp::now().as_millisecond()) } else { update };
        expctl_ledger::write_atomic(&path, &update)?;
    }
    Ok(path)
}

fn updated(old: &[u8], new: &GeneratedText<'_>, path: &Path) -> Result<Vec<u8>, Failure> {
    let wrong = |message: String| Failure::new(Exit::Config, message).hint("the note was left as it is");
    let damaged = |e: RegionError| wrong(format!("{}:{}: {e}", path.display(), e.line())).hint(e.remedy());
    let layout = RegionLayout::parse(old).map_err(damaged)?;
    if layout.note.is_none() {
        return Err(
            wrong(format!("{} is no note that expctl wrote", path.display())).hint("name another folder with --out")
        );
    }
    let merged = merge_regions(old, &layout, new, &[]);
    match merged.edited.first() {
        None => Ok(merged.text),
        Some((name, line)) => {
            let message = format!("{}:{line}: the section `{name}` was edited since it was generated", path.display());
            Err(wrong(message).hint("move your text out of the markers and remove what is left of the section"))
        }
    }
}

fn text(analysis: &Analysis, charts: &[Chart], path: &Path, stem: &str) -> String {
    let title = format!("Batch timings: {}", analysis.source.name);
    let mut text = format!("{}\n\n<!-- expctl:note 1 -->\n", Frontmatter::for_note(path).render(&title, ""));
    let link = |chart: &Chart| format!("assets/images/{stem}_{}.svg", chart.name);
    let pictures: Vec<String> = charts.iter().map(|chart| picture(chart, &link(chart))).collect();
    let all =
        markdown(analysis).into_iter().chain([("pictures", format!("### Pictures\n\n{}", pictures.join("\n\n")))]);
    for (name, body) in all {
        text.push_str(&format!("\n<!-- expctl:begin {name} -->\n\n{body}\n\n<!-- expctl:end {name} -->\n"));
    }
    text
}

/// Markdown of a picture whose file is at `link`, with its caption.
fn picture(chart: &Chart, link: &str) -> String {
    let alt = chart.alt.replace(['[', ']'], "");
    format!("![{alt}]({link})\n\n{}", chart.caption)
}

/// Write the page of a note beside it, with the note's name and `.html`: the same sections and pictures in one file, whose pictures show
/// batch, epoch and time under the pointer. Returns its path.
///
/// # Errors
/// Exit 70 for a page that cannot be written.
pub fn write_page(analysis: &Analysis, note: &Path) -> Result<PathBuf, Failure> {
    let charts = page_charts(analysis);
    let sections = markdown(analysis).into_iter().map(|(_, text)| text).filter(|text| !text.is_empty());
    let pictures = charts.iter().map(|of_page| picture(&of_page.chart, &of_page.link()));
    let text: Vec<String> = sections.chain(["### Pictures".to_owned()]).chain(pictures).collect();
    let source = format!("batch timings of {}", analysis.source.name);
    write_markdown_page(note.with_extension("html"), &text.join("\n\n"), charts, &source)
}
