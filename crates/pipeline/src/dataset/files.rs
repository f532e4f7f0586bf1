use std::io::Read;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::FileInfo;
use crate::PipelineError;

/// How far a build or a verification is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildProgress {
    /// What is being done: `graph` (networks), `samples` or `check` (records), or `checksum` (bytes).
    pub phase: &'static str,
    /// How much of it is done.
    pub done: u64,
    /// Out of how much.
    pub total: u64,
}

/// Who is told about progress; `Break` stops the work.
pub(crate) type Report<'a> = dyn FnMut(BuildProgress) -> ControlFlow<()> + 'a;

/// Tell how far a phase is, and stop if that is asked for.
pub(crate) fn report(to: &mut Report<'_>, phase: &'static str, done: u64, total: u64) -> Result<(), PipelineError> {
    match to(BuildProgress { phase, done, total }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(PipelineError::Stopped),
    }
}

/// The one file of an LMDB store.
pub(crate) const DATA_FILE: &str = "data.mdb";
/// The LMDB store inside a data set.
pub(crate) const STORE_FOLDER: &str = "processed/lmdb";
/// Folder of the stores that were made from it.
pub(crate) const STORES_FOLDER: &str = "stores";
/// The gene names inside a data set, one a line, in the order of their indices.
pub(crate) const GENES_FILE: &str = "genes.txt";

/// blake3 of a file, with progress in bytes.
pub(crate) fn blake3_of(
    path: &Path,
    mut advance: impl FnMut(u64) -> Result<(), PipelineError>,
) -> Result<String, PipelineError> {
    let mut file = std::fs::File::open(path).map_err(PipelineError::io("read", path))?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut buffer).map_err(PipelineError::io("read", path))?;
        if n == 0 {
            return Ok(hasher.finalize().to_hex().to_string());
        }
        hasher.update(&buffer[..n]);
        advance(n as u64)?;
    }
}

/// Size and checksum of each of `paths` in `folder`.
pub(crate) fn checksums(folder: &Path, paths: &[String], to: &mut Report<'_>) -> Result<Vec<FileInfo>, PipelineError> {
    let stat = |path: &String| {
        let path = folder.join(path);
        path.metadata().map_err(PipelineError::io("read", &path))
    };
    let total = paths.iter().map(|path| Ok(stat(path)?.len())).sum::<Result<u64, PipelineError>>()?;
    let mut done = 0;
    paths
        .iter()
        .map(|path| {
            let blake3 = blake3_of(&folder.join(path), |n| {
                done += n;
                report(to, "checksum", done, total)
            })?;
            let meta = stat(path)?;
            // st_blocks counts units of 512 bytes whatever the file system's block size.
            Ok(FileInfo { path: path.clone(), bytes: meta.len(), allocated_bytes: meta.blocks() * 512, blake3 })
        })
        .collect()
}

/// Bytes that an ordinary user may still write where `folder` lies.
pub(crate) fn free_bytes(folder: &Path) -> Result<u64, PipelineError> {
    let disk = nix::sys::statvfs::statvfs(folder).map_err(|e| PipelineError::io("inspect", folder)(e.into()))?;
    // The types of these fields differ between platforms.
    #[allow(clippy::unnecessary_cast)]
    Ok(disk.blocks_available() as u64 * disk.fragment_size() as u64)
}

/// Fail before anything is written if the disk of `folder` cannot hold so many bytes more.
pub(crate) fn room(folder: &Path, needed: u64) -> Result<(), PipelineError> {
    let free = free_bytes(folder)?;
    if needed <= free {
        return Ok(());
    }
    let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
    let reason = format!("{:.2} GiB are needed, {:.2} GiB are free", gib(needed), gib(free));
    Err(PipelineError::io("build", folder)(std::io::Error::new(std::io::ErrorKind::StorageFull, reason)))
}
