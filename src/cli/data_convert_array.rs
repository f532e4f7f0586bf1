use std::path::{Path, PathBuf};

use expctl_datasets::array::{ArrayDataset, ConvertOptions};
use expctl_datasets::{DatasetError, array};
use expctl_record::ArrayFormat;
use indicatif::HumanCount;

use super::build_bar::BuildBar;
use super::data::{GOES_ON, failure};
use super::{out, say};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::report::format;

/// Make the files of a format if they are not there, with progress on stderr.
pub(super) fn convert(
    dataset: &ArrayDataset,
    format: ArrayFormat,
    options: &ConvertOptions,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let new = !dataset.has(format);
    let mut progress = BuildBar::new(interrupt);
    let manifest = array::convert(dataset, format, options, &mut |p| progress.show(p)).map_err(|e| match e {
        DatasetError::Stopped => {
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
    let made = array::convert_files(sources, format, shuffle, options, folder, &mut |p| progress.show(p));
    let made = made.map_err(|e| match e {
        DatasetError::Stopped => {
            let message = "stopped before all files were made; those that are there are complete";
            Failure::new(Exit::Incomplete, message)
        }
        e => failure(&e),
    })?;
    progress.finish();
    made.iter().for_each(|path| out(path.display()));
    Ok(())
}
