use std::path::{Path, PathBuf};

use expctl_record::write_atomic;

use super::chart::Chart;
use super::error::PlotError;
use super::size::Size;
use super::{png_sized, svg_sized};

/// The files of a picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// For readers that show SVG: markdown viewers, browsers.
    pub svg: PathBuf,
    /// For all others.
    pub png: PathBuf,
}

/// Write `<stem>_<name>.svg` and `.png` into a folder, each as a whole or not at all.
///
/// # Errors
/// A chart without panels; a file that cannot be written.
pub fn save(chart: &Chart, folder: &Path, stem: &str) -> Result<Saved, PlotError> {
    save_sized(chart, None, folder, stem)
}

/// The same with a size, where one was asked for.
///
/// # Errors
/// As [`save`].
pub fn save_sized(chart: &Chart, size: Option<Size>, folder: &Path, stem: &str) -> Result<Saved, PlotError> {
    let file = |ending: &str| folder.join(format!("{stem}_{}.{ending}", chart.name));
    let saved = Saved { svg: file("svg"), png: file("png") };
    // Both are drawn before either is written.
    let (text, pixels) = (svg_sized(chart, size)?, png_sized(chart, size)?);
    write_atomic(&saved.svg, text.as_bytes())?;
    write_atomic(&saved.png, &pixels)?;
    Ok(saved)
}
