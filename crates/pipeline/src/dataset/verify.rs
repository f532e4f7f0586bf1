use std::path::Path;

use super::files::{STORE_FOLDER, blake3_of, report};
use super::graph_file::{self, GRAPH_FILE};
use super::{BuildProgress, Dataset};
use crate::PipelineError;

/// Compare a built data set with its manifest: sizes and checksums of all files, counts of genes, edges and records.
/// Returns what is wrong, a line each; empty if nothing is.
pub fn verify(
    folder: &Path,
    progress: &mut dyn FnMut(BuildProgress) -> std::ops::ControlFlow<()>,
) -> Result<Vec<String>, PipelineError> {
    let dataset = Dataset::open(folder)?;
    let manifest = dataset.manifest();
    let mut problems = Vec::new();
    let (mut done, total) = (0, manifest.bytes());
    for file in &manifest.files {
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
    // LMDB follows page numbers in the file blindly, so a damaged store is not opened.
    if !problems.is_empty() {
        return Ok(problems);
    }
    if let Err(e) = dataset.genes() {
        problems.push(e.to_string());
    }
    if let Err(e) = dataset.sample_genes() {
        problems.push(e.to_string());
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
    Ok(problems)
}
