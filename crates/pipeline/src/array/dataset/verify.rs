use std::path::{Path, PathBuf};

use expctl_record::ArrayFormat;

use super::convert::check_content;
use super::{ArrayDataset, ArrayFile};
use crate::PipelineError;
use crate::dataset::BuildProgress;
use crate::dataset::files::{blake3_of, bytes_of, report};

/// Compare a built data set and the files made from it with their manifests: sizes and checksums of all files, and the rows of
/// the base files. Returns what is wrong, a line each; empty if nothing is.
///
/// # Errors
/// There is no data set; it was stopped; a file cannot be read for a reason that is not in it.
pub fn verify(
    folder: &Path,
    jobs: usize,
    progress: &mut dyn FnMut(BuildProgress) -> std::ops::ControlFlow<()>,
) -> Result<Vec<String>, PipelineError> {
    let dataset = ArrayDataset::open(folder)?;
    let mut problems = Vec::new();
    let base = dataset.manifest().files.iter().map(|file| (PathBuf::new(), file.clone(), ArrayFormat::H5ad));
    let mut files: Vec<(PathBuf, ArrayFile, ArrayFormat)> = base.collect();
    for format in ArrayFormat::ALL.into_iter().filter(|format| *format != ArrayFormat::H5ad) {
        match dataset.converted(format) {
            Ok(None) => {}
            Ok(Some(manifest)) => {
                let inside = ArrayDataset::store_folder_in(Path::new(""), format);
                files.extend(manifest.files.into_iter().map(|file| (inside.clone(), file, format)));
            }
            Err(e) => problems.push(e.cause().to_string()),
        }
    }
    let total = files.iter().map(|(_, file, _)| file.file.bytes).sum();
    let mut done = 0;
    let mut sound = Vec::new();
    for (inside, file, format) in files {
        let inside = inside.join(&file.file.path);
        let path = folder.join(&inside);
        let found = bytes_of(&path).and_then(|(bytes, _)| {
            if bytes != file.file.bytes {
                return Ok(format!("{bytes} bytes, but the manifest says {}", file.file.bytes));
            }
            let blake3 = blake3_of(&path, |n| {
                done += n;
                report(progress, "checksum", done, total)
            })?;
            let expected = &file.file.blake3;
            Ok(if blake3 == *expected { String::new() } else { format!("checksum {blake3}, not {expected}") })
        });
        match found {
            Err(PipelineError::Stopped) => return Err(PipelineError::Stopped),
            Err(e) => problems.push(format!("{}: {e}", inside.display())),
            Ok(wrong) if !wrong.is_empty() => problems.push(format!("{}: {wrong}", inside.display())),
            Ok(_) if format == ArrayFormat::H5ad => sound.push((inside, file)),
            Ok(_) => {}
        }
    }
    let (mut done, total) = (0, sound.iter().map(|(_, file)| file.rows).sum());
    for (inside, file) in sound {
        let passed = |n| report(progress, "check", done + n, total);
        match check_content(&folder.join(&inside), &file, jobs, passed) {
            Err(PipelineError::Stopped) => return Err(PipelineError::Stopped),
            Err(e) => problems.push(format!("{}: {e}", inside.display())),
            Ok(Some(wrong)) => problems.push(format!("{}: {wrong}", inside.display())),
            Ok(None) => {}
        }
        done += file.rows;
    }
    Ok(problems)
}
