use std::path::Path;

use expctl_record::StoreKind;

use super::files::{Report, STORE_FOLDER, STORES_FOLDER, blake3_of, report};
use super::graph_file::{self, GRAPH_FILE};
use super::store_manifest::CONVERTED;
use super::{BuildProgress, Dataset, FileInfo};
use crate::PipelineError;
use crate::store::LmdbStore;

/// Compare a built data set and the stores made from it with their manifests: sizes and checksums of all files, counts of
/// genes, edges and records.
/// Returns what is wrong, a line each; empty if nothing is.
pub fn verify(
    folder: &Path,
    progress: &mut dyn FnMut(BuildProgress) -> std::ops::ControlFlow<()>,
) -> Result<Vec<String>, PipelineError> {
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
    // What is known to be damaged is not looked into.
    if !problems.is_empty() {
        return Ok(problems);
    }
    // To verify is what they advise.
    if let Err(e) = dataset.genes() {
        problems.push(e.cause().to_string());
    }
    if let Err(e) = dataset.sample_genes() {
        problems.push(e.cause().to_string());
    }
    let shapes = graph_file::shapes(&folder.join(GRAPH_FILE))?;
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
) -> Result<(), PipelineError> {
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
