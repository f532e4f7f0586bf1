use std::path::{Path, PathBuf};

use expctl_pipeline::PipelineError;
use expctl_pipeline::array::dataset::{self, ArrayDataset, ConvertOptions};
use expctl_record::ArrayFormat;
use expctl_text::format;
use indicatif::HumanCount;

use super::build_bar::BuildBar;
use super::data::{GOES_ON, failure};
use super::{out, say};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;

/// Make the files of a format if they are not there, with progress on stderr.
pub(super) fn convert(
    dataset: &ArrayDataset,
    format: ArrayFormat,
    options: &ConvertOptions,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let new = !dataset.has(format);
    let mut progress = BuildBar::new(interrupt);
    let manifest = dataset::convert(dataset, format, options, &mut |p| progress.show(p)).map_err(|e| match e {
        PipelineError::Stopped => {
            let message = format_args!("stopped before all files were made: {}", format.name());
            Failure::new(Exit::Incomplete, message).hint(GOES_ON)
        }
        e => failure(&e),
    })?;
    progress.finish();
    if new {
        say(format_args!(
            "{}: {} rows in {}, {} in {:.1} s: {}",
            format.name(),
            HumanCount(manifest.files.iter().map(|file| file.rows).sum()),
            format::count(manifest.files.len() as u64, "file"),
            format::bytes(manifest.bytes() as f64),
            manifest.build_seconds,
            dataset.store_folder(format).display()
        ));
    }
    Ok(())
}

/// Convert files that belong to no data set; their paths on stdout.
pub(super) fn files(
    sources: &[PathBuf],
    format: ArrayFormat,
    shuffle: bool,
    options: &ConvertOptions,
    folder: &Path,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let mut progress = BuildBar::new(interrupt);
    let made = dataset::convert_files(sources, format, shuffle, options, folder, &mut |p| progress.show(p));
    let made = made.map_err(|e| match e {
        PipelineError::Stopped => {
            let message = "stopped before all files were made; those that are there are complete";
            Failure::new(Exit::Incomplete, message)
        }
        e => failure(&e),
    })?;
    progress.finish();
    made.iter().for_each(|path| out(path.display()));
    Ok(())
}
