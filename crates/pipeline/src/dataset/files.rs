use std::io::Read;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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

/// blake3 of a file, with progress in bytes; of a folder (zarr, MDS), over the paths of its files, their lengths and their bytes.
pub(crate) fn blake3_of(
    path: &Path,
    mut advance: impl FnMut(u64) -> Result<(), PipelineError>,
) -> Result<String, PipelineError> {
    let mut hasher = blake3::Hasher::new();
    if !path.is_dir() {
        hash_file(path, &mut hasher, &mut advance)?;
        return Ok(hasher.finalize().to_hex().to_string());
    }
    for inside in files_in(path)? {
        let (name, file) = (inside.to_string_lossy(), path.join(&inside));
        let bytes = file.metadata().map_err(PipelineError::io("read", &file))?.len();
        hasher.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes()).update(&bytes.to_le_bytes());
        hash_file(&file, &mut hasher, &mut advance)?;
    }
    Ok(hasher.finalize().to_hex().to_string())
}

fn hash_file(
    path: &Path,
    hasher: &mut blake3::Hasher,
    advance: &mut impl FnMut(u64) -> Result<(), PipelineError>,
) -> Result<(), PipelineError> {
    let mut file = std::fs::File::open(path).map_err(PipelineError::io("read", path))?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut buffer).map_err(PipelineError::io("read", path))?;
        if n == 0 {
            return Ok(());
        }
        hasher.update(&buffer[..n]);
        advance(n as u64)?;
    }
}

/// Bytes of a file and of the blocks that it takes; of a folder, those of all files in it.
///
/// # Errors
/// It is not there, or cannot be looked at.
pub(crate) fn bytes_of(path: &Path) -> Result<(u64, u64), PipelineError> {
    // st_blocks counts units of 512 bytes whatever the file system's block size.
    let of = |path: &Path| {
        let about = path.metadata().map_err(PipelineError::io("read", path))?;
        Ok((about.len(), about.blocks() * 512, about.is_dir()))
    };
    let (bytes, allocated, folder) = of(path)?;
    if !folder {
        return Ok((bytes, allocated));
    }
    files_in(path)?.iter().try_fold((0, 0), |sum, inside| {
        let (bytes, allocated, _) = of(&path.join(inside))?;
        Ok((sum.0 + bytes, sum.1 + allocated))
    })
}

/// Paths of all files in a folder, from there, sorted.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>, PipelineError> {
    let (mut files, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(inside) = folders.pop() {
        let at = folder.join(&inside);
        for entry in std::fs::read_dir(&at).map_err(PipelineError::io("read", &at))? {
            let entry = entry.map_err(PipelineError::io("read", &at))?;
            let path = inside.join(entry.file_name());
            let is_folder = entry.file_type().map_err(PipelineError::io("read", &at))?.is_dir();
            if is_folder { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    Ok(files)
}

/// Size and checksum of each of `paths` in `folder`, files or folders.
pub(crate) fn checksums(folder: &Path, paths: &[String], to: &mut Report<'_>) -> Result<Vec<FileInfo>, PipelineError> {
    let stat = |path: &String| bytes_of(&folder.join(path));
    let total = paths.iter().map(|path| Ok(stat(path)?.0)).sum::<Result<u64, PipelineError>>()?;
    let mut done = 0;
    paths
        .iter()
        .map(|path| {
            let blake3 = blake3_of(&folder.join(path), |n| {
                done += n;
                report(to, "checksum", done, total)
            })?;
            let (bytes, allocated_bytes) = stat(path)?;
            Ok(FileInfo { path: path.clone(), bytes, allocated_bytes, blake3 })
        })
        .collect()
}

/// Bytes that an ordinary user may still write where `folder` lies.
///
/// # Errors
/// It is not there, or its file system does not say.
pub fn free_bytes(folder: &Path) -> Result<u64, PipelineError> {
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
