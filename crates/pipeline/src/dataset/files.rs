use std::collections::BTreeMap;
use std::fs::Metadata;
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

/// blake3 of a file, with progress in bytes; of a folder that of the files in it, each behind its path in the folder and its
/// length (u64, little-endian).
pub(crate) fn blake3_of(
    path: &Path,
    mut advance: impl FnMut(u64) -> Result<(), PipelineError>,
) -> Result<String, PipelineError> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    for (inside, about) in files_of(path)? {
        let file = if about.is_folder { path.join(&inside) } else { path.to_owned() };
        if about.is_folder {
            hasher.update(inside.as_os_str().as_encoded_bytes()).update(&[0]).update(&about.bytes.to_le_bytes());
        }
        let mut open = std::fs::File::open(&file).map_err(PipelineError::io("read", &file))?;
        loop {
            let n = open.read(&mut buffer).map_err(PipelineError::io("read", &file))?;
            if n == 0 {
                break;
            }
            hasher.update(&buffer[..n]);
            advance(n as u64)?;
        }
    }
    Ok(hasher.finalize().to_hex().to_string())
}

/// A file of a data set, or one in a folder that stands for a file.
struct About {
    is_folder: bool,
    bytes: u64,
    allocated: u64,
}

/// The file itself, or all files below a folder, by their paths in it.
fn files_of(path: &Path) -> Result<BTreeMap<PathBuf, About>, PipelineError> {
    let about = path.metadata().map_err(PipelineError::io("read", path))?;
    let mut found = BTreeMap::new();
    let mut folders = vec![PathBuf::new()];
    // st_blocks counts units of 512 bytes whatever the file system's block size.
    let of = |about: &Metadata, is_folder| About { is_folder, bytes: about.len(), allocated: about.blocks() * 512 };
    if !about.is_dir() {
        found.insert(PathBuf::new(), of(&about, false));
        return Ok(found);
    }
    while let Some(folder) = folders.pop() {
        let at = path.join(&folder);
        for entry in std::fs::read_dir(&at).map_err(PipelineError::io("read", &at))? {
            let entry = entry.map_err(PipelineError::io("read", &at))?;
            let inside = folder.join(entry.file_name());
            let about = entry.metadata().map_err(PipelineError::io("read", &entry.path()))?;
            if about.is_dir() {
                folders.push(inside);
            } else {
                found.insert(inside, of(&about, true));
            }
        }
    }
    Ok(found)
}

/// Bytes of a file, or of all files below a folder, and what they take on the disk.
pub(crate) fn size_of(path: &Path) -> Result<(u64, u64), PipelineError> {
    let files = files_of(path)?;
    Ok(files.values().fold((0, 0), |(bytes, allocated), file| (bytes + file.bytes, allocated + file.allocated)))
}

/// Remove a file, or a folder with all that is in it.
pub(crate) fn remove(path: &Path) -> std::io::Result<()> {
    if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }
}

/// Size and checksum of each of `paths` in `folder`.
pub(crate) fn checksums(folder: &Path, paths: &[String], to: &mut Report<'_>) -> Result<Vec<FileInfo>, PipelineError> {
    let total = paths.iter().map(|path| Ok(size_of(&folder.join(path))?.0)).sum::<Result<u64, PipelineError>>()?;
    let mut done = 0;
    paths
        .iter()
        .map(|path| {
            let blake3 = blake3_of(&folder.join(path), |n| {
                done += n;
                report(to, "checksum", done, total)
            })?;
            let (bytes, allocated_bytes) = size_of(&folder.join(path))?;
            Ok(FileInfo { path: path.clone(), bytes, allocated_bytes, blake3 })
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
