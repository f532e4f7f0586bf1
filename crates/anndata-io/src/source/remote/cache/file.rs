use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::BLOCK;
use super::layout::{HEADER, Layout};
use super::locked::{Locked, share};
use crate::AnnDataError;

/// What the file of a cache begins with; another one is written anew.
const MAGIC: &[u8; 16] = b"expctl cache 1\n\0";

/// What files of caches are called.
const PREFIX: &str = "blocks-";
const SUFFIX: &str = ".cache";

/// The open files of a cache.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) path: PathBuf,
    pub(super) blocks: File,
    /// Locked by whoever writes.
    pub(super) writer: File,
}

/// Open the cache in `folder`, or make it; files of caches of another size that nobody uses go.
///
/// # Errors
/// The folder cannot be made or written to, or is another user's; another process makes it and does not come to an end.
pub(super) fn open(folder: &Path, layout: &Layout) -> Result<Files, AnnDataError> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(AnnDataError::io("create", folder))?;
    let about = folder.metadata().map_err(AnnDataError::io("inspect", folder))?;
    if about.uid() != nix::unistd::geteuid().as_raw() {
        let reason =
            "belongs to another user, who could change what is kept in it; set array.cache_dir to an own folder";
        return Err(AnnDataError::damaged(folder, reason));
    }
    let writer = open_file(&folder.join("lock"))?;
    let locked = Locked::soon(&writer).map_err(AnnDataError::io("lock", &folder.join("lock")))?;
    let path = folder.join(format!("{PREFIX}{}{SUFFIX}", layout.bytes()));
    let blocks = open_file(&path)?;
    prepare(&blocks, layout).map_err(AnnDataError::io("write", &path))?;
    share(&blocks).map_err(AnnDataError::io("lock", &path))?;
    remove_others(folder, &path);
    drop(locked);
    Ok(Files { path, blocks, writer })
}

fn open_file(path: &Path) -> Result<File, AnnDataError> {
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    options.map_err(AnnDataError::io("open", path))
}

/// Write the header if it is not there; the file has its length, and takes as much of the disk as is written to it.
fn prepare(file: &File, layout: &Layout) -> io::Result<()> {
    let mut header = [0; 40];
    header[..16].copy_from_slice(MAGIC);
    header[16..24].copy_from_slice(&BLOCK.to_le_bytes());
    header[24..32].copy_from_slice(&layout.sets.to_le_bytes());
    header[32..40].copy_from_slice(&HEADER.to_le_bytes());
    let mut found = [0; 40];
    let is_one = file.metadata()?.len() == layout.bytes() && file.read_exact_at(&mut found, 0).is_ok();
    if !is_one || found != header {
        file.set_len(0)?;
        file.set_len(layout.bytes())?;
        file.write_all_at(&header, 0)?;
    }
    Ok(())
}

/// What cannot be removed stays: it is only room.
fn remove_others(folder: &Path, own: &Path) {
    let Ok(entries) = folder.read_dir() else { return };
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| path != own) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with(PREFIX) || !name.ends_with(SUFFIX) {
            continue;
        }
        let Ok(file) = File::open(&path) else { continue };
        if Locked::now(&file).is_ok() {
            let _ = std::fs::remove_file(&path);
        }
    }
}
