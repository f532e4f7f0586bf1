//! `verify_graph` and `verify_array` compare a built data set, and what was converted from it, with the manifests.
//! Invariant: a damaged file is a line of the result and not an error.

use std::path::{Path, PathBuf};

use expctl_settings::{ArrayFormat, StoreKind};
use graph_loader::LmdbStore;

use crate::DatasetError;
use crate::array::{ArrayDataset, ArrayFile, check_content};
use crate::build_folder::{BuildProgress, Report, STORE_FOLDER, STORES_FOLDER, blake3_of, bytes_of, report};
use crate::graph::graph_file::{GRAPH_FILE, shapes};
use crate::graph::{CONVERTED, Dataset};
use crate::manifest::FileInfo;

/// Compare a built data set and the stores made from it with their manifests: sizes and checksums of all files, counts of
/// genes, edges and records.
/// Returns what is wrong, a line each; empty if nothing is.
pub fn verify_graph(
    folder: &Path,
    progress: &mut dyn FnMut(BuildProgress) -> std::ops::ControlFlow<()>,
) -> Result<Vec<String>, DatasetError> {
    let dataset = Dataset::open(folder)?;
    let manifest = dataset.manifest();
    let mut problems = Vec::new();
    let mut stores = Vec::new();
    for kind in StoreKind::ALL.into_iter().filter(|kind| *kind != StoreKind::Json) {
        match dataset.converted(kind) {
            Ok(Some(manifest)) => stores.push(manifest),
            Ok(None) => {}
            Err(e) => problems.push(e.to_string()),
        }
    }
    // Each file under its path inside the data set.
    let converted = stores.iter().map(|store| FileInfo {
        path: format!("{STORES_FOLDER}/{}/{}", store.kind.name(), store.file.path),
        ..store.file.clone()
    });
    let files: Vec<FileInfo> = manifest.files.iter().cloned().chain(converted).collect();
    check_files(folder, &files, &mut problems, progress)?;
    // Damaged files are not opened.
    if !problems.is_empty() {
        return Ok(problems);
    }
    // The advice of these errors is to verify the data set, which is being done.
    if let Err(e) = dataset.genes() {
        problems.push(e.cause().to_string());
    }
    if let Err(e) = dataset.sample_genes() {
        problems.push(e.cause().to_string());
    }
    let shapes = shapes(&folder.join(GRAPH_FILE))?;
    let networks = manifest.networks.iter().map(|n| (format!("edge_index/{}", n.name), n.edges));
    let bipartite = [("hyperedge_index/gpr", manifest.bipartite.gpr), ("hyperedge_index/rmr", manifest.bipartite.rmr)];
    for (name, edges) in networks.chain(bipartite.map(|(name, edges)| (name.to_owned(), edges))) {
        match shapes.get(&name) {
            Some(shape) if *shape == [2, edges as usize] => {}
            Some(shape) => problems.push(format!("{GRAPH_FILE}: {name} has shape {shape:?}, not [2, {edges}]")),
            None => problems.push(format!("{GRAPH_FILE}: {name} is missing")),
        }
    }
    let records = dataset.store()?.len();
    for (what, expected) in [("store", manifest.store.records), ("samples", manifest.samples.count)] {
        if records != expected {
            problems.push(format!("{STORE_FOLDER}: {records} records, but the manifest says {expected} ({what})"));
        }
    }
    for store in &stores {
        let folder = dataset.store_folder(store.kind).join(CONVERTED);
        match LmdbStore::open(&folder) {
            Ok(open) if open.len() == store.store.records && open.len() == manifest.samples.count => {}
            Ok(open) => problems.push(format!(
                "{}: {} records, but its manifest says {} and the data set has {}",
                folder.display(),
                open.len(),
                store.store.records,
                manifest.samples.count
            )),
            Err(e) => problems.push(e.to_string()),
        }
    }
    Ok(problems)
}

/// Compare files with their sizes and checksums.
fn check_files(
    folder: &Path,
    files: &[FileInfo],
    problems: &mut Vec<String>,
    progress: &mut Report<'_>,
) -> Result<(), DatasetError> {
    let (mut done, total) = (0, files.iter().map(|file| file.bytes).sum());
    for file in files {
        let path = folder.join(&file.path);
        match path.metadata() {
            Err(e) => problems.push(format!("{}: {e}", file.path)),
            Ok(meta) if meta.len() != file.bytes => {
                problems.push(format!("{}: {} bytes instead of {}", file.path, meta.len(), file.bytes));
            }
            Ok(_) => {
                let found = blake3_of(&path, |n| {
                    done += n;
                    report(progress, "checksum", done, total)
                })?;
                if found != file.blake3 {
                    problems.push(format!("{}: checksum {found} instead of {}", file.path, file.blake3));
                }
            }
        }
    }
    Ok(())
}

/// Compare a built data set and the files made from it with their manifests: sizes and checksums of all files, and the rows of
/// the base files. Returns what is wrong, a line each; empty if nothing is.
///
/// # Errors
/// There is no data set; it was stopped; a file cannot be read for a reason that is not in it.
pub fn verify_array(
    folder: &Path,
    jobs: usize,
    progress: &mut dyn FnMut(BuildProgress) -> std::ops::ControlFlow<()>,
) -> Result<Vec<String>, DatasetError> {
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
            Err(DatasetError::Stopped) => return Err(DatasetError::Stopped),
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
            Err(DatasetError::Stopped) => return Err(DatasetError::Stopped),
            Err(e) => problems.push(format!("{}: {e}", inside.display())),
            Ok(Some(wrong)) => problems.push(format!("{}: {wrong}", inside.display())),
            Ok(None) => {}
        }
        done += file.rows;
    }
    Ok(problems)
}
